import type { OrderMessage } from './model.ts';
import type { MessageExtras, Reservation } from './reservation.ts';
import { messageOf } from './reservation.ts';

/** A message on its way: built when it is given out, so that waiting costs little. */
export interface Pending {
  readonly number: number;
  readonly reservation: Reservation;
  readonly extras: MessageExtras;
  /** How often it was given out. */
  attempts: number;
}

export interface Buried {
  readonly number: number;
  readonly message: OrderMessage;
  readonly reason: string;
  readonly buriedAtMs: number;
}

/** Dead letters kept; past it burying is refused, since dropping one would drop somebody's outcome. */
export const buriedMax = 10_000;

/**
 * Messages from reserving to the commit of their fate, numbered in order. What is waiting, how often
 * each was given out, and what is buried are facts (changed by steps and replayed); who has a message
 * now is not: after a restart nobody has, and everything unacknowledged is given out again.
 */
export class Outbox {
  nextNumber = 1;
  acknowledged = 0;
  /** In order of number. */
  readonly pending = new Map<number, Pending>();
  readonly buried = new Map<number, Buried>();
  /** Never given out since the start, in order; a queue over an array. */
  #fresh: number[] = [];
  #freshHead = 0;
  /** Given back or timed out, in order of number. */
  #returned: number[] = [];
  /** Given out, and until when, in order of that. */
  readonly #out = new Map<number, number>();

  get produced(): number {
    return this.nextNumber - 1;
  }

  add(reservation: Reservation, extras: MessageExtras): Pending {
    const pending = { number: this.nextNumber, reservation, extras, attempts: 0 };
    this.nextNumber += 1;
    this.restore(pending);
    return pending;
  }

  /** Puts back a message that a snapshot remembers. Numbers must come in order. */
  restore(pending: Pending): void {
    this.pending.set(pending.number, pending);
    this.#fresh.push(pending.number);
  }

  /** Up to `max`, oldest first, not given out again before `nowUs + visibleUs`. O(max). */
  give(max: number, nowUs: number, visibleUs: number): Pending[] {
    this.#expire(nowUs);
    const given: Pending[] = [];
    while (given.length < max) {
      const pending = this.#next();
      if (pending === undefined) break;
      this.#out.set(pending.number, nowUs + visibleUs);
      given.push(pending);
    }
    return given;
  }

  /** When the first message that is out may be given again; undefined when none is. */
  nextExpiryUs(): number | undefined {
    for (const dueUs of this.#out.values()) return dueUs;
    return undefined;
  }

  countAttempt(number: number): void {
    const pending = this.pending.get(number);
    if (pending !== undefined) pending.attempts += 1;
  }

  /** Its fate is committed. The message that was waiting, or undefined where none was. */
  acknowledge(number: number): Pending | undefined {
    const pending = this.#remove(number);
    if (pending !== undefined) this.acknowledged += 1;
    return pending;
  }

  /** Only by whom it was given to last: an earlier holder, timed out, has nothing to give. */
  giveBack(number: number, attempt: number): boolean {
    if (this.pending.get(number)?.attempts !== attempt || !this.#out.delete(number)) return false;
    this.#return(number);
    return true;
  }

  bury(number: number, reason: string, buriedAtMs: number): Pending | undefined {
    const pending = this.#remove(number);
    if (pending !== undefined)
      this.buried.set(number, {
        number,
        message: messageOf(pending.reservation, pending.extras),
        reason,
        buriedAtMs,
      });
    return pending;
  }

  #next(): Pending | undefined {
    // Numbers of messages acknowledged meanwhile are passed over.
    for (;;) {
      const fresh = this.#fresh[this.#freshHead];
      const returned = this.#returned[0];
      let number: number;
      if (returned !== undefined && (fresh === undefined || returned < fresh)) {
        this.#returned.shift();
        number = returned;
      } else if (fresh === undefined) {
        return undefined;
      } else {
        this.#freshHead += 1;
        if (this.#freshHead > 4096 && this.#freshHead * 2 > this.#fresh.length) {
          this.#fresh = this.#fresh.slice(this.#freshHead);
          this.#freshHead = 0;
        }
        number = fresh;
      }
      const pending = this.pending.get(number);
      if (pending !== undefined) return pending;
    }
  }

  #expire(nowUs: number): void {
    for (const [number, dueUs] of this.#out) {
      if (dueUs > nowUs) break;
      this.#out.delete(number);
      if (this.pending.has(number)) this.#return(number);
    }
  }

  #return(number: number): void {
    let at = this.#returned.length;
    while (at > 0 && (this.#returned[at - 1] ?? 0) > number) at -= 1;
    this.#returned.splice(at, 0, number);
  }

  #remove(number: number): Pending | undefined {
    const pending = this.pending.get(number);
    this.pending.delete(number);
    this.#out.delete(number);
    return pending;
  }
}
