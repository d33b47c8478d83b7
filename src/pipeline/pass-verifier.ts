import type { KeyRing } from '../core/pass/key-ring.ts';
import { type PassExpectations, verifyPass } from '../core/pass/pass.ts';
import type { PassVerifier } from './stages/06-identify.ts';

export interface PassVerifierOptions {
  readonly ring: KeyRing;
  readonly issuer: string;
  readonly audience: string;
  /** Whether a wave of an activity has been revoked, by the release state in force. */
  readonly isWaveRevoked: (activityId: string, wave: number) => boolean;
  /** Activities whose passes are bound to a device. */
  readonly bindsDevice?: (activityId: string) => boolean;
}

/** Verifies passes for one deployment: its keys, its issuer, its audience, its revocations. */
export function passVerifier(options: PassVerifierOptions): PassVerifier {
  const { ring, issuer, audience, isWaveRevoked, bindsDevice } = options;
  // One object for all: verification is synchronous and keeps nothing, and this is on the path of
  // every submit.
  const demands: Mutable<PassExpectations> = {
    issuer,
    audience,
    activityId: '',
    skuId: '',
    userId: '',
    activityVersion: 0,
    pathId: '',
    deviceHash: undefined,
    bindDevice: false,
    isWaveRevoked: (wave) => isWaveRevoked(demands.activityId, wave),
  };
  return {
    verify(raw, expected, nowMs) {
      demands.activityId = expected.activityId;
      demands.skuId = expected.skuId;
      demands.userId = expected.userId;
      demands.activityVersion = expected.activityVersion;
      demands.pathId = expected.pathId;
      demands.deviceHash = expected.deviceHash;
      demands.bindDevice = bindsDevice?.(expected.activityId) ?? false;
      return verifyPass(ring, raw, demands, nowMs);
    },
  };
}

type Mutable<Value> = { -readonly [Key in keyof Value]: Value[Key] };
