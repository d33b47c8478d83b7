import type { SkuKey } from '../../core/activity.ts';

/**
 * Every key that Sluice writes to Redis, with its type, owner and life. `docs/KEYS.md` is compared
 * with this table by a test, both ways.
 *
 * All keys of one SKU share the hash tag `{activity/sku}`, so that on a cluster they lie in one slot
 * and one script may touch them all; no call ever names keys of two SKUs. A shard of a SKU is kept like a
 * SKU, in a slot of its own, as `{activity/sku~0}`. Ids are of `idPattern`, so
 * a tag can neither be closed early nor read in two ways.
 */
export interface KeySpec {
  /** Last part of the key. */
  readonly name: string;
  readonly scope: 'sku' | 'room' | 'group' | 'topic' | 'rule' | 'deployment';
  readonly type: 'hash' | 'set' | 'list' | 'stream' | 'string';
  /** Whose scripts write it. */
  readonly owner: 'inventory' | 'outbox' | 'limits' | 'admission' | 'control';
  /** When it goes. */
  readonly life: string;
  readonly holds: string;
}

const untilForgotten = 'until `forget`, no TTL';
const keptForAudit = 'for ever, no TTL: the draw is audited from it';

export const keyCatalogue = {
  stock: {
    name: 'stock',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: untilForgotten,
    holds:
      'counters: `seq gen epoch total available held ordered paused seated shards indexed produced acked buried`; of a shard also `out:GENERATION:SHARD` and `in:GENERATION:SHARD`, units ever moved',
  },
  requests: {
    name: 'requests',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: untilForgotten,
    holds: '`h["request id","user id"]` → the reservation, as a JSON array',
  },
  nonces: {
    name: 'nonces',
    scope: 'sku',
    type: 'set',
    owner: 'inventory',
    life: untilForgotten,
    holds: 'every nonce that reserved',
  },
  persons: {
    name: 'persons',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: 'a field while the person has live units; the key until `forget`, no TTL',
    holds: 'person (JSON string) → the field in `requests` of its one unit, or `[units, fields…]`',
  },
  reservations: {
    name: 'reservations',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: untilForgotten,
    holds:
      'reservation id → one letter of state, and the rest of its field in `requests`; of what was reserved since the last settling, nothing yet',
  },
  order: {
    name: 'order',
    scope: 'sku',
    type: 'list',
    owner: 'inventory',
    life: untilForgotten,
    holds:
      'fields of `requests` in order of reserving, one element per batch, divided by line breaks',
  },
  adjustments: {
    name: 'adjustments',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: untilForgotten,
    holds: 'adjustment id → units added',
  },
  seats: {
    name: 'seats',
    scope: 'sku',
    type: 'string',
    owner: 'inventory',
    life: untilForgotten,
    holds: 'one byte per seat, best first: `0` free, `1` taken; `|` between rows',
  },
  seatNames: {
    name: 'seatnames',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: untilForgotten,
    holds: '`n` and a seat’s name → its offset in `seats`; `p` and the offset → the name',
  },
  places: {
    name: 'places',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: untilForgotten,
    holds: 'reservation id → offsets of its seats, line break, their names as JSON',
  },
  outbox: {
    name: 'outbox',
    scope: 'sku',
    type: 'stream',
    owner: 'outbox',
    life: 'an entry until all its messages are acknowledged or buried; the key until `forget`, no TTL',
    holds:
      'one entry per batch: `f` fields of `requests` divided by line breaks, `n` how many, `g` generation, `t` when, `s` seats',
  },
  partial: {
    name: 'partial',
    scope: 'sku',
    type: 'hash',
    owner: 'outbox',
    life: 'a field while its entry is done in part; the key until `forget`, no TTL',
    holds: 'entry id → one byte per message: `1` done, `0` not',
  },
  orphaned: {
    name: 'orphaned',
    scope: 'sku',
    type: 'hash',
    owner: 'outbox',
    life: 'a field while its entry waits; the key until `forget`, no TTL',
    holds: 'entry id → texts of its reservations, kept when a rebuild replaces `requests`',
  },
  buried: {
    name: 'buried',
    scope: 'sku',
    type: 'list',
    owner: 'outbox',
    life: untilForgotten,
    holds: 'dead letters, newest first, as JSON',
  },
  staged: {
    name: 'staged',
    scope: 'sku',
    type: 'hash',
    owner: 'inventory',
    life: 'TTL 1 hour, or until the rebuild commits',
    holds:
      'live records of a rebuild under way, below `rebuild:TOKEN:`, one key per part it replaces',
  },
  limit: {
    name: 'limit',
    scope: 'rule',
    type: 'hash',
    owner: 'limits',
    life: 'TTL of two fill times of its limit, counted from the last charge',
    holds: 'one counter of an exact limit: `p` parameters, `c` state, `s h z` timeline',
  },
  budget: {
    name: 'budget',
    scope: 'rule',
    type: 'hash',
    owner: 'limits',
    life: 'TTL of two fill times, at least 10 minutes, counted from the last renewal',
    holds:
      'a leased budget: `e` epoch, `l` level, `u` its unit, `t s h z` times, `i:INSTANCE` each lease',
  },
  room: {
    name: 'room',
    scope: 'room',
    type: 'hash',
    owner: 'admission',
    life: keptForAudit,
    holds: 'counters `joined left claimed finished`, and the marker: `lobby` size, `closed` when',
  },
  entries: {
    name: 'entries',
    scope: 'room',
    type: 'hash',
    owner: 'admission',
    life: keptForAudit,
    holds: 'entry id → its newest place: sequence, whether it left, when, weight, group, SKUs',
  },
  participants: {
    name: 'participants',
    scope: 'room',
    type: 'list',
    owner: 'admission',
    life: keptForAudit,
    holds: 'the participant log: entry id, weight, group, SKUs; the index is the sequence',
  },
  claims: {
    name: 'claims',
    scope: 'room',
    type: 'hash',
    owner: 'admission',
    life: keptForAudit,
    holds: 'entry id → its claims, oldest first, at most 128',
  },
  changes: {
    name: 'changes',
    scope: 'room',
    type: 'list',
    owner: 'admission',
    life: keptForAudit,
    holds: 'what happened to entries: `l` left, `c` claimed, `e` ended, `f` finished',
  },
  states: {
    name: 'states',
    scope: 'group',
    type: 'hash',
    owner: 'admission',
    life: keptForAudit,
    holds: 'name → version, a space, value: secrets, epoch and decisions of one room together',
  },
  announced: {
    name: 'announced',
    scope: 'topic',
    type: 'string',
    owner: 'control',
    life: 'TTL of the word, seconds, counted from when it was said',
    holds: 'the last word on a topic, for whoever missed it',
  },
  announcer: {
    name: 'announcer',
    scope: 'topic',
    type: 'hash',
    owner: 'control',
    life: 'TTL of one day, counted from the last word',
    holds: '`epoch` and `version` of the last word: an older one is refused',
  },
  skus: {
    name: 'skus',
    scope: 'deployment',
    type: 'set',
    owner: 'outbox',
    life: 'a member until its SKU is forgotten; the key for ever, no TTL',
    holds:
      'every loaded SKU, as `activity/sku`, and each shard of one, as `activity/sku~0` and on, for the queue to find its streams',
  },
} as const satisfies Readonly<Record<string, KeySpec>>;

export type KeyName = keyof typeof keyCatalogue;

/** Builds keys under one prefix; a deployment has one, and a test one of its own. */
export class Keys {
  readonly prefix: string;

  constructor(prefix = 'sluice') {
    this.prefix = prefix;
  }

  sku(key: SkuKey, name: KeyName): string {
    return `${this.prefix}:{${key.activityId}/${key.skuId}}:${keyCatalogue[name].name}`;
  }

  /** The same part while a rebuild named `token` puts it together. */
  staged(key: SkuKey, token: string, name: KeyName): string {
    return `${this.prefix}:{${key.activityId}/${key.skuId}}:rebuild:${token}:${keyCatalogue[name].name}`;
  }

  /** A part of one room: all of them in one slot. */
  room(activityId: string, name: KeyName): string {
    return `${this.prefix}:{${activityId}}:${keyCatalogue[name].name}`;
  }

  /**
   * Where a named fact lies: with all that share the first two parts of its name, `room/ACTIVITY`, so
   * that one may be written behind another as its fence.
   */
  states(factName: string): string {
    const group = factName.split('/', 2).join('/');
    return `${this.prefix}:{${group}}:${keyCatalogue.states.name}`;
  }

  /** What was said last on a topic, and by whom. */
  topic(topic: string, name: 'announced' | 'announcer'): string {
    return `${this.prefix}:{${topic}}:${keyCatalogue[name].name}`;
  }

  /** A counter of an exact limit; `slot` decides which counters one script may charge together. */
  limit(slot: string, digest: string): string {
    return `${this.prefix}:{${slot}}:${keyCatalogue.limit.name}:${digest}`;
  }

  /** A leased budget, which has a slot of its own. */
  budget(name: string): string {
    return `${this.prefix}:{${name}}:${keyCatalogue.budget.name}`;
  }

  deployment(name: KeyName): string {
    return `${this.prefix}:${keyCatalogue[name].name}`;
  }
}
