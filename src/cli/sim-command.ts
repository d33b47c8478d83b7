import { systemClock } from '../app/system.ts';
import { type SimOptions, SimUsageError, simCommand } from '../simulator/command.ts';
import { type Surroundings, UsageError } from './terminal.ts';

/** `sluice sim`, on the real clock outside and on a virtual one inside. */
export async function simWith(
  options: SimOptions,
  { out, err, errIsTty, stopSignal }: Surroundings,
): Promise<number> {
  try {
    return await simCommand(options, { out, err, isTty: errIsTty, clock: systemClock, stopSignal });
  } catch (error) {
    throw error instanceof SimUsageError ? new UsageError(`sim: ${error.message}`) : error;
  }
}
