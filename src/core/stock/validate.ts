import { idMaxLength, quantityMax, reserveBatchMax } from '../bounds.ts';
import type { Preload, Rebuild, ReserveRequest } from './model.ts';
import { shardsMax } from './shards.ts';

/** Units of one SKU; far above any sale, and safe in every store's numbers. */
export const totalMax = 2 ** 31 - 1;
/** A generation's sequence numbers begin at (generation − 1) · 2³²: this keeps them below 2⁵³. */
export const generationMax = 2 ** 20;

/** Seats of one SKU: a stadium. */
export const seatsMax = 100_000;
/** Fates in one settle step. */
export const settleMax = 10_000;
/** Characters of all texts of one request together: several times what the API lets through. */
const requestTextMax = 8_192;

/** Where the sequence numbers of a generation begin: above all of the one before. */
export function sequenceBase(generation: number): number {
  return (generation - 1) * 2 ** 32;
}

/** The lowest epoch from `atLeast` on that is even for an open SKU, odd for one that is sold out. */
export function epochFrom(atLeast: number, open: boolean): number {
  return (atLeast % 2 === 0) === open ? atLeast : atLeast + 1;
}

function whole(name: string, value: number, low: number, high: number): void {
  if (!Number.isSafeInteger(value) || value < low || value > high)
    throw new RangeError(`${name} is ${value}; allowed is a whole number from ${low} to ${high}`);
}

/** Throws RangeError for a batch that no store may judge, before anything is changed. */
export function checkBatch(batch: readonly ReserveRequest[]): void {
  if (batch.length > reserveBatchMax)
    throw new RangeError(`A batch of ${batch.length} requests; at most ${reserveBatchMax} allowed`);
  for (const request of batch) {
    whole('quantity', request.quantity, 1, quantityMax);
    whole('limit', request.limit, 0, totalMax);
    whole(
      'characters of a request',
      request.requestId.length +
        request.userId.length +
        request.personId.length +
        request.fingerprint.length +
        request.nonce.length +
        request.reservationId.length +
        request.currency.length +
        (request.traceparent?.length ?? 0),
      0,
      requestTextMax,
    );
    const { seats } = request;
    if (seats === undefined) continue;
    if (seats.length !== request.quantity)
      throw new RangeError(`${seats.length} seats named for a quantity of ${request.quantity}`);
    if (new Set(seats).size !== seats.length)
      throw new RangeError(`A seat is named twice: ${seats.join(', ')}`);
  }
}

export function checkPreload(stock: Preload): void {
  whole('total', stock.total, 0, totalMax);
  whole('generation', stock.generation, 1, generationMax);
  whole('stockEpoch', stock.stockEpoch, 0, Number.MAX_SAFE_INTEGER - 2);
  if (stock.seats !== undefined && stock.seats.length !== stock.total)
    throw new RangeError(`${stock.seats.length} seats listed for a total of ${stock.total}`);
  whole('number of seats', stock.seats?.length ?? 0, 0, seatsMax);
  whole('number of shards', stock.shards ?? 1, 1, shardsMax);
  if (stock.seats !== undefined && (stock.shards ?? 1) > 1)
    throw new RangeError(
      `${stock.shards} shards of a SKU with seats; allowed is 1: they lie together`,
    );
  for (const name of stock.seats ?? [])
    whole(`length of the seat name ${name.slice(0, 80)}`, name.length, 1, idMaxLength);
}

export function checkRebuild(state: Rebuild): void {
  checkPreload({
    total: state.total,
    generation: state.generation,
    stockEpoch: state.stockEpoch,
    ...(state.seats === undefined ? {} : { seats: state.seats }),
    ...(state.shards === undefined ? {} : { shards: state.shards }),
  });
  let live = 0;
  const requests = new Set<string>();
  const reservations = new Set<string>();
  for (const record of state.live) {
    if (record.state === 'released')
      throw new RangeError(`Reservation ${record.reservationId} is released, so not live`);
    whole('quantity', record.quantity, 1, quantityMax);
    live += record.quantity;
    requests.add(requestKey(record.userId, record.requestId));
    reservations.add(record.reservationId);
  }
  if (live > state.total)
    throw new RangeError(`${live} live units in a total of ${state.total}: raise the total first`);
  if (requests.size !== state.live.length || reservations.size !== state.live.length)
    throw new RangeError('A request id or a reservation id comes twice among the live records');
}

/** Of a move between shards: the other shard, and units or a counter of units. */
export function checkMove(stock: { readonly shards: number }, other: number, units: number): void {
  whole('shard', other, 0, stock.shards - 1);
  whole('units of a move', units, 0, Number.MAX_SAFE_INTEGER);
}

export function checkAdjustment(delta: number, total: number): void {
  whole('delta', delta, -totalMax, totalMax);
  whole('total after the adjustment', total + delta, -totalMax, totalMax);
}

/** The scope of a request id is its user; the length keeps any two pairs apart. */
export function requestKey(userId: string, requestId: string): string {
  return `${requestId.length}:${requestId}${userId}`;
}
