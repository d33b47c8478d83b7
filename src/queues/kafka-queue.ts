import { buriedMax } from '../core/stock/outbox.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { UnavailableError } from '../ports/errors.ts';
import type {
  Backlog,
  BuriedMessage,
  Delivery,
  OrderMessage,
  OrderQueue,
  OrderQueueProducer,
  PublishOutcome,
} from '../ports/order-queue.ts';
import { KafkaLink, isOutOfRange } from './kafka-link.ts';
import { KafkaPublisher } from './kafka-publisher.ts';
import { PartitionWindow } from './kafka-window.ts';
import { decodeMessage } from './order-message.ts';

/**
 * The order queue on Kafka: a topic of orders, a topic of dead letters, one consumer group.
 *
 * Kafka is a log, not a queue: it remembers for each partition one number, how far the group has come.
 * What the port asks beyond that lives in the process that has the partition: who has which message
 * and until when, and what is done already behind one that is not (`PartitionWindow`). When a partition
 * changes hands or the process dies, that is forgotten, and what was done out of turn comes again, which
 * changes nothing. Attempts are counted anew then.
 *
 * Order. The key of a message is its SKU, so one SKU is in one partition; a batch for a partition is
 * stored whole, in its order, and the next is sent when the answer is there.
 *
 * Bound. Kafka has no "full". A publisher asks how much the group has left to do, and stops at the
 * bound; two publishers at once may pass it by a batch each.
 *
 * Duplicates. A batch whose answer was lost is stored again when it is sent again. Kafka's idempotent
 * producer would see only the same batch from the same process; the worker's commit sees all.
 */
export interface KafkaQueueOptions {
  /** `kafka://[user:password@]host:port` (SASL PLAIN) or `kafka+tls://…`; brokers of one cluster. */
  readonly urls: readonly string[];
  readonly clock: Clock;
  readonly timers: Timers;
  /** Deployments on one cluster are told apart by it; `[A-Za-z0-9_-]{1,64}`. Default `sluice`. */
  readonly prefix?: string;
  /** How long a consumer has a message for itself, ms. Default 30 s. */
  readonly visibilityMs?: number;
  /** Messages that wait; past it publishing is refused. Default 100,000. */
  readonly messagesMax?: number;
  /** Partitions of a topic that is not there yet: as many processes can share the work. Default 8. */
  readonly partitions?: number;
  /** Copies of each message, for topics that are not there yet. Default 1. */
  readonly replicas?: number;
  /**
   * How long the partitions of a process that died wait for it before others get them, ms. Default
   * 10 s; brokers take 6 s and more unless told otherwise.
   */
  readonly sessionMs?: number;
  /** Longest wait for one answer of a broker, ms. Default 5 s. */
  readonly timeoutMs?: number;
  /**
   * Whether it joins the group at once; else with its first `receive`. A member gets partitions, and
   * what is in them waits for it: a process that only watches must not be one. Default true.
   */
  readonly joins?: boolean;
}

type Settings = Required<KafkaQueueOptions>;

const receiveMax = 1_000;
/** Messages of one partition that a process keeps beyond what the group has done. */
const windowMax = 2_000;
/** Longest single fetch, ms: no longer than others may wait for what is behind it. */
const fetchMaxMs = 500;
/** How long what was done is kept, ms: a week. Far longer than any backlog. */
const keptMs = 7 * 86_400_000;
interface DeadLetter {
  readonly message?: OrderMessage;
  /** What was found where a message should be. */
  readonly unreadable?: string;
  readonly reason: string;
  readonly buriedAtMs: number;
}

/** Connects, makes the topics, joins the group unless told not to. Rejects with UnavailableError. */
export async function openKafkaQueue(options: KafkaQueueOptions): Promise<KafkaQueue> {
  const settings: Settings = {
    prefix: 'sluice',
    visibilityMs: 30_000,
    messagesMax: 100_000,
    partitions: 8,
    replicas: 1,
    sessionMs: 10_000,
    timeoutMs: 5_000,
    joins: true,
    ...options,
  };
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(settings.prefix))
    throw new RangeError(`prefix "${settings.prefix}"; allowed is [A-Za-z0-9_-]{1,64}`);
  const { orders, dead } = namesOf(settings.prefix);
  const link = new KafkaLink({ ...settings, groupId: `${settings.prefix}-workers`, topic: orders });
  try {
    const { partitions, replicas } = settings;
    const configs = { 'retention.ms': String(keptMs) };
    await link.prepare([
      { name: orders, partitions, replicas, configs },
      { name: dead, partitions: 1, replicas, configs: { 'retention.ms': '-1' } },
    ]);
    const queue = new KafkaQueue(link, settings, await link.partitionsOf(orders));
    if (settings.joins) await queue.join();
    return queue;
  } catch (error) {
    await link.close();
    throw error;
  }
}

export class KafkaQueue implements OrderQueue, OrderQueueProducer {
  readonly #link: KafkaLink;
  readonly #settings: Settings;
  readonly #names: { readonly orders: string; readonly dead: string };
  readonly #partitions: number;
  readonly #publisher: KafkaPublisher;
  /** Of the partitions that this process has. */
  readonly #windows = new Map<number, PartitionWindow>();
  /** What the group gave us; undefined once the windows say the same. */
  #assigned: readonly number[] | undefined;
  #joining: Promise<void> | undefined;
  #waiting: Promise<void> | undefined;
  #committing: Promise<unknown> = Promise.resolve();
  /** Where the next look begins, so that no partition is always last. */
  #turn = 0;
  readonly #sleepers = new Set<() => void>();
  #closed = false;

  /** Use `openKafkaQueue`. */
  constructor(link: KafkaLink, settings: Settings, partitions: number) {
    this.#link = link;
    this.#settings = settings;
    this.#names = namesOf(settings.prefix);
    this.#partitions = partitions;
    const { clock, messagesMax } = settings;
    const topic = this.#names.orders;
    this.#publisher = new KafkaPublisher(link, { clock, messagesMax, topic, partitions });
  }

  /** Becomes a member of the group, if it is not one; learns what it has. */
  async join(): Promise<void> {
    this.#joining ??= this.#join().finally(() => {
      this.#joining = undefined;
    });
    await this.#joining;
  }

  publish(messages: readonly OrderMessage[]): Promise<readonly PublishOutcome[]> {
    return this.#publisher.publish(messages);
  }

  async receive(_consumer: string, max: number, waitMs: number): Promise<readonly Delivery[]> {
    if (!Number.isInteger(max) || max < 1 || max > receiveMax)
      throw new RangeError(`receive of ${max} messages; allowed is 1 to ${receiveMax}`);
    const { clock } = this.#settings;
    const untilUs = clock.monoUs() + waitMs * 1_000;
    try {
      while (!this.#closed) {
        await this.join();
        const some = this.#take(max);
        if (some.length > 0) return some;
        const leftMs = Math.ceil((untilUs - clock.monoUs()) / 1_000);
        // What is there, without waiting; then with.
        if (leftMs <= 0 || this.#waiting === undefined) await this.#fetch(0);
        const more = this.#take(max);
        if (more.length > 0) return more;
        if (leftMs <= 0) return [];
        await this.#wait(Math.min(leftMs, fetchMaxMs));
      }
    } catch (error) {
      if (!(this.#closed && error instanceof UnavailableError)) throw error;
    }
    return [];
  }

  async acknowledge(deliveries: readonly Delivery[]): Promise<void> {
    for (const delivery of deliveries) {
      const { partition, offset } = handleOf(delivery);
      this.#windows.get(partition)?.done(offset);
    }
    await this.#commit();
  }

  async bury(delivery: Delivery, reason: string): Promise<void> {
    const { partition, offset } = handleOf(delivery);
    const window = this.#windows.get(partition);
    // Somebody else has the partition now, or it is done: the message is theirs to judge.
    if (window?.has(offset) !== true) return;
    await this.#bury(delivery.message.messageId, {
      message: delivery.message,
      reason,
      buriedAtMs: this.#settings.clock.wallMs(),
    });
    window.done(offset);
    await this.#commit();
  }

  async giveBack(deliveries: readonly Delivery[]): Promise<void> {
    const nowUs = this.#settings.clock.monoUs();
    for (const delivery of deliveries) {
      const { partition, offset, attempt } = handleOf(delivery);
      this.#windows.get(partition)?.giveBack(offset, attempt, nowUs);
    }
    this.#wake();
  }

  async backlog(nowMs: number): Promise<Backlog> {
    const { orders, dead } = this.#names;
    const [{ first, last }, committed, letters] = await Promise.all([
      this.#link.ends(orders),
      this.#link.committed(orders, this.#partitions),
      this.#link.ends(dead),
    ]);
    let depth = 0;
    let acknowledged = 0;
    let produced = 0;
    let sinceMs = nowMs;
    for (const [partition, end] of last.entries()) {
      const window = this.#windows.get(partition);
      const done = window?.stable ?? Math.max(committed[partition] ?? 0, first[partition] ?? 0);
      const ahead = window?.doneAhead ?? 0;
      produced += end;
      acknowledged += done + ahead;
      const waiting = Math.max(0, end - done - ahead);
      depth += waiting;
      if (waiting > 0)
        sinceMs = Math.min(
          sinceMs,
          window?.head?.reservedAtMs ?? (await this.#atMs(partition, done, nowMs)),
        );
    }
    const buriedEver = letters.last[0] ?? 0;
    return {
      depth,
      // The wall clock may have jumped back since.
      oldestAgeMs: Math.max(0, nowMs - sinceMs),
      buried: buriedEver - (letters.first[0] ?? 0),
      producedTotal: produced,
      acknowledgedTotal: Math.max(0, acknowledged - buriedEver),
    };
  }

  async buried(limit: number): Promise<readonly BuriedMessage[]> {
    if (limit <= 0) return [];
    const { dead } = this.#names;
    const { first, last } = await this.#link.ends(dead);
    const end = last[0] ?? 0;
    // One that was buried twice, by a process that died in between, counts once.
    const found = new Map<string, BuriedMessage>();
    let from = Math.max(first[0] ?? 0, end - limit);
    while (from < end) {
      const [some] = await this.#link.fetch(dead, [{ partition: 0, from }], 0);
      if (some === undefined || some.next <= from) break;
      for (const { text } of some.records) {
        const letter = JSON.parse(text) as DeadLetter;
        if (letter.message === undefined) continue;
        const { message, reason, buriedAtMs } = letter;
        found.delete(message.messageId);
        found.set(message.messageId, { message, reason, buriedAtMs });
      }
      from = some.next;
    }
    return [...found.values()].reverse().slice(0, limit);
  }

  /** Ends every wait and leaves the group; what is out comes again, to whoever has it then. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#wake();
    await this.#link.close();
  }

  async #join(): Promise<void> {
    if (!this.#link.joined)
      await this.#link.join((partitions) => {
        this.#assigned = partitions;
        this.#wake();
      });
    const assigned = this.#assigned;
    if (assigned === undefined) return;
    const { orders } = this.#names;
    const kept = new Set(assigned);
    for (const partition of this.#windows.keys())
      if (!kept.has(partition)) this.#windows.delete(partition);
    const fresh = assigned.filter((partition) => !this.#windows.has(partition));
    if (fresh.length > 0) {
      const [{ first, last }, committed] = await Promise.all([
        this.#link.ends(orders),
        this.#link.committed(orders, this.#partitions),
      ]);
      for (const partition of fresh) {
        const begins = first[partition] ?? 0;
        // A log that was cut at either end may not have the place any more.
        const start = Math.min(
          Math.max(committed[partition] ?? -1, begins),
          last[partition] ?? begins,
        );
        this.#windows.set(partition, new PartitionWindow(start));
      }
    }
    // Unless it changed meanwhile.
    if (this.#assigned === assigned) this.#assigned = undefined;
  }

  #take(max: number): Delivery[] {
    const nowUs = this.#settings.clock.monoUs();
    const deliveries: Delivery[] = [];
    const mine = [...this.#windows];
    for (let step = 0; step < mine.length; step += 1) {
      const [partition, window] = mine[(this.#turn + step) % mine.length] ?? [];
      if (partition === undefined || window === undefined) continue;
      const wanted = max - deliveries.length;
      for (const { offset, attempt, message } of window.take(
        wanted,
        nowUs,
        this.#settings.visibilityMs * 1_000,
      ))
        deliveries.push({ deliveryId: `${partition}.${offset}.${attempt}`, attempt, message });
    }
    this.#turn += 1;
    return deliveries;
  }

  /** Brings what the log has for the windows that have room. */
  async #fetch(waitMs: number): Promise<void> {
    const { orders } = this.#names;
    const open = new Map([...this.#windows].filter(([, { size }]) => size < windowMax));
    if (open.size === 0) return;
    const asked = [...open].map(([partition, { next }]) => ({ partition, from: next }));
    try {
      for (const { partition, records, next } of await this.#link.fetch(orders, asked, waitMs)) {
        const window = open.get(partition);
        // Changed hands meanwhile.
        if (window === undefined || this.#windows.get(partition) !== window) continue;
        for (const { offset, text } of records) {
          const message = decodeMessage(text);
          if (message === undefined) await this.#setAside(window, partition, offset, text);
          else window.add(offset, message);
        }
        window.skipTo(next);
      }
    } catch (error) {
      if (!isOutOfRange(error)) throw error;
      // The log was cut under us: begin where it begins now.
      this.#assigned ??= [...this.#windows.keys()];
      for (const partition of open.keys()) this.#windows.delete(partition);
    }
  }

  /** One fetch that waits, shared by all who wait; or until somebody gives back, or the time is over. */
  async #wait(forMs: number): Promise<void> {
    let wake: () => void = () => undefined;
    const woken = new Promise<void>((resolve) => {
      wake = resolve;
    });
    this.#sleepers.add(wake);
    const timer = this.#settings.timers.after(forMs, wake);
    this.#waiting ??= this.#fetch(Math.max(1, forMs)).finally(() => {
      this.#waiting = undefined;
    });
    const fetched = this.#waiting.then(() => {
      // With nothing to fetch for, the fetch ends at once: then only the timer waits.
      if (this.#anyFree()) wake();
    });
    try {
      await Promise.race([woken, fetched.then(() => woken)]);
    } finally {
      timer.cancel();
      this.#sleepers.delete(wake);
    }
  }

  #anyFree(): boolean {
    return [...this.#windows.values()].some(({ size, doneAhead }) => size > doneAhead);
  }

  #wake(): void {
    for (const wake of this.#sleepers) wake();
  }

  /** Tells the group how far each partition is done. One at a time, so that no mark goes back. */
  async #commit(): Promise<void> {
    const mine = this.#committing.then(async () => {
      const marks = new Map(
        [...this.#windows]
          .filter(([, { stable, committed }]) => stable > committed)
          .map(([partition, { stable }]) => [partition, stable]),
      );
      if (marks.size === 0) return;
      if (!this.#link.joined) await this.join();
      await this.#link.commit(this.#names.orders, marks);
      for (const [partition, stable] of marks) {
        const window = this.#windows.get(partition);
        if (window !== undefined) window.committed = Math.max(window.committed, stable);
      }
    });
    this.#committing = mine.catch(() => undefined); // Told to whom it concerns by `mine`.
    await mine;
  }

  /** When the oldest waiting message of a partition that is not here was reserved. */
  async #atMs(partition: number, from: number, nowMs: number): Promise<number> {
    const [found] = await this.#link.fetch(this.#names.orders, [{ partition, from }], 0);
    const record = found?.records[0];
    if (record === undefined) return nowMs;
    return decodeMessage(record.text)?.reservedAtMs ?? record.atMs;
  }

  /** Something that is no order message: kept beside the dead letters, out of its neighbours' way. */
  async #setAside(
    window: PartitionWindow,
    partition: number,
    offset: number,
    text: string,
  ): Promise<void> {
    await this.#bury(`unreadable-${partition}-${offset}`, {
      unreadable: text,
      reason: 'not an order message',
      buriedAtMs: this.#settings.clock.wallMs(),
    });
    window.skipTo(offset + 1);
  }

  async #bury(key: string, letter: DeadLetter): Promise<void> {
    const { dead } = this.#names;
    const { first, last } = await this.#link.ends(dead);
    if ((last[0] ?? 0) - (first[0] ?? 0) >= buriedMax)
      throw new UnavailableError(`${buriedMax} messages are buried; repair or forget some first`);
    const text = JSON.stringify(letter);
    await this.#link.produce(dead, 0, [{ key, text, atMs: letter.buriedAtMs }]);
  }
}

const namesOf = (prefix: string) => ({ orders: `${prefix}-orders`, dead: `${prefix}-dead` });

function handleOf(delivery: Delivery) {
  const match = /^(\d+)\.(\d+)\.(\d+)$/.exec(delivery.deliveryId);
  if (match === null)
    throw new RangeError(`${delivery.deliveryId} is not a delivery of this queue`);
  const [, partition, offset, attempt] = match.map(Number);
  return { partition: partition ?? 0, offset: offset ?? 0, attempt: attempt ?? 0 };
}
