import type { AuditLog, AuditRow } from '../../ports/order-store.ts';
import type { SqlQueries } from '../../ports/sql.ts';

/** The audit table: appended to, never changed. Rows of a transition come in its transaction. */
export function auditLog(sql: SqlQueries): AuditLog {
  return {
    append: (row) => appendAudit(sql, [row]),
    async list(subject, limit) {
      const rows = await sql.query<StoredAuditRow>(
        `SELECT at_ms, who, what, why, subject, detail FROM audit_log
         WHERE $1::text IS NULL OR subject = $1 ORDER BY id DESC LIMIT $2`,
        [subject ?? null, limit],
      );
      return rows.map(toAuditRow);
    },
  };
}

interface StoredAuditRow {
  readonly at_ms: number;
  readonly who: string;
  readonly what: string;
  readonly why: string;
  readonly subject: string;
  readonly detail: Readonly<Record<string, unknown>> | null;
}

function toAuditRow(row: StoredAuditRow): AuditRow {
  return {
    at: row.at_ms,
    who: row.who,
    what: row.what,
    why: row.why,
    subject: row.subject,
    ...(row.detail === null ? {} : { detail: row.detail }),
  };
}

export async function appendAudit(sql: SqlQueries, rows: readonly AuditRow[]): Promise<void> {
  if (rows.length === 0) return;
  await sql.query(
    `INSERT INTO audit_log (at_ms, who, what, why, subject, detail)
     SELECT a, w, t, y, s, d::jsonb
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
       AS i (a, w, t, y, s, d)`,
    [
      rows.map((row) => row.at),
      rows.map((row) => row.who),
      rows.map((row) => row.what),
      rows.map((row) => row.why),
      rows.map((row) => row.subject),
      rows.map((row) => (row.detail === undefined ? null : JSON.stringify(row.detail))),
    ],
  );
}
