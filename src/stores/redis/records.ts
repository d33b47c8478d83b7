import type {
  OrderMessage,
  ReleaseReason,
  RequestRecord,
  ReserveRequest,
} from '../../core/stock/model.ts';
import { messageIdOf } from '../../core/stock/reservation.ts';

/**
 * How a reservation lies in Redis: one JSON array, written by the gateway, kept as it is, and used
 * both as what is remembered and as the message in the outbox. The scripts never parse it as JSON;
 * the few parts that they need stand at the front, where a pattern finds them: quantity, reservation
 * id, and the person with the length of its text in bytes.
 */
type Text = readonly [
  quantity: number,
  reservationId: string,
  personBytes: number,
  personId: string,
  requestId: string,
  userId: string,
  fingerprint: string,
  nonce: string,
  deadlineMs: number,
  seats: readonly string[] | 0,
  reservedAtMs: number,
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
    request.requestId,
    request.userId,
    request.fingerprint,
    request.nonce,
    request.deadlineMs,
    request.seats ?? 0,
    nowMs,
    0,
    request.limit,
    request.activityVersion,
    request.unitAmountMinor,
    request.currency,
    request.traceparent ?? 0,
  ];
  return JSON.stringify(text);
}

/** For a rebuild: a record has no message, so what only messages say is left at nothing. */
export function textOfRecord(record: RequestRecord): string {
  const text: Text = [
    record.quantity,
    record.reservationId,
    Buffer.byteLength(personField(record.personId)),
    record.personId,
    record.requestId,
    record.userId,
    record.fingerprint,
    record.nonce,
    record.deadlineMs,
    record.seats ?? 0,
    record.reservedAtMs,
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
  return text[9] === 0 ? undefined : text[9];
}

/** Throws for a state letter that no script of this version writes. */
export function recordOf(
  state: string,
  encoded: string,
  places: string,
  generation: number,
): RequestRecord {
  const text = JSON.parse(encoded) as Text;
  const releaseReason = reasons.get(state);
  if (releaseReason === undefined && state !== 'h' && state !== 'o')
    throw new Error(
      `Reservation ${text[1]} is in state ${state}, which this version does not know`,
    );
  const seats = seatsOf(text, places);
  return {
    requestId: text[4],
    userId: text[5],
    personId: text[3],
    fingerprint: text[6],
    nonce: text[7],
    reservationId: text[1],
    quantity: text[0],
    ...(seats === undefined ? {} : { seats }),
    reservedAtMs: text[10],
    deadlineMs: text[8],
    generation: text[11] === 0 ? generation : text[11],
    state: state === 'h' ? 'held' : state === 'o' ? 'ordered' : 'released',
    ...(releaseReason === undefined ? {} : { releaseReason }),
  };
}

/** The order message of one line of an outbox entry. */
export function messageOfText(
  encoded: string,
  activityId: string,
  skuId: string,
  generation: number,
  seats: readonly string[] | undefined,
): OrderMessage {
  const text = JSON.parse(encoded) as Text;
  const named = seats ?? (text[9] === 0 ? undefined : text[9]);
  return {
    schemaVersion: 1,
    messageId: messageIdOf(generation, text[1]),
    activityId,
    skuId,
    activityVersion: text[13],
    generation,
    reservationId: text[1],
    requestId: text[4],
    userId: text[5],
    personId: text[3],
    fingerprint: text[6],
    nonce: text[7],
    quantity: text[0],
    limit: text[12],
    unitAmountMinor: text[14],
    currency: text[15],
    ...(named === undefined ? {} : { seats: named }),
    reservedAtMs: text[10],
    deadlineMs: text[8],
    ...(text[16] === 0 ? {} : { traceparent: text[16] }),
  };
}
