import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Commit of the checkout that this runs from; undefined where it is installed without one. */
export function commitHere(): string | undefined {
  let folder = dirname(fileURLToPath(import.meta.url));
  for (;;) {
    const git = join(folder, '.git');
    if (existsSync(join(git, 'HEAD'))) return commitOf(git);
    const above = dirname(folder);
    if (above === folder) return undefined;
    folder = above;
  }
}

function commitOf(git: string): string | undefined {
  const head = readFileSync(join(git, 'HEAD'), 'utf8').trim();
  const ref = /^ref: (.+)$/.exec(head)?.[1];
  if (ref === undefined) return head.slice(0, 12);
  const loose = join(git, ref);
  if (existsSync(loose)) return readFileSync(loose, 'utf8').trim().slice(0, 12);
  const packed = join(git, 'packed-refs');
  if (!existsSync(packed)) return undefined;
  const line = readFileSync(packed, 'utf8')
    .split('\n')
    .find((one) => one.endsWith(` ${ref}`));
  return line?.slice(0, 12);
}
