import type { Activity } from '../../src/core/activity.ts';
import { decideWave } from '../../src/core/room/decide.ts';
import { wavePeople } from '../../src/core/room/events.ts';
import { RoomModel } from '../../src/core/room/model.ts';
import type { RoomSignals } from '../../src/core/room/model.ts';
import { SeededRandom } from './world.ts';

/** What one person of the crowd is like. */
export interface Visitor {
  /** Closed the page without a word at this instant after the opening; never, where not given. */
  readonly goneAtMs?: number;
  /** From being let in to asking for a pass. */
  readonly comesAfterMs: number;
  /** Takes the pass and thinks better of it. */
  readonly declines?: boolean;
}

export interface SilentCrowd {
  readonly people: number;
  readonly stock: number;
  readonly claimWindowMs: number;
  readonly passLifeMs: number;
  readonly maxActive: number;
  readonly maxAdmissionsPerSecond: number;
  readonly visitor: (place: number, random: SeededRandom) => Visitor;
  /** Units that come back at this instant after the opening. */
  readonly returns?: (atMs: number) => number;
  readonly untilMs: number;
}

export interface CrowdResult {
  /** Units left while somebody waited who would have bought, at the end. */
  readonly unsold: number;
  /** Units × seconds that lay there while such a person waited: in all, and after the first selling out. */
  readonly idleUnitSeconds: number;
  readonly idleAfterReturns: number;
  readonly soldOutAtMs: number | undefined;
  readonly admitted: number;
  /** People who came for a unit and found none. */
  readonly inVain: number;
  readonly capsBroken: readonly string[];
}

const startMs = 1_800_000_000_000;
const turnMs = 250;
/** From the pass to the submit, and from the order to the room's hearing of it. */
const submitAfterMs = 1_000;
const newsAfterMs = 500;

type Act = 'claim' | 'submit' | 'bought';

/**
 * A whole sale over the room's model alone: people in a line, of whom some have closed the page without
 * a word, and units that come back. No store, no door: a sale of thousands takes a fraction of a second.
 */
export function runSilentCrowd(crowd: SilentCrowd, seed: string): CrowdResult {
  const random = new SeededRandom(seed);
  const model = modelOf(crowd);
  const visitors = Array.from({ length: crowd.people }, (_, place) => crowd.visitor(place, random));
  const acts = new Map<number, { readonly place: number; readonly act: Act }[]>();
  const plan = (atMs: number, place: number, act: Act): void => {
    const turn = Math.ceil(atMs / turnMs) * turnMs;
    acts.set(turn, [...(acts.get(turn) ?? []), { place, act }]);
  };
  const waveOf = new Map<number, number>();
  const recent: { readonly atMs: number; readonly people: number }[] = [];
  const capsBroken: string[] = [];
  let available = crowd.stock;
  let front = 0;
  let inVain = 0;
  let [idleUnitSeconds, idleAfterReturns] = [0, 0];
  let soldOutAtMs: number | undefined;
  let somebodyWaits = true;

  const tell = (place: number, atMs: number, act: Act): void => {
    const who = { entryId: `e${place}`, sequence: place, atMs: startMs + atMs };
    if (act === 'submit') {
      if (available === 0) inVain += 1;
      else {
        available -= 1;
        if (available === 0) soldOutAtMs ??= atMs;
        plan(atMs + newsAfterMs, place, 'bought');
      }
    } else if (act === 'bought') {
      model.applyChange({ ...who, kind: 'finished', outcome: 'bought' }, true);
    } else {
      const expiresAtMs = startMs + atMs + crowd.passLifeMs;
      const wave = waveOf.get(place) ?? 0;
      model.applyChange({ ...who, kind: 'claimed', skuId: 'front', wave, expiresAtMs }, true);
      if (visitors[place]?.declines !== true) plan(atMs + submitAfterMs, place, 'submit');
    }
  };

  for (let atMs = 0; atMs <= crowd.untilMs; atMs += turnMs) {
    const nowMs = startMs + atMs;
    available += crowd.returns?.(atMs) ?? 0;
    for (const { place, act } of acts.get(atMs) ?? []) tell(place, atMs, act);
    acts.delete(atMs);
    if (model.feel(signalsOf(crowd, available), nowMs, atMs)) {
      throw new Error('nothing presses, and the rate changed');
    }
    const wave = decideWave(model, nowMs, atMs);
    if (wave !== undefined) {
      const people = wavePeople(wave);
      model.applyEvent({ ...wave, atMs: nowMs, seen: model.seen });
      model.window.note(people, atMs);
      recent.push({ atMs, people });
      for (const end = front + people; front < end; front += 1) {
        waveOf.set(front, wave.wave);
        const { goneAtMs = Infinity, comesAfterMs } = visitors[front] ?? { comesAfterMs: Infinity };
        const comesAtMs = atMs + comesAfterMs;
        if (comesAtMs < goneAtMs && comesAfterMs < crowd.claimWindowMs)
          plan(comesAtMs, front, 'claim');
      }
    }
    while ((recent[0]?.atMs ?? Infinity) <= atMs - 1_000) recent.shift();
    const lastSecond = recent.reduce((sum, each) => sum + each.people, 0);
    if (lastSecond > crowd.maxAdmissionsPerSecond)
      capsBroken.push(`${atMs}: ${lastSecond} a second`);
    if (model.book.active > crowd.maxActive)
      capsBroken.push(`${atMs}: ${model.book.active} active`);
    somebodyWaits = visitors
      .slice(front)
      .some(({ goneAtMs = Infinity, declines }) => goneAtMs > atMs && declines !== true);
    if (somebodyWaits) {
      const idle = (available * turnMs) / 1_000;
      idleUnitSeconds += idle;
      if (soldOutAtMs !== undefined) idleAfterReturns += idle;
    }
  }
  return {
    unsold: somebodyWaits ? available : 0,
    idleUnitSeconds,
    idleAfterReturns,
    soldOutAtMs,
    admitted: front,
    inVain,
    capsBroken,
  };
}

function signalsOf(crowd: SilentCrowd, available: number): RoomSignals {
  return {
    skus: [{ skuId: 'front', available, held: 0, total: crowd.stock }],
    mode: 'NORMAL',
    backlogRatio: 0,
    reserveRatio: 0,
    unitsPerBuyer: 1,
  };
}

/** A room of first come, first served, at its opening. */
function modelOf(crowd: SilentCrowd): RoomModel {
  const { claimWindowMs, passLifeMs, maxActive, maxAdmissionsPerSecond } = crowd;
  const activity: Activity = {
    activityId: 'concert',
    name: 'Concert',
    revision: 1,
    activityVersion: 1,
    lobbyOpensAtMs: startMs - 60_000,
    opensAtMs: startMs,
    closesAtMs: startMs + 3_600_000,
    timeZone: 'UTC',
    skus: [
      {
        skuId: 'front',
        name: 'Front',
        stock: crowd.stock,
        price: { amountMinor: 100, currency: 'EUR' },
        maxPerPerson: 1,
      },
    ],
    room: { mode: 'fifo', claimWindowMs, passLifeMs, maxActive, maxAdmissionsPerSecond },
    paymentDeadlineMs: 900_000,
  };
  const commitment = '00'.repeat(32);
  const model = new RoomModel(activity, {
    secret: new Uint8Array(32),
    commitment,
    entryCommitment: commitment,
  });
  const written = { atMs: startMs, seen: 0 };
  model.applyEvent({ e: 'closed', lobbySize: crowd.people, root: commitment, ...written });
  model.applyEvent({ e: 'drawn', beacon: '', mode: 'fifo', ...written });
  const draw = model.startDraw('');
  for (let sequence = 0; sequence < crowd.people; sequence += 1) {
    const entry = { entryId: `e${sequence}`, sequence, weight: 1, group: '', skuIds: [] };
    model.addToDraw(draw, entry);
  }
  for (const _ of draw.sort()) continue;
  model.finishDraw(draw);
  return model;
}
