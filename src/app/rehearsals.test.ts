import { beforeEach, describe, expect, test } from 'vitest';
import { RoomWorld } from '../../test/support/room.ts';
import type { Activity } from '../core/activity.ts';
import { MemoryAdmissionStore } from '../stores/memory/admission-store.ts';
import {
  isOver,
  keptAfterCloseMs,
  Rehearsals,
  rehearsalCopy,
  rehearsalsMax,
} from './rehearsals.ts';

const nowMs = 1_800_000_000_000;
const times = { opensInMs: 60_000, lastsMs: 600_000, challenge: 'full' } as const;
const concert: Activity = {
  ...new RoomWorld().activity,
  revision: 7,
  activityVersion: 3,
  room: {
    ...new RoomWorld().activity.room,
    challenge: { kind: 'callback' },
    beacon: 'round 9',
    maxActive: 77,
  },
};

let store: MemoryAdmissionStore;
beforeEach(() => {
  store = new MemoryAdmissionStore();
});

const nothing = (): Promise<void> => Promise.resolve();

describe('rehearsals', () => {
  test('are copies with an id, times, and versions of their own', async () => {
    const prepared: Activity[] = [];
    const copy = await new Rehearsals(store).add(concert, times, nowMs, async (made) => {
      prepared.push(made);
    });
    expect(prepared).toEqual([copy]);
    expect(copy).toMatchObject({
      activityId: 'concert-rehearsal-1',
      rehearsalOf: 'concert',
      lobbyOpensAtMs: nowMs,
      opensAtMs: nowMs + 60_000,
      closesAtMs: nowMs + 660_000,
      revision: 1,
      activityVersion: 1,
      skus: concert.skus,
    });
    expect(copy.room).toMatchObject({ mode: 'draw', maxActive: 77 });
    expect(copy.room).toMatchObject({ challenge: { kind: 'callback' }, beacon: 'round 9' });
  });

  test('ask what the sale asks, lighter work, or nothing; what cannot be is refused', async () => {
    const rehearsals = new Rehearsals(store);
    const working: Activity = {
      ...concert,
      room: { ...concert.room, challenge: { kind: 'proof_of_work', minBits: 14, maxBits: 20 } },
    };
    const light = await rehearsals.add(working, { ...times, challenge: 'light' }, nowMs, nothing);
    expect(light.room.challenge).toEqual({ kind: 'proof_of_work', minBits: 4, maxBits: 10 });
    const none = await rehearsals.add(concert, { ...times, challenge: 'none' }, nowMs, nothing);
    expect(none.room).not.toHaveProperty('challenge');
    expect(none.room.beacon).toBe('round 9');
    await expect(
      rehearsals.add(concert, { ...times, challenge: 'light' }, nowMs, nothing),
    ).rejects.toThrow(/vouched for at another address.*allowed: full, none/);
    // The sale's challenge was edited since: its rehearsals go on.
    const [first] = (await new Rehearsals(store).news()) ?? [];
    expect(rehearsalCopy(concert, first!).room).not.toHaveProperty('challenge');
  });

  test('are told once to everyone who asks, and found again after a restart', async () => {
    const [here, there] = [new Rehearsals(store), new Rehearsals(store)];
    expect(await here.news()).toBeUndefined();
    const copy = await here.add(concert, times, nowMs, nothing);
    for (const process of [here, there, new Rehearsals(store)]) {
      const [known] = (await process.news()) ?? [];
      expect(rehearsalCopy(concert, known!)).toEqual(copy);
      expect(await process.news()).toBeUndefined();
    }
  });

  test('never use an id again, and are so many at a time', async () => {
    const rehearsals = new Rehearsals(store);
    for (let at = 1; at <= rehearsalsMax; at += 1) {
      const { activityId } = await rehearsals.add(concert, times, nowMs, nothing);
      expect(activityId).toBe(`concert-rehearsal-${at}`);
    }
    await expect(rehearsals.add(concert, times, nowMs, nothing)).rejects.toThrow(RangeError);
    const later = nowMs + 660_000 + keptAfterCloseMs;
    const next = await rehearsals.add(concert, times, later, nothing);
    expect(next.activityId).toBe(`concert-rehearsal-${rehearsalsMax + 1}`);
    expect(await rehearsals.news()).toHaveLength(1);
    expect(isOver(next, later)).toBe(false);
  });

  test('of two processes at once, both are kept', async () => {
    const added = await Promise.all(
      [1, 2].map(() => new Rehearsals(store).add(concert, times, nowMs, nothing)),
    );
    const ids = added.map(({ activityId }) => activityId).sort();
    expect(ids).toEqual(['concert-rehearsal-1', 'concert-rehearsal-2']);
    expect(await new Rehearsals(store).news()).toHaveLength(2);
  });

  test('of a long id keep within an id’s length', async () => {
    const long = { ...concert, activityId: 'x'.repeat(64) };
    const { activityId } = await new Rehearsals(store).add(long, times, nowMs, nothing);
    expect(activityId).toBe(`${'x'.repeat(40)}-rehearsal-1`);
  });

  test('that cannot be read are said, with what was found', async () => {
    await store.saveState('rehearsals/list', '{"made":"x"}', 0);
    await expect(new Rehearsals(store).news()).rejects.toThrow('{"made":"x"}');
  });
});
