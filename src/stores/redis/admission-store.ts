import { decodeBase64UrlInto } from '../../core/room/bytes.ts';
import type {
  AdmissionCounts,
  AdmissionStore,
  Entry,
  EntryChange,
  FinishOutcome,
  JoinReply,
  JoinRequest,
  LobbyMarker,
  Participant,
  StateFence,
  StoredState,
  TakePassReply,
  TakePassRequest,
} from '../../ports/admission-store.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { RedisArgument, RedisLink } from './client.ts';
import type { KeyName, Keys } from './keys.ts';
import { Reply } from './replies.ts';
import type { Script } from './scripts.ts';
import { scripts } from './scripts.ts';

/**
 * The admission store in Redis, Redis Cluster or Valkey, on a connection of its own: never the
 * inventory's, so that a crowd at the door cannot slow a reservation.
 *
 * All keys of one room share a slot, and every operation that decides is one script. The clock is the
 * server's: of gateways whose clocks differ, none can take a pass after its window on the one clock
 * that counts. Answers survive a crash where the server flushes before it answers: `appendonly yes`,
 * `appendfsync always`.
 *
 * What the memory store keeps for ever of one entry is bounded here to its newest 128 claims; an
 * attempt's number never comes twice all the same, because the newest claim of a SKU is never dropped.
 */
export interface RedisAdmissionOptions {
  readonly link: RedisLink;
  readonly keys: Keys;
  /** Whose time decides: the server's, or (in tests, whose time is virtual) the caller's. */
  readonly clock?: 'server' | 'caller';
}

/** Places in one room, as in memory. */
const roomEntriesMax = 50_000_000;
/** More than twice the SKUs of an activity, so that there is always an older one to drop. */
const claimsPerEntryMax = 128;
/** Lines in one page; a caller who wants more asks again. */
const pageMax = 10_000;

const entryIdPattern = /^[A-Za-z0-9_-]{22}$/;
const wordPattern = /^[A-Za-z0-9_-]{0,64}$/;

export class RedisAdmissionStore implements AdmissionStore {
  readonly #link: RedisLink;
  readonly #keys: Keys;
  readonly #callersTime: boolean;

  constructor(options: RedisAdmissionOptions) {
    this.#link = options.link;
    this.#keys = options.keys;
    this.#callersTime = options.clock === 'caller';
  }

  async join(activityId: string, request: JoinRequest, nowMs: number): Promise<JoinReply> {
    const wish = wishOf(request);
    const reply = await this.#run(activityId, scripts.roomJoin, [
      this.#now(nowMs),
      checkedId(request.entryId),
      wish,
      String(roomEntriesMax),
    ]);
    if (reply.length === 1) {
      throw new UnavailableError(
        `activity "${activityId}": room holds ${roomEntriesMax} places, all taken`,
      );
    }
    const created = reply.number() === 1;
    return { created, entry: entryOf(request.entryId, reply.text(), reply.number()) };
  }

  async findEntry(activityId: string, entryId: string): Promise<Entry | undefined> {
    const reply = await harmless(this.#run(activityId, scripts.roomFind, [entryId]));
    return reply.length === 0 ? undefined : entryOf(entryId, reply.text(), reply.number());
  }

  leave(activityId: string, entryId: string, nowMs: number): Promise<boolean> {
    return this.#once(activityId, scripts.roomLeave, [this.#now(nowMs), entryId]);
  }

  async closeLobby(activityId: string, nowMs: number): Promise<LobbyMarker> {
    const reply = await this.#run(activityId, scripts.roomClose, [this.#now(nowMs)]);
    return { lobbySize: reply.number(), closedAtMs: Number(reply.text()) };
  }

  async lobbyMarker(activityId: string): Promise<LobbyMarker | undefined> {
    const [lobby, closed] = await this.#fields(activityId, ['lobby', 'closed']);
    if (lobby === undefined || closed === undefined) return undefined;
    return { lobbySize: lobby, closedAtMs: closed };
  }

  async participants(
    activityId: string,
    fromSequence: number,
    limit: number,
  ): Promise<readonly Participant[]> {
    const from = Math.max(0, fromSequence);
    const lines = await this.#page(activityId, 'participants', from, limit);
    return lines.map((line, at) => {
      const [entryId = '', weight = '', group = '', skus = ''] = line.split('|');
      return {
        entryId,
        sequence: from + at,
        skuIds: listOf(skus),
        weight: Number(weight),
        group,
      };
    });
  }

  async changes(
    activityId: string,
    fromIndex: number,
    limit: number,
  ): Promise<readonly EntryChange[]> {
    const lines = await this.#page(activityId, 'changes', Math.max(0, fromIndex), limit);
    return lines.map(changeOf);
  }

  async takePass(
    activityId: string,
    request: TakePassRequest,
    nowMs: number,
  ): Promise<TakePassReply> {
    const reply = await this.#run(activityId, scripts.roomPass, [
      this.#now(nowMs),
      request.entryId,
      checkedWord(request.skuId, 'SKU'),
      String(request.wave),
      String(request.claimBeforeMs),
      String(request.passLifeMs),
      request.renewable === true ? '1' : '0',
      String(claimsPerEntryMax),
    ]);
    const kind = reply.text();
    switch (kind) {
      case 'unknown_entry':
      case 'left':
      case 'missed':
        return { kind };
      case 'other_sku':
        return { kind, skuId: reply.text() };
      case 'taken': {
        const attempt = reply.number();
        const wave = reply.number();
        const issuedAtMs = Number(reply.text());
        return {
          kind,
          attempt,
          wave,
          issuedAtMs,
          notBeforeMs: Math.floor(issuedAtMs / 1000) * 1000,
          expiresAtMs: Number(reply.text()),
          fresh: reply.number() === 1,
        };
      }
      default:
        throw new Error(`The pass script said ${kind}`);
    }
  }

  endAttempt(
    activityId: string,
    entryId: string,
    skuId: string,
    attempt: number,
    nowMs: number,
  ): Promise<boolean> {
    return this.#once(activityId, scripts.roomEnd, [
      this.#now(nowMs),
      entryId,
      skuId,
      String(attempt),
    ]);
  }

  finish(
    activityId: string,
    entryId: string,
    outcome: FinishOutcome,
    nowMs: number,
  ): Promise<boolean> {
    return this.#once(activityId, scripts.roomFinish, [this.#now(nowMs), entryId, outcome]);
  }

  async counts(activityId: string): Promise<AdmissionCounts> {
    const names = ['joined', 'lobby', 'left', 'claimed', 'finished'];
    const [joined = 0, lobby, left = 0, claimed = 0, finished = 0] = await this.#fields(
      activityId,
      names,
    );
    return { joined, lobby: lobby ?? joined, left, claimed, finished };
  }

  async loadState(name: string): Promise<StoredState | undefined> {
    const key = this.#keys.states(name);
    const text = await harmless(this.#link.command(key, ['HGET', key, name]));
    if (typeof text !== 'string') return undefined;
    const space = text.indexOf(' ');
    return { version: Number(text.slice(0, space)), value: text.slice(space + 1) };
  }

  async saveState(
    name: string,
    value: string,
    expectedVersion: number,
    fence?: StateFence,
  ): Promise<boolean> {
    const key = this.#keys.states(name);
    if (fence !== undefined && this.#keys.states(fence.name) !== key) {
      throw new RangeError(
        `"${name}" cannot stand behind "${fence.name}": their names differ in the first two parts`,
      );
    }
    const reply = await this.#link.run(
      scripts.stateSave,
      [key],
      [name, value, String(expectedVersion), fence?.name ?? '', String(fence?.version ?? 0)],
    );
    return reply === 1;
  }

  async close(): Promise<void> {
    await this.#link.close();
  }

  /** The script takes an empty word for its own clock. */
  #now(nowMs: number): string {
    return this.#callersTime ? String(nowMs) : '';
  }

  async #run(activityId: string, script: Script, args: readonly RedisArgument[]): Promise<Reply> {
    return new Reply(await this.#ask(activityId, script, args));
  }

  /** An operation that happens once; false where it had, or cannot. */
  async #once(
    activityId: string,
    script: Script,
    args: readonly RedisArgument[],
  ): Promise<boolean> {
    return (await this.#ask(activityId, script, args)) === 1;
  }

  #ask(activityId: string, script: Script, args: readonly RedisArgument[]): Promise<unknown> {
    const keys = script.keys.map((name) => this.#keys.room(activityId, name));
    return this.#link.run(script, keys, args);
  }

  async #fields(
    activityId: string,
    names: readonly string[],
  ): Promise<readonly (number | undefined)[]> {
    const key = this.#keys.room(activityId, 'room');
    const values = await harmless(this.#link.command(key, ['HMGET', key, ...names]));
    if (!Array.isArray(values)) throw new Error(`Redis replied ${String(values)} to HMGET`);
    return values.map((value) => (typeof value === 'string' ? Number(value) : undefined));
  }

  async #page(
    activityId: string,
    name: KeyName,
    from: number,
    limit: number,
  ): Promise<readonly string[]> {
    const count = Math.min(limit, pageMax);
    if (count <= 0) return [];
    const key = this.#keys.room(activityId, name);
    const to = String(from + count - 1);
    const reply = new Reply(
      await harmless(this.#link.command(key, ['LRANGE', key, String(from), to])),
    );
    const lines: string[] = [];
    while (!reply.ended) lines.push(reply.text());
    return lines;
  }
}

/** A call that only reads: whatever failed, it did nothing. */
async function harmless<Value>(call: Promise<Value>): Promise<Value> {
  try {
    return await call;
  } catch (error) {
    if (!(error instanceof OutcomeUnknownError)) throw error;
    throw new UnavailableError(error.message, { cause: error });
  }
}

const idBytes = Buffer.alloc(16);

function checkedId(entryId: string): string {
  if (entryIdPattern.test(entryId) && decodeBase64UrlInto(entryId, idBytes, 0)) return entryId;
  throw new RangeError(`entry id "${entryId}" is not 16 bytes in base64url (22 characters)`);
}

function checkedWord(word: string, what: string): string {
  if (wordPattern.test(word)) return word;
  throw new RangeError(`${what} "${word}" is not of the characters A-Z a-z 0-9 _ -, at most 64`);
}

function wishOf({ weight, group, skuIds }: JoinRequest): string {
  const skus = skuIds.map((skuId) => checkedWord(skuId, 'SKU')).join(',');
  return `${weight}|${checkedWord(group, 'group')}|${skus}`;
}

function listOf(skus: string): readonly string[] {
  return skus === '' ? [] : skus.split(',');
}

/** `lobbySize` is -1 while the lobby is open. */
function entryOf(entryId: string, text: string, lobbySize: number): Entry {
  const [sequence = '', state = '', joinedAt = '', weight = '', group = '', skus = ''] =
    text.split('|');
  const place = Number(sequence);
  return {
    entryId,
    cohort: lobbySize < 0 || place < lobbySize ? 'lobby' : 'late',
    sequence: place,
    joinedAtMs: Number(joinedAt),
    skuIds: listOf(skus),
    weight: Number(weight),
    group,
    left: state === 'L',
  };
}

function changeOf(line: string): EntryChange {
  const [letter, entryId = '', place = '', ...rest] = line.split('|');
  const sequence = Number(place);
  const [first = '', ...numbers] = rest;
  const [one = 0, two = 0, three = 0, four = 0] = numbers.map(Number);
  switch (letter) {
    case 'l':
      return { kind: 'left', entryId, sequence, atMs: Number(first) };
    case 'c':
      return {
        kind: 'claimed',
        entryId,
        sequence,
        skuId: first,
        wave: one,
        attempt: two,
        atMs: three,
        expiresAtMs: four,
      };
    case 'e':
      return { kind: 'ended', entryId, sequence, skuId: first, attempt: one, atMs: two };
    case 'f':
      return { kind: 'finished', entryId, sequence, outcome: outcomeOf(first), atMs: one };
    default:
      throw new Error(`The log of changes has a line that begins with "${String(letter)}"`);
  }
}

function outcomeOf(word: string): FinishOutcome {
  if (word === 'bought' || word === 'gave_up' || word === 'failed') return word;
  throw new Error(`The log of changes has an outcome "${word}"`);
}
