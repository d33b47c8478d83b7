import {
  closeSync,
  existsSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Activity } from '../core/activity.ts';
import { activityOf } from './config.ts';
import type { Config } from './config.ts';

/**
 * When each sale was first served from a data folder.
 *
 * A sale that opens "+30s" must not open again when its server is killed and restarted: the room was
 * drawn, passes are out, orders exist. So the first start is written down before the sale is served,
 * flushed, and every later start counts from it.
 */
const fileName = 'first-starts.json';

/** More than a deployment's sales of many years; a file beyond it is not ours. */
const entriesMax = 100_000;

/**
 * The sales of a configuration with their instants, relative ones counted from the first start in
 * `folder`, which is remembered there when this is the first. The folder must be locked by the caller.
 * @throws Error when the file is damaged, or a sale's instants are not in order.
 */
export function openActivities(config: Config, folder: string, nowMs: number): readonly Activity[] {
  const path = join(folder, fileName);
  const known = existsSync(path) ? readFirstStarts(path) : new Map<string, number>();
  const fresh = config.activities.filter(({ activityId }) => !known.has(activityId));
  for (const { activityId } of fresh) known.set(activityId, nowMs);
  const activities = config.activities.map((plan) =>
    activityOf(plan, known.get(plan.activityId) ?? nowMs),
  );
  if (fresh.length > 0) writeFirstStarts(path, known);
  return activities;
}

function readFirstStarts(path: string): Map<string, number> {
  const text = readFileSync(path, 'utf8');
  const damaged = (what: string): Error =>
    new Error(
      `${path} is damaged: ${what}. It says when each sale was first served; restore it from a backup, ` +
        'or remove it to let sales with times such as +30s begin anew.',
    );
  let stored: unknown;
  try {
    stored = JSON.parse(text);
  } catch (cause) {
    throw Object.assign(damaged(`no JSON in ${text.length} characters`), { cause });
  }
  const starts =
    typeof stored === 'object' && stored !== null && 'first_starts' in stored
      ? stored.first_starts
      : undefined;
  if (typeof starts !== 'object' || starts === null) throw damaged('no "first_starts" in it');
  const entries = Object.entries(starts);
  if (entries.length > entriesMax) throw damaged(`${entries.length} sales, at most ${entriesMax}`);
  return new Map(
    entries.map(([activityId, written]: [string, unknown]) => {
      const atMs = typeof written === 'string' ? Date.parse(written) : Number.NaN;
      if (Number.isNaN(atMs)) throw damaged(`${activityId} was first served at ${String(written)}`);
      return [activityId, atMs];
    }),
  );
}

/** Written apart, flushed, moved into place, and the move flushed too. */
function writeFirstStarts(path: string, starts: ReadonlyMap<string, number>): void {
  const firstStarts = Object.fromEntries(
    [...starts].map(([activityId, atMs]) => [activityId, new Date(atMs).toISOString()]),
  );
  const fresh = `${path}.new`;
  rmSync(fresh, { force: true });
  const file = openSync(fresh, 'wx', 0o600);
  try {
    writeSync(
      file,
      `${JSON.stringify({ schema_version: 1, first_starts: firstStarts }, undefined, 2)}\n`,
    );
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(fresh, path);
  const folder = openSync(join(path, '..'), 'r');
  try {
    fsyncSync(folder);
  } finally {
    closeSync(folder);
  }
}
