import {
  type BreakerSettings,
  type BreakerState,
  breakerDefaults,
  type CallResult,
  type Permit,
} from '../core/outbound/breaker.ts';
import { type Deadline, deadlineFrom, remainingMs } from '../core/outbound/deadline.ts';
import { Gate, type GateReason, type GateRefusal } from '../core/outbound/gate.ts';
import { fullJitterMs, RetryBudget } from '../core/outbound/retry-budget.ts';
import type { Rate } from '../core/limit/rate.ts';
import type { TimerHandle } from '../ports/clock.ts';
import { NotAskedError, OutcomeUnknownError } from '../ports/errors.ts';

/**
 * Calls to something that is not ours.
 *
 * The problem. A dependency that slows down takes its callers with it: each call waits as long as it is
 * let, the waiting ones fill memory and sockets, callers retry on every layer, and what was a slow
 * database becomes a flood against a slow database. Each cure is well known and alone does little: a
 * timeout without a bound on calls in progress only bounds how long the flood lasts; a breaker without
 * a deadline opens after everybody has waited; retries without a budget undo both.
 *
 * So one object stands in front of each dependency, and a call passes all of it in one order:
 *
 *     deadline → rate → slots → breaker → one bounded attempt → (retry, if it may be repeated)
 *
 * - The deadline is the caller's remaining time less a margin for its own answer, never more than ours.
 *   It is passed on (`attempt.remainingMs`), enforced, and cancels the work (`attempt.signal`). A call
 *   that cannot be done in time is refused before anything is spent on it.
 * - A slot is held until the work has really ended, not until its caller gave up: what hangs shows as
 *   slots in use, and is bounded by them.
 * - Refusals (`OutboundRefusedError`) are ours. They are values of a healthy system, never reach the
 *   breaker, and are counted apart from errors.
 * - Retries are for what the caller marks as repeatable, with full jitter, inside the same deadline, and
 *   paid from a budget that successes fill: when everything fails, retries stop by themselves.
 */
export interface OutboundOptions {
  /** Names the dependency in errors and metrics: a word from the composition, never data. */
  readonly name: string;
  /** Longest time of a whole call, retries included, ms. Callers may ask for less, never for more. */
  readonly timeoutMs: number;
  /** Of a caller's remaining time, kept for its own answer, ms. Default 5. */
  readonly marginMs?: number;
  /** Longest time of one attempt, ms. Default: the whole call. */
  readonly attemptMs?: number;
  /** What an attempt usually takes, ms; one that has less left is not begun. Default 0. */
  readonly expectedMs?: number;
  /** Attempts per period and at once. Default: no limit. */
  readonly rate?: { readonly rate: Rate; readonly burst: number };
  /** Attempts in progress at once. Default 256. */
  readonly slots?: number;
  readonly breaker?: Partial<BreakerSettings>;
  readonly retry?: RetryOptions;
  /** Whether an error says that the other side is unwell. Default: every error but our own refusals. */
  readonly isFailure?: (error: unknown) => boolean;
  /** Whether a failed attempt of a repeatable call may be made again. Default: what `isFailure` says. */
  readonly isTransient?: (error: unknown) => boolean;
  /** No retries while this says no: an overloaded system makes none. */
  readonly mayRetry?: () => boolean;
}

export interface RetryOptions {
  /** Attempts of one call in all, 1…10. Default 2. */
  readonly attempts?: number;
  /** Full jitter: the wait before retry n is uniform in [0, min(cap, base·2ⁿ)), ms. */
  readonly baseMs?: number;
  readonly capMs?: number;
  /** Retries per success, and retries before any. Defaults 0.1 and 10. */
  readonly ratio?: number;
  readonly burst?: number;
}

export interface CallOptions {
  /** The caller's remaining time, ms; capped by the dependency's own. */
  readonly remainingMs?: number;
  /** The call changes nothing, or changes the same once: it may be made again. */
  readonly repeatable?: boolean;
  /** The caller goes away. */
  readonly signal?: AbortSignal;
  /** Time that this call is meant to take on top, ms: a long poll, a report. */
  readonly patienceMs?: number;
}

/** One attempt, as the work sees it. */
export interface Attempt {
  /** From 0. */
  readonly number: number;
  /** What may be passed on to the next hop, ms. */
  readonly remainingMs: number;
  /** Aborted at the deadline, and when the caller goes away. */
  readonly signal: AbortSignal;
}

/** A day. Beyond 2³¹ − 1 ms the timers of the platform fire at once, which is the opposite of long. */
const longestMs = 86_400_000;
const retryBaseMs = 50;
const retryCapMs = 1_000;

/** What the kit needs of the world. */
export interface OutboundWorld {
  /** Monotonic. */
  nowMs(): number;
  after(delayMs: number, run: () => void): TimerHandle;
  /** Uniform in [0, 1). */
  float(): number;
}

/** The call was not begun: surely nothing was done. */
export class OutboundRefusedError extends NotAskedError {
  readonly dependency: string;
  readonly reason: GateReason;
  /** When asking again may help, ms; absent where nobody can say. */
  readonly retryAfterMs?: number;

  constructor(dependency: string, refusal: GateRefusal) {
    super(`${dependency}: not asked, ${whys[refusal.reason]}`);
    this.dependency = dependency;
    this.reason = refusal.reason;
    if (refusal.retryAfterMs !== undefined) this.retryAfterMs = refusal.retryAfterMs;
  }
}

const whys: Readonly<Record<GateReason, string>> = {
  deadline: 'the time left is too short',
  rate: 'as many calls as agreed were made',
  slots: 'as many calls are in progress as may be',
  breaker: 'it does not answer well; it is being probed',
};

/** The composition's `isFailure` is broken; never repeated. */
class JudgeError extends AggregateError {}

/** Counted since the start. */
export interface OutboundNumbers {
  /** Asked for, refused ones included. */
  readonly calls: number;
  /** Calls of which at least one attempt was made. */
  readonly begun: number;
  readonly attempts: number;
  readonly failures: number;
  readonly refused: Readonly<Record<GateReason, number>>;
}

export class Outbound {
  readonly name: string;
  readonly #options: OutboundOptions;
  readonly #world: OutboundWorld;
  readonly #gate: Gate;
  readonly #budget: RetryBudget;
  readonly #attemptsMax: number;
  #calls = 0;
  #begun = 0;
  #attempts = 0;
  #failures = 0;
  readonly #refused: Record<GateReason, number> = { deadline: 0, rate: 0, slots: 0, breaker: 0 };

  /** @throws RangeError for options that cannot work, quoting them. */
  constructor(options: OutboundOptions, world: OutboundWorld) {
    const { timeoutMs, attemptMs = timeoutMs, marginMs = 5, retry = {}, name } = options;
    if (typeof name !== 'string' || name === '') {
      throw new RangeError(
        `name ${JSON.stringify(name)}; allowed: a word that names the dependency`,
      );
    }
    if (!(Number.isFinite(timeoutMs) && timeoutMs > 0 && timeoutMs <= longestMs)) {
      throw new RangeError(
        `${name}: timeoutMs ${timeoutMs}; allowed: above 0, at most ${longestMs}`,
      );
    }
    if (!(attemptMs > 0 && attemptMs <= timeoutMs)) {
      throw new RangeError(`${name}: attemptMs ${attemptMs}; allowed: above 0, at most timeoutMs`);
    }
    if (!(marginMs >= 0 && marginMs < timeoutMs)) {
      throw new RangeError(`${name}: marginMs ${marginMs}; allowed: from 0, below timeoutMs`);
    }
    const { expectedMs = 0 } = options;
    if (!(expectedMs >= 0 && expectedMs <= attemptMs)) {
      throw new RangeError(
        `${name}: expectedMs ${expectedMs}; allowed: from 0, at most attemptMs (${attemptMs}), or no call would ever be begun`,
      );
    }
    const { attempts = 2, baseMs = retryBaseMs, capMs = retryCapMs } = retry;
    if (!(Number.isInteger(attempts) && attempts >= 1 && attempts <= 10)) {
      throw new RangeError(`${name}: attempts ${attempts}; allowed: a whole number from 1 to 10`);
    }
    for (const [key, wait] of Object.entries({ baseMs, capMs })) {
      if (!(Number.isFinite(wait) && wait >= 0 && wait <= longestMs)) {
        throw new RangeError(`${name}: retry ${key} ${wait}; allowed: from 0 to ${longestMs}`);
      }
    }
    this.name = name;
    this.#options = options;
    this.#world = world;
    this.#attemptsMax = attempts;
    this.#budget = new RetryBudget(retry.ratio, retry.burst);
    this.#gate = new Gate(
      {
        slots: options.slots ?? 256,
        expectedMs,
        breaker: { ...breakerDefaults, ...options.breaker },
        ...(options.rate === undefined ? {} : { rate: options.rate }),
      },
      world.nowMs(),
    );
  }

  /**
   * Runs `work` at most once, or as often as retries allow where the call is repeatable. Rejects with
   * what the last attempt rejected with, also where the next was refused; with OutboundRefusedError where
   * none was begun; with OutcomeUnknownError at the deadline, because the work may still be done; with the
   * signal's reason where the caller went away; with RangeError for a patience that is none.
   */
  async call<Result>(
    work: (attempt: Attempt) => Promise<Result>,
    options: CallOptions = {},
  ): Promise<Result> {
    const { timeoutMs, marginMs = 5 } = this.#options;
    const startedMs = this.#world.nowMs();
    const patienceMs = options.patienceMs ?? 0;
    if (!(patienceMs >= 0 && patienceMs <= longestMs)) {
      throw new RangeError(
        `${this.name}: patienceMs ${patienceMs}; allowed: from 0, at most ${longestMs}`,
      );
    }
    const asked = options.remainingMs;
    const deadline = deadlineFrom(
      startedMs,
      timeoutMs + patienceMs,
      asked === undefined ? undefined : remainingMs({ atMs: asked }, 0, marginMs),
    );
    this.#calls += 1;
    const attemptsMax = options.repeatable === true ? this.#attemptsMax : 1;
    let failed: { readonly error: unknown } | undefined;
    for (let number = 0; ; number += 1) {
      options.signal?.throwIfAborted();
      const permit = this.#gate.enter(this.#world.nowMs(), deadline);
      if (permit.kind === 'refused') {
        this.#refused[permit.reason] += 1;
        // Something may have been done by the attempt before: "not asked" would be a lie.
        if (failed !== undefined) throw failed.error;
        throw new OutboundRefusedError(this.name, permit);
      }
      if (number === 0) this.#begun += 1;
      try {
        const result = await this.#attempt(work, number, permit, deadline, options);
        this.#budget.succeeded();
        return result;
      } catch (error) {
        const wait =
          number + 1 < attemptsMax ? this.#retryWait(error, number, deadline) : undefined;
        if (wait === undefined) throw error;
        failed = { error };
        await this.#sleep(wait, options.signal);
      }
    }
  }

  get breakerState(): BreakerState {
    return this.#gate.breaker.state;
  }

  get inflight(): number {
    return this.#gate.inflight;
  }

  get numbers(): OutboundNumbers {
    return {
      calls: this.#calls,
      begun: this.#begun,
      attempts: this.#attempts,
      failures: this.#failures,
      refused: { ...this.#refused },
    };
  }

  /** Runs the work with an end. The slot is given back when the work ends, whenever that is. */
  #attempt<Result>(
    work: (attempt: Attempt) => Promise<Result>,
    number: number,
    permit: Permit,
    deadline: Deadline,
    options: CallOptions,
  ): Promise<Result> {
    const world = this.#world;
    const startedMs = world.nowMs();
    const leftMs = deadline.atMs - startedMs;
    const patienceMs = options.patienceMs ?? 0;
    const mostMs = Math.min(leftMs, (this.#options.attemptMs ?? leftMs) + patienceMs);
    this.#attempts += 1;
    return new Promise<Result>((resolve, reject) => {
      const attempt = new RunningAttempt(number, mostMs);
      let told = false;
      const end = (result: CallResult, error?: unknown): boolean => {
        if (told) return false;
        told = true;
        timer.cancel();
        options.signal?.removeEventListener('abort', leave);
        const nowMs = world.nowMs();
        if (result === 'failure') this.#failures += 1;
        this.#gate.judge(permit, result, Math.max(0, nowMs - startedMs - patienceMs), nowMs);
        if (error !== undefined) reject(error);
        return true;
      };
      const leave = (): void => {
        const reason: unknown = options.signal?.reason;
        if (end('ignored', reason)) attempt.abort(reason);
      };
      const timer = world.after(mostMs, () => {
        const late = new OutcomeUnknownError(`${this.name}: no answer within ${mostMs} ms`);
        if (end('failure', late)) attempt.abort(late);
      });
      options.signal?.addEventListener('abort', leave, { once: true });
      startWork(work, attempt).then(
        (result) => {
          this.#gate.free();
          if (end('success')) resolve(result);
        },
        (error: unknown) => {
          this.#gate.free();
          const { result, reason } = this.#judged(error);
          end(result, reason);
        },
      );
    });
  }

  /** A judge that throws must not leave the caller without an answer: both errors are told. */
  #judged(error: unknown): { readonly result: CallResult; readonly reason: unknown } {
    try {
      const result = this.#isFailure(error) ? 'failure' : 'ignored';
      return { result, reason: error ?? new Error('no reason given') };
    } catch (thrown) {
      const message = `${this.name}: isFailure threw on the error that it was to judge`;
      return { result: 'failure', reason: new JudgeError([error, thrown], message) };
    }
  }

  #isFailure(error: unknown): boolean {
    if (error instanceof NotAskedError || error instanceof JudgeError) return false;
    return this.#options.isFailure?.(error) ?? true;
  }

  /** How long to wait before trying again; undefined where it must not be tried. */
  #retryWait(error: unknown, number: number, deadline: Deadline): number | undefined {
    const { retry = {}, isTransient, mayRetry } = this.#options;
    if (!this.#isFailure(error) || isTransient?.(error) === false) return undefined;
    if (mayRetry?.() === false) return undefined;
    const { baseMs = retryBaseMs, capMs = retryCapMs } = retry;
    const waitMs = fullJitterMs(number, baseMs, capMs, this.#world.float());
    const { expectedMs = 0 } = this.#options;
    if (this.#world.nowMs() + waitMs + expectedMs >= deadline.atMs) return undefined;
    return this.#budget.tryRetry() ? waitMs : undefined;
  }

  #sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel();
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      const timer = this.#world.after(ms, wake);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }
}

/** The signal is made only where the work looks at it: most work of ours has its own time limit. */
class RunningAttempt implements Attempt {
  readonly number: number;
  readonly remainingMs: number;
  #controller: AbortController | undefined;
  #aborted: { readonly reason: unknown } | undefined;

  constructor(number: number, leftMs: number) {
    this.number = number;
    this.remainingMs = leftMs;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#aborted !== undefined) this.#controller.abort(this.#aborted.reason);
    return this.#controller.signal;
  }

  abort(reason: unknown): void {
    this.#aborted = { reason };
    this.#controller?.abort(reason);
  }
}

/** What throws at once is a rejection like any other. */
async function startWork<Result>(
  work: (attempt: Attempt) => Promise<Result>,
  attempt: Attempt,
): Promise<Result> {
  return work(attempt);
}
