import type { SkuKey } from '../../core/activity.ts';
import {
  inTransit,
  shardKey,
  type ShardState,
  unitsToTake,
  wholeMark,
} from '../../core/stock/shards.ts';
import { UnknownSkuError } from '../../ports/errors.ts';
import type { ShardStore, StockMark } from '../../ports/inventory-store.ts';

/** What one process knows of SKUs in parts, and how units get from one part to another. */
export class Places {
  readonly #store: ShardStore;
  readonly #known = new Map<string, Whole>();

  constructor(store: ShardStore) {
    this.#store = store;
  }

  /** Undefined for a SKU that is not loaded. Remembered once it is: shards are fixed for its life. */
  async whole(sku: SkuKey): Promise<Whole | undefined> {
    const known = this.#known.get(nameOf(sku));
    if (known !== undefined) return known;
    const [plain, first] = await Promise.all([
      this.#store.mark(sku),
      this.#store.shard(shardKey(sku, 0)),
    ]);
    if (first === undefined) {
      if (plain === undefined) return undefined;
      return this.#remember(sku, { keys: [sku], states: [], seen: [], mark: plain });
    }
    const keys = keysOf(sku, first.shards);
    const states = await this.states({ keys });
    if (states === undefined) {
      // A first load that died half-way, or a part of the store that is gone: not remembered.
      return { keys, states: [], seen: [], mark: nothing };
    }
    const whole: Whole = { keys, states, seen: [], mark: nothing };
    this.learn(whole, states);
    return this.#remember(sku, whole);
  }

  #remember(sku: SkuKey, whole: Whole): Whole {
    const name = nameOf(sku);
    // Two who ask at once remember one and the same.
    const other = this.#known.get(name);
    if (other !== undefined) return other;
    if (this.#known.size >= knownMax) this.#known.clear();
    this.#known.set(name, whole);
    return whole;
  }

  forget(sku: SkuKey): void {
    this.#known.delete(nameOf(sku));
  }

  /** Looks at all shards. @throws UnknownSkuError where one of them is gone. */
  async look(sku: SkuKey, whole: Whole): Promise<StockMark> {
    const states = await this.states(whole);
    if (states === undefined) throw gone(sku);
    return this.learn(whole, states);
  }

  async states(whole: Pick<Whole, 'keys'>): Promise<ShardState[] | undefined> {
    const states = await Promise.all(whole.keys.map((key) => this.#store.shard(key)));
    const there = states.filter((state) => state !== undefined);
    return there.length === states.length ? there : undefined;
  }

  /** Of two looks that crossed each other on their way, the later one is kept, shard by shard. */
  learn(whole: Whole, states: readonly ShardState[]): StockMark {
    whole.states = states.map((state, at) => later(whole.states[at], state));
    for (const [at, { mark }] of states.entries()) {
      whole.seen[at] = Math.max(whole.seen[at] ?? 0, mark.sequence);
    }
    whole.mark = wholeMark(whole.states);
    return whole.mark;
  }

  #learnState(whole: Whole, at: number, state: ShardState): void {
    whole.states[at] = later(whole.states[at], state);
    whole.seen[at] = Math.max(whole.seen[at] ?? 0, state.mark.sequence);
    whole.mark = wholeMark(whole.states);
  }

  learnOne(whole: Whole, at: number, mark: StockMark): void {
    const known = whole.states[at];
    if (known !== undefined) this.#learnState(whole, at, { ...known, mark });
  }

  /**
   * Brings units to a shard until it has `wanted`, as far as there are any. False: not even `least` are
   * to be had, in any shard or on their way.
   */
  async gather(
    sku: SkuKey,
    whole: Whole,
    home: number,
    wanted: number,
    least = wanted,
  ): Promise<boolean> {
    // Where it would not be enough nothing moves: a refusal changes nothing.
    if ((await this.look(sku, whole)).available < least) return false;
    for (const move of inTransit(whole.states)) {
      // Of others who died or are at it now: whoever ends it, it is ended once.
      await this.#receive(whole, move.to, move.from, move.upTo);
    }
    const has = (): number => whole.states[home]?.mark.available ?? 0;
    const givers = whole.states
      .map(({ mark }, at) => ({ at, available: mark.available }))
      .filter(({ at, available }) => at !== home && available > 0)
      .sort((a, b) => b.available - a.available);
    for (const { at, available } of givers) {
      const missing = wanted - has();
      if (missing <= 0) break;
      const generation = whole.states[at]?.mark.generation ?? 0;
      const units = unitsToTake(available, missing);
      const sent = await this.#store.moveOut(keyAt(whole, at), home, units, generation);
      if (sent === undefined) throw gone(sku);
      this.#learnState(whole, at, sent);
      await this.#receive(whole, home, at, sent.out[home] ?? 0);
    }
    return has() >= least || (await this.look(sku, whole)).available >= least;
  }

  async #receive(whole: Whole, to: number, from: number, upTo: number): Promise<void> {
    const generation = whole.states[to]?.mark.generation ?? 0;
    const state = await this.#store.moveIn(keyAt(whole, to), from, upTo, generation);
    if (state !== undefined) this.#learnState(whole, to, state);
  }
}

/** A shard's sequence only grows, from one generation to the next as well. */
function later(known: ShardState | undefined, state: ShardState): ShardState {
  return known !== undefined && known.mark.sequence > state.mark.sequence ? known : state;
}

/** SKUs remembered at once. */
const knownMax = 10_000;

export const nothing: StockMark = {
  total: 0,
  available: 0,
  held: 0,
  ordered: 0,
  sequence: 0,
  generation: 0,
  stockEpoch: 1,
  paused: false,
};

/** What is known of a SKU in parts. */
export interface Whole {
  readonly keys: readonly SkuKey[];
  states: ShardState[];
  /** Highest sequence of each. */
  readonly seen: number[];
  mark: StockMark;
}

export const nameOf = ({ activityId, skuId }: SkuKey): string => `${activityId}/${skuId}`;

export const keysOf = (sku: SkuKey, shards: number): readonly SkuKey[] =>
  Array.from({ length: shards }, (_, at) => shardKey(sku, at));

export function keyAt({ keys }: Whole, at: number): SkuKey {
  const key = keys[at];
  if (key === undefined) throw new RangeError(`shard ${at} of ${keys.length}`);
  return key;
}

export const gone = ({ activityId, skuId }: SkuKey): UnknownSkuError =>
  new UnknownSkuError(activityId, skuId);
