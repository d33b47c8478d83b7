import { fc } from '../support/property.ts';
import { describe, expect, it } from 'vitest';
import type {
  Fate,
  ReleaseReason,
  RequestRecord,
  ReserveOutcome,
  ReserveReply,
  ReserveRequest,
  StockMark,
} from '../../src/ports/inventory-store.ts';
import type { InventoryHarness } from './inventory-store.ts';
import { messageFor, nowMs, otherSku, sku, stockOf } from './stock-samples.ts';

/**
 * Stock as one would write it on a whiteboard: a list of records, and every number summed from it
 * anew. Slow, and too simple to be wrong in the way a store is.
 */
class WhiteboardSku {
  total: number;
  generation: number;
  sequence: number;
  epoch: number;
  paused = false;
  records: RequestRecord[] = [];
  readonly adjustments = new Map<string, number>();

  constructor(total: number, generation: number, sequence: number, epoch: number) {
    this.total = total;
    this.generation = generation;
    this.sequence = sequence;
    this.epoch = epoch;
  }

  units(state: RequestRecord['state'], personId?: string): number {
    return this.records
      .filter((each) => each.state === state)
      .filter((each) => personId === undefined || each.personId === personId)
      .reduce((sum, each) => sum + each.quantity, 0);
  }

  live(personId?: string): number {
    return this.units('held', personId) + this.units('ordered', personId);
  }

  get available(): number {
    return this.total - this.live();
  }

  mark(): StockMark {
    return {
      total: this.total,
      available: this.available,
      held: this.units('held'),
      ordered: this.units('ordered'),
      sequence: this.sequence,
      generation: this.generation,
      stockEpoch: this.epoch,
      paused: this.paused,
    };
  }

  step(): void {
    this.sequence += 1;
    if (this.available > 0 !== (this.epoch % 2 === 0)) this.epoch += 1;
  }

  judge(wish: ReserveRequest): ReserveOutcome {
    const known = this.records.find(
      (each) => each.userId === wish.userId && each.requestId === wish.requestId,
    );
    if (known !== undefined)
      return known.fingerprint === wish.fingerprint
        ? { kind: 'existing', record: known }
        : { kind: 'conflict' };
    if (this.records.some((each) => each.nonce === wish.nonce)) return { kind: 'nonce_used' };
    if (this.live(wish.personId) + wish.quantity > wish.limit)
      return {
        kind: 'limit_reached',
        live: this.records.filter(
          (each) => each.personId === wish.personId && each.state !== 'released',
        ),
      };
    if (this.available < wish.quantity) return { kind: 'sold_out' };
    const record: RequestRecord = {
      requestId: wish.requestId,
      userId: wish.userId,
      personId: wish.personId,
      fingerprint: wish.fingerprint,
      nonce: wish.nonce,
      reservationId: wish.reservationId,
      quantity: wish.quantity,
      reservedAtMs: nowMs,
      deadlineMs: wish.deadlineMs,
      generation: this.generation,
      state: 'held',
    };
    this.records.push(record);
    return { kind: 'reserved', record };
  }

  settle({ reservationId, fate, reason }: Fate): boolean {
    const at = this.records.findIndex((each) => each.reservationId === reservationId);
    const record = this.records[at];
    if (record === undefined) return false;
    const { releaseReason: _gone, ...bare } = record;
    if (fate === 'ordered' && record.state === 'held')
      this.records[at] = { ...bare, state: 'ordered' };
    else if (fate === 'released' && record.state !== 'released')
      this.records[at] = { ...bare, state: 'released', releaseReason: reason ?? 'refused' };
    else if (fate === 'retaken' && record.state === 'released' && this.available >= record.quantity)
      this.records[at] = { ...bare, state: 'ordered' };
    else return false;
    return true;
  }
}

type Command =
  | {
      readonly do: 'reserve';
      readonly other: boolean;
      readonly wishes: readonly Wish[];
      readonly ahead: boolean;
    }
  | { readonly do: 'settle'; readonly other: boolean; readonly fates: readonly Say[] }
  | { readonly do: 'adjust'; readonly other: boolean; readonly id: number; readonly delta: number }
  | { readonly do: 'pause'; readonly other: boolean; readonly paused: boolean }
  | {
      readonly do: 'rebuild';
      readonly other: boolean;
      readonly keep: number;
      readonly raise: number;
      readonly spare: number;
    }
  | {
      readonly do: 'preload';
      readonly other: boolean;
      readonly total: number;
      readonly raise: number;
    }
  | { readonly do: 'crash' };

interface Wish {
  readonly user: number;
  readonly requestId: number;
  readonly nonce: number;
  readonly quantity: number;
  readonly limit: number;
}

interface Say {
  readonly which: number;
  readonly fate: Fate['fate'];
  readonly reason: ReleaseReason | undefined;
}

const wish = fc.record({
  user: fc.nat(4),
  requestId: fc.nat(6),
  nonce: fc.nat(40),
  quantity: fc.integer({ min: 1, max: 3 }),
  limit: fc.integer({ min: 1, max: 4 }),
});
const other = fc.boolean();
const command: fc.Arbitrary<Command> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constant('reserve' as const),
      other,
      wishes: fc.array(wish, { minLength: 1, maxLength: 6 }),
      ahead: fc.integer({ min: 0, max: 29 }).map((each) => each === 0),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('settle' as const),
      other,
      fates: fc.array(
        fc.record({
          which: fc.nat(20),
          fate: fc.constantFrom('ordered' as const, 'released' as const, 'retaken' as const),
          reason: fc.constantFrom('expired' as const, 'cancelled' as const, undefined),
        }),
        { minLength: 1, maxLength: 4 },
      ),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('adjust' as const),
      other,
      id: fc.nat(3),
      delta: fc.integer({ min: -3, max: 3 }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('pause' as const), other, paused: fc.boolean() }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('rebuild' as const),
      other,
      keep: fc.nat(255),
      raise: fc.nat(1),
      spare: fc.nat(4),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('preload' as const),
      other,
      total: fc.nat(8),
      raise: fc.nat(1),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('crash' as const) }) },
);

/** Any sequence of commands: the store and the whiteboard say the same, word for word. */
export function inventoryModelProperty(
  make: () => Promise<InventoryHarness>,
  runs: number,
  crashes: boolean,
): void {
  describe('against a whiteboard', () => {
    it('says the same for any sequence of commands', { timeout: 120_000 }, () =>
      checkAgainstWhiteboard(make, runs, crashes),
    );
  });
}

/** Rejects with the shortest history found in which the store says anything else. */
export async function checkAgainstWhiteboard(
  make: () => Promise<InventoryHarness>,
  runs: number,
  crashes = true,
): Promise<void> {
  await fc.assert(
    fc.asyncProperty(
      fc.nat(8),
      fc.array(command, { maxLength: 40, size: 'max' }),
      async (total, commands) => {
        const harness = await make();
        try {
          await play(
            harness,
            total,
            crashes ? commands : commands.filter((each) => each.do !== 'crash'),
          );
        } finally {
          await harness.dispose();
        }
      },
    ),
    { numRuns: runs },
  );
}

function markIn(reply: ReserveReply): StockMark {
  if (reply.kind === 'unknown_sku') throw new Error('The SKU is not loaded');
  return reply.mark;
}

/** What a person holds is told in no particular order. */
function inOneOrder(outcome: ReserveOutcome): ReserveOutcome {
  if (outcome.kind !== 'limit_reached') return outcome;
  const live = [...outcome.live].sort((a, b) => (a.reservationId < b.reservationId ? -1 : 1));
  return { kind: 'limit_reached', live };
}

async function play(
  harness: InventoryHarness,
  total: number,
  commands: readonly Command[],
): Promise<void> {
  const boards = [new WhiteboardSku(total, 1, 0, 0), new WhiteboardSku(3, 1, 0, 0)] as const;
  const messages: string[] = [];
  let made = 0;
  /** What the store said last: of a SKU in parts the numbers only grow, each part having its own. */
  const last = new Map<WhiteboardSku, StockMark>();
  const numbersOf = (board: WhiteboardSku): StockMark =>
    harness.inParts === true ? (last.get(board) ?? board.mark()) : board.mark();
  const agree = (board: WhiteboardSku, mark: StockMark | undefined): void => {
    if (harness.inParts !== true || mark === undefined) {
      expect(mark).toEqual(board.mark());
      return;
    }
    const { sequence, stockEpoch, ...rest } = mark;
    const { sequence: _, stockEpoch: __, ...wanted } = board.mark();
    expect(rest).toEqual(wanted);
    expect(stockEpoch % 2).toBe(mark.available > 0 ? 0 : 1);
    expect(sequence).toBeGreaterThanOrEqual(last.get(board)?.sequence ?? 0);
    expect(stockEpoch).toBeGreaterThanOrEqual(last.get(board)?.stockEpoch ?? 0);
    last.set(board, mark);
  };
  for (const [at, board] of boards.entries()) {
    board.step();
    const key = at === 0 ? sku : otherSku;
    agree(board, await harness.store.preload(key, stockOf(board.total)));
  }
  for (const [step, each] of commands.entries()) {
    if (each.do === 'crash') {
      await harness.crash();
      continue;
    }
    const { store } = harness;
    const board = boards[each.other ? 1 : 0];
    const key = each.other ? otherSku : sku;
    switch (each.do) {
      case 'reserve': {
        const batch = each.wishes.map((one): ReserveRequest => {
          made += 1;
          return {
            requestId: `request-${one.requestId}`,
            userId: `user-${one.user}`,
            // Users 0 and 1 are one person.
            personId: `person-${one.user < 2 ? 0 : one.user}`,
            fingerprint: `quantity-${one.quantity}`,
            nonce:
              harness.inParts === true ? `nonce-${one.user}-${one.nonce}` : `nonce-${one.nonce}`,
            quantity: one.quantity,
            limit: one.limit,
            reservationId: `reservation-${made}`,
            deadlineMs: nowMs + step,
            activityVersion: 1,
            unitAmountMinor: 100,
            currency: 'CNY',
          };
        });
        const { sequence } = numbersOf(board);
        const seen = each.ahead ? sequence + 2 : sequence;
        const reply = await store.reserve(key, batch, seen, nowMs);
        if (each.ahead) {
          if (!board.paused) {
            board.paused = true;
            board.step();
          }
          expect(reply.kind).toBe('forgotten');
          agree(board, markIn(reply));
        } else if (board.paused) {
          expect(reply.kind).toBe('paused');
          agree(board, markIn(reply));
        } else {
          const outcomes = batch.map((one) => board.judge(one));
          if (outcomes.some((one) => one.kind === 'reserved')) board.step();
          expect(reply.kind).toBe('done');
          agree(board, markIn(reply));
          expect(reply.kind === 'done' ? reply.outcomes.map(inOneOrder) : []).toEqual(
            outcomes.map(inOneOrder),
          );
          for (const [at, one] of outcomes.entries())
            if (one.kind === 'reserved')
              messages.push(JSON.stringify(messageFor(batch[at]!, key, board.generation)));
        }
        break;
      }
      case 'settle': {
        const fates = each.fates.map((say): Fate => {
          // Mostly one that exists, whatever its state.
          const record =
            say.which === 20 ? undefined : board.records[say.which % board.records.length];
          return {
            reservationId: record?.reservationId ?? 'nobody',
            fate: say.fate,
            ...(say.reason === undefined ? {} : { reason: say.reason }),
          };
        });
        const changed = fates.filter((fate) => board.settle(fate)).length;
        if (changed > 0) board.step();
        const settled = await store.settle(key, fates, nowMs);
        expect(settled.changed).toBe(changed);
        agree(board, settled.mark);
        break;
      }
      case 'adjust': {
        const id = `adjustment-${each.id}`;
        const before = board.adjustments.get(id);
        if (before !== undefined && before !== each.delta) {
          await expect(store.adjust(key, id, each.delta, nowMs)).rejects.toThrow(RangeError);
          break;
        }
        const applied = before !== undefined || board.available + each.delta >= 0;
        if (before === undefined && applied) {
          board.adjustments.set(id, each.delta);
          board.total += each.delta;
          board.step();
        }
        const adjusted = await store.adjust(key, id, each.delta, nowMs);
        expect(adjusted.applied).toBe(applied);
        agree(board, adjusted.mark);
        break;
      }
      case 'pause':
        if (board.paused !== each.paused) {
          board.paused = each.paused;
          board.step();
        }
        agree(board, await store.setPaused(key, each.paused));
        break;
      case 'rebuild': {
        const live = board.records.filter(
          (record, at) => record.state !== 'released' && ((each.keep >> (at % 8)) & 1) === 1,
        );
        const units = live.reduce((sum, record) => sum + record.quantity, 0);
        const generation = board.generation + each.raise;
        if (each.raise > 0) {
          board.records = live;
          board.total = units + each.spare;
          board.generation = generation;
          board.sequence = Math.max(board.sequence, (generation - 1) * 2 ** 32);
          board.epoch += 1;
          board.step();
        }
        const state = { total: units + each.spare, generation, stockEpoch: 0, live };
        agree(board, await store.rebuild(key, state));
        break;
      }
      case 'preload': {
        const generation = board.generation + each.raise;
        if (each.raise > 0) {
          board.records = [];
          board.adjustments.clear();
          board.total = each.total;
          board.generation = generation;
          board.sequence = Math.max(board.sequence, (generation - 1) * 2 ** 32);
          board.epoch += 1;
          board.step();
        }
        agree(board, await store.preload(key, stockOf(each.total, { generation })));
      }
    }
  }
  for (const [at, board] of boards.entries()) {
    const key = at === 0 ? sku : otherSku;
    agree(board, await harness.store.mark(key));
    const live = board.records.filter((record) => record.state !== 'released');
    // Between parts of a SKU no order is promised within one millisecond.
    const inOrder = <Thing>(things: readonly Thing[]): readonly Thing[] =>
      harness.inParts === true
        ? things.toSorted((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1))
        : things;
    expect(inOrder(await harness.store.live(key, undefined, 1_000))).toEqual(inOrder(live));
    expect([...(await harness.store.holders(key))].sort()).toEqual(
      [...new Set(live.map((record) => record.personId))].sort(),
    );
    for (const record of board.records)
      expect(await harness.store.find(key, record.userId, record.requestId)).toEqual(record);
  }
  // In order of reserving within a SKU; between SKUs no order is promised.
  const sent = await harness.messages();
  const ordered = (texts: readonly string[]): readonly string[] =>
    harness.inParts === true ? texts.toSorted() : texts;
  for (const key of [sku, otherSku])
    expect(
      ordered(
        sent
          .filter((message) => message.skuId === key.skuId)
          .map((message) => JSON.stringify(message)),
      ),
    ).toEqual(ordered(messages.filter((message) => message.includes(`"skuId":"${key.skuId}"`))));
}
