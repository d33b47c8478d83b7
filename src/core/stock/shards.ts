import type { SkuKey } from '../activity.ts';
import type { StockMark } from './model.ts';

/**
 * One SKU in several shards: what a shard is called, whose it is, and how the parts add up.
 *
 * The stock of a SKU is one place in the store, and everything about it is decided there one step after
 * the other. A sale that outgrows one place is cut into shards, each with stock, requests, persons and
 * outbox of its own, in a slot of its own. A person belongs to one shard, by hash, so that their request
 * ids, nonces and limit are still judged in one atomic step. What does not stay in one place is units:
 * where a home has run out, it takes some from another shard.
 *
 *     shard 2                         shard 0 (home)
 *       │ available − 5, out[0] = 12 ──▶ │          out[0] counts every unit ever sent to 0
 *       │                                │ in[2] = 12 − 7 seen: available + 5
 *
 * A unit on its way is in neither stock. It is in transit, and both ends know how much is: what the
 * sender has counted out less what the receiver has counted in. The counters only grow, and a receiver
 * is told the sender's counter, not an amount, so whoever finishes a move (the one who began it, anybody
 * else after that one died, or two at once) adds exactly what is missing. Nothing has to be remembered
 * elsewhere, and no crash between the two halves loses a unit or makes one.
 *
 * Counters belong to a generation: a rebuilt SKU has other units, and moves of before concern nobody.
 */
export const shardsMax = 16;

/** A shard as the store knows it, beside its mark. */
export interface ShardState {
  readonly mark: StockMark;
  /** Shards that this SKU was cut into when it was loaded. */
  readonly shards: number;
  /** Messages of this shard that wait in the outbox. */
  readonly waiting: number;
  /** Units ever sent to, and received from, each shard in this generation. */
  readonly out: readonly number[];
  readonly in: readonly number[];
}

/** Stands in no id, so no SKU is ever called like a shard. */
const divider = '~';

/** The key under which a store keeps one shard of a SKU. */
export function shardKey({ activityId, skuId }: SkuKey, shard: number): SkuKey {
  return { activityId, skuId: `${skuId}${divider}${shard}` };
}

/** The SKU that buyers and orders know, of a shard or of itself. */
export function wholeSku<Key extends SkuKey>(key: Key): Key {
  const at = key.skuId.indexOf(divider);
  return at < 0 ? key : { ...key, skuId: key.skuId.slice(0, at) };
}

/** Where a person's requests are judged: the same everywhere, whatever made the process. */
export function homeShard(personId: string, shards: number): number {
  return shards <= 1 ? 0 : hashOf(personId) % shards;
}

/** FNV-1a over the UTF-16 units, well mixed; 32 bits. */
function hashOf(personId: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < personId.length; at += 1) {
    hash = Math.imul(hash ^ personId.charCodeAt(at), 0x01000193);
  }
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  hash = Math.imul(hash ^ (hash >>> 12), 0x297a2d39);
  return (hash ^ (hash >>> 15)) >>> 0;
}

/**
 * Every number of shards divides this one, so a hash modulo it says the home among however many there
 * are: whoever makes a reservation id need not know.
 */
const homes = 720_720;
const homeDigits = 4;

/**
 * The id of a new reservation of this person: `rsv_p`, four digits that say where its home is,
 * `_`, and what makes it unique, so that whoever settles it later asks one shard and not all.
 *
 * @param unique 22 letters of base64url (128 bits).
 */
export function reservationIdAt(personId: string, unique: string): string {
  const home = (hashOf(personId) % homes).toString(36).padStart(homeDigits, '0');
  return `rsv_p${home}_${unique}`;
}

/** By its length too: without a home in it an id is shorter, and could begin in the same way by chance. */
const idWithHome = /^rsv_p([0-9a-z]{4})_[A-Za-z0-9_-]{22}$/;

/** The shard that knows a reservation; undefined where its id does not say, and all must be asked. */
export function shardOfReservation(reservationId: string, shards: number): number | undefined {
  const digits = idWithHome.exec(reservationId)?.[1];
  return digits === undefined ? undefined : Number.parseInt(digits, 36) % shards;
}

/** `units` cut into so many parts that differ by at most one. */
export function evenParts(units: number, parts: number): number[] {
  const least = Math.floor(units / parts);
  const more = units - least * parts;
  return Array.from({ length: parts }, (_, at) => least + (at < more ? 1 : 0));
}

export interface Transit {
  readonly from: number;
  readonly to: number;
  /** The sender's counter: what the receiver's is to become. */
  readonly upTo: number;
  readonly units: number;
}

/** Moves that were begun and not ended. Of two shards in different generations nothing is on its way. */
export function inTransit(states: readonly ShardState[]): readonly Transit[] {
  return states.flatMap((sender, from) =>
    states.flatMap((receiver, to) => {
      if (sender.mark.generation !== receiver.mark.generation) return [];
      const upTo = sender.out[to] ?? 0;
      const units = upTo - (receiver.in[from] ?? 0);
      return units > 0 ? [{ from, to, upTo, units }] : [];
    }),
  );
}

/**
 * The mark of the whole. Units in transit count as available: they are sold by nobody, and will be by
 * somebody.
 *
 * The epoch has to grow with every change between sold out and open, and be odd for the one and even for
 * the other, although each shard runs out and fills again by itself, and although two readers see the
 * shards at slightly different moments. Twice the sum of the shards' own epochs does: each of them only
 * grows, and nothing opens again, or sells out, without one of them having grown. Where two states have
 * the same sum they are the same state.
 *
 * The generation is the lowest: a rebuild that died half-way has not happened.
 */
export function wholeMark(states: readonly ShardState[]): StockMark {
  let [total, available, held, ordered, sequence, epochs] = [0, 0, 0, 0, 0, 0];
  let generation = Infinity;
  let paused = false;
  for (const { mark } of states) {
    total += mark.total;
    available += mark.available;
    held += mark.held;
    ordered += mark.ordered;
    sequence += mark.sequence;
    epochs += mark.stockEpoch;
    generation = Math.min(generation, mark.generation);
    paused ||= mark.paused;
  }
  for (const { units } of inTransit(states)) {
    total += units;
    available += units;
  }
  const stockEpoch = 2 * epochs + (available > 0 ? 0 : 1);
  return { total, available, held, ordered, sequence, generation, stockEpoch, paused };
}

/** What to tell each of so many shards, so that the epoch of the whole becomes higher than this. */
export function epochOfEach(stockEpoch: number, shards: number): number {
  return Math.floor(stockEpoch / (2 * shards)) + 1;
}

/**
 * How many units to take from a shard that has so many: half, so that a home that ran out does not come
 * back for every buyer, but never less than is needed, where that much is there.
 */
export function unitsToTake(available: number, needed: number): number {
  return Math.min(available, Math.max(needed, Math.ceil(available / 2)));
}
