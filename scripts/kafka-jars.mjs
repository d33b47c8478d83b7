// The Kafka broker that tests start: jars from Maven Central, kept in the checkout's cache folder.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Where the jars are, or would be. `marker` is there once all of them are. */
export function kafkaJars(root) {
  const pom = join(root, 'test', 'support', 'servers', 'kafka', 'pom.xml');
  // Another list of jars is another folder.
  const version = createHash('sha256').update(readFileSync(pom)).digest('hex').slice(0, 12);
  const folder = join(root, '.cache', `kafka-${version}`);
  return { pom, folder, marker: join(folder, 'complete'), classPath: join(folder, '*') };
}

/** Copies the jars unless they are there. Whether they are there now. */
export function prepareKafka(root) {
  const { pom, folder, marker } = kafkaJars(root);
  if (existsSync(marker)) return true;
  console.log('setup: fetching the Kafka broker for tests (46 MB, once)');
  // Somewhere else first: an interrupted copy must not look like a whole one, and two may run at once.
  const draft = `${folder}.${process.pid}`;
  mkdirSync(draft, { recursive: true });
  const { status } = spawnSync(
    'mvn',
    [
      '-q',
      '-B',
      '-f',
      pom,
      'dependency:copy-dependencies',
      `-DoutputDirectory=${draft}`,
      '-DincludeScope=runtime',
    ],
    { stdio: ['ignore', 'inherit', 'inherit'], timeout: 8 * 60_000 },
  );
  if (status === 0) {
    writeFileSync(join(draft, 'complete'), '');
    try {
      renameSync(draft, folder);
    } catch (error) {
      // Somebody else was first, or an older copy without its marker is in the way.
      if (!existsSync(marker)) {
        rmSync(folder, { recursive: true, force: true });
        renameSync(draft, folder);
      } else if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
    }
  }
  rmSync(draft, { recursive: true, force: true });
  return existsSync(marker);
}
