import type { FastifyInstance, FastifyReply } from 'fastify';
import { idPattern } from '../../core/bounds.ts';
import type { Principal } from './access.ts';
import { asReason, problem, reasonMax, reasonMin } from './problem.ts';
import type { AdminContext } from './context.ts';
import { type OperatorAction, actionRoles } from './source.ts';

/** Units that one adjustment may move. */
export const restockMax = 10_000_000;
/** A pinned mode ends by itself after this at the latest, ms. */
export const pinMaxMs = 24 * 3_600_000;
const auditMax = 500;

interface ActionBody {
  readonly [name: string]: unknown;
}

/** Actions, commands and the audit they leave. */
export function registerActionRoutes(app: FastifyInstance, context: AdminContext): void {
  const { deps } = context;

  /** Two rows: asked before, what came of it after. */
  const audited = async <Result>(
    principal: Principal,
    what: string,
    why: string,
    subject: string,
    detail: Readonly<Record<string, unknown>>,
    run: () => Promise<Result>,
    tell: (result: Result) => string,
  ): Promise<Result> => {
    const row = { who: principal.name, why, subject };
    const at = (): number => deps.clock.wallMs();
    await deps.audit.append({ ...row, at: at(), what: `${what}:asked`, detail });
    let result: Result;
    try {
      result = await run();
    } catch (error) {
      const name = error instanceof Error ? error.name : 'Error';
      await deps.audit.append({
        ...row,
        at: at(),
        what: `${what}:${name === 'OutcomeUnknownError' ? 'unknown' : 'failed'}`,
        detail: { ...detail, error: name },
      });
      throw error;
    }
    await deps.audit.append({ ...row, at: at(), what: `${what}:${tell(result)}`, detail });
    return result;
  };

  app.post<{ Body: ActionBody | null }>('/admin/v1/actions', async (request, reply) => {
    const who = context.admit(request, reply, 'viewer');
    if (who === undefined) return reply;
    const actions = deps.actions;
    const body = request.body ?? {};
    const read = readAction(body);
    if (typeof read === 'string') return problem(reply, 400, 'INVALID_ARGUMENT', read);
    if (actions === undefined || !actions.offered.includes(read.kind))
      return problem(
        reply,
        400,
        'INVALID_ARGUMENT',
        `action: found "${read.kind}", offered here: ${actions?.offered.join(', ') ?? 'none'}`,
      );
    if (context.admit(request, reply, actionRoles[read.kind]) === undefined) return reply;
    const why = asReason(body.reason);
    const { action_id: actionId } = body;
    if (why === undefined) return badReason(reply, body.reason);
    if (typeof actionId !== 'string' || !idPattern.test(actionId))
      return problem(
        reply,
        400,
        'INVALID_ARGUMENT',
        `action_id: found ${JSON.stringify(actionId)}, allowed: ${idPattern.source}`,
      );
    const { kind, ...detail } = read;
    const subject =
      'activityId' in read ? read.activityId : 'orderId' in read ? read.orderId : 'mode';
    const result = await audited(
      who.principal,
      kind,
      why,
      subject,
      { ...detail, actionId },
      () => actions.perform(read, { who: who.principal.name, why, actionId }),
      (outcome) => outcome.kind,
    );
    if (result.kind === 'done') return reply.send({ result: 'done', detail: result.detail });
    return problem(
      reply,
      result.kind === 'refused' ? 409 : 404,
      result.kind === 'refused' ? 'REFUSED' : 'NOT_FOUND',
      result.detail,
    );
  });

  app.post<{ Params: { name: string }; Body: ActionBody | null }>(
    '/admin/v1/commands/:name',
    async (request, reply) => {
      const command = deps.commands?.find((one) => one.name === request.params.name);
      const who = context.admit(request, reply, command?.role ?? 'admin');
      if (who === undefined) return reply;
      if (command === undefined)
        return problem(
          reply,
          404,
          'NOT_FOUND',
          `Commands here: ${deps.commands?.map((one) => one.name).join(', ') ?? 'none'}.`,
        );
      const { reason, ...input } = request.body ?? {};
      const why = asReason(reason) ?? '';
      if (command.changes && why === '') return badReason(reply, reason);
      const run = (): Promise<unknown> => command.run(input, { principal: who.principal, why });
      try {
        const answer = command.changes
          ? await audited(who.principal, command.name, why, 'command', { input }, run, () => 'done')
          : await run();
        return await reply.send(answer ?? {});
      } catch (error) {
        if (error instanceof RangeError)
          return problem(reply, 400, 'INVALID_ARGUMENT', error.message);
        throw error;
      }
    },
  );

  app.get<{ Querystring: { subject?: unknown; limit?: unknown } }>(
    '/admin/v1/audit',
    async (request, reply) => {
      if (context.admit(request, reply, 'viewer') === undefined) return reply;
      const { subject, limit } = request.query;
      const wanted = Math.min(auditMax, Math.max(1, Math.floor(Number(limit ?? 50)) || 50));
      const rows = await deps.audit.list(
        typeof subject === 'string' && subject !== '' ? subject.slice(0, 64) : undefined,
        wanted,
      );
      return reply.send({
        rows: rows.map(({ at, ...row }) => ({ at: new Date(at).toISOString(), ...row })),
      });
    },
  );
}

function badReason(reply: FastifyReply, found: unknown): FastifyReply {
  return problem(
    reply,
    400,
    'INVALID_ARGUMENT',
    `reason: found ${JSON.stringify(found ?? null)?.slice(0, 80)}, allowed: ${reasonMin} to ${reasonMax} characters`,
  );
}

/** The action, or a sentence that says what is wrong. */
function readAction(body: ActionBody): OperatorAction | string {
  const known = Object.keys(actionRoles);
  const kind = body.action;
  if (typeof kind !== 'string' || !known.includes(kind))
    return `action: found ${JSON.stringify(kind)}, allowed: ${known.join(', ')}`;
  const id = (name: string): string | undefined => {
    const value = body[name];
    return typeof value === 'string' && idPattern.test(value) ? value : undefined;
  };
  const missing = (name: string): string =>
    `${name}: found ${JSON.stringify(body[name])}, allowed: ${idPattern.source}`;
  switch (kind as OperatorAction['kind']) {
    case 'pause':
    case 'resume':
    case 'hold':
    case 'stop':
    case 'reopen':
    case 'close': {
      const activityId = id('activity_id');
      if (activityId === undefined) return missing('activity_id');
      return { kind: kind as 'pause', activityId };
    }
    case 'restock': {
      const activityId = id('activity_id');
      const skuId = id('sku_id');
      const { delta } = body;
      if (activityId === undefined) return missing('activity_id');
      if (skuId === undefined) return missing('sku_id');
      if (
        typeof delta !== 'number' ||
        !Number.isInteger(delta) ||
        delta === 0 ||
        Math.abs(delta) > restockMax
      )
        return `delta: found ${JSON.stringify(delta)}, allowed: an integer from -${restockMax} to ${restockMax}, not 0`;
      return { kind: 'restock', activityId, skuId, delta };
    }
    case 'pin_mode': {
      const { mode, for_ms: forMs } = body;
      if (mode !== 'NORMAL' && mode !== 'DEGRADED' && mode !== 'QUEUE_ONLY' && mode !== 'CLOSED')
        return `mode: found ${JSON.stringify(mode)}, allowed: NORMAL, DEGRADED, QUEUE_ONLY, CLOSED`;
      if (
        typeof forMs !== 'number' ||
        !Number.isInteger(forMs) ||
        forMs < 1_000 ||
        forMs > pinMaxMs
      )
        return `for_ms: found ${JSON.stringify(forMs)}, allowed: an integer from 1000 to ${pinMaxMs}`;
      return { kind: 'pin_mode', mode, forMs };
    }
    case 'unpin_mode':
      return { kind: 'unpin_mode' };
    case 'cancel_order':
    case 'refund_order': {
      const orderId = id('order_id');
      if (orderId === undefined) return missing('order_id');
      return { kind: kind as 'cancel_order', orderId };
    }
  }
}
