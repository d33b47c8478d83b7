import type { SkuKey } from '../core/activity.ts';
import type { InventoryStore, StockMark } from '../ports/inventory-store.ts';
import { Bloom, type BloomBytes } from './bloom.ts';

/**
 * What this instance believes about sold-out stock, so that a million late submits cost no store call.
 *
 * The flag only saves work; stock is decided by the store alone. Four traps, and what is done:
 *
 * 1. Order. A reopening and an older sell-out may arrive in either order. Every statement carries
 *    (generation, stock epoch); only a higher pair changes the flag, an equal one refreshes it.
 * 2. A lost message. A flag past its TTL lets one request through as a probe while everybody else
 *    keeps the answer; what the store says to the probe refreshes or clears the flag. A probe that
 *    never reached the store (its sender was nobody) is replaced by one read of our own, so that a
 *    crowd of strangers can neither hold the flag up for ever nor turn every request into a probe.
 * 3. The winner. Somebody who holds a unit and asks again must hear that they won. So the flag
 *    answers only once it has the filter of holders of this very epoch; without it, requests go on to
 *    the store. In a sold-out epoch nobody becomes a holder (there is nothing to take), so a filter
 *    read in that epoch is complete; holders who leave only make it too generous.
 * 4. Growth. One entry per SKU on sale, bounded; filters are bounded by their own size.
 */

/** Time for which a flag is believed without being confirmed, ms. */
export const soldOutTtlMs = 2_000;

/** For how long a flag that was found wrong is spoken of, ms. */
export const divergenceSpanMs = 60_000;

/** SKUs with a flag at once. A deployment sells far fewer; the bound keeps a mistake harmless. */
export const flaggedSkusMax = 10_000;

export interface StockEvent {
  readonly schemaVersion: 1;
  readonly messageId: string;
  readonly eventType: 'SOLD_OUT' | 'STOCK_REOPENED';
  readonly activityId: string;
  readonly skuId: string;
  readonly activityVersion: number;
  readonly stockEpoch: number;
  readonly generation: number;
  readonly emittedAtMs: number;
}

/** Everything another instance needs to answer for this SKU: state and holders of one epoch. */
export interface SoldOutSnapshot {
  readonly activityId: string;
  readonly skuId: string;
  readonly soldOut: boolean;
  readonly stockEpoch: number;
  readonly generation: number;
  /** Present when sold out. */
  readonly holders?: BloomBytes;
}

/** The order of a SKU's history. */
export type Epoch = Pick<StockMark, 'generation' | 'stockEpoch'>;

/** Even epochs are open, odd ones sold out. */
export const epochIsSoldOut = (stockEpoch: number): boolean => stockEpoch % 2 === 1;

/** Negative when `a` is older than `b`, 0 when the same. */
export function compareEpochs(a: Epoch, b: Epoch): number {
  return a.generation - b.generation || a.stockEpoch - b.stockEpoch;
}

/** `sold_out`: answer so. `pass`: go on. `probe`: go on, and report with `confirmed` or `probeLost`. */
export type FlagVerdict = 'sold_out' | 'pass' | 'probe';

interface Flag {
  epoch: Epoch;
  confirmedAtUs: number;
  probeSinceUs: number | undefined;
  holders: Bloom | undefined;
  refreshing: boolean;
}

export interface SoldOutFlagsOptions {
  readonly store: Pick<InventoryStore, 'mark' | 'holders'>;
  readonly monoUs: () => number;
  /** Told when this instance itself learns of a change, so that it can be broadcast. */
  readonly onChange?: (sku: SkuKey, soldOut: boolean, epoch: Epoch) => void;
  /** A refresh failed: worth a log line; the flag is left as it is and tried again after the TTL. */
  readonly onError?: (sku: SkuKey, error: unknown) => void;
}

/** Keys of SKU objects that come again and again: building one costs more than finding it. */
const keys = new WeakMap<SkuKey, string>();

function keyOf(sku: SkuKey): string {
  let key = keys.get(sku);
  if (key === undefined) {
    key = `${sku.activityId}/${sku.skuId}`;
    keys.set(sku, key);
  }
  return key;
}

export class SoldOutFlags {
  readonly #flags = new Map<string, Flag>();
  readonly #options: SoldOutFlagsOptions;
  #hits = 0;
  /** The longest found wrong in this span, and in the one before. */
  #diverged = { span: 0, worstUs: 0, beforeUs: 0 };

  constructor(options: SoldOutFlagsOptions) {
    this.#options = options;
  }

  /**
   * What to tell a submit for this SKU by this (unverified) person; `undefined` is nobody in
   * particular. O(1).
   */
  ask(sku: SkuKey, personId: string | undefined): FlagVerdict {
    const flag = this.#flags.get(keyOf(sku));
    if (flag === undefined || !epochIsSoldOut(flag.epoch.stockEpoch)) return 'pass';
    if (flag.holders === undefined) {
      this.#refresh(sku, flag);
      return 'pass';
    }
    const nowUs = this.#options.monoUs();
    if (nowUs - flag.confirmedAtUs >= soldOutTtlMs * 1000) {
      const stale = flag.probeSinceUs;
      if (stale === undefined || nowUs - stale >= soldOutTtlMs * 1000) {
        flag.probeSinceUs = nowUs;
        return 'probe';
      }
    }
    if (personId !== undefined && flag.holders.mayHave(personId)) return 'pass';
    this.#hits += 1;
    return 'sold_out';
  }

  /** The store's own word (the mark of any reply): the flag follows it at once. */
  observe(sku: SkuKey, mark: Epoch): void {
    this.#accept(sku, mark, undefined);
  }

  /** A broadcast. May be old, repeated, or lost. */
  hear(event: StockEvent): void {
    const sku = { activityId: event.activityId, skuId: event.skuId };
    if (epochIsSoldOut(event.stockEpoch) !== (event.eventType === 'SOLD_OUT')) return;
    this.#accept(sku, event, undefined);
  }

  /** A periodic snapshot: heals lost broadcasts, and brings the holders. */
  load(snapshot: SoldOutSnapshot): void {
    const holders = snapshot.holders === undefined ? undefined : Bloom.from(snapshot.holders);
    this.#accept(snapshot, snapshot, holders);
  }

  /** The probe for this SKU ended without the store being asked: one read of our own instead. */
  probeLost(sku: SkuKey): void {
    const flag = this.#flags.get(keyOf(sku));
    if (flag !== undefined) this.#refresh(sku, flag);
  }

  isSoldOut(sku: SkuKey): boolean {
    const flag = this.#flags.get(keyOf(sku));
    return flag !== undefined && epochIsSoldOut(flag.epoch.stockEpoch);
  }

  epochOf(sku: SkuKey): Epoch | undefined {
    return this.#flags.get(keyOf(sku))?.epoch;
  }

  /** Answers given from a flag since the start. */
  get hits(): number {
    return this.#hits;
  }

  /**
   * Longest time, ms, for which a flag may have said sold out of stock that was there again, among those
   * found wrong in the last minute or two: from the store's last word for it to the one against it.
   */
  get divergenceMs(): number {
    this.#noteDivergence(0);
    return Math.max(this.#diverged.worstUs, this.#diverged.beforeUs) / 1000;
  }

  #noteDivergence(us: number): void {
    const span = Math.floor(this.#options.monoUs() / (divergenceSpanMs * 1000));
    const { span: last, worstUs } = this.#diverged;
    if (span > last) {
      this.#diverged = { span, worstUs: 0, beforeUs: span === last + 1 ? worstUs : 0 };
    }
    this.#diverged.worstUs = Math.max(this.#diverged.worstUs, us);
  }

  #accept(sku: SkuKey, epoch: Epoch, holders: Bloom | undefined): void {
    const nowUs = this.#options.monoUs();
    const key = keyOf(sku);
    const flag = this.#flags.get(key);
    if (flag === undefined) {
      if (this.#flags.size >= flaggedSkusMax) return;
      this.#flags.set(key, fresh(epoch, nowUs, holders));
      if (epochIsSoldOut(epoch.stockEpoch)) this.#announce(sku, epoch);
      return;
    }
    const order = compareEpochs(epoch, flag.epoch);
    if (order < 0) return;
    if (order === 0) {
      flag.confirmedAtUs = nowUs;
      flag.probeSinceUs = undefined;
      if (holders !== undefined) flag.holders = holders;
      return;
    }
    if (epochIsSoldOut(flag.epoch.stockEpoch) && !epochIsSoldOut(epoch.stockEpoch)) {
      this.#noteDivergence(nowUs - flag.confirmedAtUs);
    }
    const changed = epochIsSoldOut(flag.epoch.stockEpoch) !== epochIsSoldOut(epoch.stockEpoch);
    this.#flags.set(key, { ...fresh(epoch, nowUs, holders), refreshing: flag.refreshing });
    if (changed) this.#announce(sku, epoch);
  }

  #announce(sku: SkuKey, epoch: Epoch): void {
    this.#options.onChange?.(sku, epochIsSoldOut(epoch.stockEpoch), epoch);
  }

  /** At most one at a time per SKU. */
  #refresh(sku: SkuKey, flag: Flag): void {
    if (flag.refreshing) return;
    flag.refreshing = true;
    readSnapshot(this.#options.store, sku)
      .then(
        (snapshot) => {
          if (snapshot !== undefined) this.load(snapshot);
        },
        (error: unknown) => this.#options.onError?.(sku, error),
      )
      .finally(() => {
        const now = this.#flags.get(keyOf(sku));
        if (now !== undefined) now.refreshing = false;
      });
  }
}

function fresh(epoch: Epoch, nowUs: number, holders: Bloom | undefined): Flag {
  return {
    epoch: { generation: epoch.generation, stockEpoch: epoch.stockEpoch },
    confirmedAtUs: nowUs,
    probeSinceUs: undefined,
    holders: epochIsSoldOut(epoch.stockEpoch) ? holders : undefined,
    refreshing: false,
  };
}

/**
 * The snapshot of one SKU from the store: the mark, and when sold out the filter of its holders. The
 * mark is read before and after the holders, so that state and filter belong to one epoch; a SKU
 * that moves in between is read as its later state without a filter. Two or three store calls,
 * O(holders). Rejects as the store does.
 */
export async function readSnapshot(
  store: Pick<InventoryStore, 'mark' | 'holders'>,
  sku: SkuKey,
): Promise<SoldOutSnapshot | undefined> {
  const mark = await store.mark(sku);
  if (mark === undefined) return undefined;
  if (!epochIsSoldOut(mark.stockEpoch)) return snapshotOf(sku, mark, undefined);
  const holders = await store.holders(sku);
  const after = await store.mark(sku);
  if (after === undefined) return undefined;
  const same = compareEpochs(mark, after) === 0;
  return snapshotOf(sku, after, same ? Bloom.of(holders, holders.length).toBytes() : undefined);
}

function snapshotOf(
  sku: SkuKey,
  mark: StockMark,
  holders: BloomBytes | undefined,
): SoldOutSnapshot {
  return {
    activityId: sku.activityId,
    skuId: sku.skuId,
    soldOut: epochIsSoldOut(mark.stockEpoch),
    stockEpoch: mark.stockEpoch,
    generation: mark.generation,
    ...(holders === undefined ? {} : { holders }),
  };
}
