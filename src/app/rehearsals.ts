import type { Activity } from '../core/activity.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';

/**
 * Rehearsals: copies of a sale with times of their own, in which a crowd can be run without touching
 * the sale's stock, room or orders.
 *
 * A copy is an activity like any other, with an id of its own, so everything that keeps activities
 * apart keeps it apart: stock, entries, passes, orders. It is on no list, it says whose copy it is
 * wherever it is shown, and some time after its closing it is forgotten. Which copies there are stands
 * in one fact of the admission store, which every process reads: whichever serves the copy has read it
 * there, and a restart finds it again.
 */
export interface Rehearsal {
  readonly activityId: string;
  /** The sale that is rehearsed. */
  readonly of: string;
  readonly lobbyOpensAtMs: number;
  readonly opensAtMs: number;
  readonly closesAtMs: number;
  readonly challenge: RehearsedChallenge;
}

/**
 * What people are asked on joining: what the sale asks; the same work, but so little of it that one
 * machine can do it for a crowd; or nothing.
 */
export const rehearsedChallenges = ['full', 'light', 'none'] as const;
export type RehearsedChallenge = (typeof rehearsedChallenges)[number];

/** Zero bits of light work: at the least, and where the risk is highest. A millisecond, at most. */
const lightBits = { minBits: 4, maxBits: 10 } as const;

const stateName = 'rehearsals/list';

/** Copies that may be there at a time: each has a room that control runs. */
export const rehearsalsMax = 4;
/** A copy is kept so long after its closing, ms: a report asks after orders and the draw. */
export const keptAfterCloseMs = 3_600_000;
export const opensInMaxMs = 3_600_000;
export const lastsMaxMs = 2 * 3_600_000;
/** Tries of a change that another process was faster with. */
const attemptsMax = 5;
/** Characters of the sale's id that a copy's id begins with: 64 in all. */
const idKept = 40;

interface Stored {
  /** Counts all rehearsals ever: no id is used twice. */
  readonly made: number;
  readonly rehearsals: readonly Rehearsal[];
}

export class Rehearsals {
  readonly #store: Pick<AdmissionStore, 'loadState' | 'saveState'>;
  #seenVersion = 0;

  constructor(store: Pick<AdmissionStore, 'loadState' | 'saveState'>) {
    this.#store = store;
  }

  /** What there is by now; undefined where nothing has changed since the last call. */
  async news(): Promise<readonly Rehearsal[] | undefined> {
    const stored = await this.#store.loadState(stateName);
    if (stored === undefined || stored.version === this.#seenVersion) return undefined;
    const { rehearsals } = read(stored.value);
    this.#seenVersion = stored.version;
    return rehearsals;
  }

  /**
   * Adds one. `prepare` brings its stock into the stores before anybody hears of it.
   * @throws RangeError where there are too many already, or light work is wanted of a sale without work
   */
  async add(
    of: Activity,
    plan: {
      readonly opensInMs: number;
      readonly lastsMs: number;
      readonly challenge: RehearsedChallenge;
    },
    nowMs: number,
    prepare: (copy: Activity) => Promise<void>,
  ): Promise<Activity> {
    if (plan.challenge === 'light' && of.room.challenge?.kind === 'callback') {
      throw new RangeError(
        'challenge: found "light"; this sale has people vouched for at another address, and there is no lighter kind of that; allowed: full, none',
      );
    }
    for (let attempt = 0; attempt < attemptsMax; attempt += 1) {
      const stored = await this.#store.loadState(stateName);
      const { made, rehearsals } = stored === undefined ? nothing : read(stored.value);
      const kept = rehearsals.filter((one) => !isOver(one, nowMs));
      if (kept.length >= rehearsalsMax) {
        const ids = kept.map(({ activityId }) => activityId).join(', ');
        throw new RangeError(`found ${ids}; allowed are ${rehearsalsMax} rehearsals at a time`);
      }
      const opensAtMs = nowMs + plan.opensInMs;
      const rehearsal = {
        activityId: `${of.activityId.slice(0, idKept)}-rehearsal-${made + 1}`,
        of: of.activityId,
        lobbyOpensAtMs: nowMs,
        opensAtMs,
        closesAtMs: opensAtMs + plan.lastsMs,
        challenge: plan.challenge,
      };
      const copy = rehearsalCopy(of, rehearsal);
      await prepare(copy);
      const value: Stored = { made: made + 1, rehearsals: [...kept, rehearsal] };
      const version = stored?.version ?? 0;
      if (await this.#store.saveState(stateName, JSON.stringify(value), version)) return copy;
    }
    throw new Error(`somebody else changed the rehearsals ${attemptsMax} times meanwhile`);
  }
}

const nothing: Stored = { made: 0, rehearsals: [] };

export function isOver({ closesAtMs }: Pick<Rehearsal, 'closesAtMs'>, nowMs: number): boolean {
  return nowMs >= closesAtMs + keptAfterCloseMs;
}

/**
 * The sale as it is, at other times. A beacon that it names is waited for here too: whoever rehearses
 * announces a value, as on the day.
 */
export function rehearsalCopy(of: Activity, rehearsal: Rehearsal): Activity {
  const { challenge: asked, ...others } = of.room;
  const rehearsed = challengeOf(asked, rehearsal.challenge);
  const room = { ...others, ...(rehearsed === undefined ? {} : { challenge: rehearsed }) };
  const { activityId, lobbyOpensAtMs, opensAtMs, closesAtMs } = rehearsal;
  return {
    ...of,
    activityId,
    revision: 1,
    activityVersion: 1,
    lobbyOpensAtMs,
    opensAtMs,
    closesAtMs,
    room,
    rehearsalOf: of.activityId,
  };
}

/** Where the sale's challenge became another since, there is no light one: then none. */
function challengeOf(
  asked: Activity['room']['challenge'],
  rehearsed: RehearsedChallenge,
): Activity['room']['challenge'] {
  if (asked === undefined || rehearsed === 'none') return undefined;
  if (rehearsed === 'full') return asked;
  return asked.kind === 'callback' ? undefined : { ...asked, ...lightBits };
}

function read(value: string): Stored {
  const stored = JSON.parse(value) as Partial<Stored>;
  const { made } = stored;
  // Those of an older program asked nobody anything.
  const rehearsals = stored.rehearsals?.map((one) => ({
    ...one,
    challenge: one.challenge ?? ('none' as const),
  }));
  const isWhole = (one: Rehearsal): boolean =>
    typeof one.activityId === 'string' &&
    typeof one.of === 'string' &&
    rehearsedChallenges.includes(one.challenge) &&
    [one.lobbyOpensAtMs, one.opensAtMs, one.closesAtMs].every(Number.isSafeInteger);
  if (!Number.isSafeInteger(made) || !Array.isArray(rehearsals) || !rehearsals.every(isWhole)) {
    throw new Error(`state "${stateName}" is damaged: ${value.slice(0, 200)}`);
  }
  return { made: made ?? 0, rehearsals };
}
