import type {
  Fate,
  Preload,
  Rebuild,
  ReleaseReason,
  RequestRecord,
  ReserveRequest,
} from './model.ts';
import type { MessageExtras, Reservation } from './reservation.ts';

/**
 * What happened, as one line each: the journal's records. A step is a decision already taken, so a
 * replay does not decide again. Arrays and one-letter names, because a sale writes one per batch and
 * a line's length is what its group commit costs.
 */
export type Step =
  /** Loaded. */
  | readonly ['n', string, string, number, Preload]
  /** Reserved, at an instant. */
  | readonly ['t', string, string, number, number, readonly Take[]]
  /** Settled. */
  | readonly ['s', string, string, number, readonly SettledFate[]]
  /** Adjusted: id and delta. */
  | readonly ['a', string, string, number, string, number]
  /** Paused (1) or resumed (0). */
  | readonly ['p', string, string, number, 0 | 1]
  /** Units moved out (0) to another shard, or in (1) from it: which, and its counter from now on. */
  | readonly ['m', string, string, number, 0 | 1, number, number]
  /** Live records of a rebuild to come; 1 where they are the first of them. */
  | readonly ['l', string, string, 0 | 1, readonly RequestRecord[]]
  /** Rebuilt, with the live records of the steps before. */
  | readonly ['b', string, string, number, Omit<Rebuild, 'live'>]
  /** Forgotten. */
  | readonly ['f', string, string]
  /** Messages given out; acknowledged. Ranges of numbers, ends included: from, to, from, to … */
  | readonly ['g', readonly number[]]
  | readonly ['k', readonly number[]]
  /** Message buried: number, reason, instant. */
  | readonly ['d', number, string, number];

/**
 * request id, user, person (0: the same), fingerprint, nonce, reservation id, quantity, deadline,
 * seats (0: none), limit, activity version, unit amount, currency, traceparent (0: none)
 */
export type Take = readonly [
  requestId: string,
  userId: string,
  personId: string | 0,
  fingerprint: string,
  nonce: string,
  reservationId: string,
  quantity: number,
  deadlineMs: number,
  seats: readonly string[] | 0,
  limit: number,
  activityVersion: number,
  unitAmountMinor: number,
  currency: string,
  traceparent: string | 0,
];

export type SettledFate = readonly [string, Fate['fate'], ReleaseReason | 0];

const kinds = new Set(['n', 't', 's', 'a', 'p', 'm', 'l', 'b', 'f', 'g', 'k', 'd']);

/** Reads what `JSON.stringify` made of a step. Throws for what is none. */
export function parseStep(line: string): Step {
  const step = JSON.parse(line) as Step;
  if (!Array.isArray(step) || !kinds.has(step[0]))
    throw new Error(`Not a step of this version: ${line.slice(0, 200)}`);
  return step;
}

export function takeOf(request: ReserveRequest, seats: readonly string[] | undefined): Take {
  return [
    request.requestId,
    request.userId,
    request.personId === request.userId ? 0 : request.personId,
    request.fingerprint,
    request.nonce,
    request.reservationId,
    request.quantity,
    request.deadlineMs,
    seats ?? 0,
    request.limit,
    request.activityVersion,
    request.unitAmountMinor,
    request.currency,
    request.traceparent ?? 0,
  ];
}

export function reservationOfTake(take: Take, generation: number, nowMs: number): Reservation {
  const [
    requestId,
    userId,
    personId,
    fingerprint,
    nonce,
    reservationId,
    quantity,
    deadlineMs,
    seats,
  ] = take;
  return {
    index: 0,
    requestId,
    userId,
    personId: personId === 0 ? userId : personId,
    fingerprint,
    nonce,
    reservationId,
    quantity,
    seats: seats === 0 ? undefined : seats,
    reservedAtMs: nowMs,
    deadlineMs,
    generation,
    state: 'held',
    releaseReason: undefined,
  };
}

export function extrasOfTake(take: Take, activityId: string, skuId: string): MessageExtras {
  return {
    activityId,
    skuId,
    limit: take[9],
    activityVersion: take[10],
    unitAmountMinor: take[11],
    currency: take[12],
    traceparent: take[13] === 0 ? undefined : take[13],
  };
}

/** Numbers in rising order, as ranges. */
export function rangesOf(numbers: readonly number[]): number[] {
  const ranges: number[] = [];
  for (const number of [...numbers].sort((a, b) => a - b)) {
    const last = ranges.at(-1);
    if (last !== undefined && number <= last + 1)
      ranges[ranges.length - 1] = Math.max(last, number);
    else ranges.push(number, number);
  }
  return ranges;
}

export function* numbersIn(ranges: readonly number[]): Generator<number> {
  for (let at = 0; at + 1 < ranges.length; at += 2)
    for (let number = ranges[at] ?? 1; number <= (ranges[at + 1] ?? 0); number += 1) yield number;
}
