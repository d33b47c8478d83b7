/**
 * How far the doors are open.
 *
 * The problem. A controller that opens as fast as it closes meets the crowd that it has just turned
 * away: everybody retries into the half-healed system, it falls again, and the cycle repeats until the
 * stock is gone or the operator pulls the plug. A controller that only closes on certainty is too late.
 *
 * The idea. Four modes with two marks each (enter above leave: hysteresis), one step per cycle, three
 * bad cycles to go up and five clean ones plus a minimum stay to come down. Trips that admit no doubt
 * close at once. Coming back from QUEUE_ONLY or CLOSED leads through STABILIZING (the share stays at
 * its smallest step until backlog and retries have settled) and a ramp of shares; one bad cycle steps
 * back. A recovery that failed doubles the next minimum stay. Every state has a longest stay, after
 * which it probes downward even when nothing can be measured: a system that nobody may enter cannot
 * produce the evidence that it is well.
 *
 *   NORMAL ⇄ DEGRADED ⇄ QUEUE_ONLY ⇄ CLOSED        one level per cycle; trips jump to CLOSED
 *                           └── down: STABILIZING → RAMPING_UP 5 10 25 50 75 100 % → STEADY
 */

export const modes = ['NORMAL', 'DEGRADED', 'QUEUE_ONLY', 'CLOSED'] as const;
export type Mode = (typeof modes)[number];

export type HardTrip = 'stock_invariant' | 'inventory_gone' | 'leases_spent';

export interface ModeMarks {
  readonly enter: number;
  readonly leave: number;
}

export interface ModeSettings {
  readonly marks: Readonly<Record<Exclude<Mode, 'NORMAL'>, ModeMarks>>;
  readonly badCyclesUp: number;
  readonly cleanCyclesDown: number;
  readonly minStayMs: number;
  readonly maxMinStayMs: number;
  /** Longest stay in one level before it probes downward. */
  readonly longestStayMs: number;
  /** A return above within this time after going down is a failed recovery. */
  readonly recoveryProofMs: number;
  readonly rampShares: readonly number[];
  readonly rampCleanCycles: number;
  /** Clean cycles that STABILIZING asks for before the ramp starts. */
  readonly stabilizeCycles: number;
}

export const modeDefaults: ModeSettings = {
  marks: {
    DEGRADED: { enter: 0.6, leave: 0.4 },
    QUEUE_ONLY: { enter: 0.8, leave: 0.6 },
    CLOSED: { enter: 1.0, leave: 0.75 },
  },
  badCyclesUp: 3,
  cleanCyclesDown: 5,
  minStayMs: 10_000,
  maxMinStayMs: 60_000,
  longestStayMs: 60_000,
  recoveryProofMs: 30_000,
  rampShares: [0.05, 0.1, 0.25, 0.5, 0.75, 1],
  rampCleanCycles: 3,
  stabilizeCycles: 3,
};

export interface Pin {
  readonly mode: Mode;
  readonly untilMs: number;
  readonly reason: string;
  readonly who: string;
}

export interface ModeState {
  readonly mode: Mode;
  readonly stage: 'steady' | 'stabilizing' | 'ramping';
  /** Index into `rampShares`; meaningful unless steady. */
  readonly rampStep: number;
  readonly badCycles: number;
  readonly cleanCycles: number;
  readonly enteredAtMs: number;
  /** When the ramp or its step was entered, for the longest stay. */
  readonly stepEnteredAtMs: number;
  readonly minStayMs: number;
  /** When the last step down happened; undefined before the first. */
  readonly steppedDownAtMs: number | undefined;
  readonly pin: Pin | undefined;
}

export interface ModeInput {
  /** The worst smoothed pressure; undefined when nothing could be measured. */
  readonly pressure: number | undefined;
  readonly trips: readonly HardTrip[];
  /** Backlog and retries back to ordinary; only STABILIZING asks. */
  readonly settled: boolean;
  /** Monotonic milliseconds. */
  readonly nowMs: number;
}

/** A fresh instance starts on the ramp: cold caches and connections are a kind of recovery. */
export function initialMode(
  nowMs: number,
  start: 'ramping' | 'steady',
  settings: ModeSettings = modeDefaults,
): ModeState {
  return {
    mode: 'NORMAL',
    stage: start,
    rampStep: 0,
    badCycles: 0,
    cleanCycles: 0,
    enteredAtMs: nowMs,
    stepEnteredAtMs: nowMs,
    minStayMs: settings.minStayMs,
    steppedDownAtMs: undefined,
    pin: undefined,
  };
}

/**
 * Doors that were shut by a person and are opened again: the crowd behind them has grown, and meets
 * cold caches. Where nothing worse is in force the ramp begins anew; a severe mode leads to it anyway.
 */
export function beginRamp(state: ModeState, nowMs: number): ModeState {
  if (state.mode === 'QUEUE_ONLY' || state.mode === 'CLOSED') return state;
  return { ...state, stage: 'ramping', rampStep: 0, cleanCycles: 0, stepEnteredAtMs: nowMs };
}

/** An operator holds a mode; it expires by itself. */
export function pinMode(state: ModeState, pin: Pin | undefined): ModeState {
  return { ...state, pin };
}

/** The mode in force: the pin while it lasts, else the state's own. */
export function modeInForce(state: ModeState, nowMs: number): Mode {
  return state.pin !== undefined && nowMs < state.pin.untilMs ? state.pin.mode : state.mode;
}

/**
 * Share of the full admission budget, 0…1. In DEGRADED it follows the pressure down from 1 at the
 * leave mark to ½ at the next mode's enter mark, so that budget returns with relief and not with the
 * end of the minimum stay.
 */
export function budgetShare(
  state: ModeState,
  pressure: number | undefined,
  nowMs: number,
  settings: ModeSettings = modeDefaults,
): number {
  const mode = modeInForce(state, nowMs);
  if (mode === 'CLOSED') return 0;
  const ramp = state.stage === 'steady' ? 1 : (settings.rampShares[state.rampStep] ?? 1);
  if (mode === 'QUEUE_ONLY') return Math.min(ramp, 0.25);
  if (mode === 'NORMAL') return ramp;
  const { leave } = settings.marks.DEGRADED;
  const span = settings.marks.QUEUE_ONLY.enter - leave;
  const excess = pressure === undefined ? 1 : Math.min(1, Math.max(0, (pressure - leave) / span));
  return Math.min(ramp, 1 - 0.5 * excess);
}

function levelOf(mode: Mode): number {
  return modes.indexOf(mode);
}

function modeAt(level: number): Mode {
  return modes[Math.min(modes.length - 1, Math.max(0, level))] ?? 'CLOSED';
}

function goUp(state: ModeState, to: Mode, nowMs: number, settings: ModeSettings): ModeState {
  const failedRecovery =
    state.steppedDownAtMs !== undefined && nowMs - state.steppedDownAtMs < settings.recoveryProofMs;
  return {
    ...state,
    mode: to,
    // A ramp under way goes on, a step lower: ending it here would answer trouble with more budget.
    rampStep: Math.max(0, state.rampStep - 1),
    badCycles: 0,
    cleanCycles: 0,
    enteredAtMs: nowMs,
    stepEnteredAtMs: nowMs,
    steppedDownAtMs: undefined,
    minStayMs: failedRecovery
      ? Math.min(settings.maxMinStayMs, state.minStayMs * 2)
      : state.minStayMs,
  };
}

function goDown(state: ModeState, nowMs: number): ModeState {
  const severe = levelOf(state.mode) >= levelOf('QUEUE_ONLY');
  return {
    ...state,
    mode: modeAt(levelOf(state.mode) - 1),
    // Leaving DEGRADED for NORMAL keeps a ramp that is under way; severe modes always start one.
    stage: severe ? 'stabilizing' : state.stage,
    rampStep: severe ? 0 : state.rampStep,
    badCycles: 0,
    cleanCycles: 0,
    enteredAtMs: nowMs,
    stepEnteredAtMs: nowMs,
    steppedDownAtMs: nowMs,
  };
}

/**
 * One cycle (once a second). Pure; O(1). Order: trips, then up, then down, then the ramp, so that no
 * cycle moves more than one level unless a trip demands it.
 */
export function stepMode(
  before: ModeState,
  input: ModeInput,
  settings: ModeSettings = modeDefaults,
): ModeState {
  const { nowMs, pressure } = input;
  let state =
    before.pin !== undefined && nowMs >= before.pin.untilMs
      ? { ...before, pin: undefined }
      : before;

  if (input.trips.length > 0) {
    if (state.mode === 'CLOSED') {
      return { ...state, badCycles: 0, cleanCycles: 0, enteredAtMs: nowMs, stepEnteredAtMs: nowMs };
    }
    return goUp(state, 'CLOSED', nowMs, settings);
  }

  const above = modeAt(levelOf(state.mode) + 1);
  const bad =
    pressure !== undefined &&
    (above === state.mode
      ? pressure >= settings.marks.CLOSED.enter
      : above !== 'NORMAL' && pressure >= settings.marks[above].enter);
  const leave =
    state.mode === 'NORMAL' ? settings.marks.DEGRADED.leave : settings.marks[state.mode].leave;
  const clean = pressure !== undefined && pressure < leave;
  state = {
    ...state,
    badCycles: bad ? state.badCycles + 1 : 0,
    cleanCycles: clean ? state.cleanCycles + 1 : 0,
  };

  if (state.badCycles >= settings.badCyclesUp && state.mode !== 'CLOSED') {
    return goUp(state, above, nowMs, settings);
  }

  const stay = nowMs - state.enteredAtMs;
  if (state.mode !== 'NORMAL') {
    const recovered = state.cleanCycles >= settings.cleanCyclesDown && stay >= state.minStayMs;
    // DEGRADED is open, so its evidence is fresh: it probes only where that does not contradict. The
    // severe modes shut out the traffic that would prove them wrong, and probe whatever they read.
    const contradicted =
      state.mode === 'DEGRADED' &&
      pressure !== undefined &&
      pressure >= settings.marks.DEGRADED.enter;
    const probe = stay >= Math.max(settings.longestStayMs, state.minStayMs) && !contradicted;
    if (recovered || probe) return goDown(state, nowMs);
  } else if (
    state.stage === 'steady' &&
    state.steppedDownAtMs !== undefined &&
    nowMs - state.steppedDownAtMs >= settings.recoveryProofMs
  ) {
    // The recovery held: the next trouble starts from the ordinary stay again.
    state = { ...state, steppedDownAtMs: undefined, minStayMs: settings.minStayMs };
  }
  return stepRamp(state, input, bad, clean, settings);
}

function stepRamp(
  state: ModeState,
  input: ModeInput,
  bad: boolean,
  clean: boolean,
  settings: ModeSettings,
): ModeState {
  const { nowMs } = input;
  if (state.stage === 'steady') return state;
  const waited = nowMs - state.stepEnteredAtMs >= settings.longestStayMs;
  if (state.stage === 'stabilizing') {
    const calm = input.settled && state.cleanCycles >= settings.stabilizeCycles;
    return calm || waited
      ? { ...state, stage: 'ramping', rampStep: 0, cleanCycles: 0, stepEnteredAtMs: nowMs }
      : state;
  }
  if (bad) {
    return {
      ...state,
      rampStep: Math.max(0, state.rampStep - 1),
      cleanCycles: 0,
      stepEnteredAtMs: nowMs,
    };
  }
  const last = settings.rampShares.length - 1;
  const proven = clean && state.cleanCycles >= settings.rampCleanCycles;
  if (!proven && !waited) return state;
  const next = state.rampStep + 1;
  return next >= last
    ? { ...state, stage: 'steady', rampStep: 0, cleanCycles: 0, stepEnteredAtMs: nowMs }
    : { ...state, rampStep: next, cleanCycles: 0, stepEnteredAtMs: nowMs };
}
