/**
 * Moves messages from the inventory store's outbox to a broker.
 *
 *     outbox.receive ─► broker.publish ─► outbox.acknowledge (trims)
 *
 * Dying at the first arrow leaves everything in the outbox; at the second, the message is in both
 * places and comes a second time, which the broker may suppress and the worker's commit bears. So a
 * message is never lost, and never trimmed before the broker answered for it.
 *
 * Order. A message that the broker did not take is kept here and sent before anything newer is
 * received: giving it back would depend on the outbox answering now. After this process dies its
 * messages come out of the outbox again only when their visibility time is over, and newer ones come
 * at once; so a relay that starts, or gains the lead, first lets that time pass. Then the order of a SKU
 * holds while one relay acts at a time. Two at a time lose nothing and may swap neighbours.
 *
 * Bounded. At most one batch is here. A broker that is full or silent stops the relay, the outbox
 * grows, and the backlog of both, which is one number to the outside, stops new submits.
 */
import type { Clock, Timers } from '../ports/clock.ts';
import type {
  Delivery,
  OrderQueue,
  OrderQueueProducer,
  PublishOutcome,
} from '../ports/order-queue.ts';
import { publishMax } from '../ports/order-queue.ts';
import type { Random } from '../ports/random.ts';
import { type PassResult, WorkLoop } from './loop.ts';

export interface RelayParts {
  /** The store's outbox, seen as a queue. */
  readonly outbox: Pick<OrderQueue, 'receive' | 'acknowledge' | 'bury' | 'giveBack'>;
  readonly broker: OrderQueueProducer;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** Whether this process is the one that relays now. */
  readonly leads: () => boolean;
  readonly onEvent?: (event: RelayEvent) => void;
}

export interface RelaySettings {
  /** Names this relay to the outbox. */
  readonly consumer: string;
  /**
   * How long the outbox keeps a message for a consumer that is silent, ms: the pause before the first
   * message. 0 where the outbox ends with this process.
   */
  readonly outboxVisibilityMs: number;
  /** Messages in one publish; 1 to 1,000. Default 500. */
  readonly batchMax?: number;
  /** Longest wait of one receive, ms. Default 1 s. */
  readonly waitMs?: number;
}

export type RelayEvent =
  | { readonly kind: 'moved'; readonly count: number }
  /** The broker will never take it: it is among the outbox's dead letters now. */
  | { readonly kind: 'buried'; readonly reservationId: string; readonly reason: string }
  | {
      readonly kind: 'blocked';
      readonly part: 'outbox' | 'broker' | 'lease';
      readonly error: unknown;
    };

export interface RelayPass {
  readonly leads: boolean;
  readonly received: number;
  /** Safe with the broker for the first time as far as this relay knows. */
  readonly moved: number;
  readonly buried: number;
  /** Kept for the next pass. */
  readonly kept: number;
  /** A part did not answer or has no room. */
  readonly blocked: boolean;
}

export class Relay {
  readonly #parts: RelayParts;
  readonly #settings: Required<RelaySettings>;
  readonly #loop: WorkLoop;
  /** Received and not with the broker, in order. */
  #kept: readonly Delivery[] = [];
  /** With the broker, and the outbox has not been told. */
  #stored: readonly Delivery[] = [];
  /** When this relay may begin; undefined while it does not lead. */
  #beginsUs: number | undefined;
  #stopped = false;

  constructor(parts: RelayParts, settings: RelaySettings) {
    this.#parts = parts;
    this.#settings = { batchMax: 500, waitMs: 1_000, ...settings };
    const { batchMax } = this.#settings;
    if (!Number.isInteger(batchMax) || batchMax < 1 || batchMax > publishMax)
      throw new RangeError(`batches of ${batchMax} messages; allowed is 1 to ${publishMax}`);
    this.#loop = new WorkLoop({
      timers: parts.timers,
      random: parts.random,
      pass: () => this.#pass(),
      idleMs: 250,
      backOffMs: { first: 50, most: 5_000 },
      onError: (error) => this.#tell({ kind: 'blocked', part: 'outbox', error }),
    });
  }

  start(): void {
    this.#loop.start();
  }

  /** Finishes the batch under way and gives back what the broker has not taken. */
  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#loop.stop();
    await this.#letGo();
  }

  /** One batch. Rejects only when the outbox does not answer a receive. */
  async runOnce(waitMs: number = this.#settings.waitMs): Promise<RelayPass> {
    const pass = { leads: true, received: 0, moved: 0, buried: 0, kept: 0, blocked: false };
    if (!this.#parts.leads()) {
      this.#beginsUs = undefined;
      await this.#letGo();
      return { ...pass, leads: false };
    }
    if (!this.#mayBegin()) return pass;
    // Trimmed before anything else, so that little comes twice and nothing piles up here.
    if (await this.#trim(pass)) {
      if (this.#kept.length === 0) {
        const { consumer, batchMax } = this.#settings;
        this.#kept = await this.#parts.outbox.receive(consumer, batchMax, waitMs);
        pass.received = this.#kept.length;
      }
      await this.#move(pass);
      await this.#trim(pass);
    }
    return { ...pass, kept: this.#kept.length };
  }

  async #pass(): Promise<PassResult> {
    if (this.#stopped) return 'idle';
    const pass = await this.runOnce();
    if (pass.blocked) return 'blocked';
    return pass.leads && this.#mayBegin() ? 'more' : 'idle';
  }

  /** Whether what a predecessor had is in the outbox again. */
  #mayBegin(): boolean {
    const nowUs = this.#parts.clock.monoUs();
    this.#beginsUs ??= nowUs + this.#settings.outboxVisibilityMs * 1_000;
    return nowUs >= this.#beginsUs;
  }

  async #move(pass: Mutable<RelayPass>): Promise<void> {
    if (this.#kept.length === 0) return;
    const sent = this.#kept;
    const outcomes = await this.#publish(sent);
    const kept: Delivery[] = [];
    const stored: Delivery[] = [];
    let failure: Error | undefined;
    for (const [at, delivery] of sent.entries()) {
      const outcome = outcomes[at] ?? silence;
      if (outcome.kind === 'stored') stored.push(delivery);
      else if (outcome.kind === 'again') {
        kept.push(delivery);
        failure ??= outcome.error;
      } else if (await this.#bury(delivery, outcome.reason)) pass.buried += 1;
      else {
        kept.push(delivery);
        pass.blocked = true;
      }
    }
    this.#kept = kept;
    this.#stored = stored;
    pass.moved = stored.length;
    if (stored.length > 0) this.#tell({ kind: 'moved', count: stored.length });
    if (failure === undefined) return;
    pass.blocked = true;
    this.#tell({ kind: 'blocked', part: 'broker', error: failure });
  }

  async #publish(sent: readonly Delivery[]): Promise<readonly PublishOutcome[]> {
    try {
      return await this.#parts.broker.publish(sent.map((delivery) => delivery.message));
    } catch (error) {
      const failure = error instanceof Error ? error : new Error(String(error));
      return sent.map(() => ({ kind: 'again', error: failure }));
    }
  }

  /** Whether the outbox knows of everything that the broker has. */
  async #trim(pass: Mutable<RelayPass>): Promise<boolean> {
    if (this.#stored.length === 0) return true;
    try {
      await this.#parts.outbox.acknowledge(this.#stored);
    } catch (error) {
      pass.blocked = true;
      this.#tell({ kind: 'blocked', part: 'outbox', error });
      return false;
    }
    this.#stored = [];
    return true;
  }

  async #bury(delivery: Delivery, reason: string): Promise<boolean> {
    try {
      await this.#parts.outbox.bury(delivery, reason);
    } catch (error) {
      this.#tell({ kind: 'blocked', part: 'outbox', error });
      return false;
    }
    const { reservationId } = delivery.message;
    this.#tell({ kind: 'buried', reservationId, reason });
    return true;
  }

  /** Leaves what is here to whoever relays next. */
  async #letGo(): Promise<void> {
    const [kept, stored] = [this.#kept, this.#stored];
    this.#kept = [];
    this.#stored = [];
    if (kept.length === 0 && stored.length === 0) return;
    try {
      await this.#parts.outbox.acknowledge(stored);
      await this.#parts.outbox.giveBack(kept);
    } catch (error) {
      // The visibility time gives them back instead; what the broker has comes twice.
      this.#tell({ kind: 'blocked', part: 'outbox', error });
    }
  }

  #tell(event: RelayEvent): void {
    this.#parts.onEvent?.(event);
  }
}

/** The broker said nothing of a message: then nobody knows. */
const silence: PublishOutcome = {
  kind: 'again',
  error: new Error('the broker gave fewer outcomes than messages'),
};

type Mutable<Fields> = { -readonly [Name in keyof Fields]: Fields[Name] };
