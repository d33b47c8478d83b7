import type { LeaderLease, LeaseReply } from '../../ports/leader-lease.ts';
import type { Sql } from '../../ports/sql.ts';

/**
 * The leader's lease as one row. The database's clock alone decides when it is over: of processes
 * whose clocks differ, none can hold it past that.
 */
export class PostgresLeaderLease implements LeaderLease {
  readonly #sql: Sql;
  readonly #name: string;

  /** `name`: what is led; one deployment has one. */
  constructor(sql: Sql, name = 'control') {
    this.#sql = sql;
    this.#name = name;
  }

  async renew(holder: string, leaseMs: number): Promise<LeaseReply> {
    // clock_timestamp, not now(): the statement may have waited for the row.
    const rows = await this.#sql.query<{ holder: string; epoch: number }>(
      `INSERT INTO leader_leases AS lease (name, holder, epoch, expires_at)
       VALUES ($1, $2, 1, clock_timestamp() + $3 * interval '1 millisecond')
       ON CONFLICT (name) DO UPDATE SET
         holder = excluded.holder,
         epoch = CASE WHEN lease.holder = excluded.holder AND lease.expires_at > clock_timestamp()
                      THEN lease.epoch ELSE lease.epoch + 1 END,
         expires_at = clock_timestamp() + $3 * interval '1 millisecond'
       WHERE lease.holder = excluded.holder OR lease.expires_at <= clock_timestamp()
       RETURNING holder, epoch`,
      [this.#name, holder, leaseMs],
    );
    const [row] = rows;
    if (row !== undefined) return { kind: 'held', epoch: Number(row.epoch) };
    const [other] = await this.#sql.query<{ holder: string }>(
      'SELECT holder FROM leader_leases WHERE name = $1',
      [this.#name],
    );
    return { kind: 'taken', by: other?.holder ?? 'nobody' };
  }

  async release(holder: string): Promise<void> {
    await this.#sql.query(
      `UPDATE leader_leases SET expires_at = clock_timestamp() - interval '1 millisecond'
       WHERE name = $1 AND holder = $2`,
      [this.#name, holder],
    );
  }
}
