import { readFileSync } from 'node:fs';
import { inclusionProof, verifyDraw } from '../core/room/audit.ts';
import type { AuditVerdict, InclusionProof } from '../core/room/audit.ts';
import { UsageError, exitNo, exitOk, paintFor } from './terminal.ts';
import type { Surroundings } from './terminal.ts';

export interface VerifyDrawOptions {
  /** As the shop showed it at some time. */
  readonly checkpoint?: string;
  readonly entry?: string;
  readonly json?: boolean;
}

/** What each kind of draw can promise, in words for those who stood in it. */
const guarantees: Readonly<Record<AuditVerdict['guarantee'], string>> = {
  beacon: 'secret committed before the lobby, and a public value from after its closing mixed in',
  commitment_only:
    'secret committed before the lobby; nothing stops whoever knew it from trying out last-moment participants',
  order_of_arrival: 'order of arrival; nothing was drawn',
  none: 'none',
};

/** `sluice verify draw FILE [--entry ID]`: recomputes a draw offline, from its audit file alone. */
export function verifyDrawFile(
  file: string,
  options: VerifyDrawOptions,
  surroundings: Surroundings,
): number {
  const text = read(file);
  const { entry, checkpoint } = options;
  const verdict = verifyDraw(text, {
    nowMs: surroundings.nowMs(),
    ...(checkpoint === undefined ? {} : { checkpoint }),
  });
  const proof = entry === undefined ? undefined : inclusionProof(text, entry);
  const holds = verdict.holds && (entry === undefined || proof !== undefined);
  if (options.json === true)
    surroundings.out(`${JSON.stringify(toWire(verdict, entry, proof, holds))}\n`);
  else tell(verdict, entry, proof, surroundings);
  return holds ? exitOk : exitNo;
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    const why = error instanceof Error && 'code' in error ? String(error.code) : 'unreadable';
    throw new UsageError(`FILE: found "${file}" (${why}); allowed: the audit file of a draw`);
  }
}

function tell(
  verdict: AuditVerdict,
  entry: string | undefined,
  proof: InclusionProof | undefined,
  surroundings: Surroundings,
): void {
  const { good, bad } = paintFor(surroundings);
  const { out } = surroundings;
  for (const { line, what, found, expected } of verdict.problems)
    out(`${bad('line')} ${line}  ${what}\n    found     ${found}\n    expected  ${expected}\n`);
  out(
    verdict.holds
      ? `${good('holds')}  activity ${verdict.activityId}: ${verdict.lobby} in the lobby of ${verdict.participants}, ${verdict.waves} waves, ${verdict.released} released, ${verdict.bypassed} past the line, ${verdict.rateChanges} changes of rate\n       root ${verdict.root}\n       ${guarantees[verdict.guarantee]}\n       ${extent(verdict)}\n       checkpoint ${verdict.checkpoint}\n`
      : `${bad('broken')}  the file does not describe a draw that was made as promised\n`,
  );
  if (entry === undefined) return;
  if (proof === undefined) out(`${bad('absent')}  entry ${entry} did not stand in the lobby\n`);
  else
    out(
      `${good('inside')} entry ${entry}: leaf ${proof.index + 1} of ${proof.size}, ${proof.place === null ? 'left before the draw' : `drawn as number ${proof.place}`}${proof.value === null ? '' : `, value ${proof.value}`}\n       path ${proof.path.join(' ')}\n`,
    );
}

/** How far the file goes, and what it alone cannot show. */
const extent = ({ decisions, finished }: AuditVerdict): string =>
  finished
    ? `whole: ${decisions} decisions, the last of which closed the sale`
    : `so far: ${decisions} decisions of a sale that had not closed; hold it against a checkpoint that the shop showed (--checkpoint)`;

function toWire(
  verdict: AuditVerdict,
  entry: string | undefined,
  proof: InclusionProof | undefined,
  holds: boolean,
): object {
  const { activityId, rateChanges, ...same } = verdict;
  const { entryId, ...inclusion } = proof ?? { entryId: entry };
  return {
    ...same,
    activity_id: activityId,
    rate_changes: rateChanges,
    verdict: holds ? 'holds' : 'broken',
    ...(entry === undefined
      ? {}
      : { inclusion: proof === undefined ? null : { entry_id: entryId, ...inclusion } }),
  };
}
