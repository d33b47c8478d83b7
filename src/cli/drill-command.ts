import { readFileSync } from 'node:fs';
import { systemClock, systemRandom, systemTimers } from '../app/system.ts';
import { loadConfig } from '../config/load.ts';
import { drills } from '../lab/drills/all.ts';
import { type Drill, type DrillReport, runDrill } from '../lab/drills/drill.ts';
import { Site } from '../lab/drills/site.ts';
import { findLocalCluster, type LocalCluster } from './cluster-state.ts';
import { exitNo, exitOk, paintFor, UsageError } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

export interface DrillOptions {
  readonly activity?: string;
  readonly json?: boolean;
}

/** `sluice drill`: breaks the cluster on this machine on purpose, and looks whether it holds. */
export async function drill(
  name: string | undefined,
  options: DrillOptions,
  surroundings: Surroundings,
): Promise<number> {
  const { out, err, environment } = surroundings;
  const { good, bad, faint } = paintFor(surroundings);
  if (name === undefined) {
    if (options.json === true) {
      const list = drills.map(({ name: drillName, about, expected }) => ({
        drill: drillName,
        about,
        expected,
      }));
      out(`${JSON.stringify(list)}\n`);
    } else
      for (const { name: drillName, about } of drills) out(`${drillName.padEnd(24)} ${about}\n`);
    return exitOk;
  }
  const chosen = chosenBy(name);
  const find = (): LocalCluster =>
    findLocalCluster(environment['SLUICE_CLUSTER_STATE'] || undefined);
  const cluster = find();
  const site = new Site({
    ...placesOf(cluster),
    ...saleOf(cluster, options.activity),
    shop: cluster.shop,
    operator: cluster.operator,
    adminToken: cluster.adminToken,
    // What was killed by a drill may run again, as another process, before the next one.
    processes: () => find().processes,
    inventoryStandbyUrl: () => find().inventoryStandby,
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
  });
  const reports: DrillReport[] = [];
  try {
    for (const one of chosen) {
      if (options.json !== true) err(`${one.name}: ${one.about} …\n`);
      const report = await runDrill(one, site);
      reports.push(report);
      if (options.json === true) continue;
      const mark = report.verdict === 'holds' ? good('holds') : bad(report.verdict);
      out(`${mark.padEnd(7)} ${report.drill}\n`);
      out(`  ${faint('expected')} ${report.expected}\n  ${faint('seen')}     ${report.seen}\n`);
      const left = report.left_behind.join('; ');
      out(`  ${faint('left')}     ${left === '' ? 'as it was found' : left}\n`);
    }
  } finally {
    site.close();
  }
  if (options.json === true) out(`${JSON.stringify(reports)}\n`);
  return reports.every(({ verdict }) => verdict === 'holds') ? exitOk : exitNo;
}

function chosenBy(name: string): readonly Drill[] {
  if (name === 'all') return drills;
  const one = drills.find((each) => each.name === name);
  if (one !== undefined) return [one];
  const allowed = drills.map((each) => each.name).join(', ');
  throw new UsageError(`drill: found "${name}"; allowed: ${allowed}, all`);
}

function placesOf({ environment }: LocalCluster) {
  const place = (variable: string): string => {
    const url = environment[variable];
    if (url !== undefined) return url;
    throw new UsageError(`drill: the cluster does not say ${variable}; is it of this version?`);
  };
  return {
    admissionUrl: place('SLUICE_ADMISSION'),
    inventoryUrl: place('SLUICE_INVENTORY'),
    ordersUrl: place('SLUICE_ORDERS'),
  };
}

/** The sale to drill: the only one, or the one that is named; its first SKU. */
function saleOf({ config: file, environment }: LocalCluster, wanted: string | undefined) {
  const text = readFileSync(file, 'utf8');
  const loaded = loadConfig({ text, name: file, environment, nowMs: systemClock.wallMs() });
  if (!loaded.ok) throw new UsageError(`drill: ${file} of the cluster is not good any more`);
  const { activities, stores, rules } = loaded.config;
  const ids = activities.map(({ activityId }) => activityId);
  const activity =
    wanted === undefined && activities.length === 1
      ? activities[0]
      : activities.find(({ activityId }) => activityId === wanted);
  const sku = activity?.skus[0];
  if (activity === undefined || sku === undefined)
    throw new UsageError(`--activity: found ${wanted ?? 'nothing'}; allowed: ${ids.join(', ')}`);
  return {
    activityId: activity.activityId,
    skuId: sku.skuId,
    prefix: stores.prefix,
    ...(rules.kind === 'file' ? { rulesFile: rules.path } : {}),
  };
}
