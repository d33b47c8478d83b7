import { writeSync } from 'node:fs';
import { Journal } from '../../src/stores/journal/journal.ts';

/**
 * A process that appends numbers for ever, says on its output up to which number the journal has
 * promised, and compacts now and then; somebody kills it. `node --import tsx journal-writer.ts FOLDER MODE`.
 */
const [folder = '', mode = 'always'] = process.argv.slice(2);
let count = 0;
const journal = await Journal.open({
  folder,
  fsync: mode === 'os' ? 'os' : 'always',
  segmentBytes: 64 * 1024,
  onSnapshot: ([line = '0']) => {
    count = Number(line);
  },
  onRecord: () => {
    count += 1;
  },
});
// Synchronous, so that a number is out before anything else happens.
writeSync(1, `ready ${count}\n`);
let compacting: Promise<void> | undefined;
for (let round = 1; ; round += 1) {
  for (let at = 0; at < 1 + (round % 50); at += 1)
    journal.append(`${count++} ${'x'.repeat(round % 90)}`);
  const upTo = count;
  await journal.durable();
  writeSync(1, `${upTo}\n`);
  if (round % 40 === 0) {
    await compacting;
    compacting = journal.compact([`${count}`]);
  }
}
