/**
 * The order id of a reservation: the same for the same reservation, whoever computes it and however
 * often, so that a redelivered message can only meet the order that it made. As unguessable as the
 * reservation id, which only its buyer is told.
 */
export function orderIdOf(reservationId: string): string {
  return `ord_${reservationId.startsWith('rsv_') ? reservationId.slice(4) : reservationId}`;
}
