import type { OutcomeState } from '../wire/codes.ts';
import { passSkewMs } from '../core/bounds.ts';
import type { Oracle } from './oracle.ts';
import type { World } from './world.ts';

/** One intention of one person, and what they have been told of it. */
export interface Intention {
  readonly userId: string;
  readonly skuId: string;
  readonly requestId: string;
  /** The best that was promised so far. */
  told: OutcomeState | 'NOT_FOUND' | 'RESERVATION_LOST' | undefined;
  /** When they heard it, µs. */
  heardAtUs: number;
  /** Since when they know that something was taken for them, µs. */
  takenSinceUs: number;
  readonly reservationIds: Set<string>;
}

/**
 * What people were told, and whether it was kept. Whoever was told "queued" is owed an outcome; an
 * order does not vanish; money that was taken stays taken or goes back.
 */
export class Promises {
  readonly #world: World;
  readonly #oracle: Oracle;
  readonly #passes = new Map<string, { readonly userId: string; readonly expiresAtMs: number }>();
  readonly #intentions = new Map<string, Intention>();

  constructor(world: World, oracle: Oracle) {
    this.#world = world;
    this.#oracle = oracle;
  }

  /** A pass was handed out. */
  passIssued(pass: string, userId: string, expiresAtMs: number): void {
    this.#passes.set(pass, { userId, expiresAtMs });
  }

  /** Some pass that somebody else was given. */
  somePass(not: string, choose: (count: number) => number): string | undefined {
    const others = [...this.#passes].filter(([, { userId }]) => userId !== not);
    return others[choose(Math.max(1, others.length))]?.[0];
  }

  /** A submit was taken in: for whom, with what, at which instant of the gateway's clock. */
  takenIn(userId: string, pass: string | undefined, nowMs: number): void {
    const known = pass === undefined ? undefined : this.#passes.get(pass);
    this.#oracle.check(
      known?.userId === userId && nowMs - passSkewMs < known.expiresAtMs,
      '5',
      () =>
        `${userId} was taken in at ${nowMs} with ` +
        (known === undefined
          ? 'no pass of ours'
          : `the pass of ${known.userId} until ${known.expiresAtMs}`),
    );
  }

  all(): Iterable<Intention> {
    return this.#intentions.values();
  }

  intention(userId: string, skuId: string, requestId: string): Intention {
    const key = `${skuId} ${requestId} ${userId}`;
    let known = this.#intentions.get(key);
    if (known === undefined) {
      known = {
        userId,
        skuId,
        requestId,
        told: undefined,
        heardAtUs: -Infinity,
        takenSinceUs: Infinity,
        reservationIds: new Set(),
      };
      this.#intentions.set(key, known);
    }
    return known;
  }

  /**
   * A gateway has answered what was asked at that instant. Words cross each other on the way, so only
   * what cannot be is told: whoever asked before they knew that something was taken for them may have had
   * that taken by another device while the answer, right when it was given, was on its way.
   */
  heard(
    intention: Intention,
    state: NonNullable<Intention['told']>,
    askedAtUs: number,
    reservationId?: string | null,
  ): void {
    this.#world.note('told', `${intention.userId} ${intention.requestId} ${state}`);
    this.#oracle.edge(`told ${state}`);
    if (typeof reservationId === 'string') intention.reservationIds.add(reservationId);
    const { told } = intention;
    // The answer was on its way for a while.
    const sinceThen = this.#oracle.forgottenAtUs > intention.heardAtUs - onItsWayUs;
    if (told !== undefined && !sinceThen && intention.takenSinceUs <= askedAtUs) {
      const broken = cannotFollow[told]?.includes(state) === true;
      this.#oracle.check(
        !broken,
        '12',
        () => `${intention.userId} was told ${told} and then ${state} of ${intention.requestId}`,
      );
    }
    if (state === 'UNKNOWN' || rank(state) < rank(told)) return;
    intention.told = state;
    intention.heardAtUs = this.#world.time.nowUs;
    if (state !== 'SOLD_OUT') {
      intention.takenSinceUs = Math.min(intention.takenSinceUs, intention.heardAtUs);
    }
  }
}

/** An answer is heard at most so long after it was given, µs. */
const onItsWayUs = 5_000_000;

/**
 * What may not be said after what, as long as nothing was forgotten in between. Answers to questions
 * that were asked earlier may arrive later: so "queued" may follow "ordered".
 */
const cannotFollow: Readonly<Record<string, readonly string[]>> = {
  QUEUED: ['NOT_FOUND', 'RESERVATION_LOST', 'SOLD_OUT'],
  ORDERED: ['NOT_FOUND', 'RESERVATION_LOST', 'SOLD_OUT', 'REJECTED'],
  PAID: ['NOT_FOUND', 'RESERVATION_LOST', 'SOLD_OUT', 'REJECTED', 'CANCELLED'],
  REFUNDED: ['NOT_FOUND', 'RESERVATION_LOST', 'SOLD_OUT', 'REJECTED'],
};

const ranks: readonly string[] = ['SOLD_OUT', 'QUEUED', 'ORDERED', 'PAID', 'REFUNDED'];

function rank(state: string | undefined): number {
  return state === undefined ? -1 : ranks.indexOf(state);
}
