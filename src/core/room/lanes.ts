/**
 * Lanes: entries that wait for the same things. A lane is a group and a choice of SKUs; each has its
 * own line, so that a sold-out date does not hold up those who also want another, and a group's places
 * stay its own. With one SKU and no groups there is one lane, named ''.
 */

/** Lanes with a line of their own in one room; entries of any more stand in the lane ''. */
export const lanesMax = 64;

/** `skuIds` empty means any SKU of the activity. */
export function laneKey(group: string, skuIds: readonly string[]): string {
  return group === '' && skuIds.length === 0 ? '' : `${group}/${skuIds.join(',')}`;
}

export interface LaneParts {
  readonly group: string;
  /** Empty means any. */
  readonly skuIds: readonly string[];
}

export function laneParts(lane: string): LaneParts {
  const slash = lane.indexOf('/');
  if (slash < 0) return { group: '', skuIds: [] };
  const skus = lane.slice(slash + 1);
  return { group: lane.slice(0, slash), skuIds: skus === '' ? [] : skus.split(',') };
}

/** Brings a wish into the one form that names its lane: known SKUs in the activity's order, once each. */
export function normalSkus(
  wanted: readonly string[],
  all: readonly string[],
): { readonly skuIds: readonly string[] } | { readonly unknown: string } {
  const unknown = wanted.find((skuId) => !all.includes(skuId));
  if (unknown !== undefined) return { unknown };
  const chosen = all.filter((skuId) => wanted.includes(skuId));
  return { skuIds: chosen.length === all.length ? [] : chosen };
}
