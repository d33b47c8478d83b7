import { verifyDraw } from '../../core/room/audit.ts';
import { member } from './ask.ts';
import type { BackOffice } from './back-office.ts';

/** What became of the attempt to reproduce the draw from its audit. */
export type DrawCheck =
  | { readonly kind: 'reproduced'; readonly detail: string }
  | { readonly kind: 'wrong'; readonly why: string }
  | { readonly kind: 'none'; readonly why: string };

/** What the shop's pages had said: the commitment before anybody joined, a checkpoint at the end. */
export interface Published {
  readonly commitment: string | undefined;
  readonly checkpoint?: string | undefined;
}

/**
 * Recomputes the draw from the audit file, and holds the file against what the shop's page had said: an
 * audit with another commitment is the audit of another draw, and one that lacks what the checkpoint
 * binds has lost its end.
 *
 * @param joined people of this crowd who were let into the room, at the least.
 */
export async function checkDraw(
  office: BackOffice,
  activityId: string,
  published: Published,
  joined: number,
): Promise<DrawCheck> {
  const { text, why } = await office.drawAudit(activityId);
  if (text === undefined) return { kind: 'none', why: `there is no audit of a draw (${why})` };
  return judgeAudit(text, published, joined);
}

/** The part of `checkDraw` that needs no server. */
export function judgeAudit(text: string, published: Published, joined: number): DrawCheck {
  const { commitment, checkpoint } = published;
  const verdict = verifyDraw(text, checkpoint === undefined ? {} : { checkpoint });
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
