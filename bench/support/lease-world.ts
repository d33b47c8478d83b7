import type { BudgetState } from '../../src/core/limit/budget.ts';
import { nominalLeaseUs, renewBudget } from '../../src/core/limit/budget.ts';
import { LeaseHolder } from '../../src/core/limit/lease.ts';
import { parseRate } from '../../src/core/limit/rate.ts';
import { tokenBucket } from '../../src/core/limit/token-bucket.ts';
import type { Random } from '../../src/ports/random.ts';

/**
 * Many instances, one leased budget, in virtual time: the real state machines of both sides, with a
 * network between them that has a delay and can lose things. Everything admitted is checked against the
 * bound in every window, not in some.
 */
export interface LeaseWorldOptions {
  readonly instances: number;
  readonly ratePerSecond: number;
  /** Total demand ÷ rate. */
  readonly pressure: number;
  readonly seconds: number;
  /** Demand moves to other instances each so many seconds; 0 for never. */
  readonly moveEverySeconds: number;
  /** Half the instances vanish at this second, and their demand moves to the rest; 0 for never. */
  readonly vanishAtSecond: number;
  readonly random: Random;
  readonly roundTripUs: number;
  /** Share of requests and of replies that get lost. */
  readonly loss?: number;
  /** The store; replaced only to show that the check above it complains. */
  readonly renew?: typeof renewBudget;
}

export interface LeaseWorldResult {
  readonly admitted: number;
  /** Most by which any window went over its bound, tokens; 0 is the promise. */
  readonly overAdmitted: number;
  /** Admitted ÷ what the budget allowed, after the first lease length. */
  readonly used: number;
  readonly callsPerAdmitted: number;
  /** Time from the vanishing until use was full again, in lease lengths of before. */
  readonly recoveryLeases: number;
  readonly hash: number;
  /** Least share of its demand that any instance got, against the mean share. */
  readonly leastServed: number;
}

const tickUs = 10_000;
const milli = 1000;

interface Instance {
  readonly holder: LeaseHolder;
  demandPerSecond: number;
  carried: number;
  alive: boolean;
  offered: number;
  served: number;
}

export function runLeaseWorld(options: LeaseWorldOptions): LeaseWorldResult {
  const { instances: count, ratePerSecond, random } = options;
  const bucket = tokenBucket(parseRate(`${ratePerSecond}/s`), ratePerSecond * milli);
  let store: BudgetState | undefined;
  const instances = Array.from({ length: count }, (_, at): Instance => {
    const phase = random.float();
    return {
      holder: new LeaseHolder({ instance: `i${at}`, phase }, 0),
      demandPerSecond: 0,
      carried: 0,
      alive: true,
      offered: 0,
      served: 0,
    };
  });
  const zipf = Array.from({ length: count }, (_, at) => 1 / (at + 1));
  const sum = zipf.reduce((a, b) => a + b, 0);
  let shift = 0;
  const deal = (): void => {
    const alive = instances.filter((one) => one.alive);
    const scale = zipf.slice(0, alive.length).reduce((a, b) => a + b, 0) / sum;
    for (const [at, one] of alive.entries()) {
      const weight = zipf[(at + shift) % alive.length] ?? 0;
      one.demandPerSecond = (weight / sum / scale) * ratePerSecond * options.pressure;
    }
  };
  deal();

  let admitted = 0;
  let calls = 0;
  let hash = 0;
  const replies: { dueUs: number; run: () => void }[] = [];
  const series: number[] = [];
  let outstanding = 0;
  let leastSoFar = Infinity;
  let over = 0;
  const endUs = options.seconds * 1_000_000;

  for (let now = 0; now < endUs; now += tickUs) {
    const second = now / 1_000_000;
    if (options.moveEverySeconds > 0 && now > 0 && second % options.moveEverySeconds === 0) {
      shift += 7;
      deal();
    }
    if (options.vanishAtSecond > 0 && second === options.vanishAtSecond) {
      for (const [at, one] of instances.entries()) if (at % 2 === 0) one.alive = false;
      deal();
    }
    for (let at = 0; at < replies.length; ) {
      const reply = replies[at];
      if (reply !== undefined && reply.dueUs <= now) {
        replies.splice(at, 1);
        reply.run();
      } else at += 1;
    }
    // Lowest point of (admitted − earned + outstanding) so far: the worst beginning of a window.
    const earned = (ratePerSecond * now) / 1e6;
    outstanding = instances.reduce((all, one) => all + one.holder.remainingMilli(now) / milli, 0);
    leastSoFar = Math.min(leastSoFar, admitted - earned + outstanding);
    let here = 0;
    for (const one of instances) {
      if (!one.alive) continue;
      one.carried += (one.demandPerSecond * tickUs) / 1e6;
      // Arrivals by a rough Poisson: the mean, give or take its root.
      const wanted = one.carried + Math.sqrt(Math.max(0, one.carried)) * (random.float() * 2 - 1);
      const arrivals = Math.max(0, Math.floor(wanted));
      one.carried -= arrivals;
      one.offered += arrivals;
      for (let n = 0; n < arrivals; n += 1) {
        if (one.holder.spend(milli, now) === 0) {
          here += 1;
          one.served += 1;
        }
      }
      const request = one.holder.tick(now);
      if (request === undefined) continue;
      calls += 1;
      const { holder } = one;
      const loss = options.loss ?? 0;
      const lostThere = random.float() < loss;
      const lostBack = random.float() < loss;
      const halfUs = Math.floor((options.roundTripUs * (0.5 + random.float())) / 2);
      replies.push({
        dueUs: now + halfUs,
        run: () => {
          if (lostThere) return;
          const renew = options.renew ?? renewBudget;
          const result = renew(bucket, store, request, now + halfUs + 1_000_000);
          store = result.state;
          if (lostBack || !one.alive) return;
          replies.push({
            dueUs: now + 2 * halfUs,
            run: () => holder.granted(result.reply, now + 2 * halfUs),
          });
        },
      });
      if (lostThere || lostBack) {
        replies.push({ dueUs: now + 500_000, run: () => holder.failed(now + 500_000) });
      }
    }
    admitted += here;
    hash = (Math.imul(hash ^ here, 0x01000193) + admitted) >>> 0;
    series.push(here);
    const after = admitted - (ratePerSecond * (now + tickUs)) / 1e6;
    over = Math.max(over, after - leastSoFar - ratePerSecond);
  }
  const leaseUs = nominalLeaseUs(ratePerSecond * milli, count);
  const warmTicks = Math.ceil(leaseUs / tickUs);
  const usedTokens = series.slice(warmTicks).reduce((a, b) => a + b, 0);
  const allowed = (ratePerSecond * (endUs - warmTicks * tickUs)) / 1e6;
  const ratios = instances
    .filter((one) => one.alive && one.offered > 100)
    .map((one) => one.served / one.offered);
  const mean = ratios.reduce((a, b) => a + b, 0) / Math.max(1, ratios.length);
  return {
    admitted,
    overAdmitted: Math.max(0, Number(over.toFixed(3))),
    used: usedTokens / allowed,
    callsPerAdmitted: calls / Math.max(1, admitted),
    recoveryLeases: recovery(series, options, leaseUs),
    hash,
    leastServed: ratios.length === 0 ? 1 : Math.min(...ratios) / mean,
  };
}

/** From the vanishing on: when did a window of a quarter of a lease reach 97% of the rate for good? */
function recovery(series: readonly number[], options: LeaseWorldOptions, leaseUs: number): number {
  if (options.vanishAtSecond === 0) return 0;
  const from = Math.round((options.vanishAtSecond * 1e6) / tickUs);
  const width = Math.max(1, Math.round(leaseUs / 2 / tickUs));
  const full = (options.ratePerSecond * width * tickUs * 0.97) / 1e6;
  let window = 0;
  for (let at = from; at < series.length; at += 1) {
    window += series[at] ?? 0;
    if (at - from >= width) window -= series[at - width] ?? 0;
    if (at - from >= width - 1 && window >= full) return ((at - from + 1) * tickUs) / leaseUs;
  }
  return Infinity;
}
