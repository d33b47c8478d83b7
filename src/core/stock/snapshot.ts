import type { SkuKey } from '../activity.ts';
import type { Preload, RequestRecord } from './model.ts';
import type { Buried } from './outbox.ts';
import type { MessageExtras, Reservation } from './reservation.ts';
import { recordOf, reservationOf } from './reservation.ts';
import { SkuStock } from './sku-stock.ts';
import type { Frozen, StockMachine } from './stock-machine.ts';
import { skuName } from './stock-machine.ts';

/**
 * The whole state as lines, drawn in slices while the sale goes on, yet exactly as it was when the
 * drawing began.
 *
 * Copying a million reservations at once would stop the sale for a second. But reservations are only
 * ever added at the end of a list, and of an old one only its state changes. So it is enough to note
 * how long each list is, and, from then on, to keep the old state of whatever is settled meanwhile
 * (`machine.frozen`). Lists are replaced on rebuilding, never emptied, so the one noted stays whole.
 */
export type SnapshotLine =
  /** SKU. */
  | readonly ['S', SkuHead]
  /** Reservations of the SKU above, in order. */
  | readonly ['R', readonly RequestRecord[]]
  /** Outbox: next number, acknowledged. */
  | readonly ['O', number, number]
  /** Messages that wait: number, attempts, what they say beyond their reservation, reservation. */
  | readonly ['M', readonly (readonly [number, number, MessageExtras, RequestRecord])[]]
  | readonly ['D', Buried];

interface SkuHead {
  readonly key: SkuKey;
  readonly total: number;
  readonly generation: number;
  readonly sequence: number;
  readonly stockEpoch: number;
  readonly paused: boolean;
  readonly seats?: readonly string[];
  readonly adjustments: readonly (readonly [string, number])[];
  /** Of a shard: how many there are, units sent to each, units received from each. */
  readonly moves?: readonly [shards: number, sent: readonly number[], received: readonly number[]];
}

/** Objects per line: a line takes well under a millisecond to make. */
const perLine = 64;

/** Notes the state at once; the lines may be drawn whenever. Call `endSnapshot` when done or failed. */
export function beginSnapshot(machine: StockMachine): Iterable<string> {
  const frozen: Frozen = new Map();
  machine.frozen = frozen;
  const heads = [...machine.skus.values()].map(({ key, stock }) => ({
    head: {
      key,
      total: stock.total,
      generation: stock.generation,
      sequence: stock.sequence,
      stockEpoch: stock.stockEpoch,
      paused: stock.paused,
      ...(stock.seats === undefined ? {} : { seats: stock.seats.names }),
      adjustments: [...stock.adjustments],
      ...(stock.shards === 1 ? {} : { moves: movesOf(stock) }),
    } satisfies SkuHead,
    order: stock.order,
    count: stock.order.length,
  }));
  const { outbox } = machine;
  const counters = ['O', outbox.nextNumber, outbox.acknowledged] as const;
  const messages = [...outbox.pending.values()];
  const attempts = Uint32Array.from(messages, (each) => each.attempts);
  const buried = [...outbox.buried.values()];

  const asItWas = (reservation: Reservation): RequestRecord =>
    recordOf({ ...reservation, ...frozen.get(reservation) });

  function* lines(): Generator<SnapshotLine> {
    for (const { head, order, count } of heads) {
      yield ['S', head];
      for (let at = 0; at < count; at += perLine)
        yield ['R', order.slice(at, Math.min(count, at + perLine)).map(asItWas)];
    }
    yield counters;
    for (let at = 0; at < messages.length; at += perLine)
      yield [
        'M',
        messages
          .slice(at, at + perLine)
          .map(
            ({ number, extras, reservation }, index) =>
              [number, attempts[at + index] ?? 0, extras, asItWas(reservation)] as const,
          ),
      ];
    for (const each of buried) yield ['D', each];
  }

  return {
    *[Symbol.iterator]() {
      for (const line of lines()) yield JSON.stringify(line);
    },
  };
}

export function endSnapshot(machine: StockMachine): void {
  machine.frozen = undefined;
}

/** Rebuilds a machine, line by line and in order, from what a snapshot wrote. */
export class SnapshotReader {
  readonly #machine: StockMachine;
  #stock: SkuStock | undefined;

  constructor(machine: StockMachine) {
    this.#machine = machine;
  }

  read(line: SnapshotLine): void {
    switch (line[0]) {
      case 'S':
        this.#readSku(line[1]);
        return;
      case 'R':
        if (this.#stock === undefined) throw new Error('Reservations without a SKU in a snapshot');
        for (const record of line[1]) this.#stock.take(reservationOf(record));
        return;
      case 'O':
        this.#machine.outbox.nextNumber = line[1];
        this.#machine.outbox.acknowledged = line[2];
        return;
      case 'M':
        for (const [number, attempts, extras, record] of line[1])
          this.#readMessage(number, attempts, extras, record);
        return;
      case 'D':
        this.#machine.outbox.buried.set(line[1].number, line[1]);
        return;
      default:
        throw new Error(`Not a snapshot of this version: ${JSON.stringify(line).slice(0, 200)}`);
    }
  }

  #readSku(head: SkuHead): void {
    const preload: Preload = {
      total: head.total,
      generation: head.generation,
      stockEpoch: head.stockEpoch,
      ...(head.seats === undefined ? {} : { seats: head.seats }),
    };
    const stock = new SkuStock(preload);
    stock.sequence = head.sequence;
    // The constructor chose an epoch for a full stock; this one was sealed with its own.
    stock.stockEpoch = head.stockEpoch;
    stock.paused = head.paused;
    for (const [id, delta] of head.adjustments) stock.adjustments.set(id, delta);
    if (head.moves !== undefined) {
      const [shards, out, into] = head.moves;
      stock.shards = shards;
      stock.movedOut = [...out];
      stock.movedIn = [...into];
    }
    this.#machine.skus.set(skuName(head.key), { key: head.key, stock });
    this.#stock = stock;
  }

  #readMessage(
    number: number,
    attempts: number,
    extras: MessageExtras,
    record: RequestRecord,
  ): void {
    const stock = this.#machine.skus.get(skuName(extras))?.stock;
    const known = stock?.byId(record.reservationId);
    // A message older than a rebuild may speak of a reservation that the SKU no longer knows.
    const reservation =
      known !== undefined && known.generation === record.generation ? known : reservationOf(record);
    this.#machine.outbox.restore({ number, attempts, extras, reservation });
    if (stock !== undefined) stock.waiting += 1;
  }
}

function movesOf(stock: SkuStock): NonNullable<SkuHead['moves']> {
  const { shards, out, in: into } = stock.shardState();
  return [shards, out, into];
}
