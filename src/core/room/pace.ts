import type { Pace } from './release.ts';

/**
 * How often a waiting person asks. Those near the front must learn quickly that it is their turn;
 * those far away gain nothing from asking often. So the interval grows with the places ahead, and its
 * slope is chosen so that the whole room stays inside a budget of polls per second.
 *
 * With W people waiting, and an interval of base + slope·place, the room asks
 *
 *     ∫₀^W dx / (base + slope·x)  =  ln(1 + slope·W / base) / slope
 *
 * times a second. There is no closed form for the slope; halving finds it.
 */
export interface PollBudget {
  /** Polls per second that the whole room may cause. */
  readonly perSecond: number;
  /** Shortest interval, at the front, ms. */
  readonly baseMs: number;
  /** Longest interval while the budget allows it, ms. */
  readonly maxMs: number;
}

/** Polls per second for everybody; at two gateways' worth of what one core serves. */
export const pollBudgetDefault: PollBudget = { perSecond: 10_000, baseMs: 1_000, maxMs: 30_000 };

/**
 * What one place may add at most while the budget allows it, ms: in a room of a hundred, the last is
 * seconds from the front, and half a minute is no answer to whether there is anything left.
 */
const slopeMaxMs = 20;

/** Share of the budget that the plan uses: the rest is for jitter, reloads and second devices. */
const plannedShare = 0.8;

/** Jitter: an interval is stretched or shrunk by up to this share. */
const jitterShare = 0.15;

export function paceFor(waiting: number, budget: PollBudget): Pace {
  const { baseMs } = budget;
  const maxMs = Math.min(budget.maxMs, baseMs + Math.ceil(slopeMaxMs * waiting));
  const planned = budget.perSecond * plannedShare;
  const flatMs = Math.max(baseMs, Math.ceil((waiting / planned) * 1000));
  if (waiting <= 1) return { baseMs, perPlaceUs: 0, maxMs, flatMs };
  // The gentlest slope worth having reaches the longest interval at the room's end.
  const gentle = (maxMs - baseMs) / waiting;
  if (pollsPerSecond(waiting, baseMs, gentle) <= planned) {
    return { baseMs, perPlaceUs: gentle * 1000, maxMs: Math.max(maxMs, baseMs), flatMs };
  }
  let low = gentle;
  let high = Math.max(gentle, 1);
  while (pollsPerSecond(waiting, baseMs, high) > planned) high *= 2;
  for (let step = 0; step < 60; step += 1) {
    const middle = (low + high) / 2;
    if (pollsPerSecond(waiting, baseMs, middle) > planned) low = middle;
    else high = middle;
  }
  return { baseMs, perPlaceUs: high * 1000, maxMs: Math.ceil(baseMs + high * waiting), flatMs };
}

/** What `waiting` people ask per second at this base and slope (ms, and ms per place). */
export function pollsPerSecond(waiting: number, baseMs: number, slopeMs: number): number {
  const perMs =
    slopeMs === 0 ? waiting / baseMs : Math.log1p((slopeMs * waiting) / baseMs) / slopeMs;
  return perMs * 1000;
}

/** `chance` uniform in [0, 1). */
export function pollAfterMs(pace: Pace, ahead: number | null, chance: number): number {
  const plain =
    ahead === null
      ? pace.flatMs
      : Math.min(pace.maxMs, pace.baseMs + (ahead * pace.perPlaceUs) / 1000);
  return spread(plain, chance);
}

/** An interval with its jitter, whole ms. */
export function spread(ms: number, chance: number): number {
  return Math.max(1, Math.round(ms * (1 + jitterShare * (2 * chance - 1))));
}

/**
 * In the lobby everybody waits for one instant. Who would ask next after it is told to ask within a
 * spread behind it, wide enough for the budget, so that the opening is not met by the whole room.
 */
export function lobbyPollAfterMs(
  pace: Pace,
  untilOpeningMs: number,
  afterOpeningMs: number,
  chance: number,
): number {
  const plain = spread(pace.flatMs, chance);
  if (plain < untilOpeningMs) return plain;
  const window = Math.max(pace.flatMs, pace.baseMs);
  return Math.max(pace.baseMs, Math.round(untilOpeningMs + afterOpeningMs + window * chance));
}
