import type { Standing } from '../../wire/standing.ts';
import type { LaneForecast } from './release.ts';

/**
 * When it will be somebody's turn, as a range that is kept honest.
 *
 * A front moves in fits: a wave, then nothing until claims come in, windows close, holds expire. A
 * single number would be wrong for nearly everybody. So a plain estimate (places ÷ pace) is stretched
 * into a range by how wrong such estimates were in this very room: for each horizon control keeps the
 * ratios of what happened to what was estimated, takes two of their quantiles, and moves those apart or
 * together until the share of ranges that hold is what it should be (adaptive conformal inference,
 * Gibbs and Candès, 2021; its long-run share needs no assumption about how the front moves).
 */

/** Upper ends of the horizons, by the plain estimate, ms. */
export const horizonsMs = [10_000, 60_000, 600_000, Infinity] as const;

/** Added before and taken off after stretching, ms: near the front a few seconds are no error. */
export const offsetMs = 5_000;

/** Up to this horizon the recent pace is the better guide, ms. */
const shortHorizonMs = 60_000;

/** Before anything was learnt a range spans this factor either way: the further off, the wider. */
export const firstFactors = [3, 3, 4, 6] as const;

/** Time until the front has passed `ahead` living entries and one more, ms; null: not known. */
export function plainEtaMs(
  paces: { readonly shortPerSecond: number | null; readonly longPerSecond: number | null },
  ahead: number,
): number | null {
  const { shortPerSecond, longPerSecond } = paces;
  const places = ahead + 1;
  if (shortPerSecond !== null && shortPerSecond > 0) {
    const soonMs = (places / shortPerSecond) * 1000;
    if (soonMs < shortHorizonMs || longPerSecond === null) return soonMs;
  }
  return longPerSecond === null || !(longPerSecond > 0) ? null : (places / longPerSecond) * 1000;
}

export function horizonOf(plainMs: number): number {
  return horizonsMs.findIndex((end) => plainMs < end);
}

/** The range around a plain estimate. */
export function stretch(
  plainMs: number,
  range: { readonly low: number; readonly high: number },
): { readonly lowMs: number; readonly highMs: number } {
  return {
    lowMs: Math.max(0, (plainMs + offsetMs) * range.low - offsetMs),
    highMs: Math.max(0, (plainMs + offsetMs) * range.high - offsetMs),
  };
}

export function etaOf(forecast: LaneForecast, ahead: number): Standing['eta'] {
  const plainMs = plainEtaMs(forecast, ahead);
  if (plainMs === null) return null;
  const range = forecast.ranges[horizonOf(plainMs)];
  if (range === undefined) return null;
  const { lowMs, highMs } = stretch(plainMs, range);
  return {
    low_ms: Math.floor(lowMs),
    high_ms: Math.ceil(highMs),
    held_ratio: forecast.heldRatio,
  };
}

/** Whether stock is expected to last until a place is reached. */
export function sellThroughOf(
  forecast: LaneForecast,
  aheadAtMost: number,
): Standing['sell_through'] {
  if (aheadAtMost < forecast.likelyPlaces) return 'likely';
  return aheadAtMost >= forecast.unlikelyPlaces ? 'unlikely' : 'uncertain';
}
