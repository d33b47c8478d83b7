import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { Breaker } from './breaker.ts';
import { canMake, deadlineFrom, remainingMs } from './deadline.ts';
import { fullJitterMs, RetryBudget } from './retry-budget.ts';

describe('retry budget', () => {
  test('when everything fails, retries stop after the burst', () => {
    const budget = new RetryBudget(0.1, 5);
    let retries = 0;
    for (let i = 0; i < 1000; i += 1) if (budget.tryRetry()) retries += 1;
    expect(retries).toBe(5);
  });

  test('over any history retries never exceed burst + ratio × successes', () => {
    fc.assert(
      fc.property(fc.array(fc.boolean(), { maxLength: 500 }), (history) => {
        const budget = new RetryBudget(0.1, 3);
        let retries = 0;
        let successes = 0;
        for (const ok of history) {
          if (ok) {
            budget.succeeded();
            successes += 1;
          } else if (budget.tryRetry()) retries += 1;
        }
        expect(retries).toBeLessThanOrEqual(3 + 0.1 * successes);
      }),
    );
  });

  test('bad settings are quoted', () => {
    expect(() => new RetryBudget(2)).toThrow(/ratio 2/);
    expect(() => new RetryBudget(0.1, -1)).toThrow(/burst -1/);
  });

  test('jitter stays inside its bounds for every attempt', () => {
    fc.assert(
      fc.property(fc.nat(2000), fc.double({ min: 0, max: 0.999999, noNaN: true }), (attempt, u) => {
        const wait = fullJitterMs(attempt, 100, 5000, u);
        expect(wait).toBeGreaterThanOrEqual(0);
        expect(wait).toBeLessThan(5000);
      }),
    );
  });
});

describe('breaker', () => {
  const settings = { window: 10, minimumCalls: 4, openMs: 1000, openCapMs: 4000, probes: 2 };

  function call(breaker: Breaker, result: 'success' | 'failure' | 'ignored', now: number): boolean {
    const permit = breaker.ask(now);
    if (permit.kind === 'refused') return false;
    breaker.settle(permit, result, 1, now);
    return true;
  }

  test('opens on the rate, not before the minimum of calls', () => {
    const breaker = new Breaker(settings);
    for (let i = 0; i < 3; i += 1) call(breaker, 'failure', 0);
    expect(breaker.state).toBe('closed');
    call(breaker, 'failure', 0);
    expect(breaker.state).toBe('open');
    expect(breaker.ask(400)).toEqual({ kind: 'refused', retryAfterMs: 600 });
  });

  test('our own refusals never open it', () => {
    const breaker = new Breaker(settings);
    for (let i = 0; i < 1000; i += 1) call(breaker, 'ignored', 0);
    expect(breaker.state).toBe('closed');
  });

  test('slow calls open it too', () => {
    const breaker = new Breaker({ ...settings, slowMs: 100 });
    for (let i = 0; i < 4; i += 1) {
      const permit = breaker.ask(0);
      if (permit.kind !== 'refused') breaker.settle(permit, 'success', 101, 0);
    }
    expect(breaker.state).toBe('open');
  });

  test('half open probes with few, parks nobody, closes when all are well', () => {
    const breaker = new Breaker(settings);
    for (let i = 0; i < 4; i += 1) call(breaker, 'failure', 0);
    const first = breaker.ask(1000);
    const second = breaker.ask(1000);
    expect([first.kind, second.kind, breaker.ask(1000).kind]).toEqual([
      'probe',
      'probe',
      'refused',
    ]);
    if (first.kind !== 'refused') breaker.settle(first, 'success', 1, 1001);
    if (second.kind !== 'refused') breaker.settle(second, 'success', 1, 1001);
    expect(breaker.state).toBe('closed');
  });

  test('a bad probe opens again for twice as long, up to the cap', () => {
    const breaker = new Breaker(settings);
    for (let i = 0; i < 4; i += 1) call(breaker, 'failure', 0);
    let now = 0;
    for (const pause of [1000, 2000, 4000, 4000]) {
      expect(breaker.ask(now + pause - 1).kind).toBe('refused');
      now += pause;
      expect(call(breaker, 'failure', now)).toBe(true);
    }
  });

  test('probes that never come back do not keep it half open for ever', () => {
    const breaker = new Breaker(settings);
    for (let i = 0; i < 4; i += 1) call(breaker, 'failure', 0);
    breaker.ask(1000);
    breaker.ask(1000);
    expect(breaker.ask(5000).kind).toBe('refused');
    expect(breaker.ask(5001).kind).toBe('probe');
  });

  test('a result that comes back after the state has changed is no evidence', () => {
    const breaker = new Breaker(settings);
    const early = breaker.ask(0);
    for (let i = 0; i < 4; i += 1) call(breaker, 'failure', 0);
    for (let i = 0; i < 2; i += 1) call(breaker, 'success', 1000);
    expect(breaker.state).toBe('closed');
    if (early.kind !== 'refused') breaker.settle(early, 'failure', 1, 1001);
    for (let i = 0; i < 3; i += 1) call(breaker, 'failure', 1002);
    expect(breaker.state).toBe('closed');
  });
});

describe('deadline', () => {
  test('a deadline from outside is capped by our own, nonsense is ignored', () => {
    expect(deadlineFrom(100, 50, 1_000_000).atMs).toBe(150);
    expect(deadlineFrom(100, 50, 20).atMs).toBe(120);
    expect(deadlineFrom(100, 50, Number.NaN).atMs).toBe(150);
    expect(deadlineFrom(100, 50, -5).atMs).toBe(150);
  });

  test('what is passed on is less by the margin and never negative', () => {
    expect(remainingMs({ atMs: 150 }, 100, 10)).toBe(40);
    expect(remainingMs({ atMs: 150 }, 145, 10)).toBe(0);
    expect(canMake({ atMs: 150 }, 100, 51)).toBe(false);
  });
});
