import { fromHex, toHex } from '../core/room/bytes.ts';
import { commitmentOf, secretBytes } from '../core/room/draw.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import type { Random } from '../ports/random.ts';

/** Names of a room's small durable facts in the admission store. */
export const roomStateNames = {
  secret: (activityId: string): string => `room/${activityId}/secret`,
  entryKey: (activityId: string): string => `room/${activityId}/entry-key`,
  beacon: (activityId: string): string => `room/${activityId}/beacon`,
  epoch: (activityId: string): string => `room/${activityId}/epoch`,
  event: (activityId: string, number: number): string => `room/${activityId}/e/${number}`,
} as const;

/**
 * A secret of the room: made once, by whoever asks first, and durable before anybody sees its
 * commitment. Two askers at once agree, because only one can write.
 */
export async function ensureSecret(
  store: Pick<AdmissionStore, 'loadState' | 'saveState'>,
  name: string,
  random: Random,
): Promise<{ readonly secret: Uint8Array; readonly commitment: string }> {
  let stored = await store.loadState(name);
  if (stored === undefined) {
    await store.saveState(name, toHex(random.bytes(secretBytes)), 0);
    stored = await store.loadState(name);
  }
  const secret = stored === undefined ? undefined : fromHex(stored.value);
  if (secret?.length !== secretBytes) {
    throw new Error(`state "${name}" is not ${secretBytes} bytes in hex`);
  }
  return { secret, commitment: commitmentOf(secret) };
}
