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
import type { Journal } from '../journal/journal.ts';
import { AdmissionRoom } from './admission-room.ts';
import type { RoomFact } from './admission-room.ts';

/** What this store needs of a journal. */
export type FactLog = Pick<
  Journal,
  'append' | 'durable' | 'compact' | 'close' | 'failure' | 'sizes'
>;

/** Keeps nothing: for tests and rehearsals that do not outlive their process. */
export function noJournal(): FactLog {
  return {
    append: () => undefined,
    durable: () => settled,
    compact: () => settled,
    close: () => settled,
    failure: undefined,
    sizes: { logBytes: 0, snapshotBytes: 0, segments: 0, pendingChars: 0 },
  };
}
const settled = Promise.resolve();

/** Stands where a line of a room has its activity: the line is a named state. */
const noActivity = '';

/** Distinct rooms: an operator makes them, never a buyer. */
const roomsMax = 10_000;
/** Named states: control writes one for each wave, four a second at most; this is three days of it. */
const statesMax = 1_000_000;

/** Replay longer than this and than the snapshot it starts from is cut by a compaction, bytes. */
const compactAboveBytes = 256 * 1024 * 1024;

/**
 * The admission store of one machine: rooms in compact columns, every change journaled before it is
 * answered. All decisions are made between two turns of the event loop, so no two interleave.
 *
 * What another caller decided a moment ago may not be durable yet. An answer that rests on it waits
 * for the journal too; so nobody is ever told a thing that a crash could take back.
 */
export class MemoryAdmissionStore implements AdmissionStore {
  readonly #rooms = new Map<string, AdmissionRoom>();
  readonly #states = new Map<string, StoredState>();
  #journal: FactLog = noJournal();
  #compacting = false;

  /** Why the journal takes nothing any more, until a restart. */
  get failure(): Error | undefined {
    return this.#journal.failure;
  }

  /** For {@link Journal.open}: `attach` follows once the journal is open. */
  readonly replay = {
    onRecord: (record: string): void => this.#replayLine(record),
    onSnapshot: (lines: readonly string[]): void => {
      for (const line of lines) this.#replayLine(line);
    },
  };

  attach(journal: FactLog): this {
    this.#journal = journal;
    return this;
  }

  async join(activityId: string, request: JoinRequest, nowMs: number): Promise<JoinReply> {
    this.#mustWork();
    const room = this.#roomFor(activityId);
    const fact = room.decideJoin(request, nowMs);
    if (fact !== undefined) {
      const full = room.full(request);
      if (full !== undefined) throw new UnavailableError(`activity "${activityId}": ${full}`);
      this.#commit(activityId, room, fact);
    }
    const entry = room.find(request.entryId);
    if (entry === undefined) throw new Error(`entry "${request.entryId}" vanished while joining`);
    await this.#durable();
    return { created: fact !== undefined, entry };
  }

  async findEntry(activityId: string, entryId: string): Promise<Entry | undefined> {
    const entry = this.#rooms.get(activityId)?.find(entryId);
    await this.#durable();
    return entry;
  }

  async leave(activityId: string, entryId: string, nowMs: number): Promise<boolean> {
    return this.#perhaps(activityId, (room) => room.decideLeave(entryId, nowMs));
  }

  async closeLobby(activityId: string, nowMs: number): Promise<LobbyMarker> {
    this.#mustWork();
    const room = this.#roomFor(activityId);
    const fact = room.decideClose(nowMs);
    if (fact !== undefined) this.#commit(activityId, room, fact);
    const marker = room.marker;
    if (marker === undefined) throw new Error(`activity "${activityId}" lost its lobby marker`);
    await this.#durable();
    return marker;
  }

  async lobbyMarker(activityId: string): Promise<LobbyMarker | undefined> {
    const marker = this.#rooms.get(activityId)?.marker;
    await this.#durable();
    return marker;
  }

  async participants(
    activityId: string,
    fromSequence: number,
    limit: number,
  ): Promise<readonly Participant[]> {
    const page = this.#rooms.get(activityId)?.participants(fromSequence, limit) ?? [];
    await this.#durable();
    return page;
  }

  async changes(
    activityId: string,
    fromIndex: number,
    limit: number,
  ): Promise<readonly EntryChange[]> {
    const page = this.#rooms.get(activityId)?.changes(fromIndex, limit) ?? [];
    await this.#durable();
    return page;
  }

  async takePass(
    activityId: string,
    request: TakePassRequest,
    nowMs: number,
  ): Promise<TakePassReply> {
    this.#mustWork();
    const room = this.#rooms.get(activityId);
    if (room === undefined) return { kind: 'unknown_entry' };
    const decided = room.decidePass(request, nowMs);
    let reply: TakePassReply;
    if ('kind' in decided) reply = decided;
    else {
      this.#commit(activityId, room, decided);
      reply = room.taken();
    }
    await this.#durable();
    return reply;
  }

  async endAttempt(
    activityId: string,
    entryId: string,
    skuId: string,
    attempt: number,
    nowMs: number,
  ): Promise<boolean> {
    return this.#perhaps(activityId, (room) => room.decideEnd(entryId, skuId, attempt, nowMs));
  }

  async finish(
    activityId: string,
    entryId: string,
    outcome: FinishOutcome,
    nowMs: number,
  ): Promise<boolean> {
    return this.#perhaps(activityId, (room) => room.decideFinish(entryId, outcome, nowMs));
  }

  async counts(activityId: string): Promise<AdmissionCounts> {
    const counts = (this.#rooms.get(activityId) ?? emptyRoom).counts();
    await this.#durable();
    return counts;
  }

  async loadState(name: string): Promise<StoredState | undefined> {
    const state = this.#states.get(name);
    await this.#durable();
    return state;
  }

  async saveState(
    name: string,
    value: string,
    expectedVersion: number,
    fence?: StateFence,
  ): Promise<boolean> {
    this.#mustWork();
    const known = this.#states.get(name);
    const fenced =
      fence !== undefined && (this.#states.get(fence.name)?.version ?? 0) !== fence.version;
    if (fenced || (known?.version ?? 0) !== expectedVersion) {
      await this.#durable();
      return false;
    }
    if (known === undefined && this.#states.size >= statesMax) {
      throw new UnavailableError(`${statesMax} named states are kept already; found "${name}"`);
    }
    const state = { value, version: expectedVersion + 1 };
    this.#journal.append(JSON.stringify([noActivity, name, state.version, value]));
    this.#states.set(name, state);
    await this.#durable();
    return true;
  }

  /** Replaces the journal's past by the state as it is now. Appends go on meanwhile. */
  async compact(): Promise<void> {
    const rooms = [...this.#rooms];
    const states = [...this.#states];
    // Each room's bounds are taken now, not when its turn comes.
    const facts = rooms.map(([activityId, room]) => [activityId, primed(room.facts())] as const);
    function* lines(): Generator<string> {
      for (const [activityId, those] of facts) {
        for (const fact of those) yield JSON.stringify([activityId, ...fact]);
      }
      for (const [name, state] of states) {
        yield JSON.stringify([noActivity, name, state.version, state.value]);
      }
    }
    await this.#journal.compact(lines());
  }

  async close(): Promise<void> {
    await this.#journal.close();
  }

  async #perhaps(
    activityId: string,
    decide: (room: AdmissionRoom) => RoomFact | undefined,
  ): Promise<boolean> {
    this.#mustWork();
    const room = this.#rooms.get(activityId);
    const fact = room === undefined ? undefined : decide(room);
    if (room !== undefined && fact !== undefined) this.#commit(activityId, room, fact);
    await this.#durable();
    return fact !== undefined;
  }

  #roomFor(activityId: string): AdmissionRoom {
    let room = this.#rooms.get(activityId);
    if (room === undefined) {
      if (this.#rooms.size >= roomsMax) {
        throw new UnavailableError(`${roomsMax} rooms are kept already; found "${activityId}"`);
      }
      room = new AdmissionRoom();
      this.#rooms.set(activityId, room);
    }
    return room;
  }

  /** Journal first: if it refuses the line, nothing has changed here. */
  #commit(activityId: string, room: AdmissionRoom, fact: RoomFact): void {
    this.#journal.append(JSON.stringify([activityId, ...fact]));
    room.apply(fact);
    const { logBytes, snapshotBytes } = this.#journal.sizes;
    if (logBytes > compactAboveBytes && logBytes > 2 * snapshotBytes && !this.#compacting) {
      this.#compacting = true;
      this.compact()
        .catch(() => {
          // The log stands as it was; a failed journal tells its own story through `durable`.
        })
        .finally(() => {
          this.#compacting = false;
        });
    }
  }

  #mustWork(): void {
    const { failure } = this.#journal;
    if (failure !== undefined) {
      throw new UnavailableError('the admission journal has failed', { cause: failure });
    }
  }

  async #durable(): Promise<void> {
    try {
      await this.#journal.durable();
    } catch (cause) {
      throw new OutcomeUnknownError('the admission journal failed before this was durable', {
        cause,
      });
    }
  }

  #replayLine(line: string): void {
    const [first, ...rest] = JSON.parse(line) as [string, ...unknown[]];
    if (first === noActivity) {
      const [name, version, value] = rest as [string, number, string];
      this.#states.set(name, { value, version });
      return;
    }
    this.#roomFor(first).apply(rest as unknown as RoomFact);
  }
}

const emptyRoom = new AdmissionRoom();

/** Runs a generator up to its first value, so that it has looked at the state before this returns. */
function* chain<T>(first: IteratorResult<T>, rest: Generator<T>): Generator<T> {
  if (first.done === true) return;
  yield first.value;
  yield* rest;
}
function primed<T>(facts: Generator<T>): Iterable<T> {
  return chain(facts.next(), facts);
}
