import type { AdminCommand } from '../control/admin/deps.ts';
import type { Activity, SkuKey } from '../core/activity.ts';
import { idPattern } from '../core/bounds.ts';
import type { Reconciliation, ReconcileReport } from '../workers/reconciliation.ts';
import { lastsMaxMs, opensInMaxMs, rehearsedChallenges } from './rehearsals.ts';
import type { RehearsedChallenge } from './rehearsals.ts';
import { type RoomActs, roomCommands } from './room-commands.ts';

/** What the command line asks of a running server beside the console's own actions. */
export interface AdminCommandsParts {
  readonly reconciliation: Reconciliation;
  readonly skus: () => readonly SkuKey[];
  /** Rebuilds one SKU's inventory from the durable side. */
  readonly rebuild: (sku: SkuKey, who: string, why: string) => Promise<void>;
  readonly rooms: RoomActs;
  /** Makes a copy of a sale that opens so long from now. @throws RangeError for what is not allowed */
  readonly rehearse: (activityId: string, plan: RehearsalPlan) => Promise<Activity>;
}

interface RehearsalPlan {
  readonly opensInMs: number;
  readonly lastsMs: number;
  readonly challenge: RehearsedChallenge;
}

export function adminCommands(parts: AdminCommandsParts): readonly AdminCommand[] {
  return [
    {
      name: 'reconcile',
      role: 'operator',
      changes: true,
      async run(input, { principal, why }) {
        const { dry_run: dryRun = false, rebuild = false } = flagsOf(input, [
          'dry_run',
          'rebuild',
          'reason',
        ]);
        const report = await parts.reconciliation.runOnce({
          repair: !dryRun,
          rebuild,
          who: principal.name,
          why,
        });
        return reportOf(report, dryRun);
      },
    },
    {
      name: 'recover',
      role: 'approver',
      changes: true,
      async run(input, { principal, why }) {
        flagsOf(input, ['reason']);
        const rebuilt: object[] = [];
        for (const sku of parts.skus()) {
          await parts.rebuild(sku, principal.name, why);
          rebuilt.push({ activity_id: sku.activityId, sku_id: sku.skuId });
        }
        return { rebuilt };
      },
    },
    {
      name: 'rehearse',
      role: 'operator',
      changes: true,
      async run(input) {
        const copy = await parts.rehearse(...rehearsalOf(input));
        const iso = (atMs: number): string => new Date(atMs).toISOString();
        return {
          activity_id: copy.activityId,
          rehearsal_of: copy.rehearsalOf,
          opens_at: iso(copy.opensAtMs),
          closes_at: iso(copy.closesAtMs),
          ...(copy.room.challenge === undefined ? {} : { challenge: copy.room.challenge.kind }),
          ...(copy.room.beacon === undefined ? {} : { beacon: copy.room.beacon }),
        };
      },
    },
    ...roomCommands(parts.rooms),
  ];
}

/** Which sale, when, and what is asked: `{activity_id, opens_in_ms?, lasts_ms?, challenge?}`. */
function rehearsalOf(input: unknown): [string, RehearsalPlan] {
  const given = (input ?? {}) as Readonly<Record<string, unknown>>;
  for (const name of Object.keys(given)) {
    if (!['activity_id', 'opens_in_ms', 'lasts_ms', 'challenge', 'reason'].includes(name)) {
      throw new RangeError(
        `found "${name}"; allowed: activity_id, opens_in_ms, lasts_ms, challenge`,
      );
    }
  }
  const { activity_id: activityId } = given;
  if (typeof activityId !== 'string' || !idPattern.test(activityId)) {
    const found = JSON.stringify(activityId) ?? 'nothing';
    throw new RangeError(`activity_id: found ${found}; allowed is the id of a sale`);
  }
  const span = (name: string, low: number, high: number, fallback: number): number => {
    const value = given[name] ?? fallback;
    if (typeof value === 'number' && Number.isInteger(value) && value >= low && value <= high) {
      return value;
    }
    throw new RangeError(`${name}: found ${JSON.stringify(value)}; allowed: ${low} to ${high}`);
  };
  const wanted = given['challenge'] ?? 'full';
  const challenge = rehearsedChallenges.find((known) => known === wanted);
  if (challenge === undefined) {
    const allowed = rehearsedChallenges.join(', ');
    throw new RangeError(`challenge: found ${JSON.stringify(wanted)}; allowed: ${allowed}`);
  }
  return [
    activityId,
    {
      opensInMs: span('opens_in_ms', 0, opensInMaxMs, 60_000),
      lastsMs: span('lasts_ms', 10_000, lastsMaxMs, 600_000),
      challenge,
    },
  ];
}

function flagsOf(
  input: unknown,
  allowed: readonly string[],
): Readonly<Record<string, boolean | undefined>> {
  if (input === undefined || input === null) return {};
  if (typeof input !== 'object' || Array.isArray(input)) {
    throw new RangeError(`found ${JSON.stringify(input)}; allowed is an object`);
  }
  const flags: Record<string, boolean> = {};
  for (const [name, value] of Object.entries(input)) {
    if (!allowed.includes(name)) {
      throw new RangeError(`found "${name}"; allowed: ${allowed.join(', ')}`);
    }
    if (name === 'reason') continue;
    if (typeof value !== 'boolean') {
      throw new RangeError(`${name}: found ${JSON.stringify(value)}; allowed: true, false`);
    }
    flags[name] = value;
  }
  return flags;
}

function reportOf(report: ReconcileReport, dryRun: boolean): object {
  return {
    dry_run: dryRun,
    skus: report.skus,
    moving: report.moving,
    buried: report.buried,
    counts: report.counts,
    findings: report.findings.map(({ class: kind, activityId, skuId, ...finding }) => ({
      class: kind,
      activity_id: activityId,
      sku_id: skuId,
      ...finding,
    })),
  };
}
