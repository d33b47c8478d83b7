import { cpSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { systemTimers } from '../../../src/app/system.ts';
import { openPglite } from '../../../src/stores/postgres/pglite.ts';

/**
 * A fresh database folder in a temporary place, copied from one that was made once per machine:
 * making one takes seconds, copying it a tenth of one. Remove it with `remove()`.
 */
export async function freshPgliteFolder(): Promise<{ folder: string; remove: () => void }> {
  const template = await templateFolder();
  const parent = mkdtempSync(join(tmpdir(), 'sluice-pglite-'));
  const folder = join(parent, 'orders');
  cpSync(template, folder, { recursive: true });
  return { folder, remove: () => rmSync(parent, { recursive: true, force: true }) };
}

async function templateFolder(): Promise<string> {
  const manifest = createRequire(import.meta.url).resolve('@electric-sql/pglite');
  const { version } = JSON.parse(
    readFileSync(join(dirname(manifest), '..', 'package.json'), 'utf8'),
  ) as { version: string };
  const template = join(tmpdir(), `sluice-pglite-template-${process.getuid?.() ?? 0}-${version}`);
  if (existsSync(template)) return template;
  const parent = mkdtempSync(join(tmpdir(), 'sluice-pglite-new-'));
  const made = join(parent, 'orders');
  const sql = await openPglite({ folder: made, timers: systemTimers, fsync: 'os' });
  await sql.close();
  try {
    renameSync(made, template);
  } catch (error) {
    // Another test process was faster: its template is as good.
    if (!existsSync(template)) throw error;
  }
  rmSync(parent, { recursive: true, force: true });
  return template;
}
