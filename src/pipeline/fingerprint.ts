import { createHash } from 'node:crypto';
import type { SubmitBody } from './stage.ts';

/**
 * SHA-256 over activity, SKU, person, quantity and seats: the content that a request id stands for.
 * Parts are length-delimited, so that no two contents share an input; seats are sorted, because
 * their order changes nothing about what is bought. Hex.
 */
export function fingerprintOf(
  activityId: string,
  personId: string,
  body: Pick<SubmitBody, 'skuId' | 'quantity' | 'seats'>,
): string {
  const seats = body.seats === undefined ? [] : body.seats.toSorted();
  const parts = [activityId, body.skuId, personId, String(body.quantity), ...seats];
  const hash = createHash('sha256');
  for (const part of parts) hash.update(`${Buffer.byteLength(part)}:${part}`);
  return hash.digest('hex');
}
