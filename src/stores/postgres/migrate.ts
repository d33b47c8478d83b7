import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Sql } from '../../ports/sql.ts';

/**
 * Brings the schema forward, never back. All that is missing is applied in one transaction behind an
 * advisory lock: of several processes that start at once, one migrates and the others find it done;
 * one that dies in the middle leaves nothing behind.
 */

export interface Migration {
  /** `0001_orders`: the order of the names is the order of the migrations. */
  readonly name: string;
  readonly text: string;
}

/** Any fixed number: whoever migrates takes this lock. */
const migrationLock = 7_205_759_403;

/** The migrations that this program carries, in order. */
export function ownMigrations(): readonly Migration[] {
  const folder = fileURLToPath(new URL('./migrations/', import.meta.url));
  return readdirSync(folder)
    .filter((file) => file.endsWith('.sql'))
    .toSorted()
    .map((file) => ({
      name: file.slice(0, -'.sql'.length),
      text: readFileSync(`${folder}/${file}`, 'utf8'),
    }));
}

/**
 * Applies what is missing; answers the names applied now. Throws when the database carries a
 * migration that this program does not know (a newer one made it), or one whose text has changed.
 */
export async function migrate(
  sql: Sql,
  nowMs: number,
  migrations: readonly Migration[] = ownMigrations(),
): Promise<readonly string[]> {
  return sql.transaction(async (tx) => {
    // Waiting for another process's migration may take longer than a statement usually may.
    await tx.query("SET LOCAL statement_timeout = '120s'");
    await tx.query('SELECT pg_advisory_xact_lock($1)', [migrationLock]);
    await tx.query(`CREATE TABLE IF NOT EXISTS schema_migrations (
      name          text COLLATE "C" PRIMARY KEY,
      checksum      text   NOT NULL,
      applied_at_ms bigint NOT NULL
    )`);
    const applied = await tx.query<{ name: string; checksum: string }>(
      'SELECT name, checksum FROM schema_migrations ORDER BY name',
    );
    const known = new Map(migrations.map((migration) => [migration.name, checksum(migration)]));
    for (const row of applied) {
      const expected = known.get(row.name);
      if (expected === undefined) {
        throw new Error(
          `the database has migration ${row.name}, this program knows up to ${migrations.at(-1)?.name ?? 'none'}: a newer program has migrated it`,
        );
      }
      if (expected !== row.checksum) {
        throw new Error(
          `migration ${row.name} has changed since it was applied: found checksum ${row.checksum.slice(0, 12)}, allowed ${expected.slice(0, 12)}; write a new migration instead`,
        );
      }
    }
    const done = new Set(applied.map((row) => row.name));
    const missing = migrations.filter((migration) => !done.has(migration.name));
    for (const migration of missing) {
      await tx.query(migration.text);
      await tx.query(
        'INSERT INTO schema_migrations (name, checksum, applied_at_ms) VALUES ($1, $2, $3)',
        [migration.name, checksum(migration), nowMs],
      );
    }
    return missing.map((migration) => migration.name);
  });
}

function checksum(migration: Migration): string {
  return createHash('sha256').update(migration.text).digest('hex');
}
