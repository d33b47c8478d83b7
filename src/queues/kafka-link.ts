import type { ConsumerGroupJoinPayload } from '@platformatic/kafka';
import { Admin, Consumer, Producer, UserError } from '@platformatic/kafka';
import type { Timers } from '../ports/clock.ts';
import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';

/**
 * Kafka's calls, with this project's errors and without the client's memory of trouble.
 *
 * A client that failed once is thrown away and made anew: it remembers where the group's coordinator
 * was, and it stops its heartbeats at the first that fails. Making one costs a connection.
 *
 * Three connections, because Kafka answers one connection in order, and a fetch that waits for messages
 * would make everything behind it wait as well: one for fetches that wait, one to be a member of the
 * group on, one for questions.
 */
export interface KafkaLinkOptions {
  /** `kafka://[user:password@]host:port`; `kafka+tls://…` with the system's authorities. */
  readonly urls: readonly string[];
  readonly groupId: string;
  readonly topic: string;
  /** How long the group waits for a member that is silent, ms. */
  readonly sessionMs: number;
  /** Longest wait for one answer, ms. */
  readonly timeoutMs: number;
  readonly timers: Timers;
}

export interface FoundRecord {
  readonly offset: number;
  readonly text: string;
  readonly atMs: number;
}

/** What one partition gave: the records in order, and where to go on. */
export interface FoundRecords {
  readonly partition: number;
  readonly records: readonly FoundRecord[];
  readonly next: number;
}

export interface Asked {
  readonly partition: number;
  readonly from: number;
}

export class KafkaLink {
  readonly #options: KafkaLinkOptions;
  readonly #base: ReturnType<typeof baseOf>;
  readonly #clients = new Map<'ask' | 'wait', Consumer>();
  #producer: Producer | undefined;
  #member: Consumer | undefined;
  #closed = false;

  constructor(options: KafkaLinkOptions) {
    this.#options = options;
    this.#base = baseOf(options);
  }

  /** Makes topics that are not there. From several processes at once. */
  async prepare(topics: readonly TopicWish[]): Promise<void> {
    await this.#with(
      'set up',
      () => new Admin({ ...this.#base, retries: 5 }),
      async (admin) => {
        const there = new Set(await admin.listTopics());
        for (const { name, partitions, replicas, configs } of topics) {
          if (there.has(name)) continue;
          try {
            await admin.createTopics({
              topics: [name],
              partitions,
              replicas,
              configs: Object.entries(configs).map(([key, value]) => ({ name: key, value })),
            });
          } catch (error) {
            if (!named(error, 'TOPIC_ALREADY_EXISTS')) throw error;
          }
        }
      },
    );
    // A topic is made before every broker knows of it and who leads it.
    for (let tries = 0; ; tries += 1) {
      try {
        for (const { name } of topics) await this.partitionsOf(name);
        return;
      } catch (error) {
        if (tries >= 50) throw error;
        await new Promise<void>((resume) => this.#options.timers.after(100, resume));
      }
    }
  }

  async partitionsOf(topic: string): Promise<number> {
    const { leaders } = await this.#leaders('ask', topic);
    return leaders.length;
  }

  /** First and last offsets of every partition: where the log begins, and where it will go on. */
  async ends(topic: string): Promise<{ readonly first: number[]; readonly last: number[] }> {
    return await this.#ask('offsets', async (consumer) => {
      const [first, last] = await Promise.all([
        consumer.listOffsets({ topics: [topic], timestamp: -2n }),
        consumer.listOffsets({ topics: [topic], timestamp: -1n }),
      ]);
      return { first: numbersOf(first.get(topic)), last: numbersOf(last.get(topic)) };
    });
  }

  /** What the group has done of each of so many partitions; -1 where it has said nothing. */
  async committed(topic: string, partitions: number): Promise<number[]> {
    const all = Array.from({ length: partitions }, (_, at) => at);
    return await this.#ask('offsets', async (consumer) => {
      const found = await consumer.listCommittedOffsets({ topics: [{ topic, partitions: all }] });
      const offsets = numbersOf(found.get(topic));
      return all.map((at) => offsets[at] ?? -1);
    });
  }

  /** Records from these places on. With `waitMs` 0 only what is there. */
  async fetch(
    topic: string,
    asked: readonly Asked[],
    waitMs: number,
  ): Promise<readonly FoundRecords[]> {
    const use = waitMs > 0 ? 'wait' : 'ask';
    const { id, leaders } = await this.#leaders(use, topic);
    const nodes = new Map<number, Asked[]>();
    for (const one of asked) {
      const node = leaders[one.partition] ?? -1;
      nodes.set(node, [...(nodes.get(node) ?? []), one]);
    }
    const answers = await this.#use('receive', use, (consumer) =>
      Promise.all(
        [...nodes].map(([node, ones]) =>
          consumer.fetch({
            node,
            maxWaitTime: waitMs,
            minBytes: 1,
            maxBytes: 4 * 1_048_576,
            topics: [
              {
                topicId: id,
                partitions: ones.map(({ partition, from }) => ({
                  partition,
                  currentLeaderEpoch: -1,
                  fetchOffset: BigInt(from),
                  lastFetchedEpoch: -1,
                  partitionMaxBytes: 262_144,
                })),
              },
            ],
          }),
        ),
      ),
    );
    return answers.flatMap((answer) => recordsOf(answer, asked));
  }

  /** Stores these in one partition, in order, on as many brokers as the topic asks for. */
  async produce(topic: string, partition: number, records: readonly Wish[]): Promise<void> {
    this.#refuseIfClosed('publish');
    const producer = (this.#producer ??= quiet(
      new Producer({ ...this.#base, acks: -1, retries: 0, autocreateTopics: false }),
    ));
    try {
      await producer.send({
        acks: -1,
        messages: records.map(({ key, text, atMs }) => ({
          topic,
          partition,
          key: Buffer.from(key),
          value: Buffer.from(text),
          timestamp: BigInt(atMs),
        })),
      });
    } catch (error) {
      if (this.#producer === producer) this.#producer = undefined;
      discard(producer);
      throw refused(error)
        ? new UnavailableError(`Kafka, publish: ${textOf(error)}`, { cause: error })
        : new OutcomeUnknownError(`Kafka, publish: ${textOf(error)}`, { cause: error });
    }
  }

  /** Whether this process is a member of the group as far as it knows. */
  get joined(): boolean {
    return this.#member !== undefined;
  }

  /** Becomes a member; `assigned` is told at once, and again whenever the partitions change hands. */
  async join(assigned: (partitions: readonly number[]) => void): Promise<void> {
    this.#refuseIfClosed('join');
    const { topic } = this.#options;
    const member = quiet(
      new Consumer({
        ...this.#base,
        groupId: this.#options.groupId,
        retries: 5,
        // The broker answers a join when every member has come or was missed. Whoever hangs up before
        // that is a member too, and the next join waits for it in turn: then nobody ever gets in.
        requestTimeout: this.#options.sessionMs + this.#options.timeoutMs,
        sessionTimeout: this.#options.sessionMs,
        rebalanceTimeout: this.#options.sessionMs,
        // Also how soon members hear that another came or went.
        heartbeatInterval: Math.min(1_000, this.#options.sessionMs / 6),
      }),
    );
    member.topics.track(topic);
    member.on('consumer:group:join', ({ assignments }: ConsumerGroupJoinPayload) => {
      if (this.#member !== member && this.#member !== undefined) return;
      const mine = assignments?.find((each) => each.topic === topic);
      assigned(mine?.partitions ?? []);
    });
    const leave = (): void => {
      if (this.#member === member) this.#member = undefined;
      discard(member);
    };
    member.on('consumer:heartbeat:error', leave);
    try {
      await member.joinGroup({});
    } catch (error) {
      discard(member);
      throw new UnavailableError(`Kafka, join: ${textOf(error)}`, { cause: error });
    }
    if (this.#closed) {
      leave();
      return;
    }
    this.#member = member;
  }

  /** Tells the group how far partitions are done. */
  async commit(topic: string, marks: ReadonlyMap<number, number>): Promise<void> {
    const member = this.#member;
    if (member === undefined) throw new UnavailableError('Kafka, commit: not in the group now');
    try {
      await member.commit({
        offsets: [...marks].map(([partition, offset]) => ({
          topic,
          partition,
          offset: BigInt(offset),
          leaderEpoch: -1,
        })),
      });
    } catch (error) {
      if (this.#member === member) this.#member = undefined;
      discard(member);
      throw new OutcomeUnknownError(`Kafka, commit: ${textOf(error)}`, { cause: error });
    }
  }

  /** Leaves the group, so that others need not wait for it to be missed. Idempotent. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    const member = this.#member;
    this.#member = undefined;
    const left = member === undefined ? undefined : end(member);
    for (const client of this.#clients.values()) discard(client);
    if (this.#producer !== undefined) discard(this.#producer);
    const { timers, timeoutMs } = this.#options;
    let over: () => void = () => undefined;
    const late = new Promise<void>((resolve) => {
      over = resolve;
    });
    const timer = timers.after(timeoutMs, over);
    await Promise.race([left, late]);
    timer.cancel();
  }

  #ask<T>(what: string, run: (consumer: Consumer) => Promise<T>): Promise<T> {
    return this.#use(what, 'ask', run);
  }

  async #leaders(
    use: 'ask' | 'wait',
    topic: string,
  ): Promise<{ readonly id: string; readonly leaders: readonly number[] }> {
    return await this.#use('topic', use, async (consumer) => {
      const found = (await consumer.metadata({ topics: [topic] })).topics.get(topic);
      if (found === undefined || found.partitions.some(({ leader }) => leader < 0)) {
        consumer.clearMetadata();
        throw new UnavailableError(`Kafka topic ${topic} has no leader now`);
      }
      return { id: found.id, leaders: found.partitions.map(({ leader }) => leader) };
    });
  }

  /** A question changes nothing, so no answer is just that. */
  async #use<T>(
    what: string,
    use: 'ask' | 'wait',
    run: (consumer: Consumer) => Promise<T>,
  ): Promise<T> {
    this.#refuseIfClosed(what);
    let client = this.#clients.get(use);
    if (client === undefined) {
      client = quiet(
        new Consumer({ ...this.#base, groupId: this.#options.groupId, isolationLevel: 0 }),
      );
      this.#clients.set(use, client);
    }
    try {
      return await run(client);
    } catch (error) {
      if (this.#clients.get(use) === client) this.#clients.delete(use);
      discard(client);
      if (error instanceof UnavailableError || named(error, outOfRange)) throw error;
      throw new UnavailableError(`Kafka, ${what}: ${textOf(error)}`, { cause: error });
    }
  }

  async #with<One extends Client, T>(
    what: string,
    make: () => One,
    run: (client: One) => Promise<T>,
  ): Promise<T> {
    const client = quiet(make());
    try {
      return await run(client);
    } catch (error) {
      throw new UnavailableError(`Kafka, ${what}: ${textOf(error)}`, { cause: error });
    } finally {
      discard(client);
    }
  }

  #refuseIfClosed(what: string): void {
    if (this.#closed) throw new UnavailableError(`Kafka, ${what}: the connection is closed`);
  }
}

export interface TopicWish {
  readonly name: string;
  readonly partitions: number;
  readonly replicas: number;
  readonly configs: Readonly<Record<string, string>>;
}

export interface Wish {
  readonly key: string;
  readonly text: string;
  readonly atMs: number;
}

/** Kafka's name for a place that the log does not have any more, or not yet. */
const outOfRange = 'OFFSET_OUT_OF_RANGE';
export const isOutOfRange = (error: unknown): boolean => named(error, outOfRange);

type Client = Consumer | Producer | Admin;

/** An error event that nobody hears ends the process; every call tells its own error anyway. */
function quiet<One extends Client>(client: One): One {
  client.on('error', () => undefined);
  return client;
}

async function end(client: Client): Promise<void> {
  try {
    // By force: with what it is still doing.
    await (client instanceof Consumer ? client.close(true) : client.close());
  } catch {
    // A server that does not answer: it misses us later, and nothing is expected of it any more.
  }
}

const discard = (client: Client): void => void end(client);

interface Findable {
  findBy(property: string, value: unknown): unknown;
}

function named(error: unknown, apiId: string): boolean {
  const has = error instanceof Error && 'findBy' in error;
  return has && Boolean((error as Error & Findable).findBy('apiId', apiId));
}

/** Nobody took the connection, so nobody took the message. */
function refused(error: unknown): boolean {
  if (error instanceof AggregateError) return error.errors.every(refused);
  if (!(error instanceof Error)) return false;
  if (error instanceof UserError) return true;
  const { code, syscall } = error as NodeJS.ErrnoException;
  if (code === 'ECONNREFUSED' && syscall === 'connect') return true;
  return error.cause !== undefined && refused(error.cause);
}

/** The innermost words: those around them only say that something failed. */
function textOf(error: unknown): string {
  if (error instanceof AggregateError && error.errors.length > 0)
    return textOf(error.errors[error.errors.length - 1]);
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error ? `${error.message} ${textOf(error.cause)}` : error.message;
}

const numbersOf = (offsets: readonly bigint[] | undefined): number[] =>
  Array.from(offsets ?? [], (offset) => Number(offset ?? -1n));

type FetchResponse = Awaited<ReturnType<Consumer['fetch']>>;

function recordsOf(answer: FetchResponse, asked: readonly Asked[]): FoundRecords[] {
  return answer.responses.flatMap(({ partitions }) =>
    partitions.map(({ partitionIndex, records: batches }) => {
      const from = asked.find(({ partition }) => partition === partitionIndex)?.from ?? 0;
      const records: FoundRecord[] = [];
      let next = from;
      for (const batch of batches ?? []) {
        const first = Number(batch.firstOffset);
        next = Math.max(next, first + batch.lastOffsetDelta + 1);
        for (const record of batch.records) {
          const offset = first + record.offsetDelta;
          // A batch is given whole, also what is before the place that was asked for.
          if (offset < from) continue;
          records.push({
            offset,
            text: record.value?.toString() ?? '',
            atMs: Number(batch.firstTimestamp + record.timestampDelta),
          });
        }
      }
      return { partition: partitionIndex, records, next };
    }),
  );
}

function baseOf({ urls, timeoutMs }: KafkaLinkOptions) {
  const parsed = urls.map((url) => {
    const one = URL.canParse(url) ? new URL(url) : undefined;
    const known = one !== undefined && ['kafka:', 'kafka+tls:'].includes(one.protocol);
    if (!known || one.hostname === '')
      throw new RangeError(`${url} is not the address of a Kafka broker; kafka://host:port is`);
    return one;
  });
  const [first] = parsed;
  if (first === undefined) throw new RangeError('no address of a Kafka broker');
  const same = (pick: (url: URL) => string): boolean =>
    parsed.every((url) => pick(url) === pick(first));
  if (!same((url) => `${url.protocol}${url.username}:${url.password}`))
    throw new RangeError('the addresses of one Kafka cluster have one scheme and one user');
  const username = decodeURIComponent(first.username);
  return {
    clientId: 'sluice',
    bootstrapBrokers: parsed.map(({ hostname, port }) => ({
      host: hostname,
      port: port === '' ? 9092 : Number(port),
    })),
    timeout: timeoutMs,
    requestTimeout: timeoutMs,
    connectTimeout: timeoutMs,
    retries: 1,
    retryDelay: 100,
    ...(first.protocol === 'kafka+tls:' ? { tls: {} } : {}),
    ...(username === ''
      ? {}
      : {
          sasl: {
            mechanism: 'PLAIN' as const,
            username,
            password: decodeURIComponent(first.password),
          },
        }),
  };
}
