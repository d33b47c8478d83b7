import type { Exit, LedgerRow, LedgerSnapshot, StageRow } from './ledger.ts';

/**
 * The accounts of several processes as one. Each closes by itself, so the sum closes, and a residual
 * in any of them shows in it. O(rows of all).
 */
export function sumLedgers(snapshots: readonly LedgerSnapshot[]): LedgerSnapshot {
  const totals: Record<Exit, number> = { handle: 0, forward: 0, reject: 0, fail: 0 };
  const rows = new Map<string, LedgerRow>();
  const stages = new Map<string, StageRow>();
  let arrivals = 0;
  let inSystem = 0;
  for (const snapshot of snapshots) {
    arrivals += snapshot.arrivals;
    inSystem += snapshot.inSystem;
    for (const exit of ['handle', 'forward', 'reject', 'fail'] as const) {
      totals[exit] += snapshot.totals[exit];
    }
    for (const row of snapshot.rows) {
      const key = `${row.stage} ${row.decision} ${row.reason}`;
      rows.set(key, { ...row, count: (rows.get(key)?.count ?? 0) + row.count });
    }
    for (const { stage, entered, left } of snapshot.stages) {
      const known = stages.get(stage);
      stages.set(stage, {
        stage,
        entered: (known?.entered ?? 0) + entered,
        left: (known?.left ?? 0) + left,
      });
    }
  }
  return { arrivals, inSystem, totals, rows: [...rows.values()], stages: [...stages.values()] };
}
