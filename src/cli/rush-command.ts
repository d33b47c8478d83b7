import { systemClock, systemTimers } from '../app/system.ts';
import { rushCommand } from '../lab/rush/command.ts';
import type { Surroundings } from './terminal.ts';

/** `sluice rush`: the crowd, on the real clock, with the operator's side where the environment names it. */
export function rushWith(
  options: Readonly<Record<string, unknown>>,
  { environment, out, err, errIsTty }: Surroundings,
): Promise<number> {
  return rushCommand(
    {
      ...options,
      adminUrl: environment['SLUICE_ADMIN_URL'],
      adminToken: environment['SLUICE_ADMIN_TOKEN'],
    },
    { out, err, isTty: errIsTty, clock: systemClock, timers: systemTimers },
  );
}
