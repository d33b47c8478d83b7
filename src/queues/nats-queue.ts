import { JetStreamApiCodes, JetStreamApiError } from '@nats-io/jetstream';
import { buriedMax } from '../core/stock/outbox.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type {
  Backlog,
  BuriedMessage,
  Delivery,
  OrderMessage,
  OrderQueue,
  OrderQueueProducer,
  PublishOutcome,
} from '../ports/order-queue.ts';
import { publishMax } from '../ports/order-queue.ts';
import { NatsLink, textOf } from './nats-link.ts';
import {
  type StreamNames,
  handleOf,
  namesOf,
  prepareStreams,
  readHandle,
  subjectOf,
  token,
  workerGroup,
} from './nats-streams.ts';
import { decodeMessage, encodeMessage } from './order-message.ts';

/**
 * The order queue on NATS JetStream: one stream of orders, one of dead letters, one durable consumer.
 *
 * The server does most of what the port asks. A work-queue stream drops a message when it is
 * acknowledged, so the stream is the backlog. The consumer gives messages in their order, again after
 * the visibility time, and those before newer ones. A stream that is full refuses what is new, which
 * the relay sees and waits for. A message id seen lately is stored once.
 *
 * Order. Publishing one message and waiting for its answer would keep the order, at one round trip per
 * message. Many in flight would not: one refused because the stream is full, its successor accepted a
 * moment later because a worker made room. So each message in flight says what must be last in the
 * stream just before it: which number, and which message. The first that fails makes all behind it
 * fail, and they are sent again in order. A second relay that publishes meanwhile costs a round.
 *
 * Durability. JetStream answers when the message is written to the file, not when the file is on the
 * disk: a process that dies loses nothing, a machine that loses power may lose what the server had
 * not synced (its `sync_interval`), unless the stream has replicas. What is lost there is a
 * reservation without order, which reconciliation finds and releases.
 */
export interface NatsQueueOptions {
  /** `nats://[user:password@|token@]host:port` or `tls://…`; servers of one cluster. */
  readonly urls: readonly string[];
  readonly clock: Clock;
  readonly timers: Timers;
  /** Deployments on one server are told apart by it; `[A-Za-z0-9_-]{1,64}`. Default `sluice`. */
  readonly prefix?: string;
  /** How long a consumer has a message for itself, ms. Default 30 s. */
  readonly visibilityMs?: number;
  /** Messages in the stream; past it publishing is refused. Default 100,000. */
  readonly messagesMax?: number;
  /** Messages given out and not acknowledged, over all processes. Default 20,000. */
  readonly unacknowledgedMax?: number;
  /** How long the server remembers message ids, ms. Default 2 min. */
  readonly duplicatesForMs?: number;
  /** Copies of each message in a cluster of servers: 1, 3 or 5. Default 1. */
  readonly replicas?: number;
  /** Longest wait for one answer of the server, ms. Default 2 s. */
  readonly timeoutMs?: number;
}

type Settings = Required<NatsQueueOptions>;

const receiveMax = 1_000;
/** Publishes in flight. */
const inFlightMax = 256;
/** Rounds of one publish in which another publisher was always faster, before it is left to later. */
const roundsMax = 8;
/** Longest single pull, ms: a server that forgot it is noticed after that. */
const pullMaxMs = 5_000;
/** The server's error for a message that a limit of the stream keeps out. */
const storeFailed = 10_077;

/** A message that this process has. */
interface Held {
  readonly attempt: number;
  /** Past this, on the monotonic clock, the server may have given it to another. */
  readonly endsUs: number;
}

interface DeadLetter {
  readonly message?: OrderMessage;
  /** What was found where a message should be. */
  readonly unreadable?: string;
  readonly reason: string;
  readonly buriedAtMs: number;
}

/** Connects, and makes stream and consumer what the options say. Rejects with UnavailableError. */
export async function openNatsQueue(options: NatsQueueOptions): Promise<NatsQueue> {
  const settings: Settings = {
    prefix: 'sluice',
    visibilityMs: 30_000,
    messagesMax: 100_000,
    unacknowledgedMax: 20_000,
    duplicatesForMs: 120_000,
    replicas: 1,
    timeoutMs: 2_000,
    ...options,
  };
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(settings.prefix))
    throw new RangeError(`prefix "${settings.prefix}"; allowed is [A-Za-z0-9_-]{1,64}`);
  const link = await NatsLink.open(settings);
  try {
    await prepareStreams(link, settings);
  } catch (error) {
    await link.close();
    // Setting up again changes nothing, so what is unknown here is no more than unavailable.
    if (error instanceof JetStreamApiError || error instanceof OutcomeUnknownError)
      throw new UnavailableError(`NATS, set up: ${error.message}`, { cause: error });
    throw error;
  }
  return new NatsQueue(link, settings);
}

export class NatsQueue implements OrderQueue, OrderQueueProducer {
  readonly #link: NatsLink;
  readonly #settings: Settings;
  /** By sequence number, in the order in which their time ends. */
  readonly #held = new Map<number, Held>();
  /** The stream's last sequence number, where this process knows it. */
  #lastSequence: number | undefined;
  #publishing: Promise<unknown> = Promise.resolve();
  #closed = false;

  /** Use `openNatsQueue`. */
  constructor(link: NatsLink, settings: Settings) {
    this.#link = link;
    this.#settings = settings;
  }

  async publish(messages: readonly OrderMessage[]): Promise<readonly PublishOutcome[]> {
    if (messages.length > publishMax)
      throw new RangeError(
        `publish of ${messages.length} messages; allowed is up to ${publishMax}`,
      );
    // One at a time: two would only fail each other's sequence numbers.
    const mine = this.#publishing.then(() => this.#publish(messages));
    this.#publishing = mine.catch(() => undefined); // Told to whom it concerns by `mine`.
    return mine;
  }

  async receive(_consumer: string, max: number, waitMs: number): Promise<readonly Delivery[]> {
    if (!Number.isInteger(max) || max < 1 || max > receiveMax)
      throw new RangeError(`receive of ${max} messages; allowed is 1 to ${receiveMax}`);
    const untilUs = this.#settings.clock.monoUs() + waitMs * 1_000;
    try {
      return await this.#receiveUntil(untilUs, max);
    } catch (error) {
      if (this.#closed && error instanceof UnavailableError) return [];
      throw error;
    }
  }

  async acknowledge(deliveries: readonly Delivery[]): Promise<void> {
    const subjects = deliveries.map((delivery) => handleOf(delivery).subject);
    await this.#link.tell('acknowledge', subjects, '+ACK');
    for (const delivery of deliveries) this.#held.delete(handleOf(delivery).sequence);
  }

  async bury(delivery: Delivery, reason: string): Promise<void> {
    const { subject, sequence } = handleOf(delivery);
    await this.#bury(delivery.message.messageId, {
      message: delivery.message,
      reason,
      buriedAtMs: this.#settings.clock.wallMs(),
    });
    // Dying here brings the message again, and burying it again changes nothing.
    await this.#erase(sequence);
    await this.#link.tell('bury', [subject], '+TERM');
    this.#held.delete(sequence);
  }

  async giveBack(deliveries: readonly Delivery[]): Promise<void> {
    const nowUs = this.#settings.clock.monoUs();
    // Only by whom it was given to last: an earlier holder, timed out, has nothing to give.
    const mine = deliveries.map(handleOf).filter(({ sequence, attempt }) => {
      const held = this.#held.get(sequence);
      if (held?.attempt !== attempt || held.endsUs <= nowUs) return false;
      return this.#held.delete(sequence);
    });
    await this.#link.tell(
      'give back',
      mine.map(({ subject }) => subject),
      '-NAK',
    );
  }

  async backlog(nowMs: number): Promise<Backlog> {
    const { orders, dead } = this.#names;
    const { streams } = this.#link.manager;
    const [{ state }, letters] = await this.#ask('backlog', () =>
      Promise.all([streams.info(orders), streams.info(dead)]),
    );
    const sinceMs = state.messages === 0 ? nowMs : await this.#oldestMs(state.first_seq, nowMs);
    return {
      depth: state.messages,
      // The wall clock may have jumped back since.
      oldestAgeMs: Math.max(0, nowMs - sinceMs),
      buried: letters.state.messages,
      producedTotal: state.last_seq,
      // What left the stream and was never buried.
      acknowledgedTotal: Math.max(0, state.last_seq - state.messages - letters.state.last_seq),
    };
  }

  async buried(limit: number): Promise<readonly BuriedMessage[]> {
    if (limit <= 0) return [];
    const { dead } = this.#names;
    const { streams } = this.#link.manager;
    const { state } = await this.#ask('buried', () => streams.info(dead));
    const found: BuriedMessage[] = [];
    // Newest first; numbers of letters that an operator took out are passed over.
    for (let next = state.last_seq; next >= state.first_seq && next > 0; next -= 64) {
      const numbers = Array.from({ length: 64 }, (_, at) => next - at);
      const some = await this.#ask('buried', () =>
        Promise.all(
          numbers
            .filter((seq) => seq >= state.first_seq)
            .map((seq) => streams.getMessage(dead, { seq })),
        ),
      );
      for (const stored of some) {
        const letter = stored?.json<DeadLetter>();
        if (letter?.message === undefined) continue;
        const { message, reason, buriedAtMs } = letter;
        found.push({ message, reason, buriedAtMs });
        if (found.length === limit) return found;
      }
    }
    return found;
  }

  /** Ends every wait. What is given out comes again after its visibility time. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#link.close();
  }

  get #names(): StreamNames {
    return namesOf(this.#settings.prefix);
  }

  async #receiveUntil(untilUs: number, max: number): Promise<readonly Delivery[]> {
    const { clock, visibilityMs } = this.#settings;
    while (!this.#closed) {
      const some = await this.#pull(max, 0);
      if (some.length > 0) return some;
      const leftMs = Math.ceil((untilUs - clock.monoUs()) / 1_000);
      if (leftMs <= 0) return [];
      // The first to come ends the wait; the rest of what is there comes with it.
      const first = await this.#pull(1, Math.min(leftMs, pullMaxMs, visibilityMs));
      if (first.length > 0 && max > 1) return [...first, ...(await this.#more(max - 1))];
      if (first.length > 0) return first;
    }
    return [];
  }

  async #pull(max: number, waitMs: number): Promise<Delivery[]> {
    const { clock, visibilityMs } = this.#settings;
    // Taken before the call: our time with a message must end before the server's does.
    const nowUs = clock.monoUs();
    this.#forgetExpired(nowUs);
    const messages = await this.#link.pull(this.#names.orders, workerGroup, max, waitMs);
    const deliveries: Delivery[] = [];
    for (const raw of messages) {
      const { subject, sequence, attempt } = readHandle(raw.reply ?? '');
      const message = decodeMessage(raw.string());
      if (message === undefined) {
        await this.#setAside(subject, sequence, raw.string());
        continue;
      }
      this.#held.delete(sequence);
      this.#held.set(sequence, { attempt, endsUs: nowUs + visibilityMs * 1_000 });
      deliveries.push({ deliveryId: subject, attempt, message });
    }
    return deliveries;
  }

  /** What else is there; the first of the batch is in hand and must not be lost to an error. */
  async #more(max: number): Promise<Delivery[]> {
    try {
      return await this.#pull(max, 0);
    } catch (error) {
      if (error instanceof UnavailableError || error instanceof OutcomeUnknownError) return [];
      throw error;
    }
  }

  #forgetExpired(nowUs: number): void {
    for (const [sequence, { endsUs }] of this.#held) {
      if (endsUs > nowUs) break;
      this.#held.delete(sequence);
    }
  }

  /** Something that is no order message: kept beside the dead letters, out of its neighbours' way. */
  async #setAside(subject: string, sequence: number, text: string): Promise<void> {
    await this.#bury(`unreadable-${sequence}`, {
      unreadable: text,
      reason: 'not an order message',
      buriedAtMs: this.#settings.clock.wallMs(),
    });
    await this.#erase(sequence);
    await this.#link.tell('bury', [subject], '+TERM');
  }

  /**
   * Takes a message out of the stream so that it stays out. The server writes down an acknowledgement a
   * little later, and one that dies before that gives the message again; erasing is written at once.
   */
  async #erase(sequence: number): Promise<void> {
    const { orders } = this.#names;
    try {
      await this.#link.call('bury', () =>
        this.#link.manager.streams.deleteMessage(orders, sequence, true),
      );
    } catch (error) {
      if (!(error instanceof JetStreamApiError)) throw error;
      if (!/no message found|not found|deleted/i.test(error.message))
        throw new UnavailableError(`NATS, bury: ${error.code} ${error.message}`, { cause: error });
    }
  }

  /** Stores a dead letter unless there is one under this name. */
  async #bury(name: string, letter: DeadLetter): Promise<void> {
    const subject = `${this.#names.dead}.${token(name)}`;
    try {
      await this.#link.call('bury', () =>
        this.#link.js.publish(subject, JSON.stringify(letter), {
          expect: { lastSubjectSequence: 0 },
        }),
      );
    } catch (error) {
      if (!(error instanceof JetStreamApiError)) throw error;
      if (isOutOfStep(error)) return; // It is there.
      const text =
        error.code === storeFailed
          ? `${buriedMax} messages are buried; repair or forget some first`
          : `NATS, bury: ${error.message}`;
      throw new UnavailableError(text, { cause: error });
    }
  }

  async #publish(messages: readonly OrderMessage[]): Promise<readonly PublishOutcome[]> {
    const outcomes = new Map<number, PublishOutcome>();
    const waiting: { readonly at: number; readonly message: OrderMessage; body: string }[] = [];
    // Room for the headers and the subject.
    const bytesMax = this.#link.maxPayload - 2_048;
    for (const [at, message] of messages.entries()) {
      const body = encodeMessage(message);
      const bytes = Buffer.byteLength(body);
      if (bytes > bytesMax) {
        const reason = `a message of ${bytes} bytes; the broker takes up to ${bytesMax}`;
        outcomes.set(at, { kind: 'refused', reason });
      } else waiting.push({ at, message, body });
    }
    let failure: Error = new UnavailableError('NATS, publish: other publishers were always faster');
    for (let rounds = 0; waiting.length > 0 && rounds < roundsMax; rounds += 1) {
      const sent = waiting.slice(0, inFlightMax);
      const round = await this.#round(sent);
      if (round.stored > 0) rounds = -1;
      for (const { at } of waiting.splice(0, round.stored)) outcomes.set(at, { kind: 'stored' });
      if (round.failure === undefined) continue;
      failure = round.failure;
      break;
    }
    for (const { at } of waiting) outcomes.set(at, { kind: 'again', error: failure });
    return messages.map((_, at) => outcomes.get(at) ?? { kind: 'again', error: failure });
  }

  /**
   * Sends these in flight at once, each bound to the one before. How many from the start are stored;
   * a failure where the rest is to wait, none where it may be sent on.
   */
  async #round(
    sent: readonly { readonly message: OrderMessage; readonly body: string }[],
  ): Promise<{ readonly stored: number; readonly failure?: Error }> {
    let last: number;
    try {
      last = this.#lastSequence ?? (await this.#readLastSequence());
    } catch (error) {
      return { stored: 0, failure: asError(error) };
    }
    const answers = await Promise.allSettled(
      sent.map(({ message, body }, at) =>
        this.#link.call('publish', () =>
          this.#link.js.publish(subjectOf(this.#names.orders, message), body, {
            msgID: message.messageId,
            timeout: this.#settings.timeoutMs,
            expect: follows(last + at, sent[at - 1]?.message),
          }),
        ),
      ),
    );
    let stored = 0;
    for (const answer of answers) {
      if (answer.status === 'rejected') {
        this.#lastSequence = undefined;
        return isOutOfStep(answer.reason)
          ? { stored }
          : { stored, failure: refusal(answer.reason, this.#names.orders) };
      }
      stored += 1;
      if (!answer.value.duplicate) this.#lastSequence = answer.value.seq;
    }
    return { stored };
  }

  /** When the first message of the stream was reserved. */
  async #oldestMs(firstSequence: number, nowMs: number): Promise<number> {
    const { orders } = this.#names;
    const { streams } = this.#link.manager;
    let seq = firstSequence;
    // Acknowledged meanwhile: then the next one is the oldest.
    for (let tries = 0; tries < 4; tries += 1) {
      const stored = await this.#ask('backlog', () => streams.getMessage(orders, { seq }));
      if (stored !== null)
        return decodeMessage(stored.string())?.reservedAtMs ?? stored.time.getTime();
      const { state } = await this.#ask('backlog', () => streams.info(orders));
      if (state.messages === 0) return nowMs;
      seq = state.first_seq;
    }
    // It drains faster than it can be looked at.
    return nowMs;
  }

  async #readLastSequence(): Promise<number> {
    const { orders } = this.#names;
    const info = await this.#ask('publish', () => this.#link.manager.streams.info(orders));
    return info.state.last_seq;
  }

  /** A question: it changes nothing, so no answer is just that. */
  async #ask<T>(what: string, run: () => Promise<T>): Promise<T> {
    try {
      return await this.#link.call(what, run);
    } catch (error) {
      if (error instanceof JetStreamApiError || error instanceof OutcomeUnknownError)
        throw new UnavailableError(`NATS, ${what}: ${error.message}`, { cause: error });
      throw error;
    }
  }
}

/**
 * What must be last in the stream before a message: the number, and in a round the very message sent
 * before it. The number alone would not do: another publisher's messages count as well, and bring it
 * to where a later one of ours expects it, although an earlier one was refused.
 */
const follows = (lastSequence: number, before: OrderMessage | undefined) =>
  before === undefined ? { lastSequence } : { lastSequence, lastMsgID: before.messageId };

/** The server's error for a message that is not preceded by the one it names. */
const wrongLastId = 10_070;

const isOutOfStep = (error: unknown): boolean =>
  error instanceof JetStreamApiError &&
  (error.code === JetStreamApiCodes.StreamWrongLastSequence ||
    error.code === JetStreamApiCodes.StreamWrongLastSequenceUnknown ||
    error.code === wrongLastId);

const asError = (error: unknown): Error =>
  error instanceof Error ? error : new UnavailableError(textOf(error));

/** What the server said it did not store, in the words of the port. */
function refusal(reason: unknown, stream: string): Error {
  if (!(reason instanceof JetStreamApiError)) return asError(reason);
  return new UnavailableError(`NATS stream ${stream} takes no more now: ${reason.message}`, {
    cause: reason,
  });
}
