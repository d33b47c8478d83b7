import type { SkuKey } from '../../core/activity.ts';
import { adjustmentsMax } from '../../core/stock/stock-machine.ts';
import {
  checkAdjustment,
  checkBatch,
  checkPreload,
  sequenceBase,
  settleMax,
} from '../../core/stock/validate.ts';
import { OutcomeUnknownError, UnavailableError, UnknownSkuError } from '../../ports/errors.ts';
import type {
  Fate,
  Preload,
  Rebuild,
  RequestRecord,
  ReserveOutcome,
  ReserveReply,
  ReserveRequest,
  SettleReply,
  ShardState,
  ShardStore,
  StockMark,
} from '../../ports/inventory-store.ts';
import type { Random } from '../../ports/random.ts';
import type { RedisArgument, RedisLink } from './client.ts';
import type { KeyName, Keys } from './keys.ts';
import { pack } from './pack.ts';
import { LivePages } from './live-pages.ts';
import { rebuildParts, seatLayout } from './rebuild.ts';
import {
  checkReservationId,
  fieldOf,
  letterOfRelease,
  personField,
  readRecord,
  recordOf,
  textOfRequest,
} from './records.ts';
import { Reply } from './replies.ts';
import type { Script } from './scripts.ts';
import { scripts } from './scripts.ts';

/**
 * The inventory store in Redis, Redis Cluster or Valkey: every operation is one script over the keys
 * of one SKU, which share a slot. Promises that need the server's help: `maxmemory-policy noeviction`,
 * and `appendonly yes` with `appendfsync always` where an answer must survive the server's machine.
 * What a failover loses all the same is noticed by the sequence.
 *
 * A repeated reservation id under another request is not noticed here (ids have 128 random bits).
 */
export class RedisInventoryStore implements ShardStore {
  readonly #link: RedisLink;
  readonly #keys: Keys;
  readonly #random: Random;
  readonly #pages: LivePages;

  constructor(link: RedisLink, keys: Keys, random: Random) {
    this.#link = link;
    this.#keys = keys;
    this.#random = random;
    this.#pages = new LivePages();
  }

  async preload(sku: SkuKey, stock: Preload): Promise<StockMark> {
    checkPreload(stock);
    const seats = seatLayout(stock.seats);
    await this.#register(sku);
    const reply = await this.#run(sku, scripts.preload, [
      String(stock.total),
      String(stock.generation),
      String(stock.stockEpoch),
      String(sequenceBase(stock.generation)),
      seats.map,
      pack(seats.names),
      String(stock.shards ?? 1),
    ]);
    return reply.mark();
  }

  async reserve(
    sku: SkuKey,
    batch: readonly ReserveRequest[],
    seenSequence: number,
    nowMs: number,
  ): Promise<ReserveReply> {
    checkBatch(batch);
    const packed = packBatch(batch, nowMs);
    const reply = await this.#run(sku, scripts.reserve, [
      String(seenSequence),
      String(nowMs),
      packed,
    ]);
    const kind = reply.text();
    if (kind === 'unknown_sku') return { kind };
    const mark = reply.mark();
    if (kind === 'forgotten' || kind === 'paused') return { kind, mark };
    const letters = reply.text();
    return {
      kind: 'done',
      outcomes: batch.map((request, at) =>
        readOutcome(letters[at], request, reply, mark.generation, nowMs),
      ),
      mark,
    };
  }

  async find(sku: SkuKey, userId: string, requestId: string): Promise<RequestRecord | undefined> {
    const field = fieldOf(userId, requestId);
    const reply = await this.#look(sku, scripts.find, [field]);
    if (reply.length === 0) return undefined;
    const generation = reply.number();
    return recordOf(reply.text(), field, reply.text(), reply.text(), generation);
  }

  async settle(sku: SkuKey, fates: readonly Fate[], _nowMs: number): Promise<SettleReply> {
    if (fates.length > settleMax)
      throw new RangeError(`${fates.length} fates at once; at most ${settleMax} allowed`);
    const said = fates.map(({ fate, reason }) =>
      fate === 'ordered' ? 'o' : fate === 'retaken' ? 't' : letterOfRelease(reason),
    );
    const packed = pack([fates.map((each) => each.reservationId), said.join('')]);
    for (;;) {
      const reply = await this.#run(sku, scripts.settle, [packed]);
      if (reply.length === 0) return { mark: nothing, changed: 0 };
      if (reply.length > 1) return { changed: reply.number(), mark: reply.mark() };
      // An id is not indexed yet; nothing was done.
      await this.#index(sku);
    }
  }

  async adjust(
    sku: SkuKey,
    adjustmentId: string,
    delta: number,
    _nowMs: number,
  ): Promise<{ readonly applied: boolean; readonly mark: StockMark }> {
    checkAdjustment(delta, 0);
    const reply = await this.#run(sku, scripts.adjust, [
      adjustmentId,
      String(delta),
      String(adjustmentsMax),
    ]);
    if (reply.length === 0) throw new UnknownSkuError(sku.activityId, sku.skuId);
    const kind = reply.text();
    if (kind === 'other')
      throw new RangeError(
        `Adjustment ${adjustmentId} was made before, by ${reply.text()}, not ${delta}`,
      );
    if (kind === 'seated')
      throw new RangeError('A SKU with seats has as many units as seats; its total cannot change');
    if (kind === 'many') throw new RangeError(`A SKU takes at most ${adjustmentsMax} adjustments`);
    return { applied: kind === 'applied', mark: reply.mark() };
  }

  async setPaused(sku: SkuKey, paused: boolean): Promise<StockMark> {
    const reply = await this.#run(sku, scripts.pause, [paused ? '1' : '0']);
    if (reply.length === 0) throw new UnknownSkuError(sku.activityId, sku.skuId);
    return reply.mark();
  }

  async mark(sku: SkuKey): Promise<StockMark | undefined> {
    const values = await this.#read(sku, 'stock', (key) => ['HMGET', key, ...markFields]);
    if (!Array.isArray(values) || values[0] === null) return undefined;
    return new Reply(values.map(Number)).mark();
  }

  async shard(key: SkuKey): Promise<ShardState | undefined> {
    const at = await this.#read(key, 'stock', (name) => ['HMGET', name, 'gen', 'shards']);
    const [generation, shards] = Array.isArray(at) ? at : [];
    if (typeof generation !== 'string') return undefined;
    const count = Number(shards ?? 1);
    const counters = (way: string): string[] =>
      Array.from({ length: count }, (_, other) => `${way}:${generation}:${other}`);
    const values = await this.#read(key, 'stock', (name) => [
      'HMGET',
      name,
      ...markFields,
      'produced',
      'acked',
      'buried',
      ...counters('out'),
      ...counters('in'),
    ]);
    if (!Array.isArray(values) || values[0] === null) return undefined;
    const numbers = values.map(Number);
    const mark = new Reply(numbers.slice(0, markFields.length)).mark();
    // Rebuilt between the two looks: the counters were those of the stock before.
    if (mark.generation !== Number(generation)) return this.shard(key);
    const [produced = 0, acked = 0, buried = 0] = numbers.slice(markFields.length);
    const from = markFields.length + 3;
    return {
      mark,
      shards: count,
      waiting: produced - acked - buried,
      out: numbers.slice(from, from + count),
      in: numbers.slice(from + count),
    };
  }

  moveOut(
    key: SkuKey,
    to: number,
    units: number,
    generation: number,
  ): Promise<ShardState | undefined> {
    return this.#move(key, 'out', to, units, generation);
  }

  moveIn(
    key: SkuKey,
    from: number,
    upTo: number,
    generation: number,
  ): Promise<ShardState | undefined> {
    return this.#move(key, 'in', from, upTo, generation);
  }

  async #move(
    key: SkuKey,
    way: 'out' | 'in',
    other: number,
    units: number,
    generation: number,
  ): Promise<ShardState | undefined> {
    const args = [way, String(other), String(units), String(generation)];
    const reply = await this.#run(key, scripts.move, args);
    return reply.length === 0 ? undefined : this.shard(key);
  }

  async holders(sku: SkuKey): Promise<readonly string[]> {
    const persons = new Set<string>();
    let cursor = '0';
    do {
      const at = cursor;
      const reply = new Reply(
        await this.#read(sku, 'persons', (key) => ['HSCAN', key, at, 'COUNT', '1000']),
      );
      cursor = reply.text();
      const page = reply.list();
      while (!page.ended) {
        persons.add(JSON.parse(page.text()) as string);
        page.text();
      }
    } while (cursor !== '0');
    return [...persons];
  }

  live(sku: SkuKey, after: string | undefined, limit: number): Promise<readonly RequestRecord[]> {
    return this.#pages.page(
      {
        page: (element, offset, count) =>
          this.#look(sku, scripts.live, [String(element), String(offset), String(count)]),
        elements: async (from, to) =>
          new Reply(
            await this.#read(sku, 'order', (key) => ['LRANGE', key, String(from), String(to)]),
          ),
        field: async (id) => {
          await this.#index(sku);
          const value = await this.#read(sku, 'reservations', (key) => ['HGET', key, id]);
          return typeof value === 'string' ? `h${value.slice(1)}` : undefined;
        },
      },
      `${sku.activityId}/${sku.skuId}`,
      after,
      limit,
    );
  }

  async rebuild(sku: SkuKey, state: Rebuild): Promise<StockMark> {
    const names = state.seats ?? (await this.#seatNames(sku));
    const parts = rebuildParts(state, names);
    const token = Buffer.from(this.#random.bytes(9)).toString('base64url');
    const staged = (name: KeyName): string => this.#keys.staged(sku, token, name);
    await this.#register(sku);
    const stageKeys = scripts.stage.keys.map(staged);
    for (const part of parts.pieces)
      await this.#link.run(scripts.stage, stageKeys, ['3600', pack(part)]);
    const standing = scripts.rebuild.keys.slice(0, 9).map((name) => this.#keys.sku(sku, name));
    const reply = await this.#link.run(
      scripts.rebuild,
      [
        ...standing,
        ...scripts.rebuild.keys.slice(9, 16).map(staged),
        ...scripts.rebuild.keys.slice(16).map((name) => this.#keys.sku(sku, name)),
      ],
      [
        String(state.total),
        String(state.generation),
        String(state.stockEpoch),
        String(sequenceBase(state.generation)),
        String(parts.held),
        String(parts.ordered),
        parts.map,
        state.shards === undefined ? '' : String(state.shards),
      ],
    );
    return new Reply(reply).mark();
  }

  async forget(sku: SkuKey): Promise<boolean> {
    const keys = scripts.forget.keys.map((name) => this.#keys.sku(sku, name));
    if ((await this.#link.run(scripts.forget, keys, [])) !== 1) return false;
    await this.#link.command(this.#keys.deployment('skus'), [
      'SREM',
      this.#keys.deployment('skus'),
      `${sku.activityId}/${sku.skuId}`,
    ]);
    return true;
  }

  /** Leaves the link to its owner. */
  async close(): Promise<void> {
    await this.#link.close();
  }

  /** The queue looks here for its streams. Before the SKU itself, so that no stream is ever missed. */
  async #register(sku: SkuKey): Promise<void> {
    const key = this.#keys.deployment('skus');
    await this.#link.command(key, ['SADD', key, `${sku.activityId}/${sku.skuId}`]);
  }

  /** Until every reservation made before this call can be found by its id. */
  async #index(sku: SkuKey): Promise<void> {
    const keys = scripts.index.keys.map((name) => this.#keys.sku(sku, name));
    while (Number(await this.#link.run(scripts.index, keys, [String(indexElements)])) > 0);
  }

  async #run(sku: SkuKey, script: Script, args: readonly RedisArgument[]): Promise<Reply> {
    const keys = script.keys.map((name) => this.#keys.sku(sku, name));
    return new Reply(await this.#link.run(script, keys, args));
  }

  /** A script that only reads: whatever failed, it did nothing. */
  async #look(sku: SkuKey, script: Script, args: readonly RedisArgument[]): Promise<Reply> {
    try {
      return await this.#run(sku, script, args);
    } catch (error) {
      throw harmless(error);
    }
  }

  async #read(
    sku: SkuKey,
    name: KeyName,
    command: (key: string) => RedisArgument[],
  ): Promise<unknown> {
    const key = this.#keys.sku(sku, name);
    try {
      return await this.#link.command(key, command(key));
    } catch (error) {
      throw harmless(error);
    }
  }

  /** The seats of a SKU that has some, best first. */
  async #seatNames(sku: SkuKey): Promise<readonly string[] | undefined> {
    const reply = new Reply(await this.#read(sku, 'seatNames', (key) => ['HGETALL', key]));
    const byOffset: [number, string][] = [];
    while (!reply.ended) {
      const field = reply.text();
      const value = reply.text();
      if (field.startsWith('p')) byOffset.push([Number(field.slice(1)), value]);
    }
    if (byOffset.length === 0) return undefined;
    return byOffset.sort((a, b) => a[0] - b[0]).map(([, name]) => name);
  }
}

const markFields = ['seq', 'gen', 'epoch', 'total', 'available', 'held', 'ordered', 'paused'];

/** Batches indexed in one call: some milliseconds at most. */
const indexElements = 8;

const nothing: StockMark = {
  total: 0,
  available: 0,
  held: 0,
  ordered: 0,
  sequence: 0,
  generation: 0,
  stockEpoch: 1,
  paused: false,
};

function harmless(error: unknown): unknown {
  return error instanceof OutcomeUnknownError
    ? new UnavailableError(error.message, { cause: error })
    : error;
}

/** The batch as one argument, with what the script may take for granted found out here. */
function packBatch(batch: readonly ReserveRequest[], nowMs: number): Buffer {
  const fields: string[] = [];
  const nonces: string[] = [];
  const persons: string[] = [];
  const quantities: number[] = [];
  const limits: number[] = [];
  const ids: string[] = [];
  const texts: string[] = [];
  let units = 0;
  let plain = true;
  let named = false;
  for (const request of batch) {
    checkReservationId(request.reservationId);
    fields.push(fieldOf(request.userId, request.requestId));
    nonces.push(request.nonce);
    persons.push(personField(request.personId));
    quantities.push(request.quantity);
    limits.push(request.limit);
    ids.push(request.reservationId);
    texts.push(textOfRequest(request, nowMs));
    units += request.quantity;
    if (request.quantity > request.limit) plain = false;
    if (request.seats !== undefined) named = true;
  }
  const count = batch.length;
  const distinct = (values: readonly string[]): boolean =>
    count === 1 || new Set(values).size === count;
  if (!distinct(ids))
    throw new RangeError('A reservation id is used for two requests of one batch');
  plain &&= !named && distinct(fields) && distinct(nonces) && distinct(persons);
  const seats = named ? batch.map((request) => request.seats ?? false) : false;
  return pack([fields, nonces, persons, quantities, limits, ids, texts, seats, units, plain]);
}

function readOutcome(
  letter: string | undefined,
  request: ReserveRequest,
  reply: Reply,
  generation: number,
  nowMs: number,
): ReserveOutcome {
  switch (letter) {
    case 'g':
      return { kind: 'reserved', record: granted(request, generation, nowMs, undefined) };
    case 'G': {
      const seats = JSON.parse(reply.text()) as string[];
      return { kind: 'reserved', record: granted(request, generation, nowMs, seats) };
    }
    case 'k': {
      const record = readRecord(reply, generation);
      return record.fingerprint === request.fingerprint
        ? { kind: 'existing', record }
        : { kind: 'conflict' };
    }
    case 'n':
      return { kind: 'nonce_used' };
    case 'l': {
      const live = Array.from({ length: reply.number() }, () => readRecord(reply, generation));
      return { kind: 'limit_reached', live };
    }
    case 's':
      return { kind: 'sold_out' };
    case 't':
      return { kind: 'seat_taken', seats: JSON.parse(reply.text()) as string[] };
    default:
      throw new Error(`The reserve script said ${String(letter)} of a request`);
  }
}

function granted(
  request: ReserveRequest,
  generation: number,
  nowMs: number,
  seats: readonly string[] | undefined,
): RequestRecord {
  return {
    requestId: request.requestId,
    userId: request.userId,
    personId: request.personId,
    fingerprint: request.fingerprint,
    nonce: request.nonce,
    reservationId: request.reservationId,
    quantity: request.quantity,
    ...(seats === undefined ? {} : { seats }),
    reservedAtMs: nowMs,
    deadlineMs: request.deadlineMs,
    generation,
    state: 'held',
  };
}
