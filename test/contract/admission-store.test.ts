import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fc } from '../support/property.ts';
import { describe, expect, test } from 'vitest';
import type { AdmissionStore } from '../../src/ports/admission-store.ts';
import { OutcomeUnknownError, UnavailableError } from '../../src/ports/errors.ts';
import { Journal } from '../../src/stores/journal/journal.ts';
import { MemoryAdmissionStore, noJournal } from '../../src/stores/memory/admission-store.ts';
import { admissionStoreContract, entryIdFor } from './admission-store.ts';

async function openIn(folder: string): Promise<MemoryAdmissionStore> {
  const store = new MemoryAdmissionStore();
  return store.attach(await Journal.open({ folder, fsync: 'os', ...store.replay }));
}

admissionStoreContract(
  'memory, without a journal',
  async () => ({ store: new MemoryAdmissionStore(), dispose: async () => undefined }),
  'forgets',
);

admissionStoreContract('memory, journaled', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'admission-'));
  const store = await openIn(folder);
  const opened: AdmissionStore[] = [store];
  return {
    store,
    // The old one is left as it stands: nothing of it is flushed or closed before the next opens.
    reopen: async () => {
      const next = await openIn(folder);
      opened.push(next);
      return next;
    },
    dispose: async () => {
      for (const each of opened) await each.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
});

interface Step {
  readonly what: 'join' | 'leave' | 'pass' | 'end' | 'finish' | 'close' | 'save';
  readonly who: number;
  readonly skuId: string;
  readonly wave: number;
  readonly atMs: number;
}

/** A random history; its instants grow. */
const histories = fc
  .array(
    fc.record({
      what: fc.constantFrom<Step['what'][]>(
        ...(['join', 'join', 'leave', 'pass', 'pass', 'end', 'finish', 'close', 'save'] as const),
      ),
      who: fc.integer({ min: 0, max: 5 }),
      skuId: fc.constantFrom('s1', 's2'),
      wave: fc.integer({ min: 1, max: 3 }),
      waitMs: fc.integer({ min: 0, max: 20_000 }),
    }),
    { maxLength: 60 },
  )
  .map((steps) => {
    let atMs = 1_800_000_000_000;
    return steps.map(({ waitMs, ...step }): Step => {
      atMs += waitMs;
      return { ...step, atMs };
    });
  });

async function run(store: AdmissionStore, history: readonly Step[]): Promise<void> {
  for (const { what, who, skuId, wave, atMs } of history) {
    const entryId = entryIdFor(`p${who}`);
    switch (what) {
      case 'join':
        await store.join('a', { entryId, skuIds: [skuId], weight: wave, group: '' }, atMs);
        break;
      case 'leave':
        await store.leave('a', entryId, atMs);
        break;
      case 'pass': {
        const claimBeforeMs = atMs + 5000;
        await store.takePass('a', { entryId, skuId, wave, claimBeforeMs, passLifeMs: 9000 }, atMs);
        break;
      }
      case 'end':
        await store.endAttempt('a', entryId, skuId, wave, atMs);
        break;
      case 'finish':
        await store.finish('a', entryId, 'bought', atMs);
        break;
      case 'close':
        await store.closeLobby('a', atMs);
        break;
      case 'save':
        await store.saveState('s', String(atMs), (await store.loadState('s'))?.version ?? 0);
        break;
    }
  }
}

async function look(store: AdmissionStore): Promise<unknown> {
  const nowMs = 1_900_000_000_000;
  const all = {
    participants: await store.participants('a', 0, 1000),
    changes: await store.changes('a', 0, 1000),
    counts: await store.counts('a'),
    marker: await store.lobbyMarker('a'),
    state: await store.loadState('s'),
    entries: await Promise.all(
      [0, 1, 2, 3, 4, 5].map((who) => store.findEntry('a', entryIdFor(`p${who}`))),
    ),
  };
  // What is kept but not shown: attempts, seen through the next pass of each.
  const next: unknown[] = [];
  for (const who of [0, 1, 2, 3, 4, 5]) {
    for (const skuId of ['s1', 's2']) {
      next.push(
        await store.takePass(
          'a',
          {
            entryId: entryIdFor(`p${who}`),
            skuId,
            wave: 99,
            claimBeforeMs: nowMs + 1,
            passLifeMs: 0,
          },
          nowMs,
        ),
      );
      await store.endAttempt('a', entryIdFor(`p${who}`), skuId, 1, nowMs);
    }
  }
  return { ...all, next };
}

describe('the journaled memory store', () => {
  test('any history is the same after a kill, and after compaction and a kill', async () => {
    await fc.assert(
      fc.asyncProperty(histories, fc.nat(60), async (history, at) => {
        const folder = await mkdtemp(join(tmpdir(), 'admission-'));
        try {
          const plain = new MemoryAdmissionStore();
          await run(plain, history);
          const first = await openIn(folder);
          await run(first, history.slice(0, at));
          const compacting = first.compact();
          await run(first, history.slice(at));
          await compacting;
          const second = await openIn(folder);
          expect(await look(second)).toEqual(await look(plain));
          await first.close();
          await second.close();
        } finally {
          await rm(folder, { recursive: true, force: true });
        }
      }),
      { numRuns: 60 },
    );
  });

  test('a failed journal: nothing new is taken, and what was under way is unknown', async () => {
    let failure: Error | undefined;
    let release: (error: Error) => void = () => undefined;
    const store = new MemoryAdmissionStore().attach({
      ...noJournal(),
      durable: () =>
        failure === undefined
          ? new Promise<void>((_, reject) => {
              release = reject;
            })
          : Promise.reject(failure),
      get failure() {
        return failure;
      },
    });
    const wish = { entryId: entryIdFor('a'), skuIds: [], weight: 1, group: '' };
    const joining = store.join('a', wish, 0);
    failure = new Error('disk gone');
    release(failure);
    await expect(joining).rejects.toBeInstanceOf(OutcomeUnknownError);
    await expect(store.join('a', wish, 0)).rejects.toBeInstanceOf(UnavailableError);
    await expect(store.findEntry('a', entryIdFor('a'))).rejects.toBeInstanceOf(OutcomeUnknownError);
  });

  test('an answer that rests on another caller’s join waits for the journal too', async () => {
    const waiting: (() => void)[] = [];
    const store = new MemoryAdmissionStore().attach({
      ...noJournal(),
      durable: () => new Promise<void>((resolve) => waiting.push(resolve)),
    });
    const wish = { entryId: entryIdFor('a'), skuIds: [], weight: 1, group: '' };
    const told: string[] = [];
    void store.join('a', wish, 0).then(() => told.push('first'));
    void store.join('a', wish, 0).then(() => told.push('second'));
    void store.findEntry('a', wish.entryId).then(() => told.push('found'));
    await new Promise((resolve) => setImmediate(resolve));
    expect(told).toEqual([]);
    expect(waiting).toHaveLength(3);
    for (const resolve of waiting) resolve();
    await new Promise((resolve) => setImmediate(resolve));
    expect(told.sort()).toEqual(['first', 'found', 'second']);
  });

  test('an id that is not 16 bytes is refused with what was found', async () => {
    const store = new MemoryAdmissionStore();
    await expect(
      store.join('a', { entryId: 'short', skuIds: [], weight: 1, group: '' }, 0),
    ).rejects.toThrow(/"short"/);
  });

  test('a hundred thousand entries: all found, none twice', async () => {
    const store = new MemoryAdmissionStore();
    const count = 100_000;
    for (let at = 0; at < count; at += 1) {
      void store.join('a', { entryId: entryIdFor(`n${at}`), skuIds: [], weight: 1, group: '' }, at);
    }
    expect((await store.counts('a')).joined).toBe(count);
    for (let at = 0; at < count; at += 97) {
      expect(await store.findEntry('a', entryIdFor(`n${at}`))).toMatchObject({
        sequence: at,
        joinedAtMs: at,
      });
    }
  });
});
