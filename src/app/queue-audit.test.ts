import { beforeEach, describe, expect, test } from 'vitest';
import { fc } from '../../test/support/property.ts';
import { openSale, type Sale } from '../../test/support/sale.ts';
import type { OrderStore } from '../ports/order-store.ts';
import { MemoryOrderStore } from '../stores/memory/order-store.ts';
import { OrderWorker } from '../workers/order-worker.ts';
import { QueueAudit } from './queue-audit.ts';

let orders: MemoryOrderStore;
let sale: Sale;
let activities: string[];
let audit: QueueAudit;

beforeEach(async () => {
  orders = new MemoryOrderStore();
  sale = await openSale(orders, 100);
  activities = ['show'];
  audit = auditOf(orders);
});

function auditOf(of: Pick<OrderStore, 'counts'>): QueueAudit {
  return new QueueAudit({
    queue: sale.queue,
    orders: of,
    wallMs: () => sale.world.wallMs(),
    activities: () => activities,
  });
}

async function work(): Promise<void> {
  await new OrderWorker(
    {
      queue: sale.queue,
      orders,
      inventory: sale.inventory,
      clock: sale.world,
      timers: sale.world,
      random: sale.random,
      paymentDeadlineMs: () => 900_000,
    },
    { consumer: 'w1' },
  ).runOnce();
}

test('every message has its fate: an order, a release, a dead letter; or it waits', async () => {
  await sale.reserve('ann');
  await sale.reserve('bob', { deadlineInMs: 1_000 });
  await sale.reserve('cid');
  expect(await audit.judge()).toMatchObject({
    account: { produced: 3, consumed: 0, expired: 0, dead: 0, backlogEnd: 3 },
    residual: 0,
    atRest: false,
  });
  const [letter] = await sale.queue.receive('w1', 1, 0);
  if (letter === undefined) throw new Error('nothing was received');
  await sale.queue.bury(letter, 'unreadable');
  await sale.world.advance(2_000);
  await work();
  expect(await audit.judge()).toMatchObject({
    account: { produced: 3, consumed: 1, expired: 1, dead: 1, backlogEnd: 0 },
    residual: 0,
    atRest: true,
  });
});

describe('is open where', () => {
  test('a message was acknowledged and nothing was committed for it', async () => {
    for (const who of ['ann', 'bob', 'cid']) await sale.reserve(who);
    const [lost] = await sale.queue.receive('w1', 1, 0);
    if (lost === undefined) throw new Error('nothing was received');
    await sale.queue.acknowledge([lost]);
    // Seen while the others still wait, and as well when they have gone.
    expect(await audit.judge()).toMatchObject({ residual: 1, atRest: false });
    await work();
    expect(await audit.judge()).toMatchObject({ residual: 1, atRest: true });
  });

  test('orders have no message that anybody produced', async () => {
    await sale.reserve('ann');
    await work();
    expect(await audit.judge()).toMatchObject({ residual: 0 });
    const invented = auditOf({
      counts: async () => ({ ...(await orders.counts()), released: 2 }),
    });
    // Told before anything was learnt: as what was forgotten before this process began.
    expect(await invented.judge()).toMatchObject({ residual: 0, forgotten: 2 });
    let more = 0;
    const later = auditOf({
      counts: async () => ({ ...(await orders.counts()), released: more }),
    });
    await later.judge();
    more = 2;
    expect(await later.judge()).toMatchObject({ residual: -2, forgotten: 0 });
  });
});

test('a rehearsal that is put away takes its counters along: learnt anew at rest', async () => {
  await sale.reserve('ann');
  await work();
  let gone = 0;
  const other = auditOf({ counts: async () => ({ ...(await orders.counts()), expired: gone }) });
  activities = ['show', 'show-rehearsal-1'];
  expect(await other.judge()).toMatchObject({ residual: 0, forgotten: 0 });
  gone = 7;
  expect(await other.judge()).toMatchObject({ residual: -7 });
  activities = ['show'];
  const errors: unknown[] = [];
  other.learn((error) => errors.push(error));
  await other.close();
  expect(await other.judge()).toMatchObject({ residual: 0, forgotten: 7 });
  expect(errors).toEqual([]);
});

test('a store that is away is told of, and learnt from later', async () => {
  let away = true;
  const one = auditOf({
    counts: async () => {
      if (away) throw new Error('no database');
      return orders.counts();
    },
  });
  const errors: unknown[] = [];
  one.learn((error) => errors.push(error));
  await one.close();
  expect(errors).toHaveLength(1);
  await expect(one.judge()).rejects.toThrow('no database');
  away = false;
  expect(await one.judge()).toMatchObject({ residual: 0, atRest: true });
});

test('however looks and work fall between one another, nothing is said to be lost that is not', async () => {
  const step = fc.constantFrom('produce', 'commit', 'acknowledge', 'bury');
  const look = fc.tuple(fc.nat(300), fc.nat(8));
  await fc.assert(
    fc.asyncProperty(
      fc.array(step, { maxLength: 300 }),
      fc.array(look, { maxLength: 5 }),
      async (steps, looks) => {
        let produced = 0;
        let acknowledged = 0;
        let buried = 0;
        const fates = new Set<number>();
        const waiting: number[] = [];
        let at = 0;
        const runTo = (end: number): void => {
          for (; at < Math.min(end, steps.length); at += 1) {
            const [head] = waiting;
            switch (steps[at]) {
              case 'produce':
                waiting.push((produced += 1));
                break;
              case 'commit':
                // Committed, not acknowledged: it comes again, and is committed once.
                if (head !== undefined) fates.add(head);
                break;
              case 'acknowledge':
                if (head === undefined || !fates.has(head)) break;
                waiting.shift();
                acknowledged += 1;
                break;
              case 'bury':
                if (head === undefined || fates.has(head)) break;
                waiting.shift();
                buried += 1;
                break;
            }
          }
        };
        const mixed = new QueueAudit({
          wallMs: () => 0,
          activities: () => ['show'],
          queue: {
            backlog: async () => {
              const told = {
                depth: waiting.length,
                oldestAgeMs: 0,
                buried,
                producedTotal: produced,
                acknowledgedTotal: acknowledged,
              };
              runTo(at + pause);
              return told;
            },
          },
          orders: {
            counts: async () => {
              const released = fates.size;
              runTo(at + pause);
              return { pending: 0, paid: 0, expired: 0, cancelled: 0, refunded: 0, released };
            },
          },
        });
        let pause = 0;
        for (const [from, between] of looks) {
          runTo(from);
          pause = between;
          const { residual } = await mixed.judge();
          expect(residual).toBe(0);
        }
        pause = 0;
        runTo(steps.length);
        expect(await mixed.judge()).toMatchObject({ residual: 0 });
      },
    ),
  );
});
