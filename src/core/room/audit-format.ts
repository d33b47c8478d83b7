import type { Activity, RoomMode } from '../activity.ts';
import type { RoomEvent } from './events.ts';
import type { RoomParticipant } from './lobby-draw.ts';
import type { RoomChange } from './model.ts';

/**
 * The audit file of a draw: JSON lines, in the order in which a checker needs them.
 *
 *     {"kind":"sluice-draw-audit", …}        commitments, mode, settings
 *     ["p", entry id, weight?, lane?]        the participant log, in order; the lobby comes first
 *     ["c", kind, sequence, …]               what happened to entries, in order
 *     ["e", {…}]                             what control decided, in order
 *     ["o", lane, [sequence, …]]             the drawn order of the lobby
 *     ["s", secret]                          the secret behind the commitment
 *     ["h", checkpoint]                      what the shop showed when these were all the decisions
 *     ["end", lines, SHA-256]                over every byte before
 *
 * It names no person: entry ids are MACs under a key of which only the commitment is here.
 */
export const auditKind = 'sluice-draw-audit';
export const auditVersion = 2;

/** Sequences on one order line. */
export const orderLineLength = 500;

export interface AuditHeader {
  readonly kind: typeof auditKind;
  readonly version: typeof auditVersion;
  readonly activity_id: string;
  readonly activity_version: number;
  readonly mode: RoomMode;
  readonly commitment: string;
  readonly entry_commitment: string;
  /** Null: the operator's own secret is the only source of chance. */
  readonly beacon_source: string | null;
  readonly pass_life_ms: number;
  readonly claim_window_ms: number;
  readonly lottery_places: number | null;
  /** From here on a whole file ends with the decision that closed the sale. */
  readonly closes_at_ms: number;
}

export function auditHeader(
  activity: Activity,
  mode: RoomMode,
  commitments: { readonly commitment: string; readonly entryCommitment: string },
): AuditHeader {
  return {
    kind: auditKind,
    version: auditVersion,
    activity_id: activity.activityId,
    activity_version: activity.activityVersion,
    mode,
    commitment: commitments.commitment,
    entry_commitment: commitments.entryCommitment,
    beacon_source: activity.room.beacon ?? null,
    pass_life_ms: activity.room.passLifeMs,
    claim_window_ms: activity.room.claimWindowMs,
    lottery_places: activity.room.lotteryPlaces ?? null,
    closes_at_ms: activity.closesAtMs,
  };
}

/** An activity as far as a room's fold needs it, from the header of an audit. */
export function activityOf(header: AuditHeader): Activity {
  return {
    activityId: header.activity_id,
    name: '',
    revision: 0,
    activityVersion: header.activity_version,
    lobbyOpensAtMs: 0,
    opensAtMs: 0,
    closesAtMs: header.closes_at_ms,
    timeZone: 'UTC',
    skus: [],
    room: {
      mode: header.mode,
      passLifeMs: header.pass_life_ms,
      claimWindowMs: header.claim_window_ms,
      maxAdmissionsPerSecond: Infinity,
      maxActive: Infinity,
      ...(header.lottery_places === null ? {} : { lotteryPlaces: header.lottery_places }),
      ...(header.beacon_source === null ? {} : { beacon: header.beacon_source }),
    },
    paymentDeadlineMs: 0,
  };
}

export function participantLine(entry: RoomParticipant): string {
  const { entryId, weight, group, skuIds } = entry;
  if (group === '' && skuIds.length === 0) {
    return weight === 1 ? `["p","${entryId}"]` : JSON.stringify(['p', entryId, weight]);
  }
  return JSON.stringify(['p', entryId, weight, group, skuIds]);
}

export function changeLine(change: RoomChange): string {
  const { kind, sequence, atMs } = change;
  switch (kind) {
    case 'left':
    case 'ended':
      return JSON.stringify(['c', kind, sequence, atMs]);
    case 'claimed':
      return JSON.stringify([
        'c',
        kind,
        sequence,
        atMs,
        change.wave,
        change.skuId,
        change.expiresAtMs,
      ]);
    case 'finished':
      return JSON.stringify(['c', kind, sequence, atMs, change.outcome]);
  }
}

export const eventLine = (event: RoomEvent): string => JSON.stringify(['e', event]);

export const orderLine = (lane: string, sequences: readonly number[]): string =>
  JSON.stringify(['o', lane, sequences]);

/** A line of an audit, taken apart; undefined where it is none. */
export type AuditLine =
  | { readonly line: 'p'; readonly entry: Omit<RoomParticipant, 'sequence'> }
  | {
      readonly line: 'c';
      readonly change: (
        entryIdOf: (sequence: number) => string | undefined,
      ) => RoomChange | undefined;
    }
  | { readonly line: 'e'; readonly event: RoomEvent }
  | { readonly line: 'o'; readonly lane: string; readonly sequences: readonly number[] }
  | { readonly line: 's'; readonly secret: string }
  | { readonly line: 'h'; readonly checkpoint: string }
  | { readonly line: 'end'; readonly lines: number; readonly digest: string };

export function parseAuditLine(text: string): AuditLine | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(value)) return undefined;
  const [line, ...rest] = value as unknown[];
  switch (line) {
    case 'p':
      return parseParticipant(rest);
    case 'c':
      return parseChange(rest);
    case 'e': {
      const [event] = rest;
      const named = typeof event === 'object' && event !== null && 'e' in event;
      return named ? { line, event: event as RoomEvent } : undefined;
    }
    case 'o': {
      const [lane, sequences] = rest;
      if (typeof lane !== 'string' || !Array.isArray(sequences)) return undefined;
      return { line, lane, sequences: sequences as number[] };
    }
    case 's': {
      const [secret] = rest;
      return typeof secret === 'string' ? { line, secret } : undefined;
    }
    case 'h': {
      const [checkpoint] = rest;
      return typeof checkpoint === 'string' ? { line, checkpoint } : undefined;
    }
    case 'end': {
      const [lines, digest] = rest;
      if (typeof lines !== 'number' || typeof digest !== 'string') return undefined;
      return { line, lines, digest };
    }
    default:
      return undefined;
  }
}

function parseParticipant(rest: readonly unknown[]): AuditLine | undefined {
  const [entryId, weight = 1, group = '', skuIds = []] = rest;
  if (typeof entryId !== 'string' || typeof weight !== 'number' || !(weight > 0)) return undefined;
  if (typeof group !== 'string' || !Array.isArray(skuIds)) return undefined;
  return { line: 'p', entry: { entryId, weight, group, skuIds: skuIds as string[] } };
}

function parseChange(rest: readonly unknown[]): AuditLine | undefined {
  const [kind, sequence, atMs, first, second, third] = rest;
  if (typeof sequence !== 'number' || typeof atMs !== 'number') return undefined;
  return {
    line: 'c',
    change(entryIdOf) {
      const entryId = entryIdOf(sequence);
      if (entryId === undefined) return undefined;
      const of = { entryId, sequence, atMs };
      if (kind === 'left' || kind === 'ended') return { kind, ...of };
      if (kind === 'finished') {
        return first === 'bought' || first === 'gave_up' || first === 'failed'
          ? { kind, ...of, outcome: first }
          : undefined;
      }
      if (kind !== 'claimed' || typeof first !== 'number') return undefined;
      if (typeof second !== 'string' || typeof third !== 'number') return undefined;
      return { kind, ...of, wave: first, skuId: second, expiresAtMs: third };
    },
  };
}
