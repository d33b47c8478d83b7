import { auditKind, auditVersion, parseAuditLine } from './audit-format.ts';
import type { AuditHeader } from './audit-format.ts';
import { toHex, utf8 } from './bytes.ts';
import type { RoomEvent } from './events.ts';
import type { RoomParticipant } from './lobby-draw.ts';
import type { RoomChange } from './model.ts';
import { RunningSha256 } from './sha256.ts';

/** Something that does not hold, and where. */
export interface AuditProblem {
  /** From 1; 0 for the file as a whole. */
  readonly line: number;
  readonly what: string;
  readonly found: string;
  readonly expected: string;
}

/** Problems told of one file. */
export const problemsMax = 20;

/** Everything in a file, by line number. */
export interface ParsedAudit {
  readonly header: AuditHeader | undefined;
  readonly participants: readonly RoomParticipant[];
  readonly participantLines: readonly number[];
  readonly changes: readonly RoomChange[];
  readonly events: readonly { readonly event: RoomEvent; readonly line: number }[];
  readonly order: ReadonlyMap<string, { readonly sequence: number; readonly line: number }[]>;
  readonly secret: string | undefined;
  readonly secretLine: number;
  readonly checkpoint: string | undefined;
  readonly checkpointLine: number;
  readonly problems: AuditProblem[];
}

/** Takes a file apart; what cannot be read is among its problems. O(its length). */
export function parseAudit(text: string): ParsedAudit {
  const problems: AuditProblem[] = [];
  const fault = (line: number, what: string, found: string, expected: string): void => {
    if (problems.length < problemsMax) problems.push({ line, what, found, expected });
  };
  const participants: RoomParticipant[] = [];
  const participantLines: number[] = [];
  const changes: RoomChange[] = [];
  const events: { event: RoomEvent; line: number }[] = [];
  const order = new Map<string, { sequence: number; line: number }[]>();
  let header: AuditHeader | undefined;
  let secret: string | undefined;
  let secretLine = 0;
  let checkpoint: string | undefined;
  let checkpointLine = 0;
  let ended = false;
  const digest = new RunningSha256();
  let number = 0;
  for (let from = 0; from < text.length; ) {
    const newline = text.indexOf('\n', from);
    const end = newline < 0 ? text.length : newline;
    const line = text.slice(from, end);
    from = end + 1;
    number += 1;
    if (ended) {
      fault(number, 'a line after the end', short(line), 'nothing');
      break;
    }
    if (number === 1) {
      header = readHeader(line);
      if (header === undefined) fault(1, 'header', short(line), `${auditKind} ${auditVersion}`);
      digest.update(utf8(`${line}\n`));
      continue;
    }
    const read = parseAuditLine(line);
    if (read?.line === 'end') {
      ended = true;
      const seen = toHex(digest.digest());
      if (read.lines !== number - 1) {
        fault(number, 'number of lines', String(number - 1), String(read.lines));
      }
      if (read.digest !== seen) fault(number, 'digest of the file', seen, short(read.digest));
      if (newline < 0 || line !== JSON.stringify(['end', read.lines, read.digest])) {
        fault(number, 'spelling of the last line', short(line), 'as it was written');
      }
      continue;
    }
    digest.update(utf8(`${line}\n`));
    if (read === undefined) {
      fault(number, 'a line that is none of an audit', short(line), 'p, c, e, o, s, h or end');
    } else if (read.line === 'p') {
      participants.push({ ...read.entry, sequence: participants.length });
      participantLines.push(number);
    } else if (read.line === 'c') {
      const change = read.change((sequence) => participants[sequence]?.entryId);
      if (change === undefined) fault(number, 'a change of an entry', short(line), 'a known one');
      else changes.push(change);
    } else if (read.line === 'e') events.push({ event: read.event, line: number });
    else if (read.line === 'o') {
      const known = order.get(read.lane) ?? [];
      for (const sequence of read.sequences) known.push({ sequence, line: number });
      order.set(read.lane, known);
    } else if (read.line === 's') {
      secret = read.secret;
      secretLine = number;
    } else {
      checkpoint = read.checkpoint;
      checkpointLine = number;
    }
  }
  if (!ended) fault(number, 'end of the file', 'it stops here', 'a last line with the digest');
  return {
    header,
    participants,
    participantLines,
    changes,
    events,
    order,
    secret,
    secretLine,
    checkpoint,
    checkpointLine,
    problems,
  };
}

/** The first line of a file, or undefined where it is none that this program knows. */
export function readHeader(line: string): AuditHeader | undefined {
  let value: Partial<AuditHeader>;
  try {
    value = JSON.parse(line) as Partial<AuditHeader>;
  } catch {
    return undefined;
  }
  if (value === null || typeof value !== 'object') return undefined;
  if (value.kind !== auditKind || value.version !== auditVersion) return undefined;
  const texts = [value.activity_id, value.mode, value.commitment, value.entry_commitment];
  if (texts.some((each) => typeof each !== 'string')) return undefined;
  const counts = [
    value.activity_version,
    value.pass_life_ms,
    value.claim_window_ms,
    value.closes_at_ms,
  ];
  if (counts.some((each) => typeof each !== 'number')) return undefined;
  return value as AuditHeader;
}

/** A finding, as long as it can be read. */
export const short = (text: string): string => (text.length > 80 ? `${text.slice(0, 77)}…` : text);
