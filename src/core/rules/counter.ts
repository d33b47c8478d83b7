import { createAlgorithm } from '../limit/algorithms/create.ts';
import { HeavyHitters } from '../limit/heavy-hitters.ts';
import { encodeKey, type HashSeed } from '../limit/key.ts';
import { KeyedLimiter } from '../limit/keyed-limiter.ts';
import { PenaltyBook } from '../limit/penalty-book.ts';
import { milli } from '../limit/rate.ts';
import type { WaitUs } from '../limit/token-bucket.ts';
import type { HotValues, KeyPart, Rule } from './model.ts';

interface HotState {
  readonly settings: HotValues;
  readonly sketch: HeavyHitters;
  readonly limiter: KeyedLimiter;
}

/**
 * The counters of one rule: one limiter for its keys, small ones for named values, one more for values
 * that are hot, and the book of penalties. Probed and charged in two steps, so that the rules of a
 * stage are charged together or not at all.
 */
export class RuleCounter {
  #rule: Rule;
  readonly #seed: HashSeed;
  readonly #limiter: KeyedLimiter;
  #overrides = new Map<string, KeyedLimiter>();
  #hot: HotState | undefined;
  #penalty: PenaltyBook | undefined;
  #charged: readonly KeyedLimiter[] = [];

  constructor(rule: Rule, hashSeed: HashSeed) {
    this.#rule = rule;
    this.#seed = hashSeed;
    this.#limiter = new KeyedLimiter({
      ruleId: rule.id,
      limit: rule.limit,
      maxKeys: rule.maxKeys,
      overflow: rule.overflow,
      hashSeed,
    });
    this.#configure(rule, 0);
  }

  get rule(): Rule {
    return this.#rule;
  }

  get entries(): number {
    return this.#limiter.entries;
  }

  get overflowTotal(): number {
    return this.#limiter.overflowTotal;
  }

  get bytes(): number {
    return this.#limiter.bytes;
  }

  /** Can this counter go on under that rule? Not when it counts something else. */
  canBecome(rule: Rule): boolean {
    return rule.id === this.#rule.id && keyText(rule.key) === keyText(this.#rule.key);
  }

  /** Goes on under an edited rule with every balance carried over in proportion. */
  reconfigure(rule: Rule, nowUs: number): void {
    this.#limiter.reconfigure(rule, nowUs);
    this.#configure(rule, nowUs);
    this.#rule = rule;
  }

  /** Remaining penalty of this key, µs. */
  penaltyUs(parts: readonly string[], nowUs: number): number {
    return this.#penalty?.remainingUs(parts, nowUs) ?? 0;
  }

  /** Books a refusal; true when it starts a penalty. */
  refused(parts: readonly string[], nowUs: number): boolean {
    return this.#penalty?.refused(parts, nowUs) ?? false;
  }

  /**
   * 0 when every counter of this key has room, else the longest wait. Charges nothing.
   * @param keepShareMilli share of the burst that must be left, thousandths.
   */
  probe(
    parts: readonly string[],
    costMilli: number,
    nowUs: number,
    keepShareMilli: number,
  ): WaitUs {
    const named = this.#overrides.size === 0 ? undefined : this.#overrides.get(encodeKey(parts));
    const own = named ?? this.#limiter;
    const keep = Math.floor((own.capacityMilli * keepShareMilli) / milli);
    const wait = own.probeParts(parts, costMilli, nowUs, keep);
    const hot = this.#hot;
    if (hot === undefined || named !== undefined || !this.#isHot(hot, parts, nowUs)) {
      this.#charged = [own];
      return wait;
    }
    this.#charged = [own, hot.limiter];
    return Math.max(wait, hot.limiter.probeParts(parts, costMilli, nowUs));
  }

  /** Charges what the `probe` just before said fits. */
  charge(costMilli: number): void {
    for (const limiter of this.#charged) limiter.charge(costMilli);
  }

  /** How long the call charged last has to be held back, µs. */
  get delayUs(): number {
    return this.#charged[0]?.delayUs ?? 0;
  }

  /** What the counter that the last probe looked at has left, thousandths. */
  leftMilli(): number {
    return this.#charged[0]?.leftMilli() ?? 0;
  }

  /** How long until it is as good as new, µs. */
  fullUs(): number {
    return this.#charged[0]?.fullUs() ?? 0;
  }

  /** The limit that the last probe looked at: the rule's own, or that of a named value. */
  get limit(): Rule['limit'] {
    return this.#charged[0]?.limit ?? this.#rule.limit;
  }

  /** Steady time of the last probe. */
  get decidedUs(): number {
    return this.#charged[0]?.decidedUs ?? 0;
  }

  /** Did the last probe look at the shared overflow bucket? */
  get viaOverflow(): boolean {
    return this.#charged[0]?.viaOverflow ?? false;
  }

  /** The limit of this key: the rule's own, or that of a named value. */
  limitOf(parts: readonly string[]): Rule['limit'] {
    const named = this.#overrides.size === 0 ? undefined : this.#overrides.get(encodeKey(parts));
    return named?.limit ?? this.#rule.limit;
  }

  /** Takes a charge back. @param chargedUs `decidedUs` of the charge. */
  give(parts: readonly string[], costMilli: number, chargedUs: number): void {
    const named = this.#overrides.get(encodeKey(parts));
    (named ?? this.#limiter).giveParts(parts, costMilli, chargedUs);
  }

  /** What this key has left, charging and moving nothing. */
  peek(parts: readonly string[], nowUs: number): number {
    return (this.#overrides.get(encodeKey(parts)) ?? this.#limiter).peekParts(parts, nowUs);
  }

  /** The busiest values now, for the operator. */
  hottest(): readonly { readonly value: string; readonly count: number }[] {
    return this.#hot?.sketch.top(this.#hot.settings.top) ?? [];
  }

  /** Forgets idle keys, in bounded slices. */
  sweep(nowUs: number, budget: number): void {
    this.#limiter.sweep(nowUs, budget);
    this.#hot?.limiter.sweep(nowUs, budget);
    this.#penalty?.sweep(nowUs, budget);
  }

  #isHot(hot: HotState, parts: readonly string[], nowUs: number): boolean {
    const certain = hot.sketch.observe(encodeKey(parts), nowUs);
    // A handful of requests makes nobody hot: the share means something from a hundred on.
    return hot.sketch.total >= 100 && certain * milli >= hot.sketch.total * hot.settings.shareMilli;
  }

  #configure(rule: Rule, nowUs: number): void {
    const limiterFor = (id: string, limit: Rule['limit'], maxKeys: number): KeyedLimiter =>
      new KeyedLimiter({
        ruleId: id,
        limit,
        maxKeys,
        overflow: {
          rate: rule.overflow.rate,
          burstMilli: Math.max(rule.overflow.burstMilli, createAlgorithm(limit).capacityMilli),
        },
        hashSeed: this.#seed,
      });
    const overrides = new Map<string, KeyedLimiter>();
    for (const { parts, limit } of rule.overrides) {
      const key = encodeKey(parts);
      const known = this.#overrides.get(key);
      known?.reconfigure({ limit, maxKeys: 1, overflow: rule.overflow }, nowUs);
      overrides.set(key, known ?? limiterFor(`${rule.id}#override`, limit, 1));
    }
    this.#overrides = overrides;
    this.#hot = this.#nextHot(rule, nowUs, limiterFor);
    if (rule.penalty === undefined) this.#penalty = undefined;
    else if (this.#penalty === undefined) {
      this.#penalty = new PenaltyBook(rule.id, rule.penalty, rule.maxKeys, this.#seed);
    } else this.#penalty.terms = rule.penalty;
  }

  #nextHot(
    rule: Rule,
    nowUs: number,
    limiterFor: (id: string, limit: Rule['limit'], maxKeys: number) => KeyedLimiter,
  ): HotState | undefined {
    const settings = rule.hot;
    if (settings === undefined) return undefined;
    const before = this.#hot;
    const maxKeys = settings.top * 4;
    before?.limiter.reconfigure({ limit: settings.limit, maxKeys, overflow: rule.overflow }, nowUs);
    const same =
      before?.settings.top === settings.top && before.settings.halfLifeUs === settings.halfLifeUs;
    const sketch =
      before !== undefined && same
        ? before.sketch
        : new HeavyHitters(Math.min(10_000, settings.top * 4), settings.halfLifeUs);
    const limiter = before?.limiter ?? limiterFor(`${rule.id}#hot`, settings.limit, maxKeys);
    return { settings, sketch, limiter };
  }
}

export function keyText(key: readonly KeyPart[]): string {
  return key.map((part) => ('name' in part ? `${part.kind}:${part.name}` : part.kind)).join('+');
}
