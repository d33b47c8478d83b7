import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { fillByPriority, PriorityBudget, rotationMs, rotationPoint } from './priority.ts';

test('a lower priority goes first', () => {
  expect(fillByPriority([10, 50, 20, 20, 100], 100, 100)).toEqual([1, 1, 1, 1, 0]);
  expect(fillByPriority([10, 50, 20, 40, 100], 100, 100)).toEqual([1, 1, 1, 0.5, 0]);
});

test('P0 keeps its floor when the budget is nothing, and nobody else gets it', () => {
  expect(fillByPriority([10, 50, 0, 0, 0], 0, 1000)).toEqual([1, 0, 0, 0, 0]);
  expect(fillByPriority([100, 50, 0, 0, 0], 0, 1000)[0]).toBe(0.5);
});

test('what is admitted never exceeds the budget, the floor of P0 aside', () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(10_000), { minLength: 5, maxLength: 5 }),
      fc.nat(20_000),
      (demand, budget) => {
        const shares = fillByPriority(demand, budget, 20_000);
        const admitted = demand.reduce((sum, wanted, p) => sum + wanted * (shares[p] ?? 0), 0);
        expect(admitted).toBeLessThanOrEqual(Math.max(budget, 20_000 * 0.05) + 1e-6);
      },
    ),
  );
});

test('refusal rotates: over many rotations every caller is let in about as often', () => {
  const callers = Array.from({ length: 200 }, (_, i) => `user-${i}`);
  const wins = callers.map((caller) => {
    let count = 0;
    for (let r = 0; r < 400; r += 1) if (rotationPoint(caller, r) < 0.3) count += 1;
    return count / 400;
  });
  expect(Math.min(...wins)).toBeGreaterThan(0.2);
  expect(Math.max(...wins)).toBeLessThan(0.4);
});

test('within one rotation a caller keeps its fate', () => {
  const budget = new PriorityBudget();
  for (let i = 0; i < 1000; i += 1) budget.admit(1, `warm-${i}`);
  budget.tick(500, 1000, rotationMs * 7);
  const first = Array.from({ length: 100 }, (_, i) => budget.admit(1, `u${i}`));
  const second = Array.from({ length: 100 }, (_, i) => budget.admit(1, `u${i}`));
  expect(second).toEqual(first);
  expect(new Set(first).size).toBe(2);
});

test('the cap of a window holds whatever the forecast said, but not for P0', () => {
  const budget = new PriorityBudget();
  budget.tick(10, 1000, 0);
  let admitted = 0;
  for (let i = 0; i < 500; i += 1) if (budget.admit(1, `u${i}`)) admitted += 1;
  expect(admitted).toBe(10);
  expect(budget.admit(0, 'payment')).toBe(true);
});

test('those who were refused and come again do not keep the budget from being used', () => {
  // 900 newcomers a window; of the refused, all come again in the next ten windows with the same fate.
  const run = (budget: PriorityBudget): number => {
    const waiting: { name: string; tries: number }[] = [];
    let admitted = 0;
    for (let window = 0; window < 39; window += 1) {
      const again = waiting.splice(0);
      const fresh = Array.from({ length: 900 }, (_, i) => ({ name: `w${window}-${i}`, tries: 0 }));
      for (const caller of [...again, ...fresh]) {
        if (budget.admit(1, caller.name)) admitted += window >= 20 ? 1 : 0;
        else if (caller.tries < 10) waiting.push({ ...caller, tries: caller.tries + 1 });
      }
      budget.tick(100, 1000, window * 100);
    }
    return admitted / 19;
  };
  expect(run(new PriorityBudget())).toBeGreaterThan(90);
  expect(run(new PriorityBudget())).toBeLessThanOrEqual(100);
  // The control: by demand alone most of the budget is left over.
  const uncorrected = new PriorityBudget();
  const plain = Object.assign(uncorrected, {
    admit(priority: 0 | 1, caller: string): boolean {
      return (
        PriorityBudget.prototype.admit.call(uncorrected, priority, caller) &&
        rotationPoint(caller, 0) < 100 / 9_000
      );
    },
  });
  expect(run(plain)).toBeLessThan(50);
});
