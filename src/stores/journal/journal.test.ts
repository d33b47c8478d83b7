import { mkdtemp, readFile, rm, writeFile, readdir, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { FaultDisk } from '../../../test/support/fault-disk.ts';
import { SeededRandom } from '../../../test/support/world.ts';
import { encodeFrame, fileHeaderBytes, frameHeaderBytes } from './frames.ts';
import type { JournalOptions } from './journal.ts';
import { Journal, JournalCorruptError, JournalFailedError } from './journal.ts';

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'journal-'));
});
afterEach(async () => {
  await rm(folder, { recursive: true, force: true });
});

interface Opened {
  readonly journal: Journal;
  readonly lines: string[];
  readonly records: string[];
}

async function open(more: Partial<JournalOptions> = {}): Promise<Opened> {
  const lines: string[] = [];
  const records: string[] = [];
  const journal = await Journal.open({
    folder,
    fsync: 'always',
    onSnapshot: (some) => lines.push(...some),
    onRecord: (record) => records.push(record),
    ...more,
  });
  return { journal, lines, records };
}

const segment = (number: number): string => join(folder, `${String(number).padStart(8, '0')}.log`);

describe('a journal', () => {
  it('replays what was appended, in order, any text that is one line', async () => {
    const first = await open();
    const written = ['', 'a', '{"x":"é\\n"}', '票', '\u0000', 'last'];
    for (const record of written) first.journal.append(record);
    await first.journal.durable();
    await first.journal.close();
    const second = await open();
    expect(second.records).toEqual(written);
    second.journal.append('more');
    await second.journal.close();
    const third = await open();
    expect(third.records).toEqual([...written, 'more']);
    await third.journal.close();
  });

  it('refuses a record with a line break or of a size that no reader would believe', async () => {
    const { journal } = await open();
    expect(() => journal.append('a\nb')).toThrow(/line break/);
    expect(() => journal.append('x'.repeat(6_000_000))).toThrow(/6000000 characters/);
    await journal.close();
    expect(() => journal.append('late')).toThrow(/closed/);
  });

  it('makes its folder and files for the owner alone', async () => {
    const inner = join(folder, 'inner');
    const { journal } = await open({ folder: inner });
    expect((await stat(inner)).mode & 0o777).toBe(0o700);
    expect((await stat(join(inner, '00000001.log'))).mode & 0o777).toBe(0o600);
    await journal.close();
  });

  it('commits a group with one write and one sync, however many wait', async () => {
    const disk = new FaultDisk();
    const { journal } = await open({ disk });
    const { writes, syncs } = disk;
    const waits: Promise<void>[] = [];
    for (let at = 0; at < 1000; at += 1) {
      journal.append(`record ${at}`);
      waits.push(journal.durable());
    }
    await Promise.all(waits);
    expect(disk.writes - writes).toBe(1);
    expect(disk.syncs - syncs).toBe(1);
    // Records nobody waits for are written and cost no sync.
    journal.append('lazy');
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(disk.writes - writes).toBe(2);
    expect(disk.syncs - syncs).toBe(1);
    await journal.close();
  });

  it('in mode os asks for no sync', async () => {
    const disk = new FaultDisk();
    const { journal } = await open({ disk, fsync: 'os' });
    const { syncs } = disk;
    journal.append('a');
    await journal.durable();
    expect(disk.syncs).toBe(syncs);
    await journal.close();
  });

  it('cut at every byte of its tail, gives back a whole prefix and goes on', async () => {
    const first = await open();
    const written: string[] = [];
    for (let group = 0; group < 4; group += 1) {
      for (let at = 0; at < 3; at += 1) {
        const record = `group ${group} record ${at} ${'x'.repeat(group * 7)}`;
        written.push(record);
        first.journal.append(record);
      }
      await first.journal.durable();
    }
    await first.journal.close();
    const whole = await readFile(segment(1));
    for (let size = fileHeaderBytes; size <= whole.length; size += 1) {
      await writeFile(segment(1), whole.subarray(0, size));
      const cut = await open();
      expect(cut.records).toEqual(written.slice(0, cut.records.length));
      expect(cut.records.length % 3).toBe(0);
      if (size === whole.length) expect(cut.records).toHaveLength(12);
      cut.journal.append('after the cut');
      await cut.journal.close();
      const again = await open();
      expect(again.records).toEqual([...cut.records, 'after the cut']);
      await again.journal.close();
    }
  });

  it('names file and offset when a promised byte in the middle is bad, and changes nothing', async () => {
    const first = await open();
    for (let group = 0; group < 3; group += 1) {
      first.journal.append(`group ${group}`);
      await first.journal.durable();
    }
    await first.journal.close();
    const whole = await readFile(segment(1));
    const frame = frameHeaderBytes + 'group 0'.length;
    for (let at = fileHeaderBytes; at < fileHeaderBytes + 2 * frame; at += 1) {
      const damaged = Buffer.from(whole);
      damaged[at] = (damaged[at] ?? 0) ^ 0x40;
      await writeFile(segment(1), damaged);
      const failure = await open().then(
        () => undefined,
        (error: unknown) => error,
      );
      expect(failure, `byte ${at}`).toBeInstanceOf(JournalCorruptError);
      const error = failure as JournalCorruptError;
      expect(error.file).toBe(segment(1));
      expect(error.offset).toBe(
        fileHeaderBytes + frame * Math.floor((at - fileHeaderBytes) / frame),
      );
      expect(error.message).toContain(segment(1));
      // The way out must be open to somebody whose server does not start.
      expect(error.message).toMatch(/move the folder away and start again/);
      expect(await readFile(segment(1))).toEqual(damaged);
    }
    // The header of the file is checked too.
    const damaged = Buffer.from(whole);
    damaged[16] = 9;
    await writeFile(segment(1), damaged);
    await expect(open()).rejects.toThrow(/checksum of the file header/);
  });

  it('cuts unpromised rubbish even where a whole frame of the same write lies behind it', async () => {
    const first = await open();
    first.journal.append('kept');
    await first.journal.durable();
    await first.journal.close();
    const whole = await readFile(segment(1));
    const lost = Buffer.alloc(80);
    const survivor = encodeFrame(['written later, promised nothing'], 2, whole.length);
    await writeFile(segment(1), Buffer.concat([whole, lost, survivor]));
    const second = await open();
    expect(second.records).toEqual(['kept']);
    await second.journal.close();
    // The control: the same bytes, but the survivor's writer had promised past them.
    const witness = encodeFrame(['written later'], 2, whole.length + lost.length);
    await writeFile(segment(1), Buffer.concat([whole, lost, witness]));
    await expect(open()).rejects.toThrow(JournalCorruptError);
  });

  it('refuses damage in a finished segment, and a missing one', async () => {
    const first = await open({ segmentBytes: 100 });
    for (let at = 0; at < 10; at += 1) {
      first.journal.append(`record ${at} ${'x'.repeat(40)}`);
      await first.journal.durable();
    }
    expect(first.journal.sizes.segments).toBeGreaterThan(3);
    await first.journal.close();
    const second = await open({ segmentBytes: 100 });
    expect(second.records).toHaveLength(10);
    await second.journal.close();
    const whole = await readFile(segment(2));
    await writeFile(segment(2), whole.subarray(0, whole.length - 1));
    await expect(open()).rejects.toThrow(/00000002\.log, byte \d+/);
    await rm(segment(2));
    await expect(open()).rejects.toThrow(/missing/);
  });

  it('is poisoned for ever by a failed sync, and tells everyone who waits', async () => {
    const disk = new FaultDisk();
    const { journal } = await open({ disk });
    journal.append('good');
    await journal.durable();
    disk.failNextSync = true;
    journal.append('bad');
    const waits = [journal.durable(), journal.durable()];
    for (const wait of waits) await expect(wait).rejects.toThrow(JournalFailedError);
    // The disk works again; the journal must not believe it.
    await expect(journal.durable()).rejects.toThrow(/EIO/);
    expect(() => journal.append('more')).toThrow(JournalFailedError);
    await expect(journal.compact([])).rejects.toThrow(JournalFailedError);
    expect(journal.failure).toBeInstanceOf(JournalFailedError);
    await expect(journal.close()).rejects.toThrow(JournalFailedError);
  });

  it('is poisoned by a full disk and starts again from what fitted', async () => {
    const disk = new FaultDisk();
    const first = await open({ disk });
    first.journal.append('fits');
    await first.journal.durable();
    disk.spaceBytes = 30;
    first.journal.append('does not fit, and tears');
    await expect(first.journal.durable()).rejects.toThrow(/ENOSPC/);
    disk.spaceBytes = Number.POSITIVE_INFINITY;
    disk.restart();
    const second = await open({ disk });
    expect(second.records).toEqual(['fits']);
    await second.journal.close();
  });
});

describe('compaction', () => {
  it('replaces the past by lines and keeps what came after', async () => {
    const first = await open({ segmentBytes: 200 });
    for (let at = 0; at < 20; at += 1) first.journal.append(`old ${at}`);
    await first.journal.durable();
    const done = first.journal.compact(['state 1', 'state 2']);
    first.journal.append('new 1');
    await first.journal.durable();
    await done;
    first.journal.append('new 2');
    await first.journal.close();
    expect((await readdir(folder)).some((each) => each.endsWith('00000001.log'))).toBe(false);
    const second = await open();
    expect(second.lines).toEqual(['state 1', 'state 2']);
    expect(second.records).toEqual(['new 1', 'new 2']);
    await second.journal.compact([]);
    await second.journal.close();
    const third = await open();
    expect([third.lines, third.records]).toEqual([[], []]);
    await third.journal.close();
  });

  it('takes lines in slices, so that appends go on between them', async () => {
    const { journal } = await open();
    let appendedMeanwhile = 0;
    let drawn = 0;
    function* lines(): Generator<string> {
      for (let at = 0; at < 20_000; at += 1) {
        drawn = at;
        yield `line ${at} ${'x'.repeat(50)}`;
      }
    }
    const done = journal.compact(lines());
    let running = true;
    void done.finally(() => (running = false));
    while (running) {
      await new Promise<void>((resolve) => setImmediate(resolve));
      if (!running) break;
      journal.append(`meanwhile ${appendedMeanwhile}`);
      if (drawn < 19_999) appendedMeanwhile += 1;
    }
    await done;
    expect(appendedMeanwhile).toBeGreaterThan(3);
    await journal.close();
    const second = await open();
    expect(second.lines).toHaveLength(20_000);
    expect(second.records.length).toBeGreaterThanOrEqual(appendedMeanwhile);
    await second.journal.close();
  });

  it('leaves the log alone when the lines throw, and can be tried again', async () => {
    const { journal } = await open();
    journal.append('a');
    await expect(
      journal.compact(
        (function* () {
          yield 'x';
          throw new Error('no state today');
        })(),
      ),
    ).rejects.toThrow('no state today');
    expect((await readdir(folder)).filter((each) => each.endsWith('.tmp'))).toEqual([]);
    journal.append('b');
    await journal.compact(['a b']);
    await journal.close();
    const second = await open();
    expect([second.lines, second.records]).toEqual([['a b'], []]);
    await second.journal.close();
  });

  it('refuses a snapshot that is damaged or too short', async () => {
    const { journal } = await open();
    await journal.compact(['one', 'two']);
    await journal.close();
    const path = join(folder, '00000002.snap');
    const whole = await readFile(path);
    for (let size = 0; size < whole.length; size += 1) {
      await writeFile(path, whole.subarray(0, size));
      await expect(open(), `size ${size}`).rejects.toThrow(JournalCorruptError);
    }
    await writeFile(path, whole);
    await (await open()).journal.close();
  });
});

/**
 * A store that counts: its state is the number of appends, its snapshot one line that says so. After
 * any crash: acknowledged ≤ replayed ≤ appended, and what is replayed is 0, 1, 2 … without a gap.
 */
describe('dying at every change of the disk', () => {
  const path = '/journal';

  async function openCounter(disk: FaultDisk): Promise<{ journal: Journal; count: number }> {
    let count = 0;
    const journal = await Journal.open({
      folder: path,
      fsync: 'always',
      disk,
      segmentBytes: 150,
      onSnapshot: ([line = '']) => {
        count = Number(line);
      },
      onRecord: (record) => {
        expect(record).toBe(`${count}`);
        count += 1;
      },
    });
    return { journal, count };
  }

  async function run(
    disk: FaultDisk,
    rounds: number,
  ): Promise<{ appended: number; acknowledged: number }> {
    let appended = 0;
    let acknowledged = 0;
    try {
      const opened = await openCounter(disk);
      ({ count: appended } = opened);
      acknowledged = appended;
      const { journal } = opened;
      for (let round = 0; round < rounds; round += 1) {
        for (let at = 0; at < 3; at += 1) journal.append(`${appended++}`);
        const compaction = round % 4 === 3 ? journal.compact([`${appended}`]) : undefined;
        if (compaction !== undefined)
          for (let at = 0; at < 2; at += 1) journal.append(`${appended++}`);
        compaction?.catch(() => undefined);
        const upTo = appended;
        await journal.durable();
        acknowledged = upTo;
        await compaction;
      }
      await journal.close();
    } catch (error) {
      if (Number.isFinite(disk.dieAt) && disk.changes >= disk.dieAt)
        return { appended, acknowledged };
      throw error;
    }
    return { appended, acknowledged };
  }

  it('keeps every promise, with and without power', { timeout: 120_000 }, async () => {
    const quiet = new FaultDisk();
    await run(quiet, 12);
    const changes = quiet.changes;
    expect(changes).toBeGreaterThan(60);
    let lostSomething = 0;
    for (let dieAt = 1; dieAt <= changes; dieAt += 1)
      for (let seed = 0; seed < 6; seed += 1) {
        const disk = new FaultDisk();
        disk.dieAt = dieAt;
        const told = await run(disk, 12);
        if (seed === 0) disk.restart();
        else disk.losePower(new SeededRandom(`${dieAt}/${seed}`));
        // Dies a second time while it recovers, now and then, and then recovers.
        if (seed > 3) {
          disk.dieAt = disk.changes + 1 + (dieAt % 5);
          await run(disk, 1).catch(() => undefined);
          disk.losePower(new SeededRandom(`${dieAt}/${seed}/again`));
        }
        const { journal, count } = await openCounter(disk);
        expect(count, `change ${dieAt} seed ${seed}`).toBeGreaterThanOrEqual(told.acknowledged);
        if (seed <= 3) expect(count).toBeLessThanOrEqual(told.appended);
        if (count < told.appended) lostSomething += 1;
        journal.append(`${count}`);
        await journal.close();
      }
    // The disk did lose what was not promised, or this test shows nothing.
    expect(lostSomething).toBeGreaterThan(changes);
  });
});
