import { afterEach, describe, expect, test } from 'vitest';
import { SaleBuyer } from '../support/sale-buyer.ts';
import { SaleProcess } from '../support/sale-process.ts';
import { SeededRandom } from '../support/world.ts';

/**
 * A real server, real buyers, and SIGKILL at seeded instants of the sale: while people join, while the
 * lobby is drawn, between a reservation and its order, between an order and its payment. Each time it
 * comes back on the same data folder, and at the end everything that anybody was ever told must hold.
 */
const stock = 40;
const people = 120;
const killsPerSale = 10;

let sale: SaleProcess | undefined;
afterEach(async () => {
  await sale?.remove();
  sale = undefined;
});

function activity(opensInMs: number): object {
  const now = Date.now();
  return {
    id: 'crash',
    name: 'Crash',
    lobby_opens_at: new Date(now - 1_000).toISOString(),
    opens_at: new Date(now + opensInMs).toISOString(),
    closes_at: new Date(now + 3_600_000).toISOString(),
    skus: [{ id: 'ticket', name: 'Ticket', stock, price: '20.00 EUR' }],
    room: {
      mode: 'draw',
      pass_life: '120s',
      claim_window: '120s',
      max_admissions: '40/s',
      max_active: 1000,
    },
    payment: { deadline: '10m', grace: '2s' },
  };
}

describe.each([1, 2])('killed again and again, seed %i', (seed) => {
  test('nothing answered is lost, nothing is sold twice, everybody hears how it ended', async () => {
    const random = new SeededRandom(`crash-${seed}`);
    const process = await SaleProcess.create({
      activity: activity(seed === 1 ? 12_000 : 6_000) as Record<string, unknown>,
    });
    sale = process;
    await process.start();
    let over = false;
    const stop = (): boolean => over;
    const buyers = Array.from(
      { length: people },
      (_, n) => new SaleBuyer(process.shop, 'crash', 'ticket', n, random.fork(`buyer ${n}`)),
    );
    const crowd = Promise.all(
      buyers.map(async (buyer) => {
        await new Promise((resolve) => setTimeout(resolve, random.below(6_000)));
        await buyer.run(stop);
      }),
    );
    for (let kill = 0; kill < killsPerSale; kill += 1) {
      await new Promise((resolve) => setTimeout(resolve, 50 + random.below(1_500)));
      await process.kill();
      await process.start();
    }
    const bought = (): number =>
      buyers.filter((buyer) => buyer.told.some(({ state }) => state === 'ORDERED')).length;
    await until(() => bought() >= stock, 60_000);
    await quiet(process);
    over = true;
    await crowd;

    expect(buyers.flatMap((buyer) => buyer.faults)).toEqual([]);
    await checkStock(process);
    await checkPeople(buyers, process);
    expect((await process.admin('/admin/v1/ledger'))['residual']).toBe(0);
    const { findings } = await process.admin('/admin/v1/commands/reconcile', {
      dry_run: true,
      reason: 'end of the test',
    });
    expect(findings).toEqual([]);
  }, 240_000);
});

async function until(holds: () => boolean | Promise<boolean>, withinMs: number): Promise<void> {
  const end = Date.now() + withinMs;
  while (Date.now() < end) {
    if (await holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

/** Every reservation has become an order or has come back. */
async function quiet(process: SaleProcess): Promise<void> {
  await until(async () => {
    const rows = (await process.admin('/admin/v1/stock'))['skus'] as { held: number }[];
    return rows.every(({ held }) => held === 0);
  }, 60_000);
}

async function checkStock(process: SaleProcess): Promise<void> {
  const [row] = (await process.admin('/admin/v1/stock'))['skus'] as Record<string, number>[];
  expect(row).toMatchObject({ total: stock, held: 0, adds_up: true });
  expect((row?.['paid'] ?? 0) + (row?.['pending'] ?? 0)).toBeLessThanOrEqual(stock);
}

async function checkPeople(buyers: readonly SaleBuyer[], process: SaleProcess): Promise<void> {
  const answer = await process.admin('/admin/v1/orders?limit=200&activity_id=crash');
  const orders = answer['orders'] as Record<string, string>[];
  const live = orders.filter(({ state }) => state === 'PENDING_PAYMENT' || state === 'PAID');
  expect(live.length).toBeLessThanOrEqual(stock);
  expect(new Set(live.map((order) => order['user_id'])).size).toBe(live.length);
  const never = (): boolean => false;
  for (const buyer of buyers) {
    const reservations = new Set(buyer.told.flatMap(({ reservationId }) => reservationId ?? []));
    // A request id has one reservation for ever, whoever of the processes answered.
    expect(reservations.size).toBeLessThanOrEqual(1);
    if (reservations.size === 0) continue;
    const [reservationId] = reservations;
    const status = await buyer.status(never);
    expect(status?.status).toBe(200);
    expect(['ORDERED', 'PAID', 'CANCELLED']).toContain(status?.json['state']);
    expect(status?.json['reservation_id']).toBe(reservationId);
    // A winner who submits again hears the same, even after sell-out and many restarts.
    const again = await buyer.submit(never);
    expect(again?.json).toMatchObject({
      code: 'REQUEST_REPLAYED',
      reservation_id: reservationId,
      state: status?.json['state'],
    });
    const order = orders.find((one) => one['reservation_id'] === reservationId);
    expect(order?.['order_id']).toBe(status?.json['order_id']);
  }
  expect(buyers.filter(({ told }) => told.some(({ orderId }) => orderId)).length).toBeGreaterThan(
    stock / 2,
  );
}
