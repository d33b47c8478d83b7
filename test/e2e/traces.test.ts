import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Collector, startCollector } from '../support/otlp-collector.ts';
import { SaleProcess } from '../support/sale-process.ts';

/** A real server process whose traces go to a collector that speaks the protocol. */
const activity = {
  id: 'act',
  name: 'Act',
  lobby_opens_at: '+0s',
  opens_at: '+0s',
  closes_at: '+1h',
  time_zone: 'Europe/Berlin',
  skus: [{ id: 'sku', name: 'Sku', stock: 50, price: '1.00 EUR', max_per_person: 1 }],
  room: { mode: 'passthrough' },
};

let collector: Collector;
let sale: SaleProcess;
beforeAll(async () => {
  collector = await startCollector();
  sale = await SaleProcess.create({
    activity,
    config: { telemetry: { log_level: 'warn', otlp_endpoint: collector.url, trace_per_mille: 0 } },
  });
  await sale.start();
});
afterAll(async () => {
  await sale.remove();
  await collector.close();
});

interface Bought {
  readonly code: string;
  readonly userId: string;
  readonly pass: string;
}

async function json<Body>(answer: Response): Promise<Body> {
  const body = (await answer.json()) as Body;
  if (!answer.ok) throw new Error(`${answer.status} ${JSON.stringify(body)}`);
  return body;
}

async function buy(traceparent?: string): Promise<Bought> {
  const post = async <Body>(path: string, headers: object, body?: object): Promise<Body> =>
    json(
      await fetch(`${sale.shop}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      }),
    );
  const { token, user_id: userId } = await post<{ token: string; user_id: string }>(
    '/v1/session',
    {},
    {},
  );
  const auth = { authorization: `Bearer ${token}` };
  await post('/v1/activities/act/entries', auth, { sku_ids: ['sku'] });
  const pass = await post<{ pass: string; path_id: string }>('/v1/activities/act/passes', auth, {
    sku_id: 'sku',
  });
  const outcome = await post<{ state: string }>(
    `/v1/seckill/${pass.path_id}/submit`,
    {
      ...auth,
      'sluice-pass': pass.pass,
      ...(traceparent === undefined ? {} : { traceparent }),
    },
    { request_id: `r-${userId}`, activity_id: 'act', sku_id: 'sku', quantity: 1 },
  );
  return { code: outcome.state, userId, pass: pass.pass };
}

async function until(isDone: () => boolean): Promise<void> {
  while (!isDone()) await new Promise((resolve) => setTimeout(resolve, 50));
}

test('one connected trace leads from the sender over the gateway and the queue to the order', async () => {
  const traceId = '4bf92f3577b34da6a3ce929d0e0e4736';
  const { code, userId, pass } = await buy(`00-${traceId}-00f067aa0ba902b7-01`);
  expect(code).toBe('QUEUED');
  await until(() => collector.spans.filter((span) => span.traceId === traceId).length >= 2);
  const spans = collector.spans.filter((span) => span.traceId === traceId);
  const submit = spans.find(({ name }) => name === 'submit');
  const order = spans.find(({ name }) => name === 'order');
  expect([submit?.parentSpanId, order?.parentSpanId]).toEqual(['00f067aa0ba902b7', submit?.spanId]);
  // One event for each stage, in the order of the path.
  expect(submit?.events.map(({ name }) => name)).toEqual([
    'receive',
    'shed',
    'instance',
    'source',
    'sold_out',
    'identify',
    'person',
    'budget',
    'slot',
    'reserve',
    'enqueue',
  ]);
  expect(BigInt(order?.startTimeUnixNano ?? 0)).toBeLessThanOrEqual(
    BigInt(order?.endTimeUnixNano ?? 0),
  );
  const told = JSON.stringify(spans);
  expect(told).toContain('SECKILL_QUEUED');
  // Nothing of the person, and nothing that opens anything.
  for (const secret of [userId, pass, `r-${userId}`]) expect(told).not.toContain(secret);
});

test('who does not ask is not traced at ratio 0, and neither is nonsense', async () => {
  const before = collector.spans.length;
  for (const traceparent of [
    undefined,
    '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00',
    `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`,
    'ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  ]) {
    expect((await buy(traceparent)).code).toBe('QUEUED');
  }
  // Whoever asks afterwards is heard of: everything before would have been sent by then.
  const last = '0af7651916cd43dd8448eb211c80319c';
  await buy(`00-${last}-00f067aa0ba902b7-01`);
  await until(() => collector.spans.filter(({ traceId }) => traceId === last).length === 2);
  expect(collector.spans.slice(before).every(({ traceId }) => traceId === last)).toBe(true);
});

test('a collector that refuses costs spans and no sale', async () => {
  collector.answer(503);
  const before = collector.requests;
  const { code } = await buy('00-11111111111111111111111111111111-2222222222222222-01');
  expect(code).toBe('QUEUED');
  await until(() => collector.requests > before);
  collector.answer(200);
  const metrics = await fetch(`${sale.operator}/metrics`).then((answer) => answer.text());
  expect(metrics).toMatch(/sluice_trace_spans_total\{result="exported"\} [1-9]/);
});
