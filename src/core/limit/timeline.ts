/**
 * One steady time out of a clock that steps.
 *
 * Every limit here is "so much per elapsed time", so whoever controls elapsed time controls the limit.
 * The two obvious ways to read a clock that stepped back are both wrong:
 *
 * - Believe each reading (`last = now`). Readings 10, 5, 10, 5 … then earn five seconds at each return,
 *   and two callers whose clocks differ mint tokens by taking turns.
 * - Believe the highest (`now = max(now, last)`). A clock set back by an hour then earns nothing for
 *   an hour, and everybody who is limited stays refused.
 *
 * The idea: what can be earned is progress *seen going forward*, and no stretch is earned twice. The
 * timeline remembers the highest reading (`highUs`), the start of the present stretch below it
 * (`baseUs`), and the steady time handed out so far (`steadyUs`):
 *
 *     reading ≥ high:  steady = max(steady, reading)            high = reading, no stretch below
 *     reading < high:  a new stretch begins at any reading below its start;
 *                      steady = max(steady, high + (reading − base))
 *
 * So a clock set back goes on earning from where it is (nothing freezes), while alternation between
 * two readings earns nothing, because each stretch has to be longer than all before it to earn more.
 * When the clock reaches `high` again, the time that was already earned below is not earned twice.
 *
 * Intended oddity: a clock that leapt *ahead* for a moment and came back pays for the leap when it
 * passes that reading for the second time. Without knowing which clock was right there is no choice
 * between that and minting, and minting is the worse fault.
 */
export interface TimelineState {
  readonly steadyUs: number;
  readonly highUs: number;
  /** Start of the present stretch below `highUs`; -1 when there is none. */
  readonly baseUs: number;
}

/** State before the first reading. */
export const freshTimeline: TimelineState = { steadyUs: 0, highUs: 0, baseUs: -1 };

/** Old state and one reading in, new state out. Readings are integers ≥ 0. O(1). */
export function observe(state: TimelineState, nowUs: number): TimelineState {
  const { steadyUs, highUs, baseUs } = state;
  if (nowUs >= highUs) {
    return { steadyUs: nowUs > steadyUs ? nowUs : steadyUs, highUs: nowUs, baseUs: -1 };
  }
  if (baseUs < 0 || nowUs < baseUs) return { steadyUs, highUs, baseUs: nowUs };
  const earnedTo = highUs + (nowUs - baseUs);
  return { steadyUs: earnedTo > steadyUs ? earnedTo : steadyUs, highUs, baseUs };
}

/** How far the clock must still go before steady time moves: added to every wait that is told. */
export function debtUs(state: TimelineState, nowUs: number): number {
  const position = state.baseUs < 0 ? nowUs : state.highUs + (nowUs - state.baseUs);
  return state.steadyUs - position;
}

/** The timeline of one limiter: all its keys share one clock, so they share this. */
export class Timeline {
  #steadyUs = 0;
  #highUs = 0;
  #baseUs = -1;
  #debtUs = 0;

  /** What the last reading still owes; 0 while the clock behaves. */
  get debtUs(): number {
    return this.#debtUs;
  }

  get steadyUs(): number {
    return this.#steadyUs;
  }

  /** Takes a reading, answers steady time. Allocates nothing; one comparison while the clock behaves. */
  read(nowUs: number): number {
    if (nowUs >= this.#steadyUs && this.#baseUs < 0) {
      this.#steadyUs = nowUs;
      this.#highUs = nowUs;
      this.#debtUs = 0;
      return nowUs;
    }
    return this.#readStepped(nowUs);
  }

  #readStepped(nowUs: number): number {
    const state = { steadyUs: this.#steadyUs, highUs: this.#highUs, baseUs: this.#baseUs };
    const next = observe(state, nowUs);
    this.#steadyUs = next.steadyUs;
    this.#highUs = next.highUs;
    this.#baseUs = next.baseUs;
    this.#debtUs = debtUs(next, nowUs);
    return next.steadyUs;
  }
}
