import { fromHex, toHex } from './bytes.ts';
import { commitmentOf, participantLeaf } from './draw.ts';
import { checkpointText, parseCheckpoint } from './checkpoint.ts';
import { activityOf } from './audit-format.ts';
import type { AuditHeader } from './audit-format.ts';
import { parseAudit, problemsMax, short } from './audit-parse.ts';
import type { AuditProblem, ParsedAudit } from './audit-parse.ts';
import { wavePeople } from './events.ts';
import type { RoomEvent, WaveEvent } from './events.ts';
import type { LaneModel, LanePicker } from './lane-model.ts';
import type { RoomParticipant } from './lobby-draw.ts';
import { inclusionPath, leafHash, MerkleLog } from './merkle.ts';
import { RoomModel } from './model.ts';

/**
 * Checks an audit file with nothing but the file: commitments, root, draw values, order, every wave's
 * exact people, bypasses and rates. A fault is told with its line.
 */

export interface AuditVerdict {
  readonly holds: boolean;
  /** The first faults, at most {@link problemsMax}; what follows a fault may be its consequence. */
  readonly problems: readonly AuditProblem[];
  readonly activityId: string;
  readonly participants: number;
  readonly lobby: number;
  readonly waves: number;
  readonly released: number;
  readonly bypassed: number;
  readonly rateChanges: number;
  readonly decisions: number;
  /** The file goes up to the closing of the sale. One that does not is of an earlier instant. */
  readonly finished: boolean;
  /** What the shop showed when these were all the decisions. */
  readonly checkpoint: string;
  /** Which guarantee this draw has. */
  readonly guarantee: 'beacon' | 'commitment_only' | 'order_of_arrival' | 'none';
  readonly root: string;
}

export interface InclusionProof {
  readonly entryId: string;
  readonly index: number;
  readonly size: number;
  readonly leaf: string;
  readonly path: readonly string[];
  readonly root: string;
  /** Draw value in [0, 1), or null where the order is that of arrival. */
  readonly value: number | null;
  /** Place in the drawn order of its lane, from 1; null where it left before the draw. */
  readonly place: number | null;
}

/** What a checker knows beside the file. Without it, a file that was cut short can pass for an older one. */
export interface AuditKnowledge {
  /** A checkpoint that the shop showed at some time: the file must contain what it binds. */
  readonly checkpoint?: string;
  /** Now: once the sale has closed, a whole file says so. */
  readonly nowMs?: number;
}

/** After its closing a room is given so long to write that down, ms. */
const closingGraceMs = 60_000;

export function verifyDraw(text: string, knowledge: AuditKnowledge = {}): AuditVerdict {
  const parsed = parseAudit(text);
  const { header, problems } = parsed;
  const checked = header === undefined ? undefined : new Checker(parsed, header, knowledge).run();
  return {
    holds: problems.length === 0,
    problems: problems.slice(0, problemsMax),
    activityId: header?.activity_id ?? '',
    participants: parsed.participants.length,
    lobby: checked?.lobby ?? 0,
    waves: checked?.waves ?? 0,
    released: checked?.released ?? 0,
    bypassed: checked?.bypassed ?? 0,
    rateChanges: checked?.rateChanges ?? 0,
    decisions: parsed.events.length,
    finished: checked?.finished ?? false,
    checkpoint: checked?.checkpoint ?? '',
    guarantee: checked?.guarantee ?? 'none',
    root: checked?.root ?? '',
  };
}

/** The proof that an entry is in the lobby's tree, and its value and place; undefined if it is not. */
export function inclusionProof(text: string, entryId: string): InclusionProof | undefined {
  const { header, participants, events, order, secret } = parseAudit(text);
  const closed = events.find(({ event }) => event.e === 'closed')?.event;
  const drawn = events.find(({ event }) => event.e === 'drawn')?.event;
  if (header === undefined || closed?.e !== 'closed') return undefined;
  const lobby = participants.slice(0, closed.lobbySize);
  // The last of them: a person who left and came back stands where they came back.
  const index = lobby.findLastIndex((each) => each.entryId === entryId);
  if (index < 0) return undefined;
  const leaves = lobby.map((each) => leafHash(participantLeaf(each.entryId, each.weight)));
  let place: number | null = null;
  for (const line of order.values()) {
    const at = line.findIndex(({ sequence }) => sequence === index);
    if (at >= 0) place = at + 1;
  }
  let value: number | null = null;
  const secretBytes = secret === undefined ? undefined : fromHex(secret);
  if (header.mode !== 'fifo' && drawn?.e === 'drawn' && secretBytes !== undefined) {
    const model = new RoomModel(activityOf(header), {
      secret: secretBytes,
      commitment: '',
      entryCommitment: '',
    });
    model.applyEvent(closed);
    value = model.drawerFor(drawn.beacon)?.valueOf(entryId) ?? null;
  }
  return {
    entryId,
    index,
    size: lobby.length,
    leaf: toHex(leaves[index] ?? new Uint8Array(0)),
    path: inclusionPath(leaves, index).map(toHex),
    root: closed.root,
    value,
    place,
  };
}

class Checker {
  readonly #parsed: ParsedAudit;
  readonly #header: AuditHeader;
  readonly #model: RoomModel;
  #released = 0;
  #waves = 0;
  #bypassed = 0;
  #rateChanges = 0;
  #lobby = 0;
  #root = '';
  #beacon = '';
  readonly #knowledge: AuditKnowledge;
  /** Digest over the decisions up to the one that the known checkpoint names. */
  #headThen: Uint8Array | undefined;

  constructor(parsed: ParsedAudit, header: AuditHeader, knowledge: AuditKnowledge) {
    this.#parsed = parsed;
    this.#header = header;
    this.#knowledge = knowledge;
    this.#model = new RoomModel(activityOf(header), {
      secret: fromHex(parsed.secret ?? '') ?? new Uint8Array(0),
      commitment: header.commitment,
      entryCommitment: header.entry_commitment,
    });
    if (parseCheckpoint(knowledge.checkpoint ?? '')?.decisions === 0) {
      this.#headThen = this.#model.checkpoint.head;
    }
  }

  run(): Omit<AuditVerdict, 'holds' | 'problems' | 'activityId' | 'participants' | 'decisions'> {
    this.#checkSecret();
    try {
      for (const { event, line } of this.#parsed.events) this.#step(event, line);
    } catch (error) {
      // The fold refuses what cannot be: that is the finding.
      this.#fault(0, 'the log of decisions', error instanceof Error ? error.message : '', 'a fold');
    }
    if (!this.#model.drawn) this.#fault(0, 'the draw', 'none in this file', 'a drawn order');
    this.#checkEnd();
    const named = this.#header.beacon_source !== null;
    return {
      lobby: this.#lobby,
      waves: this.#waves,
      released: this.#released,
      bypassed: this.#bypassed,
      rateChanges: this.#rateChanges,
      root: this.#root,
      finished: this.#model.decided.over,
      checkpoint: this.#model.checkpoint.text,
      guarantee: !this.#model.drawn
        ? 'none'
        : this.#header.mode === 'fifo'
          ? 'order_of_arrival'
          : named && this.#beacon !== ''
            ? 'beacon'
            : 'commitment_only',
    };
  }

  #fault(line: number, what: string, found: string, expected: string): void {
    this.#parsed.problems.push({ line, what, found: short(found), expected: short(expected) });
  }

  #checkSecret(): void {
    const { secret, secretLine } = this.#parsed;
    const bytes = secret === undefined ? undefined : fromHex(secret);
    if (bytes === undefined) {
      this.#fault(secretLine, 'the secret', secret ?? 'none', '64 hexadecimal digits');
      return;
    }
    const commitment = commitmentOf(bytes);
    if (commitment !== this.#header.commitment) {
      this.#fault(secretLine, 'SHA-256 of the secret', commitment, this.#header.commitment);
    }
  }

  #step(event: RoomEvent, line: number): void {
    const { changes } = this.#parsed;
    while (this.#model.seen < event.seen) {
      const change = changes[this.#model.seen];
      if (change === undefined) {
        this.#fault(line, 'changes before this decision', String(changes.length), `${event.seen}`);
        break;
      }
      this.#model.applyChange(change, false);
    }
    if (event.e === 'wave') this.#checkWave(event, line);
    if (event.e === 'wave') this.#released += wavePeople(event);
    if (event.e === 'wave') this.#waves += 1;
    if (event.e === 'rate') this.#rateChanges += 1;
    if (event.e === 'bypassed') {
      this.#bypassed += 1;
      this.#released += 1;
      if (event.who === '' || event.why === '') {
        this.#fault(line, 'a bypass', 'without name or reason', 'who and why');
      }
    }
    if (event.e === 'closed') this.#checkRoot(event.lobbySize, event.root, line);
    if (event.e === 'over') this.#checkLate(event.late, event.lateRoot, line);
    this.#model.applyEvent(event);
    const { decisions, head } = this.#model.checkpoint;
    if (decisions === parseCheckpoint(this.#knowledge.checkpoint ?? '')?.decisions) {
      this.#headThen = head;
    }
    if (event.e === 'drawn') this.#checkDraw(event.beacon, event.mode, line);
  }

  /** That nothing is missing at the end, as far as that can be known: see checkpoint.ts. */
  #checkEnd(): void {
    const { checkpoint, checkpointLine, changes, events } = this.#parsed;
    const own = this.#model.checkpoint.text;
    if (checkpoint !== own) this.#fault(checkpointLine, 'checkpoint', own, checkpoint ?? 'none');
    const last = events.at(-1);
    if (last !== undefined && changes.length > last.event.seen) {
      const found = `${changes.length} changes of entries`;
      this.#fault(last.line, 'the last decision', found, `${last.event.seen} taken in by it`);
    }
    this.#checkKnown();
    const closedAtMs = this.#header.closes_at_ms;
    const { nowMs = -Infinity } = this.#knowledge;
    if (!this.#model.decided.over && nowMs > closedAtMs + closingGraceMs) {
      const found = 'none: made before the sale had closed, or its end is missing';
      const at = new Date(closedAtMs).toISOString();
      this.#fault(last?.line ?? 0, 'the decision that closes the sale', found, `one, after ${at}`);
    }
  }

  #checkKnown(): void {
    const known = this.#knowledge.checkpoint;
    if (known === undefined) return;
    const { participants, events } = this.#parsed;
    const read = parseCheckpoint(known);
    if (read === undefined) {
      this.#fault(0, 'the checkpoint to hold it against', known, 'decisions-late-digest');
      return;
    }
    const late = participants.slice(this.#lobby);
    if (events.length < read.decisions || late.length < read.late) {
      const found = `${events.length} decisions and ${late.length} late arrivals`;
      const expected = `at least ${read.decisions} and ${read.late}: they had been shown`;
      this.#fault(events.at(-1)?.line ?? 0, 'the end of the file', found, expected);
      return;
    }
    const then =
      this.#headThen === undefined
        ? 'none'
        : checkpointText(
            read.decisions,
            read.late,
            this.#headThen,
            rootOver(late.slice(0, read.late)),
          );
    if (then !== known) {
      const line = events[read.decisions - 1]?.line ?? 0;
      this.#fault(line, 'checkpoint that had been shown', then, known);
    }
  }

  #checkLate(count: number, root: string, line: number): void {
    const late = this.#parsed.participants.slice(this.#lobby, this.#lobby + count);
    if (late.length < count) {
      this.#fault(line, 'late arrivals', String(late.length), String(count));
      return;
    }
    const seen = toHex(rootOver(late));
    if (seen !== root) this.#fault(line, 'root over late arrivals', seen, root);
  }

  #checkRoot(size: number, root: string, line: number): void {
    const { participants } = this.#parsed;
    this.#lobby = size;
    this.#root = root;
    if (participants.length < size) {
      this.#fault(line, 'entries in the lobby', String(participants.length), String(size));
    }
    const log = new MerkleLog();
    participants.slice(0, size).forEach((entry, at) => {
      try {
        log.append(participantLeaf(entry.entryId, entry.weight));
      } catch {
        const where = this.#parsed.participantLines[at] ?? line;
        this.#fault(where, 'an entry id', entry.entryId, '16 bytes in base64url');
      }
    });
    const seen = toHex(log.root());
    if (seen !== root) this.#fault(line, 'root over the lobby', seen, root);
  }

  #checkDraw(beacon: string, mode: string, line: number): void {
    if (mode !== this.#header.mode) this.#fault(line, 'mode', mode, this.#header.mode);
    if (this.#header.beacon_source === null && beacon !== '') {
      this.#fault(line, 'a beacon that was not named', beacon, 'none');
    }
    if (this.#header.beacon_source !== null && beacon === '') {
      this.#fault(line, 'the named beacon', 'none', this.#header.beacon_source);
    }
    this.#beacon = beacon;
    const model = this.#model;
    const lobby = this.#parsed.participants.slice(0, this.#lobby);
    const draw = model.startDraw(beacon);
    for (const entry of lobby) model.addToDraw(draw, entry);
    for (const _ of draw.sort()) continue;
    if (draw.hasTies) for (const entry of lobby) model.addTied(draw, entry);
    model.finishDraw(draw);
    for (const entry of this.#parsed.participants.slice(this.#lobby)) model.addLate(entry);
    for (const lane of model.lanes) this.#checkOrder(lane);
    for (const [lane, places] of this.#parsed.order) {
      if (!model.lanes.some((each) => each.lane === lane)) {
        this.#fault(places[0]?.line ?? 0, 'order of a lane', `"${lane}"`, 'a lane of this room');
      }
    }
  }

  /** Each listed place must hold the entry that the values put there. */
  #checkOrder(lane: LaneModel): void {
    const { participants, order } = this.#parsed;
    const listed = order.get(lane.lane) ?? [];
    if (listed.length !== lane.lobby.size) {
      const line = listed.at(-1)?.line ?? 0;
      this.#fault(
        line,
        `places listed in lane "${lane.lane}"`,
        String(listed.length),
        `${lane.lobby.size}`,
      );
    }
    for (let rank = 0; rank < listed.length; rank += 1) {
      const place = listed[rank];
      const entry = place === undefined ? undefined : participants[place.sequence];
      if (place === undefined) continue;
      const where =
        entry === undefined ? undefined : this.#model.whereIs(place.sequence, entry.entryId);
      if (where?.lane === lane && where.position === rank) continue;
      const found = `entry ${place.sequence} at place ${rank + 1} of lane "${lane.lane}"`;
      const right =
        where === undefined || where.position < 0 ? 'no place' : `place ${where.position + 1}`;
      this.#fault(place.line, 'order', found, right);
      return;
    }
  }

  /** A wave must take exactly the next living entries of each lane, as many as it says. */
  #checkWave(event: WaveEvent, line: number): void {
    for (const share of event.lanes) {
      const lane = this.#model.lanes.find((each) => each.lane === share.lane);
      if (lane === undefined) {
        this.#fault(line, `wave ${event.wave}`, `lane "${share.lane}"`, 'a lane of this room');
        continue;
      }
      const picker = lane.picker();
      if (!takeAll(picker, share.again, true) || !takeAll(picker, share.count, false)) {
        const found = `${share.again} + ${share.count} of lane "${share.lane}"`;
        this.#fault(line, `people of wave ${event.wave}`, found, `at most ${picker.count}`);
        continue;
      }
      const wanted = JSON.stringify(picker.share());
      const said = JSON.stringify({
        lane: share.lane,
        count: share.count,
        again: share.again,
        ...(share.upTo === undefined ? {} : { upTo: share.upTo }),
        ...(share.againUpTo === undefined ? {} : { againUpTo: share.againUpTo }),
      });
      if (wanted !== said) this.#fault(line, `wave ${event.wave}`, said, wanted);
    }
  }
}

function rootOver(entries: readonly RoomParticipant[]): Uint8Array {
  const log = new MerkleLog();
  for (const { entryId, weight } of entries) log.append(participantLeaf(entryId, weight));
  return log.root();
}

function takeAll(picker: LanePicker, count: number, again: boolean): boolean {
  for (let taken = 0; taken < count; taken += 1) {
    const { head } = picker;
    if (head === undefined || head.again !== again) return false;
    picker.take();
  }
  return true;
}
