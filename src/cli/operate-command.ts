import { systemRandom } from '../app/system.ts';
import { askAdmin, findAdmin } from './admin-client.ts';
import type { AdminOptions } from './admin-client.ts';
import { UsageError, exitNo, exitOk, paintFor } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

export interface OperateOptions extends AdminOptions {
  readonly json?: boolean;
  readonly dryRun?: boolean;
  readonly rebuild?: boolean;
  readonly reason?: string;
}

const askMs = 10_000;
/** A reconciliation reads every order. */
const reconcileMs = 10 * 60_000;

/**
 * `sluice verify ledger`: is every request that came in found again, and every message that was
 * produced? Exit 1 names where not.
 */
export async function verifyLedger(
  options: OperateOptions,
  surroundings: Surroundings,
): Promise<number> {
  const access = await findAdmin(options, surroundings, systemRandom);
  const answer = await askAdmin(access, 'GET', '/admin/v1/ledger', askMs);
  const residual = numberIn(answer, 'residual');
  const queue = await askAdmin(access, 'GET', '/admin/v1/ledger/queue', askMs);
  const lost = numberIn(queue, 'residual');
  const closes = residual === 0 && lost === 0;
  if (options.json === true) {
    const verdict = closes ? 'holds' : 'broken';
    surroundings.out(`${JSON.stringify({ ...Object(answer), queue, verdict })}\n`);
  } else {
    const { good, bad } = paintFor(surroundings);
    surroundings.out(
      residual === 0
        ? `${good('closes')}  every request that came in is found again\n`
        : `${bad('open')}    ${Math.abs(residual)} ${residual > 0 ? 'requests came in and are not found' : 'exits had no arrival'}\n`,
    );
    const onItsWay =
      member(queue, 'at_rest') === true ? '' : ', as far as can be told while it moves';
    surroundings.out(
      lost === 0
        ? `${good('closes')}  every message of the queue has its fate, or waits${onItsWay}\n`
        : `${bad('open')}    queue: ${Math.abs(lost)} ${lost > 0 ? 'messages were produced and have no fate' : 'fates are of messages that the queue does not know'}\n`,
    );
  }
  return closes ? exitOk : exitNo;
}

/** `sluice reconcile`: compares inventory, queue and orders; repairs unless `--dry-run`. */
export async function reconcile(
  options: OperateOptions,
  surroundings: Surroundings,
): Promise<number> {
  const dryRun = options.dryRun === true;
  if (!dryRun && (options.reason ?? '').trim() === '')
    throw new UsageError(
      '--reason: found nothing; allowed: words for the audit, such as --reason "after the power cut", or --dry-run to only look',
    );
  const access = await findAdmin(options, surroundings, systemRandom);
  const answer = await askAdmin(access, 'POST', '/admin/v1/commands/reconcile', reconcileMs, {
    dry_run: dryRun,
    ...(options.rebuild === true ? { rebuild: true } : {}),
    reason: options.reason ?? 'only looking',
  });
  const findings = member(answer, 'findings');
  if (!Array.isArray(findings))
    throw new UsageError('reconcile: the answer has no "findings"; is the server of this version?');
  if (options.json === true) surroundings.out(`${JSON.stringify(answer)}\n`);
  else {
    const { good, bad } = paintFor(surroundings);
    if (findings.length === 0)
      surroundings.out(`${good('equal')}  stock, queue and orders say the same\n`);
    for (const finding of findings)
      surroundings.out(`${bad('found')}  ${JSON.stringify(finding)}\n`);
  }
  return findings.length === 0 ? exitOk : exitNo;
}

/** `sluice recover`: the inventory again, from the orders. */
export async function recover(
  options: OperateOptions,
  surroundings: Surroundings,
): Promise<number> {
  const access = await findAdmin(options, surroundings, systemRandom);
  const answer = await askAdmin(access, 'POST', '/admin/v1/commands/recover', reconcileMs, {
    reason: options.reason ?? '',
  });
  const rebuilt = member(answer, 'rebuilt');
  if (!Array.isArray(rebuilt))
    throw new UsageError('recover: the answer has no "rebuilt"; is the server of this version?');
  surroundings.out(
    options.json === true
      ? `${JSON.stringify(answer)}\n`
      : `rebuilt the inventory of ${rebuilt.length} SKUs from their orders\n`,
  );
  return exitOk;
}

export interface ConsoleOptions {
  readonly role: string;
  readonly name: string;
  readonly config?: string;
  readonly data?: string;
  readonly json?: boolean;
}

/** `sluice console`: a one-time link to the operator page, for a second browser or after signing out. */
export async function consoleLink(
  options: ConsoleOptions,
  surroundings: Surroundings,
): Promise<number> {
  const access = await findAdmin(options, surroundings, systemRandom);
  const { role, name } = options;
  const answer = await askAdmin(access, 'POST', '/admin/v1/sign-in-links', askMs, { role, name });
  const url = member(answer, 'url');
  if (typeof url !== 'string')
    throw new UsageError('console: the answer has no "url"; is the server of this version?');
  surroundings.out(options.json === true ? `${JSON.stringify(answer)}\n` : `${url}\n`);
  return exitOk;
}

function numberIn(answer: unknown, name: string): number {
  const value = member(answer, name);
  if (typeof value === 'number') return value;
  throw new UsageError(`the answer has no number "${name}"; is the server of this version?`);
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null
    ? (value as Readonly<Record<string, unknown>>)[name]
    : undefined;
}
