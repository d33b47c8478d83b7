import { systemRandom, systemTimers } from '../app/system.ts';
import { parseDurationMs } from '../config/values.ts';
import { lobbyShare } from '../lab/rush/embedded.ts';
import { askAdmin, findAdmin } from './admin-client.ts';
import type { AdminAccess, AdminOptions } from './admin-client.ts';
import { needConfig } from './configuration.ts';
import { rushWith } from './rush-command.ts';
import { UsageError, exitOk } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

export interface RehearseOptions extends AdminOptions {
  readonly opensIn?: string;
  readonly lasts?: string;
  readonly challenge?: string;
  readonly reason?: string;
  readonly json?: boolean;
  readonly target?: string;
  readonly people?: string;
  readonly over?: string;
  readonly seed?: string;
  readonly report?: string;
}

const askMs = 10_000;
/** Time in which every process of the deployment has heard of the copy, ms. */
const heardMs = 1_500;
/** The lobby closes within a turn of control; on a machine that stands still it may take longer, ms. */
const beaconPatienceMs = 60_000;
const beaconPeriodMs = 250;

/**
 * `sluice rehearse ACTIVITY`: a copy of a sale on a running server, and with `--people` a crowd in it.
 * @returns what `sluice rush` returns; 0 without a crowd.
 */
export async function rehearse(
  activityId: string,
  options: RehearseOptions,
  surroundings: Surroundings,
): Promise<number> {
  const { people, over = '10s' } = options;
  const crowd = people !== undefined;
  if (!crowd && (options.report !== undefined || options.seed !== undefined))
    throw new UsageError('--report and --seed: only with --people, which sends a crowd');
  const overMs = spanOf('--over', over);
  // Two thirds of the crowd in the lobby, as in a run on a server of one's own.
  const challenge = challengeOf(options.challenge ?? (crowd ? 'light' : 'full'), crowd);
  const usual = crowd ? `${heardMs + Math.round(overMs * lobbyShare) + 2_000}ms` : '60s';
  const access = await findAdmin(options, surroundings, systemRandom);
  const answer = await askAdmin(access, 'POST', '/admin/v1/commands/rehearse', askMs, {
    activity_id: activityId,
    opens_in_ms: spanOf('--opens-in', options.opensIn ?? usual),
    lasts_ms: spanOf('--lasts', options.lasts ?? '10m'),
    challenge,
    reason: options.reason ?? 'a rehearsal from the command line',
  });
  const { activity_id: copy, beacon } = answer as { activity_id?: unknown; beacon?: unknown };
  if (typeof copy !== 'string')
    throw new UsageError('rehearse: the answer has no "activity_id"; is the server older?');
  const target = options.target ?? shopOf(options, surroundings);
  if (!crowd) {
    surroundings.out(
      options.json === true
        ? `${JSON.stringify({ ...Object(answer), shop: target })}\n`
        : `${copy} is a copy of ${activityId}: its stock, room and orders are its own.\n` +
            `  pages:  ${target}/a/${copy}\n` +
            (typeof beacon === 'string'
              ? `  beacon: the opening waits for "${beacon}": announce a value (room-beacon) after ${String(Object(answer)['opens_at'])}\n`
              : '') +
            `  crowd:  sluice rush --target ${target} --activity ${copy} --people 1000\n`,
    );
    return exitOk;
  }
  if (options.json !== true) surroundings.err(`rehearsing ${activityId} as ${copy}\n`);
  await pause(heardMs);
  const opensAtMs = Date.parse(String(Object(answer)['opens_at']));
  const announcing =
    typeof beacon === 'string'
      ? announceBeacon(access, copy, opensAtMs, surroundings)
      : Promise.resolve();
  const announced = announcing.then(
    () => undefined,
    (error: unknown) => error,
  );
  const code = await rushWith(
    {
      target,
      activity: copy,
      people,
      over,
      seed: options.seed,
      report: options.report,
      json: options.json,
    },
    {
      ...surroundings,
      environment: {
        ...surroundings.environment,
        SLUICE_ADMIN_URL: access.url,
        SLUICE_ADMIN_TOKEN: access.token,
      },
    },
  );
  const failure = await announced;
  if (failure !== undefined) throw failure;
  return code;
}

/** A crowd cannot do what phones do, nor be vouched for; to walk through it by hand, everything is there. */
function challengeOf(wanted: string, crowd: boolean): string {
  const allowed: readonly string[] = crowd ? ['light', 'none'] : ['full', 'light', 'none'];
  if (!allowed.includes(wanted)) {
    const why = crowd ? '; with --people one machine would do the work of them all' : '';
    throw new UsageError(`--challenge: found "${wanted}"; allowed: ${allowed.join(', ')}${why}`);
  }
  return wanted;
}

/**
 * The value that everybody waits for, made up here: once the lobby has closed, and not before. Ends when
 * it is announced, or when nobody could be waiting for it any more.
 */
async function announceBeacon(
  access: AdminAccess,
  activityId: string,
  opensAtMs: number,
  surroundings: Surroundings,
): Promise<void> {
  const value = `rehearsed-${Buffer.from(systemRandom.bytes(16)).toString('hex')}`;
  const untilMs = opensAtMs + beaconPatienceMs;
  await pause(Math.max(0, opensAtMs - surroundings.nowMs()));
  while (surroundings.nowMs() < untilMs) {
    const told = await askAdmin(access, 'POST', '/admin/v1/commands/room-beacon', askMs, {
      activity_id: activityId,
      value,
      reason: 'the rehearsal announces its own',
    });
    if ((told as { done?: unknown }).done === true) return;
    await pause(beaconPeriodMs);
  }
  throw new UsageError(
    `room-beacon: found no lobby of ${activityId} that had closed within ${beaconPatienceMs / 1000} s of its opening`,
  );
}

const pause = (ms: number): Promise<void> =>
  new Promise((resolve) => void systemTimers.after(ms, () => resolve()));

function spanOf(flag: string, text: string): number {
  const ms = parseDurationMs(text);
  if (ms === undefined)
    throw new UsageError(`${flag}: found "${text}"; allowed is a duration such as 30s or 5m`);
  return Math.round(ms);
}

/** The shop as the configuration has it. */
function shopOf(options: AdminOptions, surroundings: Surroundings): string {
  const { config } = needConfig(options.config, {}, surroundings);
  const { host, port } = config.server;
  if (port === 0) throw new UsageError('--target: found nothing, and the port is any free one');
  const name = host === '0.0.0.0' || host === '::' ? '127.0.0.1' : host;
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`;
}
