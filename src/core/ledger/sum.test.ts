import { expect, test } from 'vitest';
import { Ledger, residualOf } from './ledger.ts';
import { sumLedgers } from './sum.ts';

function ledger(open: number, counts: readonly [string, 'handle' | 'reject', string][]): Ledger {
  const made = new Ledger(() => open);
  for (let at = 0; at < counts.length + open; at += 1) made.arrived();
  for (const [stage, exit, reason] of counts) made.left(stage, exit, reason);
  return made;
}

test('several accounts are one, and what one of them misses shows in the sum', () => {
  const one = ledger(2, [
    ['receive', 'reject', 'malformed'],
    ['enqueue', 'handle', 'queued'],
  ]);
  const two = ledger(0, [['receive', 'reject', 'malformed']]);
  const sum = sumLedgers([one.snapshot(), two.snapshot()]);
  expect(sum).toMatchObject({ arrivals: 5, inSystem: 2, totals: { handle: 1, reject: 2 } });
  expect(sum.rows).toContainEqual({
    stage: 'receive',
    decision: 'reject',
    reason: 'malformed',
    count: 2,
  });
  expect(sum.stages.find(({ stage }) => stage === 'receive')).toMatchObject({
    entered: 3,
    left: 2,
  });
  expect(residualOf(sum)).toBe(0);
  two.arrived();
  expect(residualOf(sumLedgers([one.snapshot(), two.snapshot()]))).toBe(1);
  expect(sumLedgers([])).toMatchObject({ arrivals: 0, rows: [] });
});
