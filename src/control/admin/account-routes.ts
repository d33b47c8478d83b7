import type { FastifyInstance } from 'fastify';
import { residualOf } from '../../core/ledger/ledger.ts';
import type { AdminContext } from './context.ts';
import { problem } from './problem.ts';
import type { StockRow } from './source.ts';
import { toWire } from './wire.ts';

/** The accounts: what came in and where it went, and every unit of stock. Both are read at the moment. */
export function registerAccountRoutes(app: FastifyInstance, context: AdminContext): void {
  const { accounts } = context.deps;

  app.get('/admin/v1/ledger', (request, reply) => {
    if (context.admit(request, reply, 'viewer') === undefined) return reply;
    if (accounts === undefined) return problem(reply, 404, 'NOT_FOUND', 'No ledger here.');
    const snapshot = accounts.ledger();
    return reply.send({ ...(toWire(snapshot) as object), residual: residualOf(snapshot) });
  });

  app.get('/admin/v1/ledger/queue', async (request, reply) => {
    if (context.admit(request, reply, 'viewer') === undefined) return reply;
    const verdict = await accounts?.queue();
    if (verdict === undefined) return problem(reply, 404, 'NOT_FOUND', 'No queue account here.');
    const { account, ...rest } = verdict;
    return reply.send(toWire({ ...account, ...rest }));
  });

  app.get<{ Querystring: { activity_id?: string } }>('/admin/v1/stock', async (request, reply) => {
    if (context.admit(request, reply, 'viewer') === undefined) return reply;
    if (accounts === undefined) return problem(reply, 404, 'NOT_FOUND', 'No stock here.');
    const wanted = request.query.activity_id;
    const rows = (await accounts.stock()).filter(
      (row) => wanted === undefined || row.activityId === wanted,
    );
    return reply.send({ skus: rows.map(withBalance) });
  });
}

function withBalance(row: StockRow): object {
  const { total, paid, pending, held, available } = row;
  return {
    ...(toWire(row) as object),
    adds_up: total === paid + pending + held + available,
  };
}
