import type { SkuKey } from '../activity.ts';
import type {
  Fate,
  Preload,
  Rebuild,
  RequestRecord,
  ReserveOutcome,
  ReserveReply,
  ReserveRequest,
  StockMark,
} from './model.ts';
import { Outbox } from './outbox.ts';
import type { Pending } from './outbox.ts';
import type { Reservation } from './reservation.ts';
import { recordOf } from './reservation.ts';
import type { ShardState } from './shards.ts';
import { SkuStock } from './sku-stock.ts';
import type { SettledFate, Step, Take } from './steps.ts';
import { extrasOfTake, numbersIn, rangesOf, reservationOfTake, takeOf } from './steps.ts';
import {
  checkAdjustment,
  checkBatch,
  checkMove,
  checkPreload,
  checkRebuild,
  settleMax,
} from './validate.ts';

/**
 * All stock of one store as a machine of steps: the reference for every other implementation, and
 * the very code that the embedded store runs.
 *
 * An operation looks, decides, changes the state and returns the step that it took; `apply` takes a
 * step from a journal and makes the same change through the same functions. So a replay cannot come
 * to another decision: it makes none. No clock, no chance, no I/O: the same operations give the same
 * state, and the same steps too.
 *
 * An operation that changed nothing returns no step, and the caller writes nothing.
 */
export interface Outcome<Reply> {
  readonly reply: Reply;
  readonly step: Step | undefined;
}

/** Adjustments remembered per SKU: an operator's doing, so few. */
export const adjustmentsMax = 10_000;

/** The state of a reservation before a change, while a snapshot is being drawn. */
export type Frozen = Map<Reservation, Pick<Reservation, 'state' | 'releaseReason'>>;

const nothing: StockMark = {
  total: 0,
  available: 0,
  held: 0,
  ordered: 0,
  sequence: 0,
  generation: 0,
  stockEpoch: 1,
  paused: false,
};

export class StockMachine {
  readonly skus = new Map<string, { readonly key: SkuKey; readonly stock: SkuStock }>();
  readonly outbox = new Outbox();
  /** Live records put aside for a rebuild, by SKU. No snapshot may begin while there are any. */
  readonly #staged = new Map<string, RequestRecord[]>();
  /** Set while a snapshot is drawn: what it must still see as it was. */
  frozen: Frozen | undefined;

  preload(key: SkuKey, stock: Preload): Outcome<StockMark> {
    checkPreload(stock);
    const standing = this.#stock(key);
    if (standing !== undefined && standing.generation >= stock.generation)
      return { reply: standing.mark(), step: undefined };
    const fresh = this.#preload(key, stock);
    return {
      reply: fresh.mark(),
      step: ['n', key.activityId, key.skuId, fresh.sequence, stock],
    };
  }

  reserve(
    key: SkuKey,
    batch: readonly ReserveRequest[],
    seenSequence: number,
    nowMs: number,
  ): Outcome<ReserveReply> {
    checkBatch(batch);
    const stock = this.#stock(key);
    if (stock === undefined) return { reply: { kind: 'unknown_sku' }, step: undefined };
    if (stock.sequence < seenSequence) {
      const { step } = this.setPaused(key, true) ?? {};
      return { reply: { kind: 'forgotten', mark: stock.mark() }, step };
    }
    if (stock.paused) return { reply: { kind: 'paused', mark: stock.mark() }, step: undefined };
    checkReservationIds(stock, batch);
    const outcomes: ReserveOutcome[] = [];
    const takes: Take[] = [];
    for (const request of batch) {
      const judged = stock.judge(request);
      if (judged.kind !== 'grant') {
        outcomes.push(judged);
        continue;
      }
      const take = takeOf(request, judged.seats);
      takes.push(take);
      outcomes.push({ kind: 'reserved', record: recordOf(this.#take(key, stock, take, nowMs)) });
    }
    if (takes.length > 0) stock.seal();
    return {
      reply: { kind: 'done', outcomes, mark: stock.mark() },
      step:
        takes.length === 0
          ? undefined
          : ['t', key.activityId, key.skuId, stock.sequence, nowMs, takes],
    };
  }

  find(key: SkuKey, userId: string, requestId: string): RequestRecord | undefined {
    const reservation = this.#stock(key)?.byRequest(userId, requestId);
    return reservation === undefined ? undefined : recordOf(reservation);
  }

  settle(
    key: SkuKey,
    fates: readonly Fate[],
  ): Outcome<{ readonly mark: StockMark; readonly changed: number }> {
    const stock = this.#stock(key);
    if (stock === undefined) return { reply: { mark: nothing, changed: 0 }, step: undefined };
    if (fates.length > settleMax)
      throw new RangeError(`${fates.length} fates at once; at most ${settleMax} allowed`);
    const settled: SettledFate[] = [];
    for (const { reservationId, fate, reason } of fates) {
      const reservation = stock.byId(reservationId);
      if (reservation === undefined || !stock.changes(reservation, fate)) continue;
      const one: SettledFate = [reservationId, fate, reason ?? 0];
      this.#settle(stock, one);
      settled.push(one);
    }
    if (settled.length > 0) stock.seal();
    return {
      reply: { mark: stock.mark(), changed: settled.length },
      step:
        settled.length === 0
          ? undefined
          : ['s', key.activityId, key.skuId, stock.sequence, settled],
    };
  }

  /** Undefined for a SKU that is not loaded. */
  adjust(
    key: SkuKey,
    adjustmentId: string,
    delta: number,
  ): Outcome<{ readonly applied: boolean; readonly mark: StockMark }> | undefined {
    const stock = this.#stock(key);
    if (stock === undefined) return undefined;
    const before = stock.adjustments.get(adjustmentId);
    if (before !== undefined) {
      if (before !== delta)
        throw new RangeError(
          `Adjustment ${adjustmentId} was made before, by ${before}, not ${delta}`,
        );
      return { reply: { applied: true, mark: stock.mark() }, step: undefined };
    }
    checkAdjustment(delta, stock.total);
    if (stock.seats !== undefined)
      throw new RangeError('A SKU with seats has as many units as seats; its total cannot change');
    if (stock.adjustments.size >= adjustmentsMax)
      throw new RangeError(`A SKU takes at most ${adjustmentsMax} adjustments`);
    if (stock.available + delta < 0)
      return { reply: { applied: false, mark: stock.mark() }, step: undefined };
    stock.adjust(adjustmentId, delta);
    stock.seal();
    return {
      reply: { applied: true, mark: stock.mark() },
      step: ['a', key.activityId, key.skuId, stock.sequence, adjustmentId, delta],
    };
  }

  /** Undefined for a SKU that is not loaded. */
  setPaused(key: SkuKey, paused: boolean): Outcome<StockMark> | undefined {
    const stock = this.#stock(key);
    if (stock === undefined) return undefined;
    if (stock.paused === paused) return { reply: stock.mark(), step: undefined };
    stock.paused = paused;
    stock.seal();
    return {
      reply: stock.mark(),
      step: ['p', key.activityId, key.skuId, stock.sequence, paused ? 1 : 0],
    };
  }

  /** Undefined for a shard that is not loaded. */
  shard(key: SkuKey): ShardState | undefined {
    return this.#stock(key)?.shardState();
  }

  /**
   * Sends up to so many available units towards another shard. Of another generation than the caller
   * speaks of, and where nothing is available, it changes nothing.
   */
  moveOut(
    key: SkuKey,
    to: number,
    units: number,
    generation: number,
  ): Outcome<ShardState | undefined> {
    const stock = this.#stock(key);
    if (stock === undefined) return { reply: undefined, step: undefined };
    checkMove(stock, to, units);
    const taken = Math.min(units, stock.available);
    return this.#moved(key, stock, 'out', to, generation, (stock.movedOut[to] ?? 0) + taken);
  }

  /** Receives what the sender's counter says and this shard has not. Saying it again changes nothing. */
  moveIn(
    key: SkuKey,
    from: number,
    upTo: number,
    generation: number,
  ): Outcome<ShardState | undefined> {
    const stock = this.#stock(key);
    if (stock === undefined) return { reply: undefined, step: undefined };
    checkMove(stock, from, upTo);
    return this.#moved(key, stock, 'in', from, generation, upTo);
  }

  #moved(
    key: SkuKey,
    stock: SkuStock,
    way: 'out' | 'in',
    other: number,
    generation: number,
    upTo: number,
  ): Outcome<ShardState | undefined> {
    const known = (way === 'out' ? stock.movedOut : stock.movedIn)[other] ?? 0;
    if (stock.generation !== generation || upTo <= known) {
      return { reply: stock.shardState(), step: undefined };
    }
    stock.move(way, other, upTo);
    stock.seal();
    return {
      reply: stock.shardState(),
      step: ['m', key.activityId, key.skuId, stock.sequence, way === 'out' ? 0 : 1, other, upTo],
    };
  }

  mark(key: SkuKey): StockMark | undefined {
    return this.#stock(key)?.mark();
  }

  holders(key: SkuKey): readonly string[] {
    return this.#stock(key)?.holders() ?? [];
  }

  /** Throws RangeError for an `after` that is not known: the SKU was rebuilt while it was paged. */
  live(key: SkuKey, after: string | undefined, limit: number): readonly RequestRecord[] {
    const stock = this.#stock(key);
    if (stock === undefined) return [];
    let at = 0;
    if (after !== undefined) {
      const last = stock.byId(after);
      if (last === undefined)
        throw new RangeError(`No reservation ${after}: the SKU was rebuilt; begin again`);
      at = last.index + 1;
    }
    const page: RequestRecord[] = [];
    for (; at < stock.order.length && page.length < limit; at += 1) {
      const reservation = stock.order[at];
      if (reservation !== undefined && reservation.state !== 'released')
        page.push(recordOf(reservation));
    }
    return page;
  }

  /**
   * Puts live records aside for `rebuild`; changes nothing else. In pieces, because all of them in
   * one step could be longer than any record of a journal.
   */
  stage(key: SkuKey, first: boolean, live: readonly RequestRecord[]): Step {
    const step: Step = ['l', key.activityId, key.skuId, first ? 1 : 0, live];
    this.apply(step);
    return step;
  }

  /** With the live records put aside before; they are used up, whatever comes of it. */
  rebuild(key: SkuKey, head: Omit<Rebuild, 'live'>): Outcome<StockMark> {
    const state = { ...head, live: this.#staged.get(skuName(key)) ?? [] };
    this.#staged.delete(skuName(key));
    checkRebuild(state);
    const standing = this.#stock(key);
    if (standing !== undefined && standing.generation >= head.generation)
      return { reply: standing.mark(), step: undefined };
    const stock = this.#rebuild(key, state);
    return {
      reply: stock.mark(),
      step: ['b', key.activityId, key.skuId, stock.sequence, head],
    };
  }

  forget(key: SkuKey): Outcome<boolean> {
    const stock = this.#stock(key);
    if (stock === undefined) return { reply: true, step: undefined };
    if (stock.held > 0 || stock.waiting > 0) return { reply: false, step: undefined };
    this.#forget(key);
    return { reply: true, step: ['f', key.activityId, key.skuId] };
  }

  /** Gives out messages and counts the attempt. */
  give(max: number, nowUs: number, visibleUs: number): Outcome<readonly Pending[]> {
    const given = this.outbox.give(max, nowUs, visibleUs);
    for (const pending of given) pending.attempts += 1;
    return {
      reply: given,
      step: given.length === 0 ? undefined : ['g', rangesOf(given.map((each) => each.number))],
    };
  }

  acknowledge(numbers: readonly number[]): Outcome<number> {
    const known = numbers.filter((number) => this.#acknowledge(number));
    return {
      reply: known.length,
      step: known.length === 0 ? undefined : ['k', rangesOf(known)],
    };
  }

  bury(number: number, reason: string, atMs: number): Outcome<boolean> {
    const done = this.#bury(number, reason, atMs);
    return { reply: done, step: done ? ['d', number, reason, atMs] : undefined };
  }

  /** Replays one step. Throws where it does not lead to the sequence that it once led to. */
  apply(step: Step): void {
    switch (step[0]) {
      case 'g':
        for (const number of numbersIn(step[1])) this.outbox.countAttempt(number);
        return;
      case 'k':
        for (const number of numbersIn(step[1])) this.#acknowledge(number);
        return;
      case 'd':
        this.#bury(step[1], step[2], step[3]);
        return;
      case 'l': {
        const name = skuName({ activityId: step[1], skuId: step[2] });
        const before = step[3] === 1 ? [] : (this.#staged.get(name) ?? []);
        this.#staged.set(name, before);
        for (const record of step[4]) before.push(record);
        return;
      }
      default:
        this.#applyToSku(step);
    }
  }

  #applyToSku(step: Exclude<Step, readonly ['g' | 'k' | 'd' | 'l', ...unknown[]]>): void {
    const key: SkuKey = { activityId: step[1], skuId: step[2] };
    if (step[0] === 'f') {
      this.#forget(key);
      return;
    }
    const stock = this.#change(key, step);
    if (stock.sequence !== step[3])
      throw new Error(
        `Replaying ${step[0]} of ${key.skuId} led to sequence ${stock.sequence}, not ${step[3]}`,
      );
  }

  #change(
    key: SkuKey,
    step: Extract<Step, readonly ['n' | 't' | 's' | 'a' | 'p' | 'm' | 'b', ...unknown[]]>,
  ): SkuStock {
    if (step[0] === 'n') return this.#preload(key, step[4]);
    if (step[0] === 'b') {
      const live = this.#staged.get(skuName(key)) ?? [];
      this.#staged.delete(skuName(key));
      return this.#rebuild(key, { ...step[4], live });
    }
    const stock = this.#stock(key);
    if (stock === undefined)
      throw new Error(`Replaying ${step[0]} of ${key.skuId}, which was never loaded`);
    switch (step[0]) {
      case 't':
        for (const take of step[5]) this.#take(key, stock, take, step[4]);
        break;
      case 's':
        for (const settled of step[4]) this.#settle(stock, settled);
        break;
      case 'a':
        stock.adjust(step[4], step[5]);
        break;
      case 'p':
        stock.paused = step[4] === 1;
        break;
      case 'm':
        stock.move(step[4] === 0 ? 'out' : 'in', step[5], step[6]);
    }
    stock.seal();
    return stock;
  }

  #stock(key: SkuKey): SkuStock | undefined {
    return this.skus.get(skuName(key))?.stock;
  }

  #preload(key: SkuKey, preload: Preload): SkuStock {
    const standing = this.#stock(key);
    const stock = new SkuStock(preload);
    if (standing !== undefined) stock.follow(standing);
    this.skus.set(skuName(key), { key, stock });
    stock.seal();
    return stock;
  }

  #rebuild(key: SkuKey, state: Rebuild): SkuStock {
    const stock = this.#stock(key) ?? new SkuStock({ total: 0, generation: 1, stockEpoch: 0 });
    stock.rebuild(state);
    this.skus.set(skuName(key), { key, stock });
    stock.seal();
    return stock;
  }

  #take(key: SkuKey, stock: SkuStock, take: Take, nowMs: number): Reservation {
    const reservation = reservationOfTake(take, stock.generation, nowMs);
    stock.take(reservation);
    this.outbox.add(reservation, extrasOfTake(take, key.activityId, key.skuId));
    stock.waiting += 1;
    return reservation;
  }

  #settle(stock: SkuStock, [reservationId, fate, reason]: SettledFate): void {
    const reservation = stock.byId(reservationId);
    if (reservation === undefined) throw new Error(`No reservation ${reservationId} to settle`);
    if (this.frozen !== undefined && !this.frozen.has(reservation)) {
      const { state, releaseReason } = reservation;
      this.frozen.set(reservation, { state, releaseReason });
    }
    stock.fate(reservation, fate, reason === 0 ? undefined : reason);
  }

  #acknowledge(number: number): boolean {
    return this.#leaves(this.outbox.acknowledge(number));
  }

  #bury(number: number, reason: string, atMs: number): boolean {
    return this.#leaves(this.outbox.bury(number, reason, atMs));
  }

  #leaves(pending: Pending | undefined): boolean {
    if (pending === undefined) return false;
    const stock = this.#stock(pending.extras);
    if (stock !== undefined) stock.waiting -= 1;
    return true;
  }

  #forget(key: SkuKey): void {
    this.skus.delete(skuName(key));
    for (const [number, { message }] of this.outbox.buried)
      if (message.activityId === key.activityId && message.skuId === key.skuId)
        this.outbox.buried.delete(number);
  }
}

export function skuName(key: SkuKey): string {
  return `${key.activityId.length}:${key.activityId}${key.skuId}`;
}

/** An id that is used twice is a fault of the caller, found before anything is changed. */
function checkReservationIds(stock: SkuStock, batch: readonly ReserveRequest[]): void {
  const inBatch = new Map<string, ReserveRequest>();
  for (const request of batch) {
    const { reservationId, requestId, userId } = request;
    const other = inBatch.get(reservationId) ?? stock.byId(reservationId);
    if (other !== undefined && (other.requestId !== requestId || other.userId !== userId))
      throw new RangeError(`Reservation id ${reservationId} is used for two requests`);
    inBatch.set(reservationId, request);
  }
}
