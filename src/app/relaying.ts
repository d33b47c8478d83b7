import { Leadership } from '../control/leadership.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { Relay, type RelayEvent } from '../workers/relay.ts';
import type { RelayRoad } from './embedded-stores.ts';

export interface RelayingParts extends RelayRoad {
  readonly instance: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly onEvent: (event: RelayEvent) => void;
}

/**
 * The relay of a worker, and whether it is its turn. Every worker has one, and one of them moves: the
 * order of a SKU holds while one relay acts at a time. That one is found by a lease in PostgreSQL, as
 * the leader of all is, under another name: a worker that dies is followed within a few seconds, and
 * meanwhile messages wait in the outbox, where they count in the backlog. Two at once, where one does
 * not know yet that its lease is over, lose nothing and may swap neighbours.
 */
export class Relaying {
  readonly #relay: Relay;
  readonly #turn: Leadership | undefined;

  constructor(parts: RelayingParts) {
    const { outbox, broker, lease, instance, clock, timers, random, onEvent } = parts;
    const blocked = (error: unknown): void => onEvent({ kind: 'blocked', part: 'lease', error });
    this.#turn =
      lease === undefined
        ? undefined
        : new Leadership({
            lease,
            holder: instance,
            clock,
            timers,
            // The relay looks by itself, before every batch.
            onGained: async () => undefined,
            onLost: async () => undefined,
            onError: blocked,
          });
    this.#relay = new Relay(
      { outbox, broker, clock, timers, random, leads: () => this.#turn?.leads ?? true, onEvent },
      { consumer: `${instance}-relay`, outboxVisibilityMs: parts.outboxVisibilityMs },
    );
  }

  start(): void {
    // Until it answers the relay is idle; a failure is told, and it asks again.
    void this.#turn?.start();
    this.#relay.start();
  }

  /** Gives back what the broker has not taken, then the turn. */
  async stop(): Promise<void> {
    await this.#relay.stop();
    await this.#turn?.stop();
  }
}
