import { setPriority } from 'node:os';
import { systemClock, systemTimers } from '../app/system.ts';
import { rushCommand } from '../lab/rush/command.ts';
import { findLocalCluster } from './cluster-state.ts';
import type { Surroundings } from './terminal.ts';

/**
 * `sluice rush`: the crowd, on the real clock, with the operator's side where the environment names
 * it, or where `--target cluster` finds it.
 */
export async function rushWith(
  options: Readonly<Record<string, unknown>>,
  { environment, out, err, errIsTty, stopSignal }: Surroundings,
): Promise<number> {
  const local =
    options['target'] === 'cluster'
      ? findLocalCluster(environment['SLUICE_CLUSTER_STATE'] || undefined)
      : undefined;
  return rushCommand(
    {
      ...options,
      ...(local === undefined ? {} : { target: local.shop }),
      adminUrl: environment['SLUICE_ADMIN_URL'] ?? local?.operator,
      adminToken: environment['SLUICE_ADMIN_TOKEN'] ?? local?.adminToken,
    },
    {
      out,
      err,
      isTty: errIsTty,
      clock: systemClock,
      timers: systemTimers,
      beServedFirst,
      stopSignal,
    },
  );
}

/** Needs a privilege that most users lack; then things stay as they are, and the report says so. */
function beServedFirst(): boolean {
  try {
    setPriority(-10);
    return true;
  } catch {
    return false;
  }
}
