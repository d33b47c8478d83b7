import { fileURLToPath } from 'node:url';
import { join } from 'node:path';
import { SaleProcess } from '../test/support/sale-process.ts';
import { isMain, printReport, type Report, type Row } from './support/bench.ts';
import { closedLoad, type LoadResult, oneAnswer } from './support/http-load.ts';

/**
 * A whole sale's four rates on embedded defaults, each apart and each over real HTTP against the built
 * server in another process: people join, poll with their own entry tokens, submit with their own
 * passes, and their reservations become durable orders. Every one of them is a different person.
 *
 * The room lets everybody through here: waves are there to be slower than this.
 */
export interface SaleSize {
  readonly people: number;
  readonly polls: number;
  readonly connections: number;
}

export const smallSize: SaleSize = { people: 60, polls: 120, connections: 8 };
const largeSize: SaleSize = { people: 6_000, polls: 40_000, connections: 64 };

const activityId = 'bench';
const skuId = 'unit';

function activity(people: number): Readonly<Record<string, unknown>> {
  const now = Date.now();
  return {
    id: activityId,
    name: 'Bench',
    lobby_opens_at: new Date(now - 2_000).toISOString(),
    opens_at: new Date(now - 1_000).toISOString(),
    closes_at: new Date(now + 3_600_000).toISOString(),
    skus: [{ id: skuId, name: 'Unit', stock: people, price: '1.00 EUR' }],
    room: { mode: 'passthrough', pass_life: '300s', claim_window: '300s' },
    payment: { deadline: '30m', grace: '0s' },
  };
}

/** A request as bytes, from an address of its own so that no source limit meets the generator. */
function request(
  method: string,
  path: string,
  person: number,
  headers: Readonly<Record<string, string>>,
  body?: object,
): Buffer {
  const text = body === undefined ? '' : JSON.stringify(body);
  const lines = [
    `${method} ${path} HTTP/1.1`,
    'Host: bench',
    `X-Forwarded-For: 10.${(person >> 16) & 255}.${(person >> 8) & 255}.${person & 255}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    ...(body === undefined
      ? []
      : ['Content-Type: application/json', `Content-Length: ${Buffer.byteLength(text)}`]),
  ];
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n${text}`);
}

interface Buyer {
  readonly number: number;
  readonly token: string;
  entryToken: string;
}

/** The JSON of one answer; throws with the status line where it is not what was asked for. */
async function json(
  port: number,
  bytes: Buffer,
  wanted: readonly number[],
): Promise<Record<string, string>> {
  const answer = await oneAnswer(port, bytes);
  const status = Number(answer.split(' ', 2)[1]);
  const text = answer.slice(answer.indexOf('\r\n\r\n') + 4);
  if (!wanted.includes(status)) throw new Error(`wanted ${wanted.join('|')}, found ${answer}`);
  return JSON.parse(text) as Record<string, string>;
}

/** Does `work` for every item, a bounded number at a time. */
async function each<Item>(
  items: readonly Item[],
  atOnce: number,
  work: (item: Item) => Promise<void>,
): Promise<void> {
  let next = 0;
  await Promise.all(
    Array.from({ length: atOnce }, async () => {
      for (let at = next++; at < items.length; at = next++) {
        const item = items[at];
        if (item !== undefined) await work(item);
      }
    }),
  );
}

/** Answers of the wanted status, and their rate; the rest were refused by health and are told apart. */
function rateOf(
  result: LoadResult,
  wanted: number,
  what: string,
): { readonly well: number; readonly perS: number; readonly refused: number } {
  const well = result.statuses.get(wanted) ?? 0;
  const refused = result.statuses.get(503) ?? 0;
  if (well === 0 || well + refused !== result.requests) {
    const found = [...result.statuses].map(([status, count]) => `${count} × ${status}`).join(', ');
    throw new Error(`${what}: wanted ${wanted}, and 503 where health says no; found ${found}`);
  }
  return { well, perS: Math.round((well / result.wallMs) * 1000), refused };
}

export async function sale(
  size: SaleSize,
): Promise<{ readonly report: Report; readonly rows: readonly Row[] }> {
  const command = [join(fileURLToPath(new URL('..', import.meta.url)), 'dist/main.js')];
  const server = await SaleProcess.create({
    activity: activity(size.people),
    command,
    // Full rates are measured from the first second.
    config: { overload: { start: 'full' } },
  });
  try {
    await server.start();
    return await measure(server, Number(new URL(server.shop).port), size);
  } finally {
    await server.remove();
  }
}

async function measure(
  server: SaleProcess,
  port: number,
  size: SaleSize,
): Promise<{ readonly report: Report; readonly rows: readonly Row[] }> {
  const { people, connections } = size;
  const buyers: Buyer[] = [];
  await each(
    Array.from({ length: people }, (_, n) => n),
    connections,
    async (number) => {
      const { token = '' } = await json(
        port,
        request('POST', '/v1/session', number, {}, {}),
        [200],
      );
      buyers.push({ number, token, entryToken: '' });
    },
  );
  const auth = (buyer: Buyer): Record<string, string> => ({
    Authorization: `Bearer ${buyer.token}`,
  });
  const entries = `/v1/activities/${activityId}/entries`;

  const joins = await closedLoad(
    port,
    buyers.map((buyer) => request('POST', entries, buyer.number, auth(buyer), {})),
    connections,
  );
  const joined = rateOf(joins, 201, 'joins');

  await each(buyers, connections, async (buyer) => {
    const again = request('POST', entries, buyer.number, auth(buyer), {});
    buyer.entryToken = (await json(port, again, [200, 201]))['entry_token'] ?? '';
  });
  const polls = await closedLoad(
    port,
    Array.from({ length: size.polls }, (_, at) => {
      const buyer = buyers[at % buyers.length] as Buyer;
      return request('GET', `${entries}/me`, buyer.number, { 'Sluice-Entry': buyer.entryToken });
    }),
    connections,
  );
  const polled = rateOf(polls, 200, 'polls');

  const submits: Buffer[] = [];
  await each(buyers, connections, async (buyer) => {
    const passes = `/v1/activities/${activityId}/passes`;
    const ask = request('POST', passes, buyer.number, auth(buyer), { sku_id: skuId });
    const pass = await json(port, ask, [200]);
    const requestId = `req-${buyer.number}`;
    const headers = {
      ...auth(buyer),
      'Sluice-Pass': pass['pass'] ?? '',
      'Idempotency-Key': requestId,
    };
    submits.push(
      request('POST', pass['submit_path'] ?? '', buyer.number, headers, {
        request_id: requestId,
        activity_id: activityId,
        sku_id: skuId,
        quantity: 1,
      }),
    );
  });
  const started = performance.now();
  const reserved = rateOf(await closedLoad(port, submits, connections), 202, 'submits');
  const orderedMs = await untilOrdered(server, reserved.well, started);
  const ordersPerS = Math.round((reserved.well / orderedMs) * 1000);

  return {
    report: {
      bench: 'sale',
      ratio: null,
      better: null,
      peer: null,
      joins_per_s: joined.perS,
      polls_per_s: polled.perS,
      reservations_per_s: reserved.perS,
      orders_per_s: ordersPerS,
      refused: joined.refused + polled.refused + reserved.refused,
    },
    rows: [
      ['joins', joined.well, joined.perS, joined.refused],
      ['polls', polled.well, polled.perS, polled.refused],
      ['reservations', reserved.well, reserved.perS, reserved.refused],
      ['durable orders', reserved.well, ordersPerS, 0],
    ],
  };
}

/** Time from the first submit until every reservation is a committed order, ms. */
async function untilOrdered(
  server: SaleProcess,
  wanted: number,
  startedMs: number,
): Promise<number> {
  for (;;) {
    const { skus } = await server.admin('/admin/v1/stock');
    const [row] = skus as Record<string, number>[];
    if ((row?.['pending'] ?? 0) + (row?.['paid'] ?? 0) >= wanted) {
      return performance.now() - startedMs;
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
}

if (isMain(import.meta.url)) {
  const small = process.argv.includes('--small');
  const { report, rows } = await sale(small ? smallSize : largeSize);
  printReport(report, ['what', 'count', 'per second', 'refused by health'], rows, !small);
}
