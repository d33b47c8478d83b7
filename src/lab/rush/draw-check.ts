import { verifyDraw } from '../../core/room/audit.ts';
import { member } from './ask.ts';
import type { BackOffice } from './back-office.ts';

/** What became of the attempt to reproduce the draw from its audit. */
export type DrawCheck =
  | { readonly kind: 'reproduced'; readonly detail: string }
  | { readonly kind: 'wrong'; readonly why: string }
  | { readonly kind: 'none'; readonly why: string };

/**
 * Recomputes the draw from the audit file, and holds the file against what the shop's page had said
 * before anybody joined: an audit with another commitment is the audit of another draw.
 *
 * @param commitment hex, as published before the crowd came; undefined where none was.
 * @param joined people of this crowd who were let into the room, at the least.
 */
export async function checkDraw(
  office: BackOffice,
  activityId: string,
  commitment: string | undefined,
  joined: number,
): Promise<DrawCheck> {
  const { text, why } = await office.drawAudit(activityId);
  if (text === undefined) return { kind: 'none', why: `there is no audit of a draw (${why})` };
  return judgeAudit(text, commitment, joined);
}

/** The part of `checkDraw` that needs no server. */
export function judgeAudit(
  text: string,
  commitment: string | undefined,
  joined: number,
): DrawCheck {
  const verdict = verifyDraw(text);
  const [problem] = verdict.problems;
  if (!verdict.holds) {
    const place = problem === undefined ? 'somewhere' : `line ${problem.line}: ${problem.what}`;
    return { kind: 'wrong', why: `the audit does not describe the draw that was made: ${place}` };
  }
  const committed = member(headerOf(text), 'commitment');
  if (commitment !== undefined && committed !== commitment) {
    return {
      kind: 'wrong',
      why: `the page had committed to ${commitment}, the audit is of ${String(committed)}`,
    };
  }
  if (verdict.participants < joined) {
    return {
      kind: 'wrong',
      why: `the audit lists ${verdict.participants} entries, ${joined} people of this crowd had joined`,
    };
  }
  return {
    kind: 'reproduced',
    detail: `The draw of ${verdict.lobby} in the lobby, and ${verdict.waves} waves with ${verdict.released} people of ${verdict.participants}, were recomputed from the audit${commitment === undefined ? '' : '; its secret is the one committed to before'}.`,
  };
}

function headerOf(text: string): unknown {
  try {
    return JSON.parse(text.slice(0, Math.max(0, text.indexOf('\n'))));
  } catch {
    return undefined;
  }
}
