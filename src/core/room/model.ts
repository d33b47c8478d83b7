import type { Activity, RoomMode } from '../activity.ts';
import { CheckpointLog } from './checkpoint.ts';
import { Drawer } from './draw.ts';
import { fromHex, toHex } from './bytes.ts';
import { wavePeople } from './events.ts';
import type { RoomEvent, WaveEvent } from './events.ts';
import { LaneModel } from './lane-model.ts';
import { laneKey, lanesMax } from './lanes.ts';
import type { DrawFacts } from './release.ts';
import { LobbyDraw } from './lobby-draw.ts';
import type { RoomParticipant } from './lobby-draw.ts';
import type { SkuStock } from './pick.ts';
import { SequenceSet } from './sequence-set.ts';
import { AdmissionWindow, RateGovernor } from './sizing.ts';
import type { SaleMode } from './sizing.ts';
import { WaveBook } from './wave-book.ts';

/** What happened to an entry, and when, in the order of the store's log. */
export type RoomChange = {
  readonly entryId: string;
  readonly sequence: number;
  readonly atMs: number;
} & (
  | { readonly kind: 'left' | 'ended' }
  | {
      readonly kind: 'claimed';
      readonly skuId: string;
      readonly wave: number;
      readonly expiresAtMs: number;
    }
  | { readonly kind: 'finished'; readonly outcome: 'bought' | 'gave_up' | 'failed' }
);

/** How the sale is doing, as far as waves depend on it. Nothing known means no wave. */
export interface RoomSignals {
  readonly skus: readonly SkuStock[];
  readonly mode: SaleMode;
  readonly backlogRatio: number;
  readonly reserveRatio: number;
  /** Units that a buyer takes on average; 1 where nothing is measured. */
  readonly unitsPerBuyer: number;
  /** Admissions per second that the limits leave, where they know. */
  readonly budgetPerSecond?: number;
}

export interface RoomSecrets {
  readonly secret: Uint8Array;
  readonly commitment: string;
  readonly entryCommitment: string;
}

/** What was decided about a room so far, apart from people: see {@link RoomEvent}. */
interface Decided {
  lobby: { readonly size: number; readonly root: string } | undefined;
  beacon: string | undefined;
  orderMode: RoomMode | undefined;
  held: boolean;
  paused: boolean;
  /** Closed, and nobody let in since. */
  over: boolean;
  lastWave: number;
  lastWaveAtMs: number;
  /** Sequence → wave. */
  readonly bypassed: Map<number, number>;
  readonly revokedKeys: Set<string>;
}

/**
 * The room as control knows it: a fold over the participant log, over what happened to entries, and
 * over control's own decisions. The same three logs give the same model, on any machine and after any
 * restart. Nothing in here waits, reads a clock or writes: `decide…` says what should be, and `apply`
 * makes it so once it is written down.
 */
export class RoomModel {
  #activity: Activity;
  readonly secrets: RoomSecrets;
  readonly book: WaveBook;
  readonly left = new SequenceSet();
  /** New admissions of the last second. */
  readonly window = new AdmissionWindow();
  readonly rate: RateGovernor;
  /** What anybody may note of this room's logs while they grow. */
  readonly checkpoint = new CheckpointLog();
  readonly #lanes = new Map<string, LaneModel>();
  readonly #laneList: LaneModel[] = [];
  /** Which lane each sequence stands in; only where there is more than one. */
  #laneOf: Uint8Array | undefined;
  #weights: Float64Array | undefined;
  readonly #decided: Decided = {
    lobby: undefined,
    beacon: undefined,
    orderMode: undefined,
    held: false,
    paused: false,
    over: false,
    lastWave: 0,
    lastWaveAtMs: 0,
    bypassed: new Map(),
    revokedKeys: new Set(),
  };
  #drawer: Drawer | undefined;
  #drawn = false;
  #joined = 0;
  #placed = 0;
  #seen = 0;
  #signals: RoomSignals | undefined;

  constructor(activity: Activity, secrets: RoomSecrets) {
    this.#activity = activity;
    this.secrets = secrets;
    this.book = new WaveBook(activity.room.passLifeMs, activity.room.claimWindowMs);
    this.rate = new RateGovernor(activity.room.maxAdmissionsPerSecond);
  }

  get activity(): Activity {
    return this.#activity;
  }

  /** Times, caps and stock may be edited; what the order is made of may not, once it exists. */
  useActivity(activity: Activity): void {
    const cap = activity.room.maxAdmissionsPerSecond;
    if (cap !== this.#activity.room.maxAdmissionsPerSecond) this.rate.setCeiling(cap);
    this.#activity = activity;
  }

  /** The mode in force; how the order was made is fixed once it exists. */
  get mode(): RoomMode {
    const { mode } = this.activity.room;
    const ordered = mode !== 'passthrough' && mode !== 'reject';
    return ordered ? (this.#decided.orderMode ?? mode) : mode;
  }

  get decided(): Readonly<Decided> {
    return this.#decided;
  }

  get lanes(): readonly LaneModel[] {
    return this.#laneList;
  }

  get signals(): RoomSignals | undefined {
    return this.#signals;
  }

  /** The order exists. */
  get drawn(): boolean {
    return this.#drawn;
  }

  /** Changes taken in so far. */
  get seen(): number {
    return this.#seen;
  }

  /** Participants that stand in a line. */
  get placed(): number {
    return this.#placed;
  }

  get joined(): number {
    return this.#joined;
  }

  noteJoined(joined: number): void {
    this.#joined = Math.max(this.#joined, joined);
  }

  /** Does this mode have lines at all? */
  get hasLines(): boolean {
    return this.mode !== 'passthrough' && this.mode !== 'reject';
  }

  /** What the order is drawn with, or undefined where it is that of arrival. */
  drawerFor(beacon: string): Drawer | undefined {
    const { lobby } = this.#decided;
    if (lobby === undefined) throw new Error('the lobby is not closed yet');
    const [root, beaconBytes] = [fromHex(lobby.root), fromHex(beacon)];
    if (root === undefined || beaconBytes === undefined) {
      throw new Error(`root "${lobby.root}" or beacon "${beacon}" is not lower-case hex`);
    }
    return this.mode === 'fifo' ? undefined : new Drawer(this.secrets.secret, root, beaconBytes);
  }

  /** Starts the draw of a closed lobby. Feed it every lobby entry through {@link addToDraw}. */
  startDraw(beacon: string): LobbyDraw {
    this.#drawer = this.drawerFor(beacon);
    const { lobby } = this.#decided;
    if (this.mode === 'weighted') this.#weights = new Float64Array(lobby?.size ?? 0);
    return new LobbyDraw(this.mode, this.#drawer);
  }

  /** The lane an entry stands in, made where it is the first of it. */
  laneNameFor(entry: RoomParticipant): string {
    return this.#laneFor(entry).lane;
  }

  /** Those who left before the draw are not in it. */
  addToDraw(draw: LobbyDraw, entry: RoomParticipant): void {
    const lane = this.#laneFor(entry);
    if (this.#weights !== undefined) this.#weights[entry.sequence] = entry.weight;
    if (!this.left.has(entry.sequence)) draw.add(lane.lane, entry);
  }

  addTied(draw: LobbyDraw, entry: RoomParticipant): void {
    if (!this.left.has(entry.sequence)) draw.addTied(this.#laneFor(entry).lane, entry);
  }

  finishDraw(draw: LobbyDraw): void {
    for (const [lane, { sorted, ties }] of draw.lines()) {
      this.#lanes.get(lane)?.setLobby(sorted, ties);
    }
    this.#placed = this.#decided.lobby?.size ?? 0;
    this.#drawn = true;
  }

  /** The next arrival after the lobby, in order of sequence. */
  addLate(entry: RoomParticipant): void {
    if (entry.sequence !== this.#placed) {
      throw new Error(`arrival ${entry.sequence} came where ${this.#placed} was expected`);
    }
    const lane = this.#laneFor(entry);
    lane.pushLate(entry.sequence);
    this.checkpoint.late(entry);
    if (this.left.has(entry.sequence)) {
      lane.markGone(lane.positionOf(1, entry.sequence, entry.entryId));
    }
    this.#placed += 1;
    this.#joined = Math.max(this.#joined, this.#placed);
  }

  /** `learning` off where an old history is read again: nothing is concluded from it twice. */
  applyChange(change: RoomChange, learning: boolean): void {
    this.#seen += 1;
    this.checkpoint.change(change);
    const mode: SaleMode = learning ? (this.#signals?.mode ?? 'CLOSED') : 'CLOSED';
    // What was over when it happened is over first, whenever this is read.
    this.book.settle(change.atMs, mode);
    if (change.kind === 'left') {
      this.left.add(change.sequence);
      if (!this.#drawn || change.sequence >= this.#placed) return;
      const { lane, position } = this.whereIs(change.sequence, change.entryId);
      if (position < 0) return;
      const wave = this.#decided.bypassed.get(change.sequence) ?? lane.waveAt(position);
      lane.markGone(position);
      const given = wave === 0 ? undefined : wave;
      this.book.leave(change.sequence, lane.lane, given, change.atMs, mode);
      return;
    }
    if (!this.hasLines) return;
    const lane = this.#laneAt(change.sequence).lane;
    if (change.kind === 'claimed') this.book.claim(change.sequence, lane, change);
    else if (change.kind === 'ended') this.book.end(change.sequence, lane);
    else if (change.kind === 'finished') {
      this.book.finish(change.sequence, lane, change.outcome, mode);
    }
  }

  applyEvent(event: RoomEvent): void {
    const decided = this.#decided;
    this.checkpoint.decision(event);
    // What was over by then is over now too, whenever this is read.
    this.book.settle(event.atMs, this.#signals?.mode ?? 'CLOSED');
    switch (event.e) {
      case 'closed':
        decided.lobby = { size: event.lobbySize, root: event.root };
        return;
      case 'drawn':
        decided.beacon = event.beacon;
        decided.orderMode = event.mode;
        return;
      case 'wave':
        this.#applyWave(event, event.atMs);
        return;
      case 'bypassed': {
        decided.lastWave = Math.max(decided.lastWave, event.wave);
        decided.bypassed.set(event.sequence, event.wave);
        const { lane, position } = this.whereIs(event.sequence, event.entryId);
        if (position >= 0) lane.markGone(position);
        this.book.release(event.wave, event.atMs, event.claimBeforeMs, [
          { lane: event.lane, people: 1 },
        ]);
        return;
      }
      case 'revoked':
        this.#revoke(event.wave);
        return;
      case 'key_revoked':
        decided.revokedKeys.add(event.kid);
        return;
      case 'held':
      case 'unheld':
        decided.held = event.e === 'held';
        this.#suspendForecasts(event.atMs);
        return;
      case 'paused':
        decided.paused = true;
        for (const wave of this.book.livingWaves()) this.#revoke(wave);
        this.#suspendForecasts(event.atMs);
        return;
      case 'resumed':
        decided.paused = false;
        this.#suspendForecasts(event.atMs);
        return;
      case 'over':
        decided.over = true;
        return;
      case 'rate':
        this.rate.startAt(event.perSecond);
        return;
    }
  }

  /** Closes what is over by `knownAtMs` and takes in how the sale is doing. True when the rate changed. */
  feel(signals: RoomSignals | undefined, knownAtMs: number, monoMs: number): boolean {
    this.#signals = signals;
    const onSale = signals?.skus.filter(({ available }) => available > 0);
    this.book.onSale = new Set(onSale?.map(({ skuId }) => skuId));
    this.book.settle(knownAtMs, signals?.mode ?? 'CLOSED');
    for (const lane of this.#lanes.values()) lane.forget((wave) => this.book.isOld(wave));
    return signals !== undefined && this.rate.feel(signals, monoMs);
  }

  get drawFacts(): DrawFacts | null {
    const { lobby, beacon } = this.#decided;
    if (!this.#drawn || lobby === undefined || this.#drawer === undefined) return null;
    return { secret: toHex(this.secrets.secret), root: lobby.root, beacon: beacon ?? '' };
  }

  /** An entry's lane and position; -1 where it is in no line. */
  whereIs(
    sequence: number,
    entryId: string,
  ): { readonly lane: LaneModel; readonly position: number } {
    const lane = this.#laneAt(sequence);
    if (sequence >= (this.#decided.lobby?.size ?? 0)) {
      return { lane, position: lane.positionOf(1, sequence, entryId) };
    }
    const weight = this.#weights?.[sequence] ?? 1;
    const key =
      this.#drawer === undefined
        ? sequence
        : this.#drawer.keyOf(entryId, weight, this.#weights !== undefined);
    return { lane, position: lane.positionOf(0, key, entryId) };
  }

  #suspendForecasts(atMs: number): void {
    for (const lane of this.#laneList) lane.forecaster.suspend(atMs);
  }

  /** The wave's passes die; its entries wait again, first in line, but for those who bought. */
  #revoke(wave: number): void {
    const buyers = this.book.revoke(wave);
    if (buyers === undefined) return;
    for (const lane of this.#laneList) lane.requeue(wave);
    for (const { sequence, entryId } of buyers) {
      const { lane, position } = this.whereIs(sequence, entryId);
      if (position >= 0) lane.markGone(position);
    }
    for (const [sequence, given] of this.#decided.bypassed) {
      if (given === wave) this.#decided.bypassed.delete(sequence);
    }
  }

  #applyWave(event: WaveEvent, atMs: number): void {
    const decided = this.#decided;
    if (event.wave !== decided.lastWave + 1) {
      throw new Error(`wave ${event.wave} follows wave ${decided.lastWave}`);
    }
    decided.lastWave = event.wave;
    decided.lastWaveAtMs = atMs;
    decided.over = false;
    for (const share of event.lanes) {
      const lane = this.#lanes.get(share.lane);
      if (lane === undefined) throw new Error(`wave ${event.wave} names lane "${share.lane}"`);
      lane.release(event.wave, share);
      // Those who wait again have had their turn told once; only the front is foretold.
      if (share.count > 0) lane.forecaster.wave(atMs, share.count, lane.waiting);
    }
    this.book.release(
      event.wave,
      atMs,
      event.claimBeforeMs,
      event.lanes.map((share) => ({ lane: share.lane, people: share.count + share.again })),
    );
  }

  #laneFor(entry: RoomParticipant): LaneModel {
    const wanted = laneKey(entry.group, entry.skuIds);
    let key = wanted;
    if (!this.#lanes.has(key)) {
      // The last free line is kept for '', where all further lanes stand together.
      const room = this.#lanes.has('') ? lanesMax : lanesMax - 1;
      if (key !== '' && this.#lanes.size >= room) key = '';
      if (!this.#lanes.has(key)) {
        const made = new LaneModel(key);
        this.#lanes.set(key, made);
        this.#laneList.push(made);
      }
    }
    const lane = this.#lanes.get(key);
    if (lane === undefined) throw new Error(`lane "${key}" was not made`);
    this.#noteLane(entry.sequence, lane);
    return lane;
  }

  #noteLane(sequence: number, lane: LaneModel): void {
    if (this.#laneOf === undefined) {
      if (this.#lanes.size < 2) return;
      // Everybody so far stands in the first lane, whose number is 0.
      this.#laneOf = new Uint8Array(Math.max(1024, this.#joined, sequence + 1));
    }
    if (sequence >= this.#laneOf.length) {
      const grown = new Uint8Array(Math.max(sequence + 1, this.#laneOf.length * 2));
      grown.set(this.#laneOf);
      this.#laneOf = grown;
    }
    this.#laneOf[sequence] = this.#laneList.indexOf(lane);
  }

  #laneAt(sequence: number): LaneModel {
    const lane = this.#laneList[this.#laneOf?.[sequence] ?? 0];
    if (lane === undefined) throw new Error(`sequence ${sequence} stands in no lane`);
    return lane;
  }
}

/** People of a wave that count for the cap of the last second, when a restart finds it. */
export function recentAdmissions(events: readonly RoomEvent[], sinceMs: number): number {
  let people = 0;
  for (const event of events) {
    if (event.atMs < sinceMs) continue;
    if (event.e === 'wave') people += wavePeople(event);
    else if (event.e === 'bypassed') people += 1;
  }
  return people;
}
