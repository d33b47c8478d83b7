import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/**
 * A freshly made, empty database as one compressed file, written by the build. Making a database from
 * nothing takes three seconds of work and 700 MiB; unpacking this takes half a second and no more
 * memory than the database itself. Without the file (a checkout that was never built) it is made from
 * nothing, to the same end.
 *
 * The name carries PGlite's version, so that a newer one never meets an older one's files.
 */
export function templatePath(): string {
  const here = dirname(fileURLToPath(import.meta.url));
  const fromSource = import.meta.url.endsWith('.ts');
  const folder = fromSource ? join(here, '..', '..', '..', 'dist', 'stores', 'postgres') : here;
  return join(folder, `pglite-${pgliteVersion()}.tar.gz`);
}

/** Undefined where the build has not made one. */
export function findTemplate(): string | undefined {
  const path = templatePath();
  return existsSync(path) ? path : undefined;
}

export function pgliteVersion(): string {
  const entry = createRequire(import.meta.url).resolve('@electric-sql/pglite');
  const manifest: unknown = JSON.parse(
    readFileSync(join(dirname(entry), '..', 'package.json'), 'utf8'),
  );
  if (typeof manifest === 'object' && manifest !== null && 'version' in manifest) {
    return String(manifest.version);
  }
  throw new Error(`the package manifest beside ${entry} names no version`);
}
