import type { SkuKey } from '../core/activity.ts';
import { reserveBatchMax } from '../core/bounds.ts';
import type { Timers } from '../ports/clock.ts';
import { NotAskedError, OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type {
  InventoryStore,
  ReserveOutcome,
  ReserveReply,
  ReserveRequest,
  StockMark,
} from '../ports/inventory-store.ts';

/**
 * Many submits of one SKU, one store call.
 *
 * A hot SKU is a single place in the store: its calls run one after the other whatever we do. What can
 * be saved is the cost around each step: the round trip, the script's start, the journal's flush. So
 * requests gather, and go together.
 *
 * When to send? Waiting a fixed time wastes it when nobody else comes; sending at once wastes the
 * call. The answer is the store's own pace: while a call is in flight the next batch gathers, and
 * leaves when the call returns. Only when nothing is in flight is there a pause to gather, and it is
 * one turn of the event loop (every request whose bytes have already arrived), at most 1 ms. Under
 * load the batch size grows by itself to what the store's latency demands; idle, a lone request leaves
 * at once. One call per SKU in flight keeps order and sequence simple, and a second one would only
 * wait in the store's own queue.
 *
 *     add ──▶ waiting ──(turn, or the call before it returns)──▶ in flight ──▶ each its outcome
 *               │ full → `full`                                    │ unknown → `unknown` for all
 *
 * The sequence. Every reply carries the SKU's sequence number; the highest seen goes out with the next
 * call, and a store that answers `forgotten` has lost acknowledged writes. A rebuilt SKU starts a
 * new generation, whose numbers are not comparable with the old ones: when `forgotten` comes with a
 * higher generation than ours, we were the ones behind, and ask again once with what we learnt.
 *
 * Time. A call that does not return within `callTimeoutMs` is answered `unknown` to all in it, and the
 * lane goes on; whatever it says later is ignored. A request that has waited as
 * long without being sent is answered `unavailable`: nothing was done. So every request has its
 * answer within two such times.
 */

/** Requests that may wait for one SKU. At 256 a call and 2 ms a call this is 32 ms of work. */
export const waitingPerSkuMax = 4_096;

/** A store call is waited for this long, ms. Twice this is the submit's own time limit. */
export const callTimeoutMs = 1_500;

/** SKUs with a lane at once; idle lanes are dropped oldest first beyond it. */
export const lanesMax = 10_000;

export type ReserveResult =
  | { readonly kind: 'outcome'; readonly outcome: ReserveOutcome; readonly mark: StockMark }
  /** Nothing was done; more requests wait than may. */
  | { readonly kind: 'full' }
  /** Nothing was done: the SKU is paused. */
  | { readonly kind: 'paused' }
  /** Nothing was done: the store has forgotten what it once acknowledged. */
  | { readonly kind: 'forgotten' }
  /** Nothing was done: the store does not know this SKU. */
  | { readonly kind: 'unknown_sku' }
  /** Nothing was done: the store did not answer. */
  | { readonly kind: 'unavailable' }
  /** Nothing was done: whoever asked said how long it would wait, and it was not sent by then. */
  | { readonly kind: 'late' }
  /** Nothing was done: we did not even ask the store, because it is known not to answer well. */
  | { readonly kind: 'not_asked' }
  /** It may have been done. */
  | { readonly kind: 'unknown' };

export type Trouble = 'paused' | 'forgotten' | 'unknown_sku';

export interface ReserveBatcherOptions {
  readonly store: Pick<InventoryStore, 'reserve'>;
  /**
   * Which of a SKU's places a request goes to, where its stock lies in several: each has a lane of its
   * own, since they do not wait for each other. 0 when absent.
   */
  readonly placeOf?: (sku: SkuKey, request: ReserveRequest) => number;
  readonly wallMs: () => number;
  readonly monoUs: () => number;
  readonly timers: Pick<Timers, 'after'>;
  /** Runs a task after the I/O that is already there, at most 1 ms from now (`setImmediate`). */
  readonly defer: (task: () => void) => void;
  /** Every mark that the store sends, also of replies that refuse: for flags and metrics. */
  readonly onMark?: (sku: SkuKey, mark: StockMark) => void;
  /** What control must look into. */
  readonly onTrouble?: (sku: SkuKey, trouble: Trouble, mark: StockMark | undefined) => void;
  /** Before each call: how long those in it have waited for it, each in turn. */
  readonly onSent?: (waitedUs: number) => void;
  /** After each call: its time, and how it ended. */
  readonly onCall?: (elapsedUs: number, size: number, failed: boolean) => void;
  /** Anything the store threw; the requests have their answer already. */
  readonly onError?: (sku: SkuKey, error: unknown) => void;
}

interface Waiting {
  readonly request: ReserveRequest;
  readonly sinceUs: number;
  /** Past the time its caller gave it, or sent: who is late before that is not sent at all. */
  isLate: boolean;
  isSent: boolean;
  resolve: (result: ReserveResult) => void;
}

interface Lane {
  readonly sku: SkuKey;
  waiting: Waiting[];
  scheduled: boolean;
  inFlight: boolean;
  generation: number;
  sequence: number;
}

export class ReserveBatcher {
  readonly #options: ReserveBatcherOptions;
  readonly #lanes = new Map<string, Lane>();
  #calls = 0;

  constructor(options: ReserveBatcherOptions) {
    this.#options = options;
  }

  /**
   * Resolves with the request's own result; never rejects. O(1) plus its share of the call. After
   * `remainingMs`, where the caller said so, the answer is `late` if nothing was sent by then, and
   * `unknown` if it was: the store may still do it.
   */
  add(sku: SkuKey, request: ReserveRequest, remainingMs?: number): Promise<ReserveResult> {
    if (remainingMs !== undefined && remainingMs <= 0) return Promise.resolve({ kind: 'late' });
    const lane = this.#lane(sku, this.#options.placeOf?.(sku, request) ?? 0);
    if (lane.waiting.length >= waitingPerSkuMax) return Promise.resolve({ kind: 'full' });
    return new Promise((resolve) => {
      const waiting: Waiting = {
        request,
        sinceUs: this.#options.monoUs(),
        isLate: false,
        isSent: false,
        resolve,
      };
      lane.waiting.push(waiting);
      if (remainingMs !== undefined && remainingMs < 2 * callTimeoutMs) {
        this.#endAfter(waiting, remainingMs);
      }
      this.#schedule(lane);
    });
  }

  #endAfter(waiting: Waiting, remainingMs: number): void {
    const { resolve } = waiting;
    const timer = this.#options.timers.after(remainingMs, () => {
      waiting.isLate = !waiting.isSent;
      resolve({ kind: waiting.isSent ? 'unknown' : 'late' });
    });
    waiting.resolve = (result) => {
      timer.cancel();
      resolve(result);
    };
  }

  /** Store calls made since the start. */
  get calls(): number {
    return this.#calls;
  }

  /** Requests waiting for a call or in one, over all SKUs: 0 means idle. */
  get waiting(): number {
    let sum = 0;
    for (const lane of this.#lanes.values()) sum += lane.waiting.length;
    return sum;
  }

  #lane(sku: SkuKey, place: number): Lane {
    const key = `${sku.activityId}/${sku.skuId}/${place}`;
    const known = this.#lanes.get(key);
    if (known !== undefined) return known;
    if (this.#lanes.size >= lanesMax) this.#dropIdle();
    const lane: Lane = {
      sku: { activityId: sku.activityId, skuId: sku.skuId },
      waiting: [],
      scheduled: false,
      inFlight: false,
      generation: 0,
      sequence: 0,
    };
    this.#lanes.set(key, lane);
    return lane;
  }

  #dropIdle(): void {
    for (const [key, lane] of this.#lanes) {
      if (lane.waiting.length > 0 || lane.inFlight) continue;
      this.#lanes.delete(key);
      return;
    }
  }

  #schedule(lane: Lane): void {
    if (lane.scheduled || lane.inFlight) return;
    lane.scheduled = true;
    this.#options.defer(() => {
      lane.scheduled = false;
      void this.#drain(lane);
    });
  }

  /** Sends batch after batch until nobody waits. Never rejects. */
  async #drain(lane: Lane): Promise<void> {
    if (lane.inFlight) return;
    lane.inFlight = true;
    while (lane.waiting.length > 0) {
      const batch = this.#stillWanted(lane.waiting.splice(0, reserveBatchMax));
      if (batch.length === 0) continue;
      this.#tellWaits(batch);
      const results = await this.#send(lane, batch);
      for (const [at, waiting] of batch.entries()) {
        waiting.resolve(results(at));
      }
    }
    lane.inFlight = false;
  }

  /** Since when the oldest request waits to be sent, µs; undefined while none does. O(SKUs). */
  get oldestSinceUs(): number | undefined {
    let oldest: number | undefined;
    for (const lane of this.#lanes.values()) {
      const since = lane.waiting[0]?.sinceUs;
      if (since !== undefined && (oldest === undefined || since < oldest)) oldest = since;
    }
    return oldest;
  }

  #tellWaits(batch: readonly Waiting[]): void {
    const { onSent, monoUs } = this.#options;
    if (onSent === undefined) return;
    const nowUs = monoUs();
    for (const { sinceUs } of batch) onSent(nowUs - sinceUs);
  }

  /** Answers those whose time is over, and keeps the rest in order. */
  #stillWanted(batch: Waiting[]): readonly Waiting[] {
    const oldestUs = this.#options.monoUs() - callTimeoutMs * 1000;
    return batch.filter((waiting) => {
      if (waiting.isLate) return false;
      waiting.isSent = waiting.sinceUs >= oldestUs;
      if (waiting.sinceUs >= oldestUs) return true;
      waiting.resolve({ kind: 'unavailable' });
      return false;
    });
  }

  async #send(lane: Lane, batch: readonly Waiting[]): Promise<(at: number) => ReserveResult> {
    const requests = batch.map((waiting) => waiting.request);
    try {
      let reply = await this.#call(lane, requests);
      if (reply.kind === 'forgotten' && reply.mark.generation > lane.generation) {
        this.#learn(lane, reply.mark);
        reply = await this.#call(lane, requests);
      }
      return this.#read(lane, reply, requests.length);
    } catch (error) {
      this.#options.onError?.(lane.sku, error);
      // Anything but a certain "did nothing" counts as unknown: a false "failed" invites a second try.
      const kind = kindOf(error);
      return () => ({ kind });
    }
  }

  async #call(lane: Lane, requests: readonly ReserveRequest[]): Promise<ReserveReply> {
    const { store, timers, monoUs, wallMs, onCall } = this.#options;
    const startedUs = monoUs();
    this.#calls += 1;
    try {
      const call = store.reserve(lane.sku, requests, lane.sequence, wallMs());
      const reply = await withTimeout(call, timers);
      onCall?.(monoUs() - startedUs, requests.length, false);
      return reply;
    } catch (error) {
      // What we did not ask says nothing about whoever would have answered.
      if (!(error instanceof NotAskedError)) {
        onCall?.(monoUs() - startedUs, requests.length, true);
      }
      throw error;
    }
  }

  #read(lane: Lane, reply: ReserveReply, size: number): (at: number) => ReserveResult {
    const { sku } = lane;
    if (reply.kind === 'unknown_sku') {
      this.#options.onTrouble?.(sku, 'unknown_sku', undefined);
      return () => ({ kind: 'unknown_sku' });
    }
    const { mark } = reply;
    if (reply.kind !== 'done') {
      this.#options.onMark?.(sku, mark);
      this.#options.onTrouble?.(sku, reply.kind, mark);
      const { kind } = reply;
      return () => ({ kind });
    }
    this.#learn(lane, mark);
    this.#options.onMark?.(sku, mark);
    if (reply.outcomes.length !== size) {
      // A store that answers for another number of requests than it was asked has lost its place.
      const detail = `store answered ${reply.outcomes.length} outcomes for a batch of ${size}`;
      throw new OutcomeUnknownError(detail);
    }
    return (at) => {
      const outcome = reply.outcomes[at];
      return outcome === undefined ? { kind: 'unknown' } : { kind: 'outcome', outcome, mark };
    };
  }

  #learn(lane: Lane, mark: StockMark): void {
    if (mark.generation > lane.generation) {
      lane.generation = mark.generation;
      lane.sequence = mark.sequence;
    } else if (mark.generation === lane.generation && mark.sequence > lane.sequence) {
      lane.sequence = mark.sequence;
    }
  }
}

function kindOf(error: unknown): 'not_asked' | 'unavailable' | 'unknown' {
  if (error instanceof NotAskedError) return 'not_asked';
  return error instanceof UnavailableError ? 'unavailable' : 'unknown';
}

/** Rejects with OutcomeUnknownError when the call takes too long; what it says after is dropped. */
function withTimeout<Value>(call: Promise<Value>, timers: Pick<Timers, 'after'>): Promise<Value> {
  return new Promise((resolve, reject) => {
    const timer = timers.after(callTimeoutMs, () => {
      reject(new OutcomeUnknownError(`no answer within ${callTimeoutMs} ms`));
    });
    call.then(resolve, reject).finally(() => timer.cancel());
  });
}
