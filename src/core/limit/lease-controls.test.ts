import { afterEach, describe, expect, test, vi } from 'vitest';
import { runLeaseWorld } from '../../../bench/support/lease-world.ts';
import { SeededRandom } from '../../../test/support/world.ts';
import { renewBudget, type RenewReply, type RenewRequest } from './budget.ts';
import { LeaseHolder } from './lease.ts';
import { parseRate } from './rate.ts';
import { tokenBucket } from './token-bucket.ts';

/**
 * Each guard of leases switched off: then some window admits more than was debited for it, or a lease
 * lives where it must not.
 */
afterEach(() => {
  vi.restoreAllMocks();
});

/* oxlint-disable typescript/unbound-method -- called with a `this` of the mock's choice */
const holder = LeaseHolder.prototype;
const second = 1_000_000;

/** Most by which some window of a crowded, lossy, moving world went over its bound. */
function overAdmitted(): number {
  return runLeaseWorld({
    instances: 20,
    ratePerSecond: 2_000,
    pressure: 3,
    seconds: 10,
    moveEverySeconds: 1,
    vanishAtSecond: 5,
    random: new SeededRandom('guards'),
    roundTripUs: 60_000,
    loss: 0.1,
  }).overAdmitted;
}

test('with every guard on, no window is over its bound', () => {
  expect(overAdmitted()).toBe(0);
});

describe('the store', () => {
  const bucket = tokenBucket(parseRate('2000/s'), 2_000_000);
  const request = (over: Partial<RenewRequest> = {}): RenewRequest => ({
    instance: 'a',
    sequence: 1,
    epoch: 0,
    leaseId: 0,
    keepMilli: 0,
    returnMilli: 0,
    demandMilliPerSecond: 500_000,
    roundTripUs: 0,
    leaving: false,
    ...over,
  });

  /** Renews once, then says that a billion came back and a billion are kept. */
  const afterBoast = (renew: typeof renewBudget) => {
    const first = renew(bucket, undefined, request(), second);
    const { epoch, leaseId, grantedMilli } = first.reply;
    const boast = request({ sequence: 2, epoch, leaseId, demandMilliPerSecond: 0 });
    const back = renew(bucket, first.state, { ...boast, returnMilli: 1e9, leaving: true }, second);
    const kept = renew(bucket, first.state, { ...boast, keepMilli: 1e9 }, second);
    const levelMilli = (state: typeof first.state): number =>
      state.levelUnits / bucket.unitsPerMilli;
    return {
      grantedMilli,
      creditedMilli: levelMilli(back.state) - levelMilli(first.state),
      keptMilli: kept.reply.keptMilli,
    };
  };

  test('control: crediting whatever is said to come back', () => {
    const works = (renew: typeof renewBudget): void => {
      const { grantedMilli, creditedMilli } = afterBoast(renew);
      expect(creditedMilli).toBe(grantedMilli);
    };
    works(renewBudget);
    expect(() =>
      works((limit, state, asked, now) => {
        const said = renewBudget(limit, state, asked, now);
        const levelUnits = said.state.levelUnits + asked.returnMilli * limit.unitsPerMilli;
        return { ...said, state: { ...said.state, levelUnits } };
      }),
    ).toThrow();
  });

  test('control: letting an instance keep what it was never granted', () => {
    const works = (renew: typeof renewBudget): void => {
      const { grantedMilli, keptMilli } = afterBoast(renew);
      expect(keptMilli).toBe(grantedMilli);
    };
    works(renewBudget);
    expect(() =>
      works((limit, state, asked, now) => {
        const said = renewBudget(limit, state, asked, now);
        return { ...said, reply: { ...said.reply, keptMilli: asked.keepMilli } };
      }),
    ).toThrow();
  });

  test('control: a sequence that is not looked at grants an overtaken request again', () => {
    const grantsOf = (second_: RenewRequest): number => {
      const { state } = renewBudget(bucket, undefined, request({ sequence: 5 }), second);
      const epoch = state.epoch;
      return renewBudget(bucket, state, { ...second_, epoch }, second + 1).reply.grantedMilli;
    };
    expect(grantsOf(request({ sequence: 4 }))).toBe(0);
    // As if every request were the newest.
    expect(grantsOf(request({ sequence: 6 }))).toBeGreaterThan(0);
  });

  test('control: a store that has forgotten and starts full is caught', () => {
    const known = request({ epoch: 3, leaseId: 7 });
    expect(renewBudget(bucket, undefined, known, second).reply.grantedMilli).toBe(0);
    // As if nobody had told it that it was in use before.
    const fresh = renewBudget(bucket, undefined, { ...known, epoch: 0 }, second);
    expect(fresh.reply.grantedMilli).toBeGreaterThan(0);
  });
});

describe('the instance', () => {
  test('control: spending without charging is caught', () => {
    vi.spyOn(holder, 'charge').mockImplementation(() => undefined);
    expect(overAdmitted()).toBeGreaterThan(10);
  });

  const reply = (over: Partial<RenewReply> = {}): RenewReply => ({
    epoch: 1,
    leaseId: 1,
    grantedMilli: 5_000,
    keptMilli: 0,
    leaseUs: second,
    scarce: false,
    instances: 1,
    ...over,
  });
  const held = (): LeaseHolder => {
    const one = new LeaseHolder({ instance: 'a', phase: 0 }, 0);
    expect(one.tick(0)).toBeDefined();
    one.granted(reply({ epoch: 4 }), 1_000);
    return one;
  };

  test('control: giving back what it goes on spending', () => {
    const works = (): void => {
      const one = held();
      for (let n = 0; n < 20; n += 1) one.wanted(10_000);
      const unspent = one.remainingMilli(800_000);
      const request = one.tick(800_000);
      expect((request?.returnMilli ?? 0) + one.remainingMilli(800_000)).toBe(unspent);
      expect(one.remainingMilli(800_000)).toBeGreaterThan(0);
    };
    works();
    const { tick } = holder;
    vi.spyOn(holder, 'tick').mockImplementation(function (this: LeaseHolder, nowUs) {
      const request = tick.call(this, nowUs);
      if (request === undefined) return undefined;
      return { ...request, returnMilli: request.returnMilli + request.keepMilli };
    });
    expect(works).toThrow();
  });

  test('control: without the fence a lease of an older epoch lives on', () => {
    const fenced = (): void => {
      const one = held();
      one.fence(5, 2_000);
      expect(one.remainingMilli(2_000)).toBe(0);
    };
    fenced();
    vi.spyOn(holder, 'fence').mockImplementation(() => undefined);
    expect(fenced).toThrow();
  });

  test('control: a deadline that counts from the answer outlives the store’s', () => {
    const ends = (): void => {
      const one = new LeaseHolder({ instance: 'a', phase: 0 }, 0);
      expect(one.tick(0)).toBeDefined();
      // Sent at 0, granted by the store at some moment after that, heard of at 400 ms.
      one.granted(reply(), 400_000);
      expect(one.spend(1_000, second)).not.toBe(0);
    };
    ends();
    const { granted } = holder;
    vi.spyOn(holder, 'granted').mockImplementation(function (this: LeaseHolder, said, nowUs) {
      granted.call(this, { ...said, leaseUs: said.leaseUs + nowUs }, nowUs);
    });
    expect(ends).toThrow();
  });

  test('control: an answer to a call that was given up is worth nothing', () => {
    const ignored = (): void => {
      const one = held();
      expect(one.tick(800_000)).toBeDefined();
      one.failed(1_300_000);
      const before = one.remainingMilli(1_300_001);
      one.granted(reply({ epoch: 4, leaseId: 2 }), 1_300_001);
      expect(one.remainingMilli(1_300_001)).toBe(before);
    };
    ignored();
    // As if nobody had given it up.
    vi.spyOn(holder, 'failed').mockImplementation(() => undefined);
    expect(ignored).toThrow();
  });
});
