import { fc } from '../support/property.ts';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { LimitSpec } from '../../src/core/limit/algorithm.ts';
import type { RenewRequest } from '../../src/core/limit/budget.ts';
import { leaseMaxUs } from '../../src/core/limit/budget.ts';
import { parseRate } from '../../src/core/limit/rate.ts';
import type { BudgetStore, ExactCheck, SharedBudget } from '../../src/ports/budget-store.ts';
import { limitSuite } from './limits.ts';

/** A store under test, on a virtual clock. Names are new for each harness. */
export interface BudgetHarness {
  readonly store: BudgetStore;
  /** Sets the store's clock, µs; it may go back. */
  setNowUs(nowUs: number): void;
  /** Makes the store forget everything, as a flush or a failover to nothing would. */
  forget(): Promise<void>;
  /** A key or budget name that no other harness uses. */
  unique(name: string): string;
  dispose(): Promise<void>;
}

const second = 1_000_000;
const start = 1_700_000_000 * second;

/** What every budget store must do. */
export function budgetStoreContract(
  name: string,
  make: () => Promise<BudgetHarness>,
  options: { readonly numRuns: number },
): void {
  describe(`${name}: exact limits`, () => {
    let harness: BudgetHarness;
    beforeEach(async () => {
      harness = await make();
    });
    afterEach(() => harness.dispose());
    let made = 0;
    limitSuite(
      (spec) => {
        made += 1;
        const ruleId = harness.unique(`rule-${made}`);
        const { store } = harness;
        return {
          async take(key, costMilli, nowUs) {
            harness.setNowUs(nowUs);
            const check = {
              ruleId,
              parts: [key],
              limit: spec,
              costMilli,
              keepMilli: 0,
              slot: ruleId,
            };
            const { waitUs, leftMilli } = await store.take([check]);
            return { waitUs, leftMilli: leftMilli[0] ?? -1, delayUs: 0 };
          },
          release: () => undefined,
        };
      },
      {
        numRuns: options.numRuns,
        exempt: (spec) => {
          if (spec.algorithm === 'concurrency') return 'a process knows its own holders';
          const waits = spec.algorithm === 'leaky_bucket' && spec.maxWaitUs > 0;
          return waits ? 'a request is held back by the process that has it' : undefined;
        },
      },
    );

    const bucket = (burst: number): LimitSpec => ({
      algorithm: 'token_bucket',
      rate: parseRate('1/h'),
      burstMilli: burst * 1000,
    });
    const check = (rule: string, burst: number, over: Partial<ExactCheck> = {}): ExactCheck => ({
      ruleId: harness.unique(rule),
      parts: ['k'],
      limit: bucket(burst),
      costMilli: 1000,
      keepMilli: 0,
      slot: harness.unique('slot'),
      ...over,
    });

    test.each([true, false])(
      'three limits of one request, the third refuses: the first two are not charged (one slot: %s)',
      async (oneSlot) => {
        harness.setNowUs(start);
        const checks = [5, 5, 1].map((burst, at) =>
          check(`r${at}`, burst, oneSlot ? {} : { slot: harness.unique(`slot-${at}`) }),
        );
        expect(await harness.store.take(checks)).toMatchObject({ waitUs: 0, refusedBy: -1 });
        for (let n = 0; n < 4; n += 1) {
          const refused = await harness.store.take(checks);
          expect(refused).toMatchObject({ refusedBy: 2, waitUs: 3_600 * second });
        }
        const [first] = checks;
        if (first === undefined) throw new Error('there are three');
        expect((await harness.store.take([first])).leftMilli).toEqual([3_000]);
      },
    );

    test('whatever the limits and slots, a request charges all or none', async () => {
      let round = 0;
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.record({ burst: fc.integer({ min: 1, max: 4 }), slot: fc.nat(1) }), {
            minLength: 1,
            maxLength: 4,
          }),
          async (limits) => {
            round += 1;
            harness.setNowUs(start);
            const checks = limits.map(({ burst, slot }, at) =>
              check(`p${round}-${at}`, burst, { slot: harness.unique(`s${round}-${slot}`) }),
            );
            const least = Math.min(...limits.map(({ burst }) => burst));
            for (let n = 0; n < least; n += 1) {
              expect((await harness.store.take(checks)).waitUs).toBe(0);
            }
            expect((await harness.store.take(checks)).waitUs).toBeGreaterThan(0);
            for (const [at, one] of checks.entries()) {
              const burst = limits[at]?.burst ?? 0;
              if (burst === least) continue;
              const { leftMilli } = await harness.store.take([one]);
              expect(leftMilli).toEqual([(burst - least - 1) * 1000]);
            }
          },
        ),
        { numRuns: options.numRuns },
      );
    });

    test('a part set aside is left, and a cost of several takes several', async () => {
      harness.setNowUs(start);
      const keep = check('keep', 10, { costMilli: 3_000, keepMilli: 4_000 });
      expect((await harness.store.take([keep])).leftMilli).toEqual([7_000]);
      expect((await harness.store.take([keep])).leftMilli).toEqual([4_000]);
      expect((await harness.store.take([keep])).waitUs).toBe(3 * 3_600 * second);
      expect((await harness.store.take([{ ...keep, keepMilli: 0 }])).leftMilli).toEqual([1_000]);
    });

    test('a limit that is changed takes the share over that was left', async () => {
      harness.setNowUs(start);
      const old = check('edited', 4, { costMilli: 3_000 });
      await harness.store.take([old]);
      const edited = { ...old, limit: bucket(40), costMilli: 1000 };
      expect((await harness.store.take([edited])).leftMilli).toEqual([9_000]);
      const windowed: LimitSpec = {
        algorithm: 'fixed_window',
        limitMilli: 100_000,
        windowUs: 3_600 * second,
      };
      const left = (await harness.store.take([{ ...edited, limit: windowed }])).leftMilli[0] ?? 0;
      expect(left).toBeGreaterThanOrEqual(21_000);
      expect(left).toBeLessThanOrEqual(21_500);
    });

    test('values of callers are kept apart whatever they contain', async () => {
      harness.setNowUs(start);
      const seen = new Set<string>();
      for (const parts of [
        ['aa', 'b'],
        ['a', 'ab'],
        ['aab'],
        ['aab', ''],
        ['', 'aab'],
        ['a:1', '{x}'],
        ['\u0000'],
        ['х'.repeat(300)],
      ]) {
        const { waitUs } = await harness.store.take([check('parts', 1, { parts })]);
        expect(waitUs, JSON.stringify(parts)).toBe(0);
        seen.add(JSON.stringify(parts));
      }
      expect(seen.size).toBe(8);
    });

    test('many at once on one key: exactly the burst', async () => {
      harness.setNowUs(start);
      const one = check('race', 10);
      const answers = await Promise.all(
        Array.from({ length: 100 }, () => harness.store.take([one])),
      );
      expect(answers.filter(({ waitUs }) => waitUs === 0)).toHaveLength(10);
    });
  });

  describe(`${name}: leased budgets`, () => {
    let harness: BudgetHarness;
    beforeEach(async () => {
      harness = await make();
    });
    afterEach(() => harness.dispose());

    const budget = (over: Partial<SharedBudget> = {}): SharedBudget => ({
      name: harness.unique('budget'),
      rate: parseRate('2000/s'),
      burstMilli: 2_000_000,
      ...over,
    });
    const ask = (over: Partial<RenewRequest> = {}): RenewRequest => ({
      instance: 'a',
      sequence: 1,
      epoch: 0,
      leaseId: 0,
      keepMilli: 0,
      returnMilli: 0,
      demandMilliPerSecond: 1_000_000,
      roundTripUs: 0,
      leaving: false,
      ...over,
    });

    test('what is granted is debited: together never more than burst + rate·Δt', async () => {
      const shared = budget();
      let granted = 0;
      for (let n = 0; n < 200; n += 1) {
        const nowUs = start + n * 10_000;
        harness.setNowUs(nowUs);
        const reply = await harness.store.renew(
          shared,
          ask({ instance: `i${n % 40}`, sequence: n, demandMilliPerSecond: 1e9 }),
        );
        granted += reply.grantedMilli;
        expect(granted).toBeLessThanOrEqual(2_000_000 + n * 20_000);
      }
      expect(granted).toBeGreaterThan(2_000_000);
    });

    test('what comes back in time is granted again; what comes late, twice or too much is not', async () => {
      const shared = budget({ burstMilli: 30_000_000 });
      harness.setNowUs(start);
      const first = await harness.store.renew(shared, ask({ demandMilliPerSecond: 1e9 }));
      const { epoch, leaseId } = first;
      const all = await drain(harness, shared, 'drain');
      expect(first.grantedMilli + all).toBe(30_000_000);
      const leave = ask({ sequence: 2, epoch, leaseId, returnMilli: 1e12, leaving: true });
      await harness.store.renew(shared, leave);
      await harness.store.renew(shared, { ...leave, sequence: 3 });
      expect(await drain(harness, shared, 'again')).toBe(first.grantedMilli);
      harness.setNowUs(start + second);
      const last = await harness.store.renew(shared, ask({ instance: 'late' }));
      expect(last.grantedMilli).toBeGreaterThan(5_000);
      await drain(harness, shared, 'more');
      // Two lease lengths later there is what has flowed in since, and nothing of the lease.
      harness.setNowUs(start + second + 2 * leaseMaxUs);
      await harness.store.renew(shared, {
        ...leave,
        instance: 'late',
        leaseId: last.leaseId,
        returnMilli: 5_000,
      });
      expect(await drain(harness, shared, 'after')).toBe((2 * leaseMaxUs * 2_000) / 1_000);
    });

    test('a request that was overtaken grants nothing; a lost reply is made good by the next', async () => {
      const shared = budget({ burstMilli: 1_000_000 });
      harness.setNowUs(start);
      const first = await harness.store.renew(
        shared,
        ask({ sequence: 5, demandMilliPerSecond: 100_000 }),
      );
      const { epoch, leaseId, grantedMilli } = first;
      const stale = await harness.store.renew(
        shared,
        ask({ sequence: 4, epoch, leaseId, returnMilli: 1_000 }),
      );
      expect(stale).toMatchObject({ grantedMilli: 0, leaseId });
      const lost = await harness.store.renew(
        shared,
        ask({ sequence: 6, epoch, leaseId, demandMilliPerSecond: 300_000 }),
      );
      expect(lost.grantedMilli).toBeGreaterThan(0);
      await harness.store.renew(shared, ask({ sequence: 7, epoch, leaseId, leaving: true }));
      expect(await drain(harness, shared, 'rest')).toBe(1_000_000 - grantedMilli);
    });

    test('raising the epoch ends every lease; nothing of it comes back', async () => {
      const shared = budget();
      harness.setNowUs(start);
      const first = await harness.store.renew(shared, ask());
      const epoch = await harness.store.raiseEpoch(shared);
      expect(epoch).toBe(first.epoch + 1);
      const back = ask({
        sequence: 2,
        epoch: first.epoch,
        leaseId: first.leaseId,
        returnMilli: 50_000,
        keepMilli: 10_000,
      });
      expect(await harness.store.renew(shared, back)).toMatchObject({ epoch, keptMilli: 0 });
    });

    test('a store that has forgotten everything starts empty, above every epoch that was seen', async () => {
      const shared = budget();
      harness.setNowUs(start);
      await harness.store.raiseEpoch(shared);
      const first = await harness.store.renew(shared, ask());
      await harness.forget();
      harness.setNowUs(start + 1_000);
      const after = await harness.store.renew(
        shared,
        ask({ sequence: 2, epoch: first.epoch, leaseId: first.leaseId, keepMilli: 5_000 }),
      );
      expect(after.epoch).toBeGreaterThan(first.epoch);
      expect(after).toMatchObject({ grantedMilli: 0, keptMilli: 0 });
      harness.setNowUs(start + 1_000 + second);
      const later = await harness.store.renew(
        shared,
        ask({ sequence: 3, epoch: after.epoch, leaseId: after.leaseId }),
      );
      expect(later.grantedMilli).toBeGreaterThan(0);
      expect(later.grantedMilli).toBeLessThanOrEqual(2_000_000);
    });

    test('an instance that does not come back is no longer counted after its lease', async () => {
      const shared = budget();
      harness.setNowUs(start);
      const one = await harness.store.renew(shared, ask({ instance: 'one' }));
      const two = await harness.store.renew(shared, ask({ instance: 'two' }));
      expect(two.instances).toBe(2);
      harness.setNowUs(start + leaseMaxUs + 1);
      const left = await harness.store.renew(
        shared,
        ask({ instance: 'one', sequence: 2, epoch: one.epoch, leaseId: one.leaseId }),
      );
      expect(left.instances).toBe(1);
    });

    test('a clock that goes back mints nothing', async () => {
      const shared = budget();
      harness.setNowUs(start);
      let granted = await drain(harness, shared, 'first');
      for (let n = 0; n < 20; n += 1) {
        harness.setNowUs(n % 2 === 0 ? start - 5 * second : start);
        granted += await drain(harness, shared, `more-${n}`);
      }
      expect(granted).toBeLessThanOrEqual(2_000_000);
    });

    test('an edited budget keeps the share that was left of it', async () => {
      const shared = budget();
      harness.setNowUs(start);
      const first = await harness.store.renew(shared, ask({ demandMilliPerSecond: 200_000 }));
      const left = 2_000_000 - first.grantedMilli;
      const twice = { ...shared, burstMilli: 4_000_000 };
      expect(await drain(harness, twice, 'edited')).toBe(2 * left);
    });
  });

  /** Takes everything there is, by instances that come, take and go without giving back. */
  async function drain(harness: BudgetHarness, shared: SharedBudget, who: string): Promise<number> {
    let granted = 0;
    for (let n = 0; ; n += 1) {
      const request: RenewRequest = {
        instance: `${who}-${n}`,
        sequence: 1,
        epoch: 0,
        leaseId: 0,
        keepMilli: 0,
        returnMilli: 0,
        demandMilliPerSecond: 1e10,
        roundTripUs: 0,
        leaving: false,
      };
      const { epoch, leaseId, grantedMilli } = await harness.store.renew(shared, request);
      const gone = { ...request, sequence: 2, epoch, leaseId, leaving: true };
      await harness.store.renew(shared, gone);
      granted += grantedMilli;
      if (grantedMilli === 0) return granted;
    }
  }
}
