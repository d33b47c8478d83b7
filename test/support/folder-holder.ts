import { writeSync } from 'node:fs';
import { systemRandom } from '../../src/app/system.ts';
import { DataFolderLockedError, openDataFolder } from '../../src/stores/data-folder.ts';

/** Tries to take a data folder, says how that went, and holds it until it is killed. */
const [path = ''] = process.argv.slice(2);
try {
  await openDataFolder({ path, random: systemRandom, adminUrl: 'http://127.0.0.1:9090' });
  writeSync(1, 'held\n');
} catch (error) {
  if (!(error instanceof DataFolderLockedError)) throw error;
  writeSync(1, `refused by ${error.pid}\n`);
}
process.stdin.resume();
