import { addressPrefix } from '../core/limit/address.ts';
import type { HashSeed } from '../core/limit/key.ts';
import { KeyedLimiter } from '../core/limit/keyed-limiter.ts';
import { parseRate, type Rate } from '../core/limit/rate.ts';
import { SingleBucket } from '../core/limit/single-bucket.ts';
import { neverUs, tokenBucket, type WaitUs } from '../core/limit/token-bucket.ts';
import { refusedHeaders } from './limit-headers.ts';
import type { LimitRefusal, PathLimits, RouteName } from './limits.ts';

/**
 * The limits of a deployment that has written no rules: one bucket for the instance, buckets per
 * address and prefix, per user and device, and one per activity. Generous enough that no honest buyer
 * meets them, tight enough that a loop does.
 */
export interface PathLimitSettings {
  /** What this process takes, whoever asks. */
  readonly instance: Rate;
  /** What one activity's submits may ask of the stock. */
  readonly budget: Rate;
  readonly hashSeed: HashSeed;
  /** Keys remembered per limit. */
  readonly maxKeys?: number;
}

/** How long a burst of the instance's bucket lasts, s: a spike of 20 ms, doubled, and never under 1. */
const instanceBurstSeconds = 0.5;
/** Retry hint of an instance refusal, ms: another instance may have room at once. */
const instanceHintMs = 200;
/** Retry hint of a shared budget's refusal, ms, spread up to twice. */
const budgetHintMs = 1_000;

const defaultMaxKeys = 200_000;
const tokenMilli = 1000;

interface PersonPlan {
  readonly rate: string;
  readonly burst: number;
}

/** Requests per person and route. A submit's retries and a poll's pace fit several times over. */
const perUser: Partial<Record<RouteName, PersonPlan>> = {
  submit: { rate: '1/s', burst: 10 },
  status: { rate: '5/s', burst: 20 },
  standing: { rate: '5/s', burst: 20 },
  join: { rate: '1/s', burst: 10 },
  pass: { rate: '1/s', burst: 10 },
  order: { rate: '5/s', burst: 20 },
  pay: { rate: '1/s', burst: 10 },
};
const perDevice: PersonPlan = { rate: '4/s', burst: 40 };
/** An address may be a whole company or a mobile carrier's gateway: soft. */
const perAddress: PersonPlan = { rate: '100/s', burst: 400 };
const perPrefix: PersonPlan = { rate: '1000/s', burst: 4_000 };

export class DefaultPathLimits implements PathLimits {
  readonly #settings: PathLimitSettings;
  readonly #instance: SingleBucket;
  readonly #address: KeyedLimiter;
  readonly #prefix: KeyedLimiter;
  readonly #users = new Map<RouteName, KeyedLimiter>();
  readonly #device: KeyedLimiter;
  readonly #budgets = new Map<string, SingleBucket>();
  readonly #float: () => number;
  readonly #refuseInstance: Refuse;
  readonly #refuseAddress = planRefuser('source', 'default-address', perAddress);
  readonly #refusePrefix = planRefuser('source', 'default-prefix', perPrefix);
  readonly #refuseDevice = planRefuser('device', 'default-device', perDevice);
  readonly #refuseUser = new Map<RouteName, Refuse>();
  readonly #refuseBudget: Refuse;

  /** @param float uniform in [0, 1), for spreading hints of shared budgets */
  constructor(settings: PathLimitSettings, nowUs: number, float: () => number) {
    this.#settings = settings;
    this.#float = float;
    const { tokensMilli, periodUs } = settings.instance;
    const burst = Math.max(
      tokenMilli,
      Math.ceil((tokensMilli / periodUs) * 1e6 * instanceBurstSeconds),
    );
    this.#instance = new SingleBucket(tokenBucket(settings.instance, burst), nowUs);
    this.#refuseInstance = refuser('instance', 'default-instance', settings.instance, burst);
    this.#refuseBudget = refuser(
      'activity',
      'default-budget',
      settings.budget,
      secondOf(settings.budget),
    );
    this.#address = this.#keyed('default-address', perAddress);
    this.#prefix = this.#keyed('default-prefix', perPrefix);
    this.#device = this.#keyed('default-device', perDevice);
    for (const [route, plan] of Object.entries(perUser) as [RouteName, PersonPlan][]) {
      this.#users.set(route, this.#keyed(`default-user-${route}`, plan));
      this.#refuseUser.set(route, planRefuser('user', `default-user-${route}`, plan));
    }
  }

  #keyed(ruleId: string, plan: PersonPlan): KeyedLimiter {
    const rate = parseRate(plan.rate);
    return new KeyedLimiter({
      ruleId,
      rate,
      burstMilli: plan.burst * tokenMilli,
      maxKeys: this.#settings.maxKeys ?? defaultMaxKeys,
      // All unknown keys together get what a hundred known ones would: a full table is an attack.
      overflow: {
        rate: { ...rate, tokensMilli: rate.tokensMilli * 100 },
        burstMilli: plan.burst * tokenMilli * 10,
      },
      hashSeed: this.#settings.hashSeed,
    });
  }

  instance(_route: RouteName, nowUs: number): LimitRefusal | undefined {
    const wait = this.#instance.take(tokenMilli, nowUs);
    if (wait === 0) return undefined;
    return this.#refuseInstance(Math.max(wait, instanceHintMs * 1000));
  }

  source(_route: RouteName, address: string, nowUs: number): LimitRefusal | undefined {
    // What is no address shares one prefix: absent never means unlimited.
    const prefix = addressPrefix(address) ?? 'unknown';
    const wait = this.#address.probe(address, '', tokenMilli, nowUs);
    if (wait !== 0) return this.#refuseAddress(wait);
    const prefixWait = this.#prefix.probe(prefix, '', tokenMilli, nowUs);
    if (prefixWait !== 0) return this.#refusePrefix(prefixWait);
    // All or none: nothing is charged before both have said yes.
    this.#address.charge(tokenMilli);
    this.#prefix.charge(tokenMilli);
    return undefined;
  }

  person(
    route: RouteName,
    userId: string,
    deviceHash: string | undefined,
    nowUs: number,
  ): LimitRefusal | undefined {
    const users = this.#users.get(route);
    const wait = users?.probe(userId, '', tokenMilli, nowUs) ?? 0;
    if (wait !== 0) return this.#refuseUser.get(route)?.(wait);
    if (deviceHash !== undefined) {
      const deviceWait = this.#device.probe(deviceHash, '', tokenMilli, nowUs);
      if (deviceWait !== 0) return this.#refuseDevice(deviceWait);
      this.#device.charge(tokenMilli);
    }
    users?.charge(tokenMilli);
    return undefined;
  }

  budget(
    activityId: string,
    _skuId: string,
    _quantity: number,
    nowUs: number,
  ): LimitRefusal | undefined {
    let bucket = this.#budgets.get(activityId);
    if (bucket === undefined) {
      const burst = secondOf(this.#settings.budget);
      bucket = new SingleBucket(tokenBucket(this.#settings.budget, burst), nowUs);
      // Bounded by the activities that exist: the path id has been resolved before.
      this.#budgets.set(activityId, bucket);
    }
    const wait = bucket.take(tokenMilli, nowUs);
    if (wait === 0) return undefined;
    const hintUs = Math.max(wait, budgetHintMs * 1000) * (1 + this.#float());
    return this.#refuseBudget(hintUs);
  }

  /** Forgets idle keys in bounded slices; call from one timer. */
  sweep(nowUs: number): void {
    for (const limiter of this.#all()) limiter.sweep(nowUs, 2_000);
  }

  *#all(): Iterable<KeyedLimiter> {
    yield this.#address;
    yield this.#prefix;
    yield this.#device;
    yield* this.#users.values();
  }

  /** Keys remembered and overflow decisions so far, per dimension, for metrics. */
  *dimensions(): Iterable<{ dimension: string; entries: number; overflow: number }> {
    const of = (dimension: string, limiter: KeyedLimiter) => ({
      dimension,
      entries: limiter.entries,
      overflow: limiter.overflowTotal,
    });
    yield of('address', this.#address);
    yield of('prefix', this.#prefix);
    yield of('device', this.#device);
    let entries = 0;
    let overflow = 0;
    for (const limiter of this.#users.values()) {
      entries += limiter.entries;
      overflow += limiter.overflowTotal;
    }
    yield { dimension: 'user', entries, overflow };
  }
}

/** A second's worth of a rate, in thousandths, and never less than one token. */
function secondOf({ tokensMilli, periodUs }: Rate): number {
  return Math.max(tokenMilli, Math.ceil((tokensMilli / periodUs) * 1e6));
}

function planRefuser(scope: LimitRefusal['scope'], ruleId: string, plan: PersonPlan): Refuse {
  return refuser(scope, ruleId, parseRate(plan.rate), plan.burst * tokenMilli);
}

/** Longest hint that is sent: what would never fit is not worth naming a date for. */
const hintMaxMs = 3_600_000;

type Refuse = (waitUs: WaitUs) => LimitRefusal;

/** How one rule says no. */
function refuser(
  scope: LimitRefusal['scope'],
  ruleId: string,
  rate: Rate,
  burstMilli: number,
): Refuse {
  const headersAfter = refusedHeaders(ruleId, rate, burstMilli);
  return (waitUs) => {
    const ms = waitUs === neverUs ? hintMaxMs : Math.ceil(waitUs / 1000);
    const retryAfterMs = Math.min(hintMaxMs, Math.max(1, ms));
    return { scope, ruleId, retryAfterMs, headers: headersAfter(retryAfterMs) };
  };
}
