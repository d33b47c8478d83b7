import type { SkuKey } from '../../core/activity.ts';
import { quantityMax } from '../../core/bounds.ts';
import {
  epochOfEach,
  evenParts,
  homeShard,
  shardKey,
  shardOfReservation,
  wholeMark,
} from '../../core/stock/shards.ts';
import {
  checkAdjustment,
  checkBatch,
  checkPreload,
  checkRebuild,
  sequenceBase,
} from '../../core/stock/validate.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type {
  Fate,
  InventoryStore,
  Preload,
  Rebuild,
  RequestRecord,
  ReserveOutcome,
  ReserveReply,
  ReserveRequest,
  SettleReply,
  ShardStore,
  StockMark,
} from '../../ports/inventory-store.ts';
import { gone, keyAt, keysOf, nameOf, nothing, Places, type Whole } from './places.ts';

/**
 * An inventory store whose SKUs may be cut into shards, over a store that knows each shard as a SKU of
 * its own. How shards, homes and moves work stands in core/stock/shards.ts; here is who asks whom.
 *
 * - A SKU says itself how many shards it has: what it was loaded with stands beside its stock, so all
 *   processes agree whatever their configuration says meanwhile. One without shards passes through.
 * - `reserve` goes to the home shard alone. Where the home has less than is wanted, units are gathered
 *   first: moves that others began are ended, then the fullest shards give. Only when nothing is left
 *   in any shard and nothing is on its way is the SKU sold out. Where everything is on the move for
 *   longer than a few looks, nothing is done and the caller is told to come back.
 * - A reservation id says its home, so a settlement goes to that shard alone; one whose id does not say
 *   (made by an older version, or elsewhere) is told to all, of whom the others ignore it. A question
 *   after a request goes to its person's home first.
 * - What concerns everybody (pause, rebuild, forget) is said to one shard after the other; each of these
 *   is repeated by whoever finds it half done, and the whole counts as the least of its parts.
 * - Each shard's highest sequence is remembered here, so that one that has forgotten is noticed as it is
 *   with a single place; then all of them stop.
 */
export class ShardedInventoryStore implements InventoryStore {
  readonly #store: ShardStore;
  readonly #places: Places;

  constructor(store: ShardStore) {
    this.#store = store;
    this.#places = new Places(store);
  }

  async preload(sku: SkuKey, stock: Preload): Promise<StockMark> {
    checkPreload(stock);
    const shards = stock.shards ?? 1;
    const standing = await this.#places.whole(sku);
    const count = standing?.keys.length ?? shards;
    if (count === 1) {
      const { shards: _other, ...plain } = stock;
      return this.#store.preload(sku, plain);
    }
    if (standing !== undefined) await this.#refuseRemains(sku, standing);
    const parts = evenParts(stock.total, count);
    for (const [shard, total] of parts.entries()) {
      const { generation } = stock;
      const stockEpoch = stock.stockEpoch === 0 ? 0 : epochOfEach(stock.stockEpoch, count);
      const part = { total, generation, stockEpoch, shards: count };
      await this.#store.preload(shardKey(sku, shard), part);
    }
    const mark = await this.mark(sku);
    if (mark === undefined) throw gone(sku);
    return mark;
  }

  async reserve(
    sku: SkuKey,
    batch: readonly ReserveRequest[],
    seenSequence: number,
    nowMs: number,
  ): Promise<ReserveReply> {
    checkBatch(batch);
    const whole = await this.#places.whole(sku);
    if (whole === undefined || whole.keys.length === 1) {
      return this.#store.reserve(sku, batch, seenSequence, nowMs);
    }
    if (whole.states.length > 0 && seenSequence > whole.mark.sequence) {
      await this.#places.look(sku, whole);
      if (seenSequence > whole.mark.sequence) return this.#forgotten(sku);
    }
    if (whole.states.length === 0) return { kind: 'unknown_sku' };
    if (batch.length === 0) return { kind: 'done', outcomes: [], mark: whole.mark };
    const outcomes: ReserveOutcome[] = [];
    // In order: who comes first is judged first, as far as that can be said of several places.
    for (const run of runsOf(batch, whole.keys.length)) {
      const reply = await this.#reserveAt(sku, whole, run.home, run.requests, nowMs);
      if (reply.kind === 'done') outcomes.push(...reply.outcomes);
      else if (outcomes.length === 0) return reply;
      // Some of them stand already, so it cannot be said of the batch that nothing was done.
      else throw new OutcomeUnknownError(`shards of ${sku.skuId} differ: one is ${reply.kind}`);
    }
    return { kind: 'done', outcomes, mark: whole.mark };
  }

  async find(
    sku: SkuKey,
    userId: string,
    requestId: string,
    personId = userId,
  ): Promise<RequestRecord | undefined> {
    const keys = await this.#keys(sku);
    // At home it is found, unless the person was another when it reserved.
    const home = keys[homeShard(personId, keys.length)];
    const known = home && (await this.#store.find(home, userId, requestId));
    if (known !== undefined) return known;
    const others = keys.filter((key) => key !== home);
    const found = await Promise.all(others.map((key) => this.#store.find(key, userId, requestId)));
    return found.find((record) => record !== undefined);
  }

  async settle(sku: SkuKey, fates: readonly Fate[], nowMs: number): Promise<SettleReply> {
    const whole = await this.#places.whole(sku);
    if (whole === undefined || whole.keys.length === 1) {
      return this.#store.settle(sku, fates, nowMs);
    }
    let changed = 0;
    let loaded = whole.states.length > 0;
    for (const [said, part] of partsOf(fates)) {
      const before = changed;
      for (const [at, own] of placesOf(part, whole.keys.length)) {
        const reply = await this.#store.settle(keyAt(whole, at), own, nowMs);
        changed += reply.changed;
        loaded &&= reply.mark.generation > 0;
        this.#places.learnOne(whole, at, reply.mark);
      }
      if (said === 'retaken' && changed === before) {
        changed += await this.#retake(sku, whole, part, nowMs);
      }
    }
    return { changed, mark: loaded ? whole.mark : nothing };
  }

  async adjust(
    sku: SkuKey,
    adjustmentId: string,
    delta: number,
    nowMs: number,
  ): Promise<{ readonly applied: boolean; readonly mark: StockMark }> {
    const whole = await this.#places.whole(sku);
    if (whole === undefined || whole.keys.length === 1) {
      return this.#store.adjust(sku, adjustmentId, delta, nowMs);
    }
    checkAdjustment(delta, whole.mark.total);
    // Always the same shard for the same id, so that it is the same adjustment.
    const at = homeShard(adjustmentId, whole.keys.length);
    const key = keyAt(whole, at);
    let { applied } = await this.#store.adjust(key, adjustmentId, delta, nowMs);
    if (!applied && delta < 0 && (await this.#places.gather(sku, whole, at, -delta))) {
      ({ applied } = await this.#store.adjust(key, adjustmentId, delta, nowMs));
    }
    return { applied, mark: await this.#places.look(sku, whole) };
  }

  async setPaused(sku: SkuKey, paused: boolean): Promise<StockMark> {
    const whole = await this.#places.whole(sku);
    if (whole === undefined || whole.keys.length === 1) return this.#store.setPaused(sku, paused);
    for (const key of whole.keys) await this.#store.setPaused(key, paused);
    return this.#places.look(sku, whole);
  }

  async mark(sku: SkuKey): Promise<StockMark | undefined> {
    const whole = await this.#places.whole(sku);
    if (whole === undefined || whole.keys.length === 1) return this.#store.mark(sku);
    const states = await this.#places.states(whole);
    if (states === undefined) return undefined;
    this.#places.learn(whole, states);
    // As it is, and not as it was known: the store may have forgotten.
    return wholeMark(states);
  }

  async holders(sku: SkuKey): Promise<readonly string[]> {
    const keys = await this.#keys(sku);
    return (await Promise.all(keys.map((key) => this.#store.holders(key)))).flat();
  }

  async live(
    sku: SkuKey,
    after: string | undefined,
    limit: number,
  ): Promise<readonly RequestRecord[]> {
    const keys = await this.#keys(sku);
    const [only] = keys;
    if (keys.length === 1 && only !== undefined) return this.#store.live(only, after, limit);
    // One shard after the other, the oldest of each first.
    let at = 0;
    const page: RequestRecord[] = [];
    if (after !== undefined) {
      const found = await this.#pageAfter(keys, after, limit);
      page.push(...found.page);
      at = found.at + 1;
    }
    for (; at < keys.length && page.length < limit; at += 1) {
      const key = keys[at];
      if (key === undefined) break;
      page.push(...(await this.#store.live(key, undefined, limit - page.length)));
    }
    return page;
  }

  /** The rest of the shard that knows this reservation. */
  async #pageAfter(
    keys: readonly SkuKey[],
    after: string,
    limit: number,
  ): Promise<{ readonly at: number; readonly page: readonly RequestRecord[] }> {
    let unknown: unknown;
    for (const [at, key] of keys.entries()) {
      try {
        return { at, page: await this.#store.live(key, after, limit) };
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        unknown = error;
      }
    }
    throw unknown;
  }

  async rebuild(sku: SkuKey, state: Rebuild): Promise<StockMark> {
    checkRebuild(state);
    const standing = await this.#places.whole(sku);
    const count = standing?.keys.length ?? state.shards ?? 1;
    if (count === 1) return this.#store.rebuild(sku, state);
    const { mark } = standing ?? {};
    if (standing !== undefined && mark !== undefined && mark.generation >= state.generation) {
      return this.#places.look(sku, standing);
    }
    const keys = standing?.keys ?? keysOf(sku, count);
    // Until all of them are of one generation, none of them may sell.
    let wasPaused = false;
    for (const key of keys) wasPaused = (await this.#stop(key)) || wasPaused;
    const live = keys.map((): RequestRecord[] => []);
    for (const record of state.live) live[homeShard(record.personId, count)]?.push(record);
    const taken = state.live.reduce((sum, { quantity }) => sum + quantity, 0);
    const free = evenParts(state.total - taken, count);
    for (const [shard, key] of keys.entries()) {
      const own = live[shard] ?? [];
      const units = own.reduce((sum, { quantity }) => sum + quantity, 0);
      await this.#store.rebuild(key, {
        total: units + (free[shard] ?? 0),
        generation: state.generation,
        stockEpoch: epochOfEach(Math.max(state.stockEpoch, mark?.stockEpoch ?? 0), count),
        live: own,
        shards: count,
      });
    }
    if (standing !== undefined && !wasPaused) return this.setPaused(sku, false);
    const rebuilt = await this.mark(sku);
    if (rebuilt === undefined) throw gone(sku);
    return rebuilt;
  }

  async forget(sku: SkuKey): Promise<boolean> {
    const keys = await this.#keys(sku);
    const states = await Promise.all(keys.map((key) => this.#store.shard(key)));
    // All or none, as far as can be seen: nobody is owed anything by any of them.
    if (states.some((state) => state !== undefined && state.mark.held + state.waiting > 0)) {
      return false;
    }
    let all = true;
    for (const key of keys) all = (await this.#store.forget(key)) && all;
    if (all) this.#places.forget(sku);
    return all;
  }

  close(): Promise<void> {
    return this.#store.close();
  }

  /** One home's part of a batch, with units fetched from elsewhere where the home has too few. */
  async #reserveAt(
    sku: SkuKey,
    whole: Whole,
    home: number,
    requests: readonly ReserveRequest[],
    nowMs: number,
  ): Promise<ReserveReply> {
    const needed = requests.reduce((sum, { quantity }) => sum + quantity, 0);
    const own = whole.states[home]?.mark;
    if (own !== undefined && own.available < needed && !own.paused) {
      const least = Math.min(...requests.map(({ quantity }) => quantity));
      await this.#places.gather(sku, whole, home, needed, least);
    }
    const key = keyAt(whole, home);
    const outcomes: (ReserveOutcome | undefined)[] = requests.map(() => undefined);
    for (let look = 0; look < looksMax; look += 1) {
      const open = requests.flatMap((_, at) => (outcomes[at] === undefined ? [at] : []));
      const asked = open.flatMap((at) => requests[at] ?? []);
      const reply = await this.#store.reserve(key, asked, whole.seen[home] ?? 0, nowMs);
      if (reply.kind === 'unknown_sku') return reply;
      this.#places.learnOne(whole, home, reply.mark);
      if (reply.kind === 'forgotten') return this.#forgotten(sku);
      if (reply.kind === 'paused') {
        if (look === 0) return { kind: 'paused', mark: await this.#places.look(sku, whole) };
        throw new OutcomeUnknownError(`${sku.skuId} was paused while units were fetched for it`);
      }
      let short = 0;
      for (const [n, outcome] of reply.outcomes.entries()) {
        const at = open[n] ?? 0;
        if (outcome.kind === 'sold_out') short += requests[at]?.quantity ?? 0;
        else outcomes[at] = outcome;
      }
      if (short === 0) break;
      // Nothing anywhere, and nothing on its way: what is still open is sold out.
      if (!(await this.#places.gather(sku, whole, home, short, smallestOpen(requests, outcomes)))) {
        return { kind: 'done', outcomes: outcomes.map((one) => one ?? soldOut), mark: whole.mark };
      }
    }
    if (outcomes.includes(undefined)) {
      const some = outcomes.some((one) => one?.kind === 'reserved');
      const detail = `units of ${sku.skuId} are on their way between shards`;
      throw some ? new OutcomeUnknownError(detail) : new UnavailableError(detail);
    }
    return { kind: 'done', outcomes: outcomes.map((one) => one ?? soldOut), mark: whole.mark };
  }

  /** Late money: the units may lie anywhere, and only its own shard knows the reservation. */
  async #retake(sku: SkuKey, whole: Whole, fates: readonly Fate[], nowMs: number): Promise<number> {
    for (const [at, own] of placesOf(fates, whole.keys.length)) {
      const { available } = await this.#places.look(sku, whole);
      if (available === 0) return 0;
      await this.#places.gather(sku, whole, at, Math.min(available, quantityMax));
      const { changed, mark } = await this.#store.settle(keyAt(whole, at), own, nowMs);
      this.#places.learnOne(whole, at, mark);
      if (changed > 0) return changed;
    }
    return 0;
  }

  /** One shard has lost what it acknowledged: none of them sells until all are rebuilt. */
  async #forgotten(sku: SkuKey): Promise<ReserveReply> {
    return { kind: 'forgotten', mark: await this.setPaused(sku, true) };
  }

  /** One of them may be gone, which is why they are rebuilt. Whether it stood still before. */
  async #stop(key: SkuKey): Promise<boolean> {
    const mark = await this.#store.mark(key);
    if (mark?.paused === false) await this.#store.setPaused(key, true);
    return mark?.paused ?? false;
  }

  /**
   * A first load that died half-way is ended by loading again. Where some shards have lived and others
   * are gone, loading those anew would make units that were sent away from them a second time.
   */
  async #refuseRemains(sku: SkuKey, { keys, states }: Whole): Promise<void> {
    if (states.length > 0) return;
    const marks = await Promise.all(keys.map((key) => this.#store.mark(key)));
    const lived = marks.some(
      (mark) => mark !== undefined && mark.sequence > sequenceBase(mark.generation) + 1,
    );
    if (!lived) return;
    const missing = keys.filter((_, at) => marks[at] === undefined).length;
    throw new UnavailableError(
      `${nameOf(sku)}: ${missing} of ${keys.length} shards are gone; rebuild it (sluice recover)`,
    );
  }

  /** Keys of all parts of a SKU: its own where it has no shards, or is not known. */
  async #keys(sku: SkuKey): Promise<readonly SkuKey[]> {
    return (await this.#places.whole(sku))?.keys ?? [sku];
  }
}

/** Looks at all shards in one call before it gives up: others may be taking what is being fetched. */
const looksMax = 8;
const soldOut: ReserveOutcome = { kind: 'sold_out' };

/** Neighbours of one home together, in their order. */
function runsOf(
  batch: readonly ReserveRequest[],
  shards: number,
): readonly { readonly home: number; readonly requests: readonly ReserveRequest[] }[] {
  const runs: { home: number; requests: ReserveRequest[] }[] = [];
  for (const request of batch) {
    const home = homeShard(request.personId, shards);
    const last = runs.at(-1);
    if (last?.home === home) last.requests.push(request);
    else runs.push({ home, requests: [request] });
  }
  return runs;
}

/** Late money one by one, since it may need units fetched; all else together, in order. */
function partsOf(fates: readonly Fate[]): readonly (readonly [Fate['fate'], readonly Fate[]])[] {
  const parts: [Fate['fate'], Fate[]][] = [];
  for (const fate of fates) {
    const last = parts.at(-1);
    const together = last !== undefined && last[0] !== 'retaken' && fate.fate !== 'retaken';
    if (together) last[1].push(fate);
    else parts.push([fate.fate, [fate]]);
  }
  return parts;
}

/** What to tell each shard: each fate to the one that its id names, or to all, who ignore strangers. */
function placesOf(
  fates: readonly Fate[],
  shards: number,
): readonly (readonly [number, readonly Fate[]])[] {
  const places = Array.from({ length: shards }, (_, at): [number, Fate[]] => [at, []]);
  for (const fate of fates) {
    const home = shardOfReservation(fate.reservationId, shards);
    for (const [at, own] of places) if (home === undefined || home === at) own.push(fate);
  }
  return places.filter(([, own]) => own.length > 0);
}

/** The fewest units with which one of those that are still open could be served. */
function smallestOpen(
  requests: readonly ReserveRequest[],
  outcomes: readonly (ReserveOutcome | undefined)[],
): number {
  const open = requests.filter((_, at) => outcomes[at] === undefined);
  return Math.min(...open.map(({ quantity }) => quantity));
}
