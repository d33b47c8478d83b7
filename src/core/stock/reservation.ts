import type { OrderMessage, ReleaseReason, RequestRecord } from './model.ts';

/** One reservation as memory holds it: a fixed shape, strings shared where they are equal. */
export interface Reservation {
  /** Position in its SKU's order of reserving. */
  index: number;
  readonly requestId: string;
  readonly userId: string;
  readonly personId: string;
  readonly fingerprint: string;
  readonly nonce: string;
  readonly reservationId: string;
  readonly quantity: number;
  readonly seats: readonly string[] | undefined;
  readonly reservedAtMs: number;
  readonly deadlineMs: number;
  readonly generation: number;
  state: RequestRecord['state'];
  releaseReason: ReleaseReason | undefined;
}

export function recordOf(reservation: Reservation): RequestRecord {
  return {
    requestId: reservation.requestId,
    userId: reservation.userId,
    personId: reservation.personId,
    fingerprint: reservation.fingerprint,
    nonce: reservation.nonce,
    reservationId: reservation.reservationId,
    quantity: reservation.quantity,
    ...(reservation.seats === undefined ? {} : { seats: reservation.seats }),
    reservedAtMs: reservation.reservedAtMs,
    deadlineMs: reservation.deadlineMs,
    generation: reservation.generation,
    state: reservation.state,
    ...(reservation.releaseReason === undefined
      ? {}
      : { releaseReason: reservation.releaseReason }),
  };
}

export function reservationOf(record: RequestRecord): Reservation {
  return {
    index: 0,
    requestId: record.requestId,
    userId: record.userId,
    // Mostly one and the same: keep one string.
    personId: record.personId === record.userId ? record.userId : record.personId,
    fingerprint: record.fingerprint,
    nonce: record.nonce,
    reservationId: record.reservationId,
    quantity: record.quantity,
    seats: record.seats,
    reservedAtMs: record.reservedAtMs,
    deadlineMs: record.deadlineMs,
    generation: record.generation,
    state: record.state,
    releaseReason: record.releaseReason,
  };
}

/** What an order message says beyond its reservation. */
export interface MessageExtras {
  readonly activityId: string;
  readonly skuId: string;
  readonly activityVersion: number;
  readonly limit: number;
  readonly unitAmountMinor: number;
  readonly currency: string;
  readonly traceparent: string | undefined;
}

/** The same message for the same reservation, whenever it is made. */
export function messageOf(reservation: Reservation, extras: MessageExtras): OrderMessage {
  return {
    schemaVersion: 1,
    messageId: messageIdOf(reservation.generation, reservation.reservationId),
    activityId: extras.activityId,
    skuId: extras.skuId,
    activityVersion: extras.activityVersion,
    generation: reservation.generation,
    reservationId: reservation.reservationId,
    requestId: reservation.requestId,
    userId: reservation.userId,
    personId: reservation.personId,
    fingerprint: reservation.fingerprint,
    nonce: reservation.nonce,
    quantity: reservation.quantity,
    limit: extras.limit,
    unitAmountMinor: extras.unitAmountMinor,
    currency: extras.currency,
    ...(reservation.seats === undefined ? {} : { seats: reservation.seats }),
    reservedAtMs: reservation.reservedAtMs,
    deadlineMs: reservation.deadlineMs,
    ...(extras.traceparent === undefined ? {} : { traceparent: extras.traceparent }),
  };
}

/** One message per reservation and generation, so that every adapter deduplicates alike. */
export function messageIdOf(generation: number, reservationId: string): string {
  return `${generation}-${reservationId}`;
}
