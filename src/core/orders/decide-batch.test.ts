import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { orderMessage } from '../../../test/contract/order-store.ts';
import type { OrderMessage } from '../stock/model.ts';
import { type Known, decideBatch, personKey, requestKey, skuKey } from './decide-batch.ts';

const nothing: Known = {
  fates: new Map(),
  personUnits: new Map(),
  stock: new Map(),
  seats: new Set(),
  ordered: new Set(),
};

test('a plain oracle, one message at a time, decides the same', () => {
  const messages = fc.array(
    fc.record({
      r: fc.integer({ min: 0, max: 30 }),
      user: fc.constantFrom('ann', 'bob', 'cy'),
      quantity: fc.integer({ min: 1, max: 4 }),
      limit: fc.integer({ min: 1, max: 6 }),
      generation: fc.integer({ min: 1, max: 3 }),
      lateBy: fc.integer({ min: -2, max: 2 }),
      seat: fc.option(fc.constantFrom('A-1', 'A-2', 'A-3'), { nil: undefined }),
    }),
    { maxLength: 40 },
  );
  const stock = fc.record({
    total: fc.integer({ min: 0, max: 20 }),
    sold: fc.integer({ min: 0, max: 20 }),
    generation: fc.constant(2),
  });
  fc.assert(
    fc.property(messages, stock, fc.integer({ min: 0, max: 5 }), (wishes, found, annHas) => {
      const nowMs = 1_000;
      const batch = wishes.map(({ r, user, seat, lateBy, ...rest }) =>
        orderMessage(String(r), {
          user,
          ...rest,
          deadlineMs: nowMs - lateBy,
          ...(seat === undefined ? {} : { seats: [seat] }),
        }),
      );
      const known: Known = {
        ...nothing,
        stock: new Map([[skuKey(batch[0] ?? orderMessage('x')), found]]),
        personUnits: new Map([[personKey(orderMessage('x', { user: 'ann' })), annHas]]),
      };
      const kinds = decideBatch(batch, known, nowMs).map((decision) =>
        decision.kind === 'release' ? decision.reason : decision.kind,
      );
      expect(kinds).toEqual(oracle(batch, found, annHas, nowMs));
    }),
    { seed: 7, numRuns: 500 },
  );
});

/** The rules, said again without maps of maps: what is left after each message. */
function oracle(
  batch: readonly OrderMessage[],
  stock: { total: number; sold: number; generation: number },
  annHas: number,
  nowMs: number,
): string[] {
  let left = stock.total - stock.sold;
  const has: Record<string, number> = { ann: annHas };
  const seen: string[] = [];
  const taken: string[] = [];
  return batch.map((message) => {
    if (seen.includes(message.reservationId)) return 'same_as';
    seen.push(message.reservationId);
    if (message.generation < stock.generation) return 'lost';
    if (message.deadlineMs < nowMs) return 'deadline';
    const would = (has[message.personId] ?? 0) + message.quantity;
    if (would > message.limit || message.quantity > left) return 'refused';
    if (message.seats?.some((seat) => taken.includes(seat))) return 'refused';
    left -= message.quantity;
    has[message.personId] = would;
    taken.push(...(message.seats ?? []));
    return 'order';
  });
}

test('a fate decided before is repeated, whatever the stock says now', () => {
  const message = orderMessage('a');
  const fate = {
    reservationId: 'rsv_a',
    fate: 'released',
    reason: 'deadline',
    fresh: false,
  } as const;
  const known = { ...nothing, fates: new Map([['rsv_a', fate]]) };
  expect(decideBatch([message], known, 0)).toEqual([{ kind: 'repeat', fate }]);
});

test('a SKU nobody declared decides nothing', () => {
  const message = orderMessage('a');
  expect(decideBatch([message], nothing, 0)).toEqual([{ kind: 'unknown_sku', message }]);
});

test('a request becomes one order, in one batch and for ever', () => {
  const first = orderMessage('a', { user: 'ann', requestId: 'req', limit: 5 });
  const again = orderMessage('b', { user: 'ann', requestId: 'req', limit: 5 });
  const other = orderMessage('c', { user: 'ann', requestId: 'req2', limit: 5 });
  const stock = new Map([[skuKey(first), { total: 9, sold: 0, generation: 1 }]]);
  const reasons = (messages: readonly OrderMessage[], known: Partial<Known>): string[] =>
    decideBatch(messages, { ...nothing, stock, ...known }, 0).map((decision) =>
      decision.kind === 'release' ? decision.reason : decision.kind,
    );
  expect(reasons([first, again, other], {})).toEqual(['order', 'refused', 'order']);
  expect(reasons([again, other], { ordered: new Set([requestKey(first)]) })).toEqual([
    'refused',
    'order',
  ]);
});
