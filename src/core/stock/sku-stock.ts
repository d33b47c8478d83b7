import type {
  Fate,
  Preload,
  Rebuild,
  ReleaseReason,
  ReserveOutcome,
  ReserveRequest,
  StockMark,
} from './model.ts';
import type { Reservation } from './reservation.ts';
import { recordOf, reservationOf } from './reservation.ts';
import { SeatMap } from './seats.ts';
import type { ShardState } from './shards.ts';
import { epochFrom, requestKey, sequenceBase } from './validate.ts';

interface Person {
  units: number;
  readonly live: Reservation[];
}

/** What a judged request may take; the caller makes a reservation of it. */
export interface Grant {
  readonly kind: 'grant';
  readonly seats: readonly string[] | undefined;
}

/**
 * One SKU: counters, reservations, and the three ways to find one (request id, nonce, person). Only
 * `judge` decides; `take`, `fate` and the rest do what was decided, so that a replay of decisions
 * ends in the same state. `seal` ends a step: it counts it and sets the epoch.
 */
export class SkuStock {
  total: number;
  available: number;
  held = 0;
  ordered = 0;
  sequence: number;
  generation: number;
  stockEpoch: number;
  paused = false;
  /** Messages of this SKU that wait in the outbox. */
  waiting = 0;
  seats: SeatMap | undefined;
  /** Every reservation in order of reserving. Replaced, never emptied: a snapshot may still read it. */
  order: Reservation[] = [];
  readonly adjustments = new Map<string, number>();
  /** Of a shard: how many there are, and what was ever sent to and received from each. */
  shards: number;
  movedOut: number[] = [];
  movedIn: number[] = [];
  #requests = new Map<string, Reservation>();
  #nonces = new Map<string, Reservation>();
  #reservations = new Map<string, Reservation>();
  #persons = new Map<string, Person>();

  constructor(stock: Preload) {
    this.total = stock.total;
    this.available = stock.total;
    this.generation = stock.generation;
    this.sequence = sequenceBase(stock.generation);
    this.stockEpoch = epochFrom(stock.stockEpoch, stock.total > 0);
    this.seats = stock.seats === undefined ? undefined : new SeatMap(stock.seats);
    this.shards = stock.shards ?? 1;
  }

  shardState(): ShardState {
    const all = Array.from({ length: this.shards }, (_, at) => at);
    return {
      mark: this.mark(),
      shards: this.shards,
      waiting: this.waiting,
      out: all.map((at) => this.movedOut[at] ?? 0),
      in: all.map((at) => this.movedIn[at] ?? 0),
    };
  }

  /** Counts units out to, or in from, another shard, up to this counter. */
  move(way: 'out' | 'in', other: number, upTo: number): void {
    const counters = way === 'out' ? this.movedOut : this.movedIn;
    const units = upTo - (counters[other] ?? 0);
    const change = way === 'out' ? -units : units;
    counters[other] = upTo;
    this.total += change;
    this.available += change;
  }

  mark(): StockMark {
    return {
      total: this.total,
      available: this.available,
      held: this.held,
      ordered: this.ordered,
      sequence: this.sequence,
      generation: this.generation,
      stockEpoch: this.stockEpoch,
      paused: this.paused,
    };
  }

  byRequest(userId: string, requestId: string): Reservation | undefined {
    return this.#requests.get(requestKey(userId, requestId));
  }

  byId(reservationId: string): Reservation | undefined {
    return this.#reservations.get(reservationId);
  }

  holders(): string[] {
    return [...this.#persons.keys()];
  }

  /** The order of these questions is the contract. Changes nothing. O(1) but for seats. */
  judge(request: ReserveRequest): ReserveOutcome | Grant {
    const known = this.byRequest(request.userId, request.requestId);
    if (known !== undefined)
      return known.fingerprint === request.fingerprint
        ? { kind: 'existing', record: recordOf(known) }
        : { kind: 'conflict' };
    if (this.#nonces.has(request.nonce)) return { kind: 'nonce_used' };
    const person = this.#persons.get(request.personId);
    if ((person?.units ?? 0) + request.quantity > request.limit)
      return { kind: 'limit_reached', live: inOrder(person?.live ?? []).map(recordOf) };
    if (this.available < request.quantity) return { kind: 'sold_out' };
    if (this.seats === undefined) {
      // Named seats of a SKU without seats can never be had.
      if (request.seats !== undefined) return { kind: 'seat_taken', seats: request.seats };
      return { kind: 'grant', seats: undefined };
    }
    if (request.seats !== undefined) {
      const bad = this.seats.unavailable(request.seats);
      if (bad.length > 0) return { kind: 'seat_taken', seats: bad };
      return { kind: 'grant', seats: request.seats };
    }
    const seats = this.seats.bestAdjacent(request.quantity);
    return seats === undefined ? { kind: 'seat_taken', seats: [] } : { kind: 'grant', seats };
  }

  take(reservation: Reservation): void {
    reservation.index = this.order.length;
    this.order.push(reservation);
    this.#requests.set(requestKey(reservation.userId, reservation.requestId), reservation);
    this.#nonces.set(reservation.nonce, reservation);
    this.#reservations.set(reservation.reservationId, reservation);
    if (reservation.state === 'released') return;
    this.#occupy(reservation);
  }

  /** Whether this fate would change anything. */
  changes(reservation: Reservation, fate: Fate['fate']): boolean {
    switch (fate) {
      case 'ordered':
        return reservation.state === 'held';
      case 'released':
        return reservation.state !== 'released';
      case 'retaken': {
        if (reservation.state !== 'released' || this.available < reservation.quantity) return false;
        const { seats } = reservation;
        return seats === undefined || (this.seats?.unavailable(seats).length ?? 0) === 0;
      }
    }
  }

  /** Does what `changes` said would change. */
  fate(reservation: Reservation, fate: Fate['fate'], reason: ReleaseReason | undefined): void {
    switch (fate) {
      case 'ordered':
        reservation.state = 'ordered';
        this.held -= reservation.quantity;
        this.ordered += reservation.quantity;
        return;
      case 'released':
        this.#vacate(reservation);
        reservation.state = 'released';
        reservation.releaseReason = reason ?? 'refused';
        return;
      case 'retaken':
        reservation.state = 'ordered';
        reservation.releaseReason = undefined;
        this.#occupy(reservation);
    }
  }

  adjust(adjustmentId: string, delta: number): void {
    this.adjustments.set(adjustmentId, delta);
    this.total += delta;
    this.available += delta;
  }

  /** The caller has checked `state`; throws RangeError, changing nothing, for seats that clash. */
  rebuild(state: Rebuild): void {
    const names = state.seats ?? this.seats?.names;
    const seats = names === undefined ? undefined : new SeatMap(names);
    if (seats !== undefined && seats.names.length !== state.total)
      throw new RangeError(`${seats.names.length} seats for a total of ${state.total}`);
    const live = state.live.map(reservationOf);
    for (const reservation of live) {
      if (reservation.seats === undefined) continue;
      if (seats === undefined)
        throw new RangeError(
          `Reservation ${reservation.reservationId} has seats, the SKU has none`,
        );
      seats.take(reservation.seats);
    }
    this.total = state.total;
    this.available = state.total;
    this.shards = state.shards ?? this.shards;
    this.movedOut = [];
    this.movedIn = [];
    this.held = 0;
    this.ordered = 0;
    this.generation = state.generation;
    this.sequence = Math.max(this.sequence, sequenceBase(state.generation));
    // The seats are marked by taking, once more, below.
    this.seats = names === undefined ? undefined : new SeatMap(names);
    this.order = [];
    this.#requests = new Map();
    this.#nonces = new Map();
    this.#reservations = new Map();
    this.#persons = new Map();
    for (const reservation of live) this.take(reservation);
    this.stockEpoch = epochFrom(
      Math.max(this.stockEpoch, state.stockEpoch) + 1,
      this.available > 0,
    );
  }

  /** Takes the place of an older generation's stock: numbers go on from there. */
  follow(older: SkuStock): void {
    this.sequence = Math.max(this.sequence, older.sequence);
    this.stockEpoch = Math.max(this.stockEpoch, older.stockEpoch + 1);
    this.paused = older.paused;
    this.waiting = older.waiting;
  }

  /** Ends a step. Throws when the units do not add up, which would be a fault in this file. */
  seal(): void {
    this.sequence += 1;
    this.stockEpoch = epochFrom(this.stockEpoch, this.available > 0);
    if (this.available < 0 || this.available + this.held + this.ordered !== this.total)
      throw new Error(`Stock does not add up: ${JSON.stringify(this.mark())}`);
  }

  #occupy(reservation: Reservation): void {
    const { quantity, seats } = reservation;
    if (seats !== undefined) this.seats?.take(seats);
    this.available -= quantity;
    if (reservation.state === 'held') this.held += quantity;
    else this.ordered += quantity;
    const person = this.#persons.get(reservation.personId);
    if (person === undefined) {
      this.#persons.set(reservation.personId, { units: quantity, live: [reservation] });
    } else {
      person.units += quantity;
      person.live.push(reservation);
    }
  }

  #vacate(reservation: Reservation): void {
    const { quantity, seats } = reservation;
    if (seats !== undefined) this.seats?.free(seats);
    this.available += quantity;
    if (reservation.state === 'held') this.held -= quantity;
    else this.ordered -= quantity;
    const person = this.#persons.get(reservation.personId);
    if (person === undefined) throw new Error(`No live units of ${reservation.reservationId}`);
    person.units -= quantity;
    person.live.splice(person.live.indexOf(reservation), 1);
    if (person.live.length === 0) this.#persons.delete(reservation.personId);
  }
}

/** Units retaken late stand last among a person's own; told in order of reserving all the same. */
function inOrder(live: readonly Reservation[]): readonly Reservation[] {
  return live.length < 2 ? live : [...live].sort((a, b) => a.index - b.index);
}
