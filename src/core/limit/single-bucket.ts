import { Timeline } from './timeline.ts';
import type { TokenBucket, TokenBucketState, WaitUs } from './token-bucket.ts';
import {
  assertCost,
  carryOver,
  countedTo,
  freshBucket,
  levelAt,
  neverUs,
  waitFor,
} from './token-bucket.ts';

/** One token bucket with its own clock reading: the instance's, an overflow bucket, an override. */
export class SingleBucket {
  #bucket: TokenBucket;
  #levelUnits: number;
  #lastUs: number;
  readonly #timeline = new Timeline();

  /** Starts with the bucket's initial share at `nowUs`. */
  constructor(bucket: TokenBucket, nowUs: number) {
    this.#bucket = bucket;
    const fresh = freshBucket(bucket, this.#timeline.read(nowUs));
    this.#levelUnits = fresh.levelUnits;
    this.#lastUs = fresh.lastUs;
  }

  get bucket(): TokenBucket {
    return this.#bucket;
  }

  get state(): TokenBucketState {
    return { levelUnits: this.#levelUnits, lastUs: this.#lastUs };
  }

  /** 0: the cost fits now; else the wait. Charges nothing. @throws CostNeverFitsError */
  probe(costMilli: number, nowUs: number): WaitUs {
    const bucket = this.#bucket;
    assertCost(bucket.burstMilli, costMilli);
    if (bucket.burstMilli === 0) return neverUs;
    const now = this.#timeline.read(nowUs);
    const costUnits = costMilli * bucket.unitsPerMilli;
    const level = levelAt(bucket, this.#levelUnits, this.#lastUs, now);
    if (level >= costUnits) return 0;
    const wait = waitFor(bucket, level, countedTo(bucket, this.#lastUs, now), now, costUnits);
    return wait === neverUs ? wait : wait + this.#timeline.debtUs;
  }

  /** Charges the cost if it fits. 0: charged; else the wait. @throws CostNeverFitsError */
  take(costMilli: number, nowUs: number): WaitUs {
    const wait = this.probe(costMilli, nowUs);
    if (wait === 0) this.charge(costMilli);
    return wait;
  }

  /** Charges what the `probe` just before said fits. */
  charge(costMilli: number): void {
    const bucket = this.#bucket;
    const now = this.#timeline.steadyUs;
    const level = levelAt(bucket, this.#levelUnits, this.#lastUs, now);
    this.#lastUs = countedTo(bucket, this.#lastUs, now);
    this.#levelUnits = level - costMilli * bucket.unitsPerMilli;
  }

  /** Thousandths of a token there are now. */
  peek(nowUs: number): number {
    const now = this.#timeline.read(nowUs);
    const level = levelAt(this.#bucket, this.#levelUnits, this.#lastUs, now);
    return Math.floor(level / this.#bucket.unitsPerMilli);
  }

  /** Goes on under other parameters with the same share. */
  reconfigure(bucket: TokenBucket, nowUs: number): void {
    const carried = carryOver(this.#bucket, bucket, this.state, this.#timeline.read(nowUs));
    this.#bucket = bucket;
    this.#levelUnits = carried.levelUnits;
    this.#lastUs = carried.lastUs;
  }
}
