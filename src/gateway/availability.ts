import { type Activity, type Phase, phaseAt, type SkuKey } from '../core/activity.ts';
import type { Clock } from '../ports/clock.ts';
import type { InventoryStore, StockMark } from '../ports/inventory-store.ts';
import type { OrderStore } from '../ports/order-store.ts';
import { epochIsSoldOut } from '../pipeline/sold-out-flags.ts';
import type { Availability } from '../wire/schemas.ts';

/** Below this share of the total, "low". */
export const lowShare = 0.2;

/** Age at which a mark is read again, ms; and while the system is overloaded. */
const freshMs = 1_000;
const freshInTroubleMs = 5_000;
/** By up to this share an age is shortened, so that SKUs are not all read again in one instant. */
const freshJitter = 0.15;

/** Marks kept; a deployment sells far fewer SKUs. */
const marksMax = 10_000;

/** What a shopper is told of stock. Never a promise, and never a number to race for. */
export function availabilityOf(mark: StockMark, paid: number): Availability {
  if (mark.available > 0 && !epochIsSoldOut(mark.stockEpoch)) {
    return mark.available > mark.total * lowShare ? 'plenty' : 'low';
  }
  // Units that are held or not paid for may come back.
  return mark.held > 0 || mark.ordered > paid ? 'maybe_later' : 'sold_out';
}

/** How the system is, and a draw from [0, 1) that keeps readings apart. */
export interface BoardMood {
  isCalm(): boolean;
  draw(): number;
}

const calm: BoardMood = { isCalm: () => true, draw: () => 0.5 };

interface Kept {
  mark: StockMark | undefined;
  /** Units paid for, as last read; only read once nothing is available. */
  paid: number;
  readUs: number;
  /** How long this reading is fresh, µs. */
  freshUs: number;
  reading: Promise<void> | undefined;
}

/**
 * Marks for people to look at: a mark older than a second is refreshed behind the answer, one read at
 * a time per SKU, so that a million lookers cost one store call a second. Only the first look waits.
 */
export class AvailabilityBoard {
  readonly #store: Pick<InventoryStore, 'mark'>;
  readonly #orders: Pick<OrderStore, 'stock'>;
  readonly #clock: Clock;
  readonly #kept = new Map<string, Kept>();
  readonly #mood: BoardMood;
  readonly #onError: (sku: SkuKey, error: unknown) => void;

  constructor(
    store: Pick<InventoryStore, 'mark'>,
    orders: Pick<OrderStore, 'stock'>,
    clock: Clock,
    onError: (sku: SkuKey, error: unknown) => void,
    mood: BoardMood = calm,
  ) {
    this.#store = store;
    this.#orders = orders;
    this.#clock = clock;
    this.#onError = onError;
    this.#mood = mood;
  }

  /** The last known mark, at once; starts a refresh when it has aged. */
  glance(sku: SkuKey): StockMark | undefined {
    const kept = this.#entry(sku);
    if (this.#clock.monoUs() - kept.readUs >= kept.freshUs) {
      void this.#refresh(sku, kept);
    }
    return kept.mark;
  }

  /** The same, but waits when nothing is known yet. */
  async look(sku: SkuKey): Promise<StockMark | undefined> {
    const mark = this.glance(sku);
    const kept = this.#entry(sku);
    if (mark !== undefined || kept.reading === undefined) return mark;
    await kept.reading;
    return kept.mark;
  }

  /** What was seen last, however old; asks nobody. */
  seen(sku: SkuKey): StockMark | undefined {
    return this.#entry(sku).mark;
  }

  /** Anything that carries a newer mark may bring it here: it saves a read. */
  learn(sku: SkuKey, mark: StockMark): void {
    const kept = this.#entry(sku);
    if (kept.mark !== undefined && isOlder(mark, kept.mark)) return;
    kept.mark = mark;
    kept.readUs = this.#clock.monoUs();
    kept.freshUs = freshMs * 1000;
  }

  /** Units paid for, as last read; meaningful once nothing is available. */
  paid(sku: SkuKey): number {
    return this.#entry(sku).paid;
  }

  availability(sku: SkuKey, mark = this.glance(sku)): Availability {
    return mark === undefined ? 'maybe_later' : availabilityOf(mark, this.#entry(sku).paid);
  }

  /** The activity's phase with stock laid over it: sold out when no SKU has any. */
  phase(activity: Activity, nowMs: number): Phase {
    const phase = phaseAt(activity, nowMs);
    if (phase !== 'open') return phase;
    const { activityId } = activity;
    const gone = activity.skus.every(({ skuId }) => {
      const mark = this.glance({ activityId, skuId });
      return mark !== undefined && (mark.available === 0 || epochIsSoldOut(mark.stockEpoch));
    });
    return gone ? 'sold_out' : phase;
  }

  #entry(sku: SkuKey): Kept {
    const key = `${sku.activityId}/${sku.skuId}`;
    let kept = this.#kept.get(key);
    if (kept === undefined) {
      kept = {
        mark: undefined,
        paid: 0,
        readUs: Number.NEGATIVE_INFINITY,
        freshUs: 0,
        reading: undefined,
      };
      if (this.#kept.size < marksMax) this.#kept.set(key, kept);
    }
    return kept;
  }

  #refresh(sku: SkuKey, kept: Kept): Promise<void> {
    kept.reading ??= this.#read(sku, kept).finally(() => {
      kept.reading = undefined;
    });
    return kept.reading;
  }

  async #read(sku: SkuKey, kept: Kept): Promise<void> {
    try {
      const mark = await this.#store.mark(sku);
      if (mark !== undefined && (kept.mark === undefined || !isOlder(mark, kept.mark))) {
        kept.mark = mark;
      }
      if (mark?.available === 0) kept.paid = (await this.#orders.stock(sku))?.paid ?? 0;
    } catch (error) {
      // The old mark stands; a failing store is asked again after a second, not by every looker.
      this.#onError(sku, error);
    }
    kept.readUs = this.#clock.monoUs();
    const ageMs = this.#mood.isCalm() ? freshMs : freshInTroubleMs;
    kept.freshUs = ageMs * 1000 * (1 - freshJitter * this.#mood.draw());
  }
}

function isOlder(a: StockMark, b: StockMark): boolean {
  return a.generation < b.generation || (a.generation === b.generation && a.sequence < b.sequence);
}
