import type { Standing } from '../../wire/standing.ts';
import type { LaneForecast } from './release.ts';

/** Without history, and without a promise. */
export const noForecast: LaneForecast = {
  lowPerSecond: null,
  highPerSecond: null,
  heldRatio: null,
  likelyPlaces: 0,
  unlikelyPlaces: Infinity,
};

/** When the front should reach a place with `ahead` living entries before it, or null: not known. */
export function etaOf(forecast: LaneForecast, ahead: number): Standing['eta'] {
  const { lowPerSecond, highPerSecond, heldRatio } = forecast;
  if (lowPerSecond === null || highPerSecond === null || !(lowPerSecond > 0)) return null;
  return {
    low_ms: Math.floor(((ahead + 1) / highPerSecond) * 1000),
    high_ms: Math.ceil(((ahead + 1) / lowPerSecond) * 1000),
    held_ratio: heldRatio,
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
