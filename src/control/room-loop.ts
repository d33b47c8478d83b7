import type { Activity } from '../core/activity.ts';
import { phaseAt } from '../core/activity.ts';
import { toHex, utf8 } from '../core/room/bytes.ts';
import { decideBypass, decideWave } from '../core/room/decide.ts';
import { participantLeaf } from '../core/room/draw.ts';
import { wavePeople } from '../core/room/events.ts';
import type { RoomEventBody } from '../core/room/events.ts';
import { MerkleLog } from '../core/room/merkle.ts';
import { recentAdmissions, RoomModel } from '../core/room/model.ts';
import type { RoomSignals } from '../core/room/model.ts';
import { releaseStateOf } from '../core/room/publish.ts';
import type { ReleaseState, RoomStage } from '../core/room/release.ts';
import { ensureSecret, roomStateNames } from '../pipeline/room-keys.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { DeposedError, RoomLog } from './room-log.ts';

/**
 * The control role's loop for one room: lobby, closing, draw, waves.
 *
 * Everything it knows is a fold over three logs that are durable elsewhere: who joined, what happened
 * to them, and what control decided. So dying is no special case. Whatever instant it dies at, the
 * next loop reads the same logs and stands where this one stood; a decision is in the log, and then it
 * is carried out again in the same way, or it is not, and then nobody has seen it. The one order that
 * matters is therefore: write the event, then apply it, then publish.
 *
 * Each step is short or sliced. A draw of a million takes seconds of work, in pieces of milliseconds,
 * with a release state going out in between so that gateways do not think control is gone.
 */
export interface RoomLoopOptions {
  readonly store: AdmissionStore;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  /** The activity as it stands now; its times may be edited while it has not opened. */
  readonly activity: () => Activity;
  /** How the sale is doing; undefined while unknown, and then nobody is released. */
  readonly signals: () => RoomSignals | undefined;
  /** The beacon's value once it is public, where this process can see it; else it is announced. */
  readonly beaconValue?: () => string | undefined;
  readonly publish: (state: ReleaseState) => void;
  /** Asked before every turn, where several processes might lead; yes by default. */
  readonly leads?: () => boolean;
  /** Something failed; the loop tries again at its next turn. */
  readonly onError: (error: unknown) => void;
  readonly periodMs?: number;
  /** Lets others run between two slices of work; a timer of 0 ms unless a test says otherwise. */
  readonly breathe?: () => Promise<void>;
}

const periodDefaultMs = 250;
/** The wall clock may be set back by so much, ms; the room's time stands still meanwhile. */
const standStillMaxMs = 2_000;
/** Log lines read, or entries drawn, between two breaths. */
const pageSize = 2_048;

export class RoomLoop {
  readonly #options: RoomLoopOptions;
  readonly #breathe: () => Promise<void>;
  #timer: TimerHandle | undefined;
  #busy: Promise<unknown> = Promise.resolve();
  #running = false;
  #room: OpenRoom | undefined;

  constructor(options: RoomLoopOptions) {
    this.#options = options;
    this.#breathe =
      options.breathe ??
      (() => new Promise((resolve) => void options.timers.after(0, () => resolve())));
  }

  /** Runs a turn every period; a turn that takes longer delays the next, they never overlap. */
  start(): void {
    const { timers, periodMs, onError } = this.#options;
    this.#timer ??= timers.every(periodMs ?? periodDefaultMs, () => {
      if (!this.#running) this.runOnce().catch(onError);
    });
  }

  /** Resolves once the turn under way has ended. */
  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    await this.#busy;
  }

  /** One turn: read what happened, decide, write, publish. After an error all logs are read anew. */
  runOnce(): Promise<void> {
    return this.#inTurn(async (room) => {
      await room.turn();
    });
  }

  hold(who: string, why: string): Promise<boolean> {
    return this.#switch((room) => !room.model.decided.held, { e: 'held', who, why });
  }

  unhold(who: string, why: string): Promise<boolean> {
    return this.#switch((room) => room.model.decided.held, { e: 'unheld', who, why });
  }

  pause(who: string, why: string): Promise<boolean> {
    return this.#switch((room) => !room.model.decided.paused, { e: 'paused', who, why });
  }

  resume(who: string, why: string): Promise<boolean> {
    return this.#switch((room) => room.model.decided.paused, { e: 'resumed', who, why });
  }

  /** Passes of the wave stop at once; its places are offered again. False where it is unknown or old. */
  revokeWave(wave: number, who: string, why: string): Promise<boolean> {
    const known = (room: OpenRoom): boolean =>
      room.model.book.windows().some((window) => window.wave === wave);
    return this.#switch(known, { e: 'revoked', wave, who, why });
  }

  /** Tokens under this key are refused everywhere from the next release state on. */
  revokeKey(kid: string, who: string, why: string): Promise<boolean> {
    const fresh = (room: OpenRoom): boolean => !room.model.decided.revokedKeys.has(kid);
    return this.#switch(fresh, { e: 'key_revoked', kid, who, why });
  }

  /**
   * Tells the value of the beacon that the activity named, once; the opening waits for it. False where
   * another value was told before, where none was named, or while the lobby is open: a value that is
   * known before the closing guards nothing.
   */
  announceBeacon(value: string): Promise<boolean> {
    return this.#inTurn(async (room) => room.announceBeacon(value));
  }

  /** Lets one entry in past the order, within both caps; it is in the audit with its reason. */
  bypass(entryId: string, who: string, why: string): Promise<boolean> {
    return this.#inTurn(async (room) => room.bypass(entryId, { who, why }));
  }

  #switch(applies: (room: OpenRoom) => boolean, body: RoomEventBody): Promise<boolean> {
    return this.#inTurn(async (room) => {
      if (!applies(room)) return false;
      await room.decide(body);
      room.publish();
      return true;
    });
  }

  /** Turns and operator's acts, one after the other. */
  #inTurn<Result>(work: (room: OpenRoom) => Promise<Result>): Promise<Result> {
    const run = async (): Promise<Result> => {
      this.#running = true;
      try {
        if (this.#options.leads?.() === false) {
          throw new DeposedError(
            `room "${this.#options.activity().activityId}" is led by another process`,
          );
        }
        // What was seen at an instant that has not come yet is in no log: only the log may be believed.
        if (this.#room?.clockWentBack === true) this.#room = undefined;
        this.#room ??= await OpenRoom.open(this.#options, this.#breathe);
        return await work(this.#room);
      } catch (error) {
        // What was decided last may or may not be in the log. Only the log knows.
        this.#room = undefined;
        throw error;
      } finally {
        this.#running = false;
      }
    };
    const result = this.#busy.then(run, run);
    this.#busy = result.catch(() => undefined);
    return result;
  }
}

/** A room whose logs have been read. Thrown away after any error. */
class OpenRoom {
  readonly model: RoomModel;
  readonly #options: RoomLoopOptions;
  readonly #breathe: () => Promise<void>;
  readonly #log: RoomLog;
  readonly #epoch: number;
  #version = 0;
  #publishedUs = -Infinity;
  /** Everything that happened up to here, on the wall clock, is in the model. */
  #knownAtMs = 0;
  /** Root over the lobby as it grows; of no use once the lobby is closed. */
  #merkle = new MerkleLog();

  private constructor(
    options: RoomLoopOptions,
    breathe: () => Promise<void>,
    log: RoomLog,
    model: RoomModel,
    epoch: number,
  ) {
    this.#options = options;
    this.#breathe = breathe;
    this.#log = log;
    this.model = model;
    this.#epoch = epoch;
  }

  static async open(options: RoomLoopOptions, breathe: () => Promise<void>): Promise<OpenRoom> {
    const { store, random } = options;
    const activity = options.activity();
    const { activityId } = activity;
    const epoch = await raiseEpoch(store, activityId);
    const draw = await ensureSecret(store, roomStateNames.secret(activityId), random);
    const entry = await ensureSecret(store, roomStateNames.entryKey(activityId), random);
    const model = new RoomModel(activity, {
      secret: draw.secret,
      commitment: draw.commitment,
      entryCommitment: entry.commitment,
    });
    const log = new RoomLog(store, activityId, epoch);
    const room = new OpenRoom(options, breathe, log, model, epoch);
    await room.#replay();
    return room;
  }

  /** The wall clock was set back by more than a correction. */
  get clockWentBack(): boolean {
    return this.#options.clock.wallMs() < this.#knownAtMs - standStillMaxMs;
  }

  /**
   * The room's time: the wall clock, but never before what is in the model. What expired there at some
   * instant expired before every later decision, and whoever replays the log must find the same.
   */
  #nowMs(): number {
    return Math.max(this.#knownAtMs, this.#options.clock.wallMs());
  }

  async turn(): Promise<void> {
    const { clock, signals } = this.#options;
    this.model.useActivity(this.#options.activity());
    await this.#follow();
    await this.#progress();
    const monoMs = clock.monoUs() / 1000;
    if (this.model.feel(signals(), this.#knownAtMs, monoMs)) {
      await this.decide({
        e: 'rate',
        perSecond: this.model.rate.perSecond,
        mode: this.model.signals?.mode ?? 'CLOSED',
      });
    }
    if (phaseAt(this.model.activity, this.#nowMs()) === 'open') {
      const wave = decideWave(this.model, this.#nowMs(), monoMs);
      if (wave !== undefined) {
        await this.decide(wave);
        this.model.window.note(wavePeople(wave), clock.monoUs() / 1000);
      }
    }
    await this.#closeBooks();
    this.publish();
  }

  /** Once a sale has closed, its log says so: a file that ends before that is not whole. */
  async #closeBooks(): Promise<void> {
    const { model } = this;
    const closed = phaseAt(model.activity, this.#nowMs()) === 'closed';
    if (!closed || !model.drawn || model.decided.over) return;
    const { lateCount: late, lateRoot } = model.checkpoint;
    await this.decide({ e: 'over', late, lateRoot });
  }

  async bypass(
    entryId: string,
    reason: { readonly who: string; readonly why: string },
  ): Promise<boolean> {
    const { clock, store } = this.#options;
    await this.#follow();
    if (phaseAt(this.model.activity, this.#nowMs()) !== 'open') return false;
    const entry = await store.findEntry(this.model.activity.activityId, entryId);
    if (entry === undefined || entry.left) return false;
    const monoMs = clock.monoUs() / 1000;
    const event = decideBypass(this.model, entry, reason, this.#nowMs(), monoMs);
    if (event === undefined) return false;
    await this.decide(event);
    this.model.window.note(1, clock.monoUs() / 1000);
    this.publish();
    return true;
  }

  async announceBeacon(value: string): Promise<boolean> {
    const { activityId, room } = this.model.activity;
    if (room.beacon === undefined || this.model.decided.lobby === undefined) return false;
    const name = roomStateNames.beacon(activityId);
    return this.#options.store.saveState(name, value, 0);
  }

  async #beaconValue(): Promise<string | undefined> {
    const seen = this.#options.beaconValue?.();
    if (seen !== undefined) return seen;
    const name = roomStateNames.beacon(this.model.activity.activityId);
    return (await this.#options.store.loadState(name))?.value;
  }

  /** Written, then applied; published by the caller, after. */
  async decide(body: RoomEventBody): Promise<void> {
    const event = { ...body, atMs: this.#nowMs(), seen: this.model.seen };
    await this.#log.append(event);
    this.model.applyEvent(event);
  }

  publish(): void {
    const { clock, publish } = this.#options;
    this.#version += 1;
    this.#publishedUs = clock.monoUs();
    const stamp = {
      epoch: this.#epoch,
      version: this.#version,
      publishedAtMs: this.#knownAtMs,
    };
    publish(releaseStateOf(this.model, stamp, this.#stage()));
  }

  #stage(): RoomStage {
    const phase = phaseAt(this.model.activity, this.#nowMs());
    if (phase === 'scheduled') return 'before';
    if (phase === 'closed') return 'over';
    if (phase === 'lobby') return 'lobby';
    return this.model.drawn || !this.model.hasLines ? 'open' : 'drawing';
  }

  /** Takes in what others wrote since: participants, then what happened to entries. */
  async #follow(): Promise<void> {
    this.#knownAtMs = this.#nowMs();
    if (this.model.hasLines) await this.#followParticipants();
    await this.#followChanges(Infinity, true);
    const { joined } = await this.#options.store.counts(this.model.activity.activityId);
    this.model.noteJoined(joined);
  }

  async #followParticipants(): Promise<void> {
    if (this.model.drawn) {
      for await (const page of this.#participants(this.model.placed, Infinity)) {
        for (const entry of page) this.model.addLate(entry);
      }
      return;
    }
    if (this.model.decided.lobby !== undefined) return;
    const marker = await this.#options.store.lobbyMarker(this.model.activity.activityId);
    const end = marker?.lobbySize ?? Infinity;
    if (this.#merkle.size > end) this.#merkle = new MerkleLog();
    for await (const page of this.#participants(this.#merkle.size, end)) {
      for (const { entryId, weight } of page) {
        this.#merkle.append(participantLeaf(entryId, weight));
      }
    }
  }

  async #followChanges(upTo: number, learning: boolean): Promise<void> {
    const { store } = this.#options;
    const { activityId } = this.model.activity;
    while (this.model.seen < upTo) {
      const limit = Math.min(pageSize, upTo - this.model.seen);
      const page = await store.changes(activityId, this.model.seen, limit);
      if (page.length === 0) break;
      for (const change of page) {
        // Nobody takes a pass before the draw: it was made by somebody else, while this process stood still.
        if (this.model.hasLines && !this.model.drawn && change.kind !== 'left') {
          throw new DeposedError(`room "${activityId}" was drawn by another process`);
        }
        // Somebody who joined and left since the last look is placed first.
        if (this.model.drawn && change.sequence >= this.model.placed) {
          await this.#followParticipants();
        }
        this.model.applyChange(change, learning);
      }
      await this.#pause();
    }
  }

  /** Closes the lobby and draws, when it is time. */
  async #progress(): Promise<void> {
    const { store } = this.#options;
    const { model } = this;
    const { activityId, room } = model.activity;
    if (!model.hasLines || model.drawn) return;
    if (model.decided.lobby === undefined) {
      if (this.#nowMs() < model.activity.opensAtMs) return;
      const { lobbySize } = await store.closeLobby(activityId, this.#nowMs());
      await this.#followParticipants();
      if (this.#merkle.size !== lobbySize) {
        throw new Error(`room "${activityId}": log has ${this.#merkle.size} of ${lobbySize} lines`);
      }
      await this.decide({ e: 'closed', lobbySize, root: toHex(this.#merkle.root()) });
      this.publish();
    }
    if (model.decided.beacon === undefined) {
      let beacon = '';
      if (room.beacon !== undefined) {
        const value = await this.#beaconValue();
        // Late: the opening waits for it, and everybody is told that the draw is under way.
        if (value === undefined) return;
        beacon = toHex(utf8(value));
      }
      await this.#followChanges(Infinity, true);
      await this.decide({ e: 'drawn', beacon, mode: model.mode });
    }
    await this.#draw();
    await this.#followParticipants();
  }

  async #draw(): Promise<void> {
    const { model } = this;
    const { lobby, beacon } = model.decided;
    if (lobby === undefined || beacon === undefined) throw new Error('nothing to draw from');
    const draw = model.startDraw(beacon);
    for await (const page of this.#participants(0, lobby.size)) {
      for (const entry of page) model.addToDraw(draw, entry);
    }
    for (const _ of draw.sort()) await this.#pause();
    if (draw.hasTies) {
      for await (const page of this.#participants(0, lobby.size)) {
        for (const entry of page) model.addTied(draw, entry);
      }
    }
    model.finishDraw(draw);
  }

  /** The room again from its logs, each event after as many changes as it was decided after. */
  async #replay(): Promise<void> {
    const { clock, store } = this.#options;
    const events = await this.#log.load();
    const marker = await store.lobbyMarker(this.model.activity.activityId);
    for (const event of events) {
      await this.#followChanges(event.seen, false);
      this.model.applyEvent(event);
      if (event.e === 'closed' && marker?.lobbySize !== event.lobbySize) {
        throw new Error(
          `room "${this.model.activity.activityId}" closed with ${event.lobbySize} entries, ` +
            `but its log's marker says ${marker?.lobbySize ?? 'nothing'}`,
        );
      }
      if (event.e === 'drawn') {
        await this.#draw();
        await this.#followParticipants();
      }
    }
    const sinceMs = clock.wallMs() - 1000;
    this.model.window.note(recentAdmissions(events, sinceMs), clock.monoUs() / 1000);
    await this.#followChanges(Infinity, false);
  }

  async *#participants(
    from: number,
    end: number,
  ): AsyncGenerator<Awaited<ReturnType<AdmissionStore['participants']>>> {
    const { store } = this.#options;
    const { activityId } = this.model.activity;
    for (let next = from; next < end; ) {
      const page = await store.participants(activityId, next, Math.min(pageSize, end - next));
      if (page.length === 0) return;
      yield page;
      next += page.length;
      if (page.length === pageSize) await this.#pause();
    }
  }

  /** A breath; and a sign of life to gateways where the work takes long. */
  async #pause(): Promise<void> {
    await this.#breathe();
    const { clock, periodMs } = this.#options;
    const due = this.#publishedUs + (periodMs ?? periodDefaultMs) * 1000;
    if (this.#version > 0 && clock.monoUs() >= due) this.publish();
  }
}

/** Takes the next epoch: publications of an earlier leader lose against ours. */
async function raiseEpoch(store: AdmissionStore, activityId: string): Promise<number> {
  const name = roomStateNames.epoch(activityId);
  const stored = await store.loadState(name);
  const epoch = (stored?.version ?? 0) + 1;
  if (!(await store.saveState(name, String(epoch), stored?.version ?? 0))) {
    throw new DeposedError(`epoch ${epoch} of room "${activityId}" is taken`);
  }
  return epoch;
}
