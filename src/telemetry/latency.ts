/**
 * Durations in bounded memory, without a choice of buckets to regret later.
 *
 * Each power of two of microseconds is cut into 32 equal buckets, so a quantile is off by at most
 * 1/32 (3.2%) wherever it lies, from 1 µs to about 71 minutes; what is longer counts as the longest.
 * Below 32 µs buckets are single microseconds. One histogram is 928 counters, 7 KiB, for ever.
 * Recording is a count of leading zeros and an addition, and allocates nothing.
 */
const subBits = 5;
const subCount = 1 << subBits;
const exponentMax = 31;
const bucketCount = (exponentMax - subBits + 2) * subCount;
const longestUs = 2 ** 32 - 1;

export class Latency {
  readonly #counts = new Float64Array(bucketCount);
  #count = 0;
  #sumUs = 0;
  #maxUs = 0;

  /** A duration in microseconds. Negative ones (a clock's fault) count as 0. */
  record(us: number): void {
    const whole = us > 0 ? Math.min(longestUs, Math.floor(us)) : 0;
    const at = bucketOf(whole);
    this.#counts[at] = (this.#counts[at] ?? 0) + 1;
    this.#count += 1;
    this.#sumUs += whole;
    if (whole > this.#maxUs) this.#maxUs = whole;
  }

  get count(): number {
    return this.#count;
  }

  get sumUs(): number {
    return this.#sumUs;
  }

  /** The duration that a share `q` (0 to 1) of all stayed within, µs; undefined while there is none. */
  quantileUs(q: number): number | undefined {
    if (this.#count === 0) return undefined;
    const wanted = Math.max(1, Math.ceil(Math.min(1, Math.max(0, q)) * this.#count));
    let seen = 0;
    for (let at = 0; at < bucketCount; at += 1) {
      seen += this.#counts[at] ?? 0;
      if (seen >= wanted) return Math.min(upperBoundUs(at), this.#maxUs);
    }
    return this.#maxUs;
  }

  /** How many took less than `us`; exact where `us` is a power of two. */
  countBelow(us: number): number {
    const end = bucketOf(Math.min(longestUs, Math.max(0, Math.floor(us))));
    let seen = 0;
    for (let at = 0; at < end; at += 1) seen += this.#counts[at] ?? 0;
    return seen;
  }

  reset(): void {
    this.#counts.fill(0);
    this.#count = 0;
    this.#sumUs = 0;
    this.#maxUs = 0;
  }
}

function bucketOf(us: number): number {
  if (us < subCount) return us;
  const exponent = 31 - Math.clz32(us);
  return (exponent - subBits + 1) * subCount + ((us >>> (exponent - subBits)) & (subCount - 1));
}

/** The largest duration that falls into a bucket. */
function upperBoundUs(at: number): number {
  if (at < subCount) return at;
  const exponent = Math.floor(at / subCount) + subBits - 1;
  const step = 2 ** (exponent - subBits);
  return 2 ** exponent + ((at % subCount) + 1) * step - 1;
}

/**
 * The same over the last while: two histograms taking turns. What it tells is of the last one to two
 * spans, so an old spike is forgotten and a young one is not averaged away. Driven by the caller's
 * clock; no timer.
 */
export class RecentLatency {
  readonly #spanUs: number;
  #current = new Latency();
  #previous = new Latency();
  #turnUs = 0;

  /** @param spanMs the span of one turn, ms, above 0 */
  constructor(spanMs: number) {
    if (!(spanMs > 0)) throw new RangeError(`span ${spanMs} ms; allowed: above 0`);
    this.#spanUs = spanMs * 1000;
  }

  record(us: number, nowUs: number): void {
    this.#turn(nowUs);
    this.#current.record(us);
  }

  /** Of whichever of the two spans has more to say. */
  quantileUs(q: number, nowUs: number): number | undefined {
    this.#turn(nowUs);
    const fuller = this.#current.count >= this.#previous.count ? this.#current : this.#previous;
    return fuller.quantileUs(q);
  }

  #turn(nowUs: number): void {
    const passed = nowUs - this.#turnUs;
    if (passed < this.#spanUs) return;
    const recycled = this.#previous;
    recycled.reset();
    if (passed >= 2 * this.#spanUs) this.#current.reset();
    this.#previous = this.#current;
    this.#current = recycled;
    this.#turnUs = nowUs;
  }
}
