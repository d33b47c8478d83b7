import type { ReleaseState } from '../core/room/release.ts';
import { ReleaseView } from '../core/room/standing.ts';
import type { Clock } from '../ports/clock.ts';

/**
 * Release state older than this is not acted upon, ms: twenty publications missed. People are held
 * then; nobody is let in on old news.
 */
export const releaseMaxAgeMs = 5_000;

interface Received {
  readonly view: ReleaseView;
  readonly atUs: number;
}

/** The release states a gateway has received, newest per activity, with their age on its own clock. */
export class ReleaseStates {
  readonly #clock: Clock;
  readonly #maxAgeUs: number;
  readonly #onRevokedKeys: (kids: ReadonlySet<string>) => void;
  readonly #received = new Map<string, Received>();
  #revokedKeys = '';

  /** `onRevokedKeys` is told the whole set whenever it changes: key rings apply it. */
  constructor(
    clock: Clock,
    onRevokedKeys: (kids: ReadonlySet<string>) => void,
    maxAgeMs = releaseMaxAgeMs,
  ) {
    this.#clock = clock;
    this.#onRevokedKeys = onRevokedKeys;
    this.#maxAgeUs = maxAgeMs * 1000;
  }

  /** Takes a state in unless a newer one is here; true if it was taken. `ageMs`: on its way so long. */
  accept(state: ReleaseState, ageMs = 0): boolean {
    const known = this.#received.get(state.activityId)?.view;
    if (known !== undefined) {
      const { epoch, version } = known.state;
      if (state.epoch < epoch) return false;
      if (state.epoch === epoch && state.version <= version) return false;
    }
    const view = new ReleaseView(state, known);
    this.#received.set(state.activityId, { view, atUs: this.#clock.monoUs() - ageMs * 1000 });
    this.#tellRevokedKeys();
    return true;
  }

  /** The state to act upon, or undefined where there is none or it is too old. */
  fresh(activityId: string): ReleaseView | undefined {
    const received = this.#received.get(activityId);
    if (received === undefined) return undefined;
    return this.#clock.monoUs() - received.atUs > this.#maxAgeUs ? undefined : received.view;
  }

  /** The newest state whatever its age, for what stays true: revocations, commitment. */
  latest(activityId: string): ReleaseView | undefined {
    return this.#received.get(activityId)?.view;
  }

  /** Age of the newest state, ms, or undefined where none ever came. */
  ageMs(activityId: string): number | undefined {
    const received = this.#received.get(activityId);
    return received === undefined ? undefined : (this.#clock.monoUs() - received.atUs) / 1000;
  }

  /** A revocation does not grow old: the newest state decides, fresh or not. */
  isWaveRevoked(activityId: string, wave: number): boolean {
    return this.latest(activityId)?.isWaveRevoked(wave) ?? false;
  }

  #tellRevokedKeys(): void {
    const kids = new Set<string>();
    for (const { view } of this.#received.values()) {
      for (const kid of view.state.revoked.keys) kids.add(kid);
    }
    const name = [...kids].sort().join(' ');
    if (name === this.#revokedKeys) return;
    this.#revokedKeys = name;
    this.#onRevokedKeys(kids);
  }
}
