import type { SkuKey } from '../activity.ts';

/** HMAC-SHA-256 under a key of its own, as unpadded base64url. */
export type Mac = (message: string) => string;

/**
 * The path segment of a SKU's submit route: MAC over activity, its version and the SKU, cut to 96 bits.
 * Whoever knows it knows which counter a submit is for, without a body; it opens nothing by itself.
 * It changes with the activity version.
 */
export function pathIdOf(mac: Mac, sku: SkuKey, activityVersion: number): string {
  return mac(`path\0${sku.activityId}\0${activityVersion}\0${sku.skuId}`).slice(0, 16);
}

/**
 * The single-use id of a pass: MAC over entry, SKU and attempt, cut to 132 bits. The same three give
 * the same nonce on every gateway, so that asking twice for a pass is not two permissions.
 */
export function nonceOf(
  mac: Mac,
  activityId: string,
  entryId: string,
  skuId: string,
  attempt: number,
): string {
  return mac(`nonce\0${activityId}\0${entryId}\0${skuId}\0${attempt}`).slice(0, 22);
}
