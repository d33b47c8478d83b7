/**
 * A process for the crash test: opens the folder, commits rows 1, 2, 3 … one transaction each, and
 * prints each number once its commit was answered, until it is killed.
 */
import { systemTimers } from '../../../src/app/system.ts';
import { openPglite } from '../../../src/stores/postgres/pglite.ts';

const [folder = '', fsync = 'disk'] = process.argv.slice(2);
const sql = await openPglite({
  folder,
  timers: systemTimers,
  fsync: fsync === 'os' ? 'os' : 'disk',
});
await sql.query('CREATE TABLE IF NOT EXISTS written (n bigint PRIMARY KEY, pair bigint NOT NULL)');
const [{ last } = { last: 0 }] = await sql.query<{ last: number }>(
  'SELECT coalesce(max(n), 0) AS last FROM written WHERE $1',
  [true],
);
for (let n = Number(last) + 1; ; n += 1) {
  await sql.transaction(async (tx) => {
    await tx.query('INSERT INTO written VALUES ($1, 0)', [n]);
    await tx.query('UPDATE written SET pair = $1 WHERE n = $1', [n]);
  });
  process.stdout.write(`${n}\n`);
}
