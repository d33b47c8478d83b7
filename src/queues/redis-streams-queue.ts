import type { SkuKey } from '../core/activity.ts';
import { buriedMax } from '../core/stock/outbox.ts';
import { wholeSku } from '../core/stock/shards.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import { UnavailableError } from '../ports/errors.ts';
import type {
  Backlog,
  BuriedMessage,
  Delivery,
  OrderMessage,
  OrderQueue,
} from '../ports/order-queue.ts';
import type { RedisArgument, RedisLink } from '../stores/redis/client.ts';
import type { KeyName, Keys } from '../stores/redis/keys.ts';
import { pack } from '../stores/redis/pack.ts';
import { messageOf } from '../stores/redis/records.ts';
import { Reply } from '../stores/redis/replies.ts';
import type { Script } from '../stores/redis/scripts.ts';
import { scripts } from '../stores/redis/scripts.ts';

/**
 * The order queue over the outbox streams themselves: what the reserve script appended is what
 * workers receive, and an entry is trimmed when the fates of all its messages are committed.
 *
 * The mismatch to bridge. A reservation batch is one entry, because one append per batch is what
 * makes reserving cheap; but fates are committed message by message, and a worker asks for so many
 * messages, not entries. So Redis leases entries to processes (a consumer group, one consumer per
 * process), and the process hands out the messages of the entries it has. What is done of an entry is
 * kept beside the stream, so that another process that takes the entry over gives out only the rest.
 *
 * An entry's lease is as long as the visibility time, from when this process received it. When it
 * runs out, the process drops what it has left of the entry, and whoever asks first gets it from
 * Redis, which counts the attempt. So no message is given out here after another process may have it,
 * and a process that dies only delays its entries by one visibility time.
 */
export interface RedisStreamsQueueOptions {
  readonly clock: Clock;
  readonly timers: Timers;
  /** Name of this process among consumers; no two live processes share one. */
  readonly instance: string;
  /** How long a message given out is not given again, ms. Default 30 s. */
  readonly visibilityMs?: number;
  /** Longest pause between two looks at the streams while nothing comes, ms. Default 50. */
  readonly pollMs?: number;
}

const group = 'orders';
const receiveMax = 1_000;
/** How old the list of SKUs may be, ms. */
const skusFreshMs = 1_000;

/** An entry that this process has: its messages not yet given out, and those that are out. */
interface Lease {
  readonly sku: SkuKey;
  readonly entry: string;
  readonly attempt: number;
  readonly count: number;
  readonly endsUs: number;
  readonly messages: readonly OrderMessage[];
  /** Attempts of single messages past the entry's own: given back here and given out again. */
  readonly again: Map<number, number>;
  readonly ready: number[];
  readonly out: Set<number>;
}

interface Handle {
  readonly sku: SkuKey;
  readonly entry: string;
  /** From 1. */
  readonly index: number;
  readonly count: number;
  readonly attempt: number;
}

export class RedisStreamsQueue implements OrderQueue {
  readonly #link: RedisLink;
  readonly #keys: Keys;
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #instance: string;
  readonly #visibilityMs: number;
  readonly #pollMs: number;
  readonly #leases = new Map<string, Lease>();
  #skus: readonly SkuKey[] = [];
  #skusReadUs = Number.NEGATIVE_INFINITY;
  /** Where the next look begins, so that no SKU is always last. */
  #turn = 0;
  #closed = false;
  readonly #sleepers = new Set<() => void>();

  constructor(link: RedisLink, keys: Keys, options: RedisStreamsQueueOptions) {
    this.#link = link;
    this.#keys = keys;
    this.#clock = options.clock;
    this.#timers = options.timers;
    this.#instance = options.instance;
    this.#visibilityMs = options.visibilityMs ?? 30_000;
    this.#pollMs = options.pollMs ?? 50;
  }

  async receive(_consumer: string, max: number, waitMs: number): Promise<readonly Delivery[]> {
    if (!Number.isInteger(max) || max < 1 || max > receiveMax)
      throw new RangeError(`receive of ${max} messages; allowed is 1 to ${receiveMax}`);
    const untilUs = this.#clock.monoUs() + waitMs * 1_000;
    let pauseMs = 1;
    while (!this.#closed) {
      const deliveries = this.#take(max);
      if (deliveries.length > 0) return deliveries;
      if (await this.#fetch(max)) continue;
      const leftMs = (untilUs - this.#clock.monoUs()) / 1_000;
      if (leftMs <= 0) return [];
      await this.#sleep(Math.min(pauseMs, leftMs));
      // Often at first, seldom when it is quiet.
      pauseMs = Math.min(pauseMs * 2, this.#pollMs);
    }
    return [];
  }

  async acknowledge(deliveries: readonly Delivery[]): Promise<void> {
    const bySku = new Map<string, { sku: SkuKey; entries: Map<string, [number, number[]]> }>();
    for (const delivery of deliveries) {
      const { sku, entry, index, count } = handleOf(delivery);
      const name = nameOf(sku);
      const one = bySku.get(name) ?? { sku, entries: new Map<string, [number, number[]]>() };
      bySku.set(name, one);
      const [, indexes] = one.entries.get(entry) ?? [count, []];
      indexes.push(index);
      one.entries.set(entry, [count, indexes]);
    }
    await Promise.all(
      [...bySku.values()].map(async ({ sku, entries }) => {
        const done = [...entries].map(([entry, [count, indexes]]) => [entry, count, indexes]);
        await this.#run(sku, scripts.outboxAcknowledge, [group, pack(done)]);
      }),
    );
    for (const delivery of deliveries) this.#done(handleOf(delivery));
  }

  async bury(delivery: Delivery, reason: string): Promise<void> {
    const handle = handleOf(delivery);
    const letter = JSON.stringify({
      message: delivery.message,
      reason,
      buriedAtMs: this.#clock.wallMs(),
    } satisfies BuriedMessage);
    const reply = await this.#run(handle.sku, scripts.outboxBury, [
      group,
      pack([handle.entry, handle.count]),
      String(handle.index),
      letter,
      String(buriedMax),
    ]);
    if (reply === -1)
      throw new UnavailableError(`${buriedMax} messages are buried; repair or forget some first`);
    this.#done(handle);
  }

  async giveBack(deliveries: readonly Delivery[]): Promise<void> {
    const touched = new Set<Lease>();
    for (const delivery of deliveries) {
      const handle = handleOf(delivery);
      const lease = this.#leases.get(leaseName(handle.sku, handle.entry));
      const at = handle.index - 1;
      // Only by whom it was given to last: an earlier holder, timed out, has nothing to give.
      if (lease === undefined || attemptOf(lease, at) !== handle.attempt || !lease.out.delete(at))
        continue;
      lease.again.set(at, (lease.again.get(at) ?? 0) + 1);
      lease.ready.push(at);
      lease.ready.sort((a, b) => a - b);
      touched.add(lease);
    }
    // An entry of which nothing is out here may go to another process at once.
    for (const lease of touched) if (lease.out.size === 0) await this.#release(lease);
    this.#wake();
  }

  async backlog(nowMs: number): Promise<Backlog> {
    const all = await Promise.all(
      (await this.#freshSkus()).map(async (sku) => {
        const [counts, first] = await Promise.all([
          this.#command(sku, 'stock', (key) => ['HMGET', key, 'produced', 'acked', 'buried']),
          this.#command(sku, 'outbox', (key) => ['XRANGE', key, '-', '+', 'COUNT', '1']),
        ]);
        const [produced = 0, acked = 0, buried = 0] = Array.isArray(counts)
          ? counts.map(Number)
          : [];
        return { produced, acked, buried, reservedAtMs: reservedAtOf(first) };
      }),
    );
    const sum = (pick: (one: (typeof all)[number]) => number): number =>
      all.reduce((total, one) => total + pick(one), 0);
    const ages = all.map((one) => (one.reservedAtMs === undefined ? 0 : nowMs - one.reservedAtMs));
    return {
      depth: sum((one) => one.produced - one.acked - one.buried),
      // The wall clock may have jumped back since.
      oldestAgeMs: Math.max(0, ...ages),
      buried: sum((one) => one.buried),
      producedTotal: sum((one) => one.produced),
      acknowledgedTotal: sum((one) => one.acked),
    };
  }

  async buried(limit: number): Promise<readonly BuriedMessage[]> {
    if (limit <= 0) return [];
    const lists = await Promise.all(
      (await this.#freshSkus()).map((sku) =>
        this.#command(sku, 'buried', (key) => ['LRANGE', key, '0', String(limit - 1)]),
      ),
    );
    return lists
      .flatMap((list) => {
        const reply = new Reply(list);
        const letters: BuriedMessage[] = [];
        while (!reply.ended) letters.push(JSON.parse(reply.text()) as BuriedMessage);
        return letters;
      })
      .sort((a, b) => b.buriedAtMs - a.buriedAtMs)
      .slice(0, limit);
  }

  /** Gives back what was received and not handed out. The link stays with its owner. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#wake();
    for (const lease of this.#leases.values()) if (lease.out.size === 0) await this.#release(lease);
  }

  /** Messages of entries that this process has. */
  #take(max: number): Delivery[] {
    const nowUs = this.#clock.monoUs();
    const deliveries: Delivery[] = [];
    for (const [name, lease] of this.#leases) {
      if (lease.endsUs <= nowUs) {
        this.#leases.delete(name);
        continue;
      }
      while (lease.ready.length > 0 && deliveries.length < max) {
        const at = lease.ready.shift() ?? 0;
        lease.out.add(at);
        const message = lease.messages[at];
        if (message !== undefined) deliveries.push(deliveryOf(lease, at, message));
      }
    }
    return deliveries;
  }

  /** Asks the streams for entries; whether any came. */
  async #fetch(max: number): Promise<boolean> {
    const skus = await this.#freshSkus();
    let wanted = max;
    for (let step = 0; step < skus.length && wanted > 0; step += 1) {
      const sku = skus[(this.#turn + step) % skus.length];
      if (sku === undefined) continue;
      // Taken before the call: the lease must end here before it ends in Redis.
      const endsUs = this.#clock.monoUs() + this.#visibilityMs * 1_000;
      const reply = new Reply(
        await this.#run(sku, scripts.outboxReceive, [
          group,
          this.#instance,
          String(wanted),
          String(this.#visibilityMs),
        ]),
      );
      while (!reply.ended) wanted -= this.#keep(sku, reply.list(), endsUs);
    }
    this.#turn += 1;
    return wanted < max;
  }

  /** Remembers one entry; how many messages it brings. */
  #keep(sku: SkuKey, reply: Reply, endsUs: number): number {
    const entry = reply.text();
    const attempt = reply.number();
    const done = reply.text();
    const generation = Number(reply.text());
    const seats = reply.text();
    const chosen = seats === '' ? [] : (JSON.parse(seats) as string[][]);
    // Buyers and orders know nothing of shards; what is given back here does.
    const whole = wholeSku(sku);
    const messages = reply
      .text()
      .split('\n')
      .map((field, at) => messageOf(whole, field, reply.text(), generation, chosen[at]));
    const ready = messages.map((_, at) => at).filter((at) => done[at] !== '1');
    this.#leases.set(leaseName(sku, entry), {
      sku,
      entry,
      attempt,
      count: messages.length,
      endsUs,
      messages,
      again: new Map(),
      ready,
      out: new Set(),
    });
    return ready.length;
  }

  #done(handle: Handle): void {
    const name = leaseName(handle.sku, handle.entry);
    const lease = this.#leases.get(name);
    if (lease === undefined) return;
    const at = handle.index - 1;
    lease.out.delete(at);
    const waiting = lease.ready.indexOf(at);
    if (waiting >= 0) lease.ready.splice(waiting, 1);
    if (lease.out.size === 0 && lease.ready.length === 0) this.#leases.delete(name);
  }

  async #release(lease: Lease): Promise<void> {
    this.#leases.delete(leaseName(lease.sku, lease.entry));
    await this.#run(lease.sku, scripts.outboxRelease, [
      group,
      this.#instance,
      lease.entry,
      String(lease.attempt),
      String(this.#visibilityMs),
    ]);
  }

  async #freshSkus(): Promise<readonly SkuKey[]> {
    const nowUs = this.#clock.monoUs();
    if (nowUs - this.#skusReadUs < skusFreshMs * 1_000 && this.#skus.length > 0) return this.#skus;
    const key = this.#keys.deployment('skus');
    const reply = new Reply(await this.#link.command(key, ['SMEMBERS', key]));
    const names: string[] = [];
    while (!reply.ended) names.push(reply.text());
    this.#skus = names.sort().map((name) => {
      const slash = name.indexOf('/');
      return { activityId: name.slice(0, slash), skuId: name.slice(slash + 1) };
    });
    this.#skusReadUs = nowUs;
    return this.#skus;
  }

  #run(sku: SkuKey, script: Script, args: readonly RedisArgument[]): Promise<unknown> {
    const keys = script.keys.map((name) => this.#keys.sku(sku, name));
    return this.#link.run(script, keys, args);
  }

  #command(
    sku: SkuKey,
    name: KeyName,
    command: (key: string) => RedisArgument[],
  ): Promise<unknown> {
    const key = this.#keys.sku(sku, name);
    return this.#link.command(key, command(key));
  }

  #sleep(forMs: number): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        timer.cancel();
        this.#sleepers.delete(wake);
        resolve();
      };
      const timer = this.#timers.after(forMs, wake);
      this.#sleepers.add(wake);
    });
  }

  #wake(): void {
    for (const wake of this.#sleepers) wake();
  }
}

const nameOf = (sku: SkuKey): string => `${sku.activityId}/${sku.skuId}`;
const leaseName = (sku: SkuKey, entry: string): string => `${nameOf(sku)} ${entry}`;
const attemptOf = (lease: Lease, at: number): number => lease.attempt + (lease.again.get(at) ?? 0);

function deliveryOf(lease: Lease, at: number, message: OrderMessage): Delivery {
  const attempt = attemptOf(lease, at);
  return {
    deliveryId: `${nameOf(lease.sku)} ${lease.entry} ${at + 1} ${lease.count} ${attempt}`,
    attempt,
    message,
  };
}

function handleOf(delivery: Delivery): Handle {
  const match = /^([^/ ]+)\/([^ ]+) (\d+-\d+) (\d+) (\d+) (\d+)$/.exec(delivery.deliveryId);
  const [, activityId, skuId, entry, index, count, attempt] = match ?? [];
  if (activityId === undefined || skuId === undefined || entry === undefined)
    throw new RangeError(`${delivery.deliveryId} is not a delivery of this queue`);
  return {
    sku: { activityId, skuId },
    entry,
    index: Number(index),
    count: Number(count),
    attempt: Number(attempt),
  };
}

/** When the first entry was reserved. */
function reservedAtOf(entries: unknown): number | undefined {
  const list = new Reply(entries);
  if (list.ended) return undefined;
  const entry = list.list();
  entry.text();
  const fields = entry.list();
  while (!fields.ended) {
    const field = fields.text();
    const value = fields.text();
    if (field === 't') return Number(value);
  }
  return undefined;
}
