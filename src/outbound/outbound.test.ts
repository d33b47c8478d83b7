import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { OutcomeUnknownError } from '../ports/errors.ts';
import { guardPort } from './guard.ts';
import { type Attempt, Outbound, type OutboundOptions, OutboundRefusedError } from './outbound.ts';

function open(options: Partial<OutboundOptions> = {}, float = 0.5) {
  const world = new World();
  const outbound = new Outbound(
    { name: 'billing', timeoutMs: 1_000, ...options },
    {
      nowMs: () => world.monoUs() / 1000,
      after: (ms, run) => world.after(ms, run),
      float: () => float,
    },
  );
  const nowMs = (): number => world.monoUs() / 1000;
  const answer = <Value>(ms: number, value: Value) =>
    new Promise<Value>((resolve) => void world.after(ms, () => resolve(value)));
  const fail = (ms: number) =>
    new Promise<never>((_, reject) => void world.after(ms, () => reject(new Error('down'))));
  /** Starts a call, and remembers how and when it ended. */
  const begin = (...args: Parameters<Outbound['call']>) => {
    const end: { value?: unknown; error?: unknown; atMs?: number } = {};
    outbound.call(...args).then(
      (value) => Object.assign(end, { value, atMs: nowMs() }),
      (error: unknown) => Object.assign(end, { error, atMs: nowMs() }),
    );
    return end;
  };
  return { world, outbound, answer, fail, begin };
}

const refusedAs = (reason: string) => expect.objectContaining({ name: 'UnavailableError', reason });

describe('deadline', () => {
  test('a caller may ask for less and never for more; the margin is kept for its own answer', async () => {
    const { world, begin, answer } = open({ marginMs: 20 });
    const seen: number[] = [];
    const work = (attempt: Attempt) => {
      seen.push(attempt.remainingMs);
      return answer(1, 'done');
    };
    for (const remainingMs of [300, 5_000, undefined]) {
      begin(work, remainingMs === undefined ? {} : { remainingMs });
    }
    await world.advance(10);
    expect(seen).toEqual([280, 1_000, 1_000]);
  });

  test('is enforced, cancels the work, and is an outcome that nobody knows', async () => {
    const { world, begin, answer, outbound } = open();
    let signal: AbortSignal | undefined;
    const end = begin(
      (attempt) => {
        ({ signal } = attempt);
        return answer(5_000, 'late');
      },
      { remainingMs: 105 },
    );
    await world.advance(200);
    expect(end.error).toBeInstanceOf(OutcomeUnknownError);
    expect([end.atMs, signal?.aborted]).toEqual([100, true]);
    // What hangs is a slot in use until it really ends.
    expect(outbound.inflight).toBe(1);
    await world.advance(5_000);
    expect(outbound.inflight).toBe(0);
  });

  test('a call that cannot make it is refused before anything is spent on it', async () => {
    const { world, begin, outbound } = open({ expectedMs: 50, rate: onePerSecond });
    let begun = 0;
    const work = async (): Promise<void> => {
      begun += 1;
    };
    const late = begin(work, { remainingMs: 50 });
    const past = begin(work, { remainingMs: -1 });
    // Nonsense from outside is our own deadline, and the one token of the rate is still there.
    const nonsense = begin(work, { remainingMs: Number.NaN });
    await world.advance(1);
    expect([late.error, past.error]).toEqual([refusedAs('deadline'), refusedAs('deadline')]);
    expect([nonsense.error, begun]).toEqual([undefined, 1]);
    expect(outbound.numbers.refused.deadline).toBe(2);
  });

  test('the caller may go away: no evidence against the other side', async () => {
    const { world, begin, answer, outbound } = open();
    const caller = new AbortController();
    let signal: AbortSignal | undefined;
    const end = begin(
      (attempt) => {
        ({ signal } = attempt);
        return answer(500, 'late');
      },
      { signal: caller.signal },
    );
    await world.advance(10);
    caller.abort(new Error('gone'));
    await world.advance(1);
    expect([end.error, signal?.aborted]).toEqual([new Error('gone'), true]);
    expect(outbound.numbers.failures).toBe(0);
  });
});

const onePerSecond = { rate: { tokensMilli: 1_000, periodUs: 1_000_000 }, burst: 1 };

describe('order and cost of refusals', () => {
  test('rate says when, slots do not wait in a line, and neither is an error', async () => {
    const { world, begin, answer, outbound } = open({
      slots: 1,
      rate: { ...onePerSecond, burst: 2 },
    });
    const slow = begin(() => answer(900, 'slow'));
    const full = begin(() => answer(1, 'never'));
    await world.advance(1);
    expect(full.error).toEqual(refusedAs('slots'));
    await world.advance(950);
    expect(slow.value).toBe('slow');
    // The one that found no place took no token: the second is still there, the third is not.
    const second = begin(() => answer(1, 'second'));
    await world.advance(1);
    const third = begin(() => answer(1, 'never'));
    await world.advance(5);
    expect(second.value).toBe('second');
    expect(third.error).toMatchObject({ reason: 'rate', retryAfterMs: expect.any(Number) });
    expect(outbound.numbers).toMatchObject({ calls: 4, begun: 2, attempts: 2, failures: 0 });
  });

  test('the breaker opens on failures, never on refusals, and probes without parking anybody', async () => {
    const breaker = { window: 10, minimumCalls: 4, openMs: 1_000, probes: 1 };
    const { world, begin, fail, answer, outbound } = open({ slots: 1, breaker });
    // A hundred refusals by full slots are no evidence.
    const holder = begin(() => answer(10, 'ok'));
    for (let i = 0; i < 100; i += 1) begin(() => fail(1));
    await world.advance(20);
    expect([holder.value, outbound.breakerState]).toEqual(['ok', 'closed']);
    for (let i = 0; i < 6; i += 1) {
      begin(() => fail(1));
      await world.advance(2);
    }
    const open1 = begin(() => answer(1, 'never'));
    await world.advance(1);
    expect(open1.error).toMatchObject({ reason: 'breaker', message: /billing: not asked/ });
    await world.advance(1_100);
    const probe = begin(() => answer(5, 'well'));
    const beside = begin(() => answer(5, 'never'));
    await world.advance(1);
    expect(beside.error).toBeInstanceOf(OutboundRefusedError);
    await world.advance(10);
    expect([probe.value, outbound.breakerState]).toEqual(['well', 'closed']);
  });

  test('a refusal further down is not this side’s failure', async () => {
    const inner = open({ name: 'inner', slots: 1 });
    const { world, begin, outbound } = open({ breaker: { window: 4, minimumCalls: 2 } });
    void inner.outbound.call(() => new Promise<never>(() => undefined));
    for (let i = 0; i < 10; i += 1) begin(() => inner.outbound.call(async () => 'x'));
    await world.advance(5);
    expect([outbound.breakerState, outbound.numbers.failures]).toEqual(['closed', 0]);
  });
});

describe('retries', () => {
  const flaky = (failures: number) => {
    let asked = 0;
    return async (): Promise<string> => {
      asked += 1;
      if (asked <= failures) throw new Error('down');
      return `after ${asked}`;
    };
  };

  test('only what may be repeated is, with full jitter, inside the same deadline', async () => {
    const { world, begin, outbound } = open(
      { retry: { attempts: 3, baseMs: 100, capMs: 150 } },
      0.5,
    );
    const once = begin(flaky(1));
    const twice = begin(flaky(2), { repeatable: true });
    await world.advance(40);
    expect(once.error).toEqual(new Error('down'));
    await world.advance(200);
    // 0.5 × 100, then 0.5 × min(150, 200).
    expect([twice.value, twice.atMs]).toEqual(['after 3', 125]);
    const short = begin(flaky(1), { repeatable: true, remainingMs: 55 });
    await world.advance(1);
    expect(short.error).toEqual(new Error('down'));
    expect(outbound.numbers).toMatchObject({ begun: 3, attempts: 5, failures: 4 });
  });

  test('a retry that is refused tells what the attempt before came to: it may have been done', async () => {
    const breaker = { window: 4, minimumCalls: 1 };
    const { world, begin, outbound } = open({ breaker, retry: { baseMs: 1 } });
    const end = begin(flaky(1), { repeatable: true });
    await world.advance(20);
    expect(end.error).toEqual(new Error('down'));
    expect(outbound.numbers).toMatchObject({ begun: 1, attempts: 1, refused: { breaker: 1 } });
    // The control: where nothing was begun, the refusal itself.
    const other = begin(flaky(0), { repeatable: true });
    await world.advance(1);
    expect(other.error).toEqual(refusedAs('breaker'));
  });

  test('a judge that throws is told with what it was to judge, and takes neither call nor slot', async () => {
    const isFailure = (error: unknown): boolean => (error as { reply: Error }).reply.message === '';
    const { world, begin, outbound } = open({ isFailure });
    const end = begin(flaky(1), { repeatable: true });
    await world.advance(1);
    expect(end.error).toMatchObject({
      message: 'billing: isFailure threw on the error that it was to judge',
      errors: [new Error('down'), expect.any(TypeError)],
    });
    expect([outbound.inflight, outbound.numbers.attempts]).toEqual([0, 1]);
  });

  test('an overloaded system makes none', async () => {
    const { world, begin } = open({ mayRetry: () => false });
    const end = begin(flaky(1), { repeatable: true });
    await world.advance(100);
    expect(end.error).toEqual(new Error('down'));
  });

  test.each([
    { name: 'with the budget retries stay within a tenth', ratio: 0.1, most: 1.1 },
    // The control: a budget that never runs dry lets an outage double the load.
    {
      name: 'control: without one they double the load',
      ratio: 1,
      burst: 10_000,
      most: 2,
      least: 1.9,
    },
  ])('$name', async ({ ratio, burst = 5, most, least = 1 }) => {
    const retry = { attempts: 2, baseMs: 1, ratio, burst };
    const never = { window: 10_000, minimumCalls: 10_000 };
    const { world, outbound, begin } = open({ retry, breaker: never });
    for (let i = 0; i < 1_000; i += 1) {
      begin(flaky(Infinity), { repeatable: true });
      if (i % 100 === 0) await world.advance(10);
    }
    await world.advance(100);
    const { attempts, begun } = outbound.numbers;
    expect(attempts / begun).toBeLessThanOrEqual(most);
    expect(attempts / begun).toBeGreaterThanOrEqual(least);
  });
});

test.each<[Record<string, unknown>, RegExp]>([
  [{ name: undefined }, /name undefined; allowed: a word/],
  [{ timeoutMs: Number.NaN }, /billing: timeoutMs NaN; allowed: above 0, at most 86400000/],
  [{ timeoutMs: 2 ** 31 }, /timeoutMs 2147483648; allowed/],
  [{ timeoutMs: '800' }, /timeoutMs 800; allowed/],
  [{ attemptMs: 2_000 }, /attemptMs 2000; allowed/],
  [{ marginMs: Number.NaN }, /marginMs NaN; allowed/],
  [{ expectedMs: 1_001 }, /expectedMs 1001; allowed: from 0, at most attemptMs \(1000\)/],
  [{ slots: 1.5 }, /slots 1.5; allowed/],
  [{ rate: { rate: { tokensMilli: 1, periodUs: 1 }, burst: Infinity } }, /burst Infinity; allowed/],
  [{ retry: { attempts: 0 } }, /attempts 0; allowed/],
  [{ retry: { baseMs: Number.NaN } }, /retry baseMs NaN; allowed/],
  [{ retry: { capMs: -1 } }, /retry capMs -1; allowed/],
  [{ retry: { ratio: Infinity } }, /ratio Infinity; allowed/],
  [{ breaker: { failureRate: Number.NaN } }, /failureRate NaN; allowed/],
  [{ breaker: { slowRate: 2 } }, /slowRate 2; allowed/],
  [{ breaker: { slowMs: undefined } }, /slowMs undefined; allowed/],
  [{ breaker: { openMs: Number.NaN } }, /openMs NaN with openCapMs 30000; allowed/],
  [{ breaker: { openMs: 40_000 } }, /openMs 40000 with openCapMs 30000; allowed/],
  [{ breaker: { openCapMs: Infinity } }, /openCapMs Infinity; allowed/],
])('options that cannot work are quoted: %o', (options, message) => {
  expect(() => open(options)).toThrow(message);
});

test.each([Number.NaN, -1, Infinity])('a patience of %s is none', async (patienceMs) => {
  const { world, begin, outbound } = open();
  const end = begin(async () => 'done', { patienceMs });
  await world.advance(1);
  expect(end.error).toEqual(
    new RangeError(`billing: patienceMs ${patienceMs}; allowed: from 0, at most 86400000`),
  );
  expect(outbound.inflight).toBe(0);
});

test('over any history: slots come back, bounds hold, every call has one end', async () => {
  const step = fc.record({
    takesMs: fc.integer({ min: 0, max: 3_000 }),
    fails: fc.boolean(),
    repeatable: fc.boolean(),
    remainingMs: fc.option(fc.integer({ min: -10, max: 2_000 }), { nil: undefined }),
    waitMs: fc.integer({ min: 0, max: 200 }),
  });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (history) => {
      const { world, outbound, begin, answer, fail } = open({
        slots: 4,
        rate: { rate: { tokensMilli: 50_000, periodUs: 1_000_000 }, burst: 5 },
        breaker: { window: 10, minimumCalls: 4, openMs: 100, openCapMs: 400 },
        retry: { attempts: 3, baseMs: 10, capMs: 50 },
      });
      const ends: object[] = [];
      for (const { takesMs, fails, repeatable, remainingMs, waitMs } of history) {
        const work = () => (fails ? fail(takesMs) : answer(takesMs, 1));
        ends.push(
          begin(work, { repeatable, ...(remainingMs === undefined ? {} : { remainingMs }) }),
        );
        await world.advance(waitMs);
        expect(outbound.inflight).toBeLessThanOrEqual(4);
      }
      await world.advance(10_000);
      expect(outbound.inflight).toBe(0);
      expect(ends.every((end) => 'atMs' in end)).toBe(true);
      const { calls, begun, attempts } = outbound.numbers;
      expect(calls).toBe(history.length);
      expect(attempts).toBeGreaterThanOrEqual(begun);
      // And there is a way back, whatever happened.
      const well = begin(async () => 'well');
      await world.advance(1_000);
      if (!('value' in well)) {
        const again = begin(async () => 'well');
        await world.advance(1_000);
        expect(again.value).toBe('well');
      }
    }),
    { numRuns: 60 },
  );
});

test.each([
  [{ timeoutMs: 0 }, /timeoutMs 0/],
  [{ attemptMs: 2_000 }, /attemptMs 2000/],
  [{ marginMs: 1_000 }, /marginMs 1000/],
  [{ slots: 0 }, /slots 0/],
  [{ retry: { attempts: 11 } }, /attempts 11/],
  [{ expectedMs: -1 }, /expectedMs -1/],
  [{ rate: { ...onePerSecond, burst: 0 } }, /burst 0/],
] as const)('options that cannot work are quoted: %j', (options, message) => {
  expect(() => open(options)).toThrow(message);
});

test('a guarded port: reads are repeated, writes are not, waits are not slow, the rest is its own', async () => {
  class Shelf {
    #asked = 0;
    readonly label = 'shelf';
    async read(): Promise<number> {
      return this.#next();
    }
    async write(): Promise<number> {
      return this.#next();
    }
    async poll(waitMs: number): Promise<number> {
      return waitMs;
    }
    async close(): Promise<string> {
      return 'closed';
    }
    asked(): number {
      return this.#asked;
    }
    async #next(): Promise<number> {
      this.#asked += 1;
      if (this.#asked % 2 === 1) throw new Error('down');
      return this.#asked;
    }
  }
  const { world, outbound } = open({ retry: { baseMs: 1 } });
  const shelf = guardPort(new Shelf(), outbound, {
    read: 'read',
    write: 'write',
    poll: (waitMs) => ({ patienceMs: waitMs }),
    close: 'through',
  });
  const read = shelf.read();
  await world.advance(10);
  expect(await read).toBe(2);
  await expect(shelf.write()).rejects.toThrow('down');
  expect(await shelf.poll(20_000)).toBe(20_000);
  expect([await shelf.close(), shelf.label, shelf.asked()]).toEqual(['closed', 'shelf', 3]);
  expect(outbound.numbers.calls).toBe(3);
});
