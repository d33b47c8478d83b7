import type { SkuKey } from '../../core/activity.ts';
import type {
  OrderMessage,
  ReleaseReason,
  RequestRecord,
  ReserveRequest,
} from '../../core/stock/model.ts';
import { messageIdOf } from '../../core/stock/reservation.ts';
import type { Reply } from './replies.ts';

/**
 * How a reservation lies in Redis: one JSON array, written by the gateway, kept as it is, and
 * read again both as what is remembered and as the message that the outbox points to. The scripts never parse it as JSON;
 * the few parts that they need stand at the front, where a pattern finds them: quantity, reservation
 * id, and the person with the length of its text in bytes.
 */
type Text = readonly [
  quantity: number,
  reservationId: string,
  personBytes: number,
  personId: string,
  /** SHA-256 in base64url where it is one: a third shorter, and there are very many. */
  fingerprint: string,
  nonce: string,
  reservedAtMs: number,
  /** After `reservedAtMs`. */
  deadlineInMs: number,
  seats: readonly string[] | 0,
  /** 0: that of the SKU, or of the outbox entry. */
  generation: number,
  limit: number,
  activityVersion: number,
  unitAmountMinor: number,
  currency: string,
  traceparent: string | 0,
];

/** The request's field: injective, and free of anything that a script would stumble on. */
export function fieldOf(userId: string, requestId: string): string {
  return `h${JSON.stringify([requestId, userId])}`;
}

/** The two parts of a field again. */
function partsOf(field: string): readonly [requestId: string, userId: string] {
  return JSON.parse(field.slice(1)) as [string, string];
}

/** The person's field. JSON, so that it stands in a text as it is. */
export const personField = (personId: string): string => JSON.stringify(personId);

/** Reservation ids stand unescaped in texts and lists. */
const plainId = /^[^["\\\p{Cc}][^"\\\p{Cc}]{0,127}$/u;

/** Throws RangeError for a reservation id that scripts could misread. */
export function checkReservationId(id: string): void {
  if (!plainId.test(id))
    throw new RangeError(
      `Reservation id ${JSON.stringify(id.slice(0, 140))}: allowed are 1 to 128 characters without ` +
        'quotes, backslashes and control characters, not beginning with [',
    );
}

export function textOfRequest(request: ReserveRequest, nowMs: number): string {
  const text: Text = [
    request.quantity,
    request.reservationId,
    Buffer.byteLength(personField(request.personId)),
    request.personId,
    shorten(request.fingerprint),
    request.nonce,
    nowMs,
    request.deadlineMs - nowMs,
    request.seats ?? 0,
    0,
    request.limit,
    request.activityVersion,
    request.unitAmountMinor,
    request.currency,
    request.traceparent ?? 0,
  ];
  return JSON.stringify(text);
}

/** Marked, so that any other text comes back as it was. */
function shorten(fingerprint: string): string {
  return /^[0-9a-f]{64}$/.test(fingerprint)
    ? `~${Buffer.from(fingerprint, 'hex').toString('base64url')}`
    : `=${fingerprint}`;
}

function lengthen(shortened: string): string {
  const rest = shortened.slice(1);
  return shortened.startsWith('~') ? Buffer.from(rest, 'base64url').toString('hex') : rest;
}

/** For a rebuild: a record has no message, so what only messages say is left at nothing. */
export function textOfRecord(record: RequestRecord): string {
  const text: Text = [
    record.quantity,
    record.reservationId,
    Buffer.byteLength(personField(record.personId)),
    record.personId,
    shorten(record.fingerprint),
    record.nonce,
    record.reservedAtMs,
    record.deadlineMs - record.reservedAtMs,
    record.seats ?? 0,
    record.generation,
    0,
    0,
    0,
    '',
    0,
  ];
  return JSON.stringify(text);
}

const releaseLetters = {
  expired: 'e',
  cancelled: 'c',
  deadline: 'd',
  refused: 'f',
  refunded: 'm',
  lost: 'l',
} as const satisfies Readonly<Record<ReleaseReason, string>>;

export const letterOfRelease = (reason: ReleaseReason | undefined): string =>
  releaseLetters[reason ?? 'refused'];

const reasons = new Map<string, ReleaseReason>(
  (Object.keys(releaseLetters) as ReleaseReason[]).map((reason) => [
    releaseLetters[reason],
    reason,
  ]),
);

/** Seats as a script returns them: offsets, a line break, names; or nothing. */
function seatsOf(text: Text, places: string): readonly string[] | undefined {
  if (places !== '') return JSON.parse(places.slice(places.indexOf('\n') + 1)) as string[];
  return text[8] === 0 ? undefined : text[8];
}

/** Throws for a state letter that no script of this version writes. */
export function recordOf(
  state: string,
  field: string,
  encoded: string,
  places: string,
  generation: number,
): RequestRecord {
  const text = JSON.parse(encoded) as Text;
  const [requestId, userId] = partsOf(field);
  const releaseReason = reasons.get(state);
  if (releaseReason === undefined && state !== 'h' && state !== 'o')
    throw new Error(
      `Reservation ${text[1]} is in state ${state}, which this version does not know`,
    );
  const seats = seatsOf(text, places);
  return {
    requestId,
    userId,
    personId: text[3],
    fingerprint: lengthen(text[4]),
    nonce: text[5],
    reservationId: text[1],
    quantity: text[0],
    ...(seats === undefined ? {} : { seats }),
    reservedAtMs: text[6],
    deadlineMs: text[6] + text[7],
    generation: text[9] === 0 ? generation : text[9],
    state: state === 'h' ? 'held' : state === 'o' ? 'ordered' : 'released',
    ...(releaseReason === undefined ? {} : { releaseReason }),
  };
}

/** State, field, text and places, in that order. */
export function readRecord(reply: Reply, generation: number): RequestRecord {
  return recordOf(reply.text(), reply.text(), reply.text(), reply.text(), generation);
}

/** The order message of one request of an outbox entry. */
export function messageOf(
  sku: SkuKey,
  field: string,
  encoded: string,
  generation: number,
  seats: readonly string[] | undefined,
): OrderMessage {
  const text = JSON.parse(encoded) as Text;
  const [requestId, userId] = partsOf(field);
  const named = seats ?? (text[8] === 0 ? undefined : text[8]);
  return {
    schemaVersion: 1,
    messageId: messageIdOf(generation, text[1]),
    activityId: sku.activityId,
    skuId: sku.skuId,
    activityVersion: text[11],
    generation,
    reservationId: text[1],
    requestId,
    userId,
    personId: text[3],
    fingerprint: lengthen(text[4]),
    nonce: text[5],
    quantity: text[0],
    limit: text[10],
    unitAmountMinor: text[12],
    currency: text[13],
    ...(named === undefined ? {} : { seats: named }),
    reservedAtMs: text[6],
    deadlineMs: text[6] + text[7],
    ...(text[14] === 0 ? {} : { traceparent: text[14] }),
  };
}
