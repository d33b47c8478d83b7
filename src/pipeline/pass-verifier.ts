import type { KeyRing } from '../core/pass/key-ring.ts';
import { verifyPass } from '../core/pass/pass.ts';
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
  return {
    verify: (raw, expected, nowMs) =>
      verifyPass(
        ring,
        raw,
        {
          ...expected,
          issuer,
          audience,
          isWaveRevoked: (wave) => isWaveRevoked(expected.activityId, wave),
          bindDevice: bindsDevice?.(expected.activityId) ?? false,
        },
        nowMs,
      ),
  };
}
