import type { Standing } from '../../wire/standing.ts';
import { fromHex } from './bytes.ts';
import { Drawer } from './draw.ts';
import { etaOf, sellThroughOf } from './forecast.ts';
import { livingBefore } from './line.ts';
import { lobbyPollAfterMs, pollAfterMs, spread } from './pace.ts';
import { rangeOf } from './release.ts';
import type { LaneState, ReleaseState, WaveWindow } from './release.ts';

/** A place as an entry token states it. */
export interface Place {
  readonly entryId: string;
  readonly cohort: 'lobby' | 'late';
  readonly sequence: number;
  readonly lane: string;
  readonly weight: number;
}

/** Instants of the activity that a standing depends on, by the server's clock. */
export interface Hours {
  readonly opensAtMs: number;
  readonly closesAtMs: number;
}

/** Where a place is, before it is put into words. */
export type Whereabouts =
  | { readonly kind: 'left' | 'closed' | 'not_drawn' }
  | { readonly kind: 'claimed' | 'missed'; readonly wave: number }
  | { readonly kind: 'admitted'; readonly wave: number; readonly claimBeforeMs: number | null }
  | { readonly kind: 'lobby' }
  | {
      readonly kind: 'waiting';
      readonly lane: LaneState;
      /** Estimated, and at most: living entries of the lane that come first. */
      readonly ahead: number;
      readonly aheadAtMost: number;
    };

/** The time from the lobby's closing to the first waves that people should not all ask in, ms. */
const drawAllowanceMs = 2_000;
/** How soon an admitted person's page looks again, ms. */
const admittedPollMs = 2_000;
/** Where nothing will change soon, at least this long, ms. */
const settledPollMs = 15_000;

/**
 * A release state made ready for polls: the draw's key is prepared once, lanes and waves are found by
 * name. Holds nothing per person; each question costs one MAC and two binary searches.
 */
export class ReleaseView {
  readonly state: ReleaseState;
  readonly #drawer: Drawer | undefined;
  readonly #lanes: ReadonlyMap<string, LaneState>;
  readonly #waves: ReadonlyMap<number, WaveWindow>;
  readonly #bypassed: ReadonlyMap<number, number>;
  readonly #revokedWaves: ReadonlySet<number>;

  /** `before` lends its prepared draw where the draw is the same. */
  constructor(state: ReleaseState, before?: ReleaseView) {
    this.state = state;
    this.#lanes = new Map(state.lanes.map((lane) => [lane.lane, lane]));
    this.#waves = new Map(state.waves.map((window) => [window.wave, window]));
    this.#bypassed = new Map(state.bypassed);
    this.#revokedWaves = new Set(state.revoked.waves);
    this.#drawer =
      before !== undefined && sameDraw(before.state, state) ? before.#drawer : drawerOf(state);
  }

  isWaveRevoked(wave: number): boolean {
    return this.#revokedWaves.has(wave);
  }

  windowOf(wave: number): WaveWindow | undefined {
    return this.#waves.get(wave);
  }

  whereabouts(place: Place, hours: Hours, nowMs: number): Whereabouts {
    const { state } = this;
    if (state.left.has(place.sequence)) return { kind: 'left' };
    if (nowMs >= hours.closesAtMs || state.stage === 'over') return { kind: 'closed' };
    if (state.mode === 'reject') return { kind: 'closed' };
    if (state.mode === 'passthrough') {
      return nowMs >= hours.opensAtMs && !state.held
        ? { kind: 'admitted', wave: 0, claimBeforeMs: null }
        : { kind: 'lobby' };
    }
    const bypass = this.#bypassed.get(place.sequence);
    if (bypass !== undefined && !this.#revokedWaves.has(bypass)) {
      return this.#released(place, bypass, nowMs);
    }
    if (state.stage !== 'open') return { kind: 'lobby' };
    return this.#inLine(place, nowMs);
  }

  /** The standing in the words of the wire. `chance` uniform in [0, 1) spreads the next poll. */
  standing(place: Place, hours: Hours, nowMs: number, chance: number): Standing {
    return this.describe(place, this.whereabouts(place, hours, nowMs), hours, nowMs, chance);
  }

  describe(place: Place, at: Whereabouts, hours: Hours, nowMs: number, chance: number): Standing {
    const { pace } = this.state;
    const settledMs = spread(settledPollMs, chance);
    switch (at.kind) {
      case 'left':
      case 'closed':
      case 'missed':
      case 'claimed':
        return this.#say(place, nowMs, at.kind, null, null, null, 'uncertain', null, settledMs);
      case 'not_drawn': {
        const pollMs = spread(Math.max(settledPollMs, pace.flatMs), chance);
        return this.#say(place, nowMs, 'not_drawn', null, null, null, 'unlikely', null, pollMs);
      }
      case 'admitted': {
        const { claimBeforeMs } = at;
        const leftMs = claimBeforeMs === null ? Infinity : claimBeforeMs - nowMs;
        const pollMs = spread(Math.max(250, Math.min(admittedPollMs, leftMs)), chance);
        const until = claimBeforeMs === null ? null : new Date(claimBeforeMs).toISOString();
        return this.#say(place, nowMs, 'admitted', 1, 0, null, 'likely', until, pollMs);
      }
      case 'lobby': {
        const untilMs = hours.opensAtMs - nowMs;
        const pollMs = lobbyPollAfterMs(pace, untilMs, drawAllowanceMs, chance);
        return this.#say(place, nowMs, 'waiting', null, null, null, 'uncertain', null, pollMs);
      }
      case 'waiting': {
        const { lane, ahead, aheadAtMost } = at;
        const position = Math.floor(ahead) + 1;
        const atMost = Math.ceil(aheadAtMost);
        if (!lane.open) {
          const state = lane.mayReopen ? 'waiting' : 'sold_out';
          const pollMs = spread(Math.max(settledPollMs, pace.flatMs), chance);
          return this.#say(
            place,
            nowMs,
            state,
            position,
            atMost,
            null,
            'gone_for_now',
            null,
            pollMs,
          );
        }
        const still = this.state.held || this.state.paused;
        const eta = still ? null : etaOf(lane.forecast, ahead);
        const through = sellThroughOf(lane.forecast, aheadAtMost);
        const pollMs = pollAfterMs(pace, ahead, chance);
        return this.#say(place, nowMs, 'waiting', position, atMost, eta, through, null, pollMs);
      }
    }
  }

  /** One literal, so that every standing has one shape; in the order of the wire. */
  #say(
    place: Place,
    nowMs: number,
    state: Standing['state'],
    position: number | null,
    ahead: number | null,
    eta: Standing['eta'],
    sellThrough: Standing['sell_through'],
    claimBefore: string | null,
    nextPollMs: number,
  ): Standing {
    return {
      state,
      cohort: place.cohort,
      position,
      ahead,
      eta,
      sell_through: sellThrough,
      claim_before: claimBefore,
      order_rule: this.state.mode,
      next_poll_after_ms: nextPollMs,
      server_time: isoText(nowMs),
    };
  }

  #inLine(place: Place, nowMs: number): Whereabouts {
    const { state } = this;
    const known = place.sequence < state.placed;
    // A lane without a line of its own stands in ''. One that control has not met yet just waits.
    const lane = this.#lanes.get(place.lane) ?? (known ? this.#lanes.get('') : undefined);
    if (lane === undefined) return { kind: 'lobby' };
    const isLobby = state.lobbySize !== null && place.sequence < state.lobbySize;
    const cohort = isLobby ? 0 : 1;
    const key = isLobby ? this.#lobbyKey(place) : place.sequence;
    if (key === undefined) return { kind: 'lobby' };
    const range = rangeOf(lane.released, cohort, key, place.entryId);
    if (range !== undefined && range.wave !== 0 && known) {
      return this.#released(place, range.wave, nowMs);
    }
    if (state.claimed.has(place.sequence)) return { kind: 'claimed', wave: range?.wave ?? 0 };

    const before = livingBefore(isLobby ? lane.lobby : lane.late, key);
    const lobbyLiving = lane.lobby.living.at(-1) ?? 0;
    const first = isLobby ? 0 : lobbyLiving;
    const passed = lane.lobbyPassed + lane.latePassed;
    if (lane.drawnUpTo !== null && first + before.estimate >= lane.drawnUpTo) {
      return { kind: 'not_drawn' };
    }
    if (range !== undefined) {
      // Waiting again before the front: at most all of those are ahead.
      return { kind: 'waiting', lane, ahead: 0, aheadAtMost: Math.max(0, lane.again - 1) };
    }
    return {
      kind: 'waiting',
      lane,
      ahead: Math.max(0, first + before.estimate - passed + lane.again),
      aheadAtMost: Math.max(0, first + before.atMost - passed + lane.again),
    };
  }

  #lobbyKey(place: Place): number | undefined {
    const { mode } = this.state;
    if (mode === 'fifo') return place.sequence;
    return this.#drawer?.keyOf(place.entryId, place.weight, mode === 'weighted');
  }

  #released(place: Place, wave: number, nowMs: number): Whereabouts {
    if (this.state.claimed.has(place.sequence)) return { kind: 'claimed', wave };
    if (this.state.lapsed.has(place.sequence)) return { kind: 'missed', wave };
    const window = this.#waves.get(wave);
    if (window === undefined) return { kind: 'missed', wave };
    // A claim of the last moment may be younger than this state; only a state made after the window
    // closed knows that there was none.
    const last = Math.min(nowMs, this.state.publishedAtMs);
    if (last >= window.claimBeforeMs) return { kind: 'missed', wave };
    return { kind: 'admitted', wave, claimBeforeMs: window.claimBeforeMs };
  }
}

/** The last instant put into words: many polls fall into one millisecond. */
let lastIsoMs = Number.NaN;
let lastIsoText = '';
function isoText(ms: number): string {
  if (ms !== lastIsoMs) {
    lastIsoText = new Date(ms).toISOString();
    lastIsoMs = ms;
  }
  return lastIsoText;
}

function drawerOf(state: ReleaseState): Drawer | undefined {
  if (state.draw === null) return undefined;
  const [secret, root, beacon] = [state.draw.secret, state.draw.root, state.draw.beacon].map(
    fromHex,
  );
  if (secret === undefined || root === undefined || beacon === undefined) {
    throw new Error(`release state ${state.epoch}.${state.version} has a draw that is not hex`);
  }
  return new Drawer(secret, root, beacon);
}

function sameDraw(a: ReleaseState, b: ReleaseState): boolean {
  return (
    a.draw?.secret === b.draw?.secret &&
    a.draw?.root === b.draw?.root &&
    a.draw?.beacon === b.draw?.beacon
  );
}
