import { createHash } from 'node:crypto';
import type { Activity } from '../core/activity.ts';
import {
  auditHeader,
  changeLine,
  eventLine,
  orderLine,
  orderLineLength,
  participantLine,
} from '../core/room/audit-format.ts';
import { fromHex, toHex } from '../core/room/bytes.ts';
import { CheckpointLog } from '../core/room/checkpoint.ts';
import { commitmentOf } from '../core/room/draw.ts';
import type { RoomParticipant } from '../core/room/lobby-draw.ts';
import { RoomModel } from '../core/room/model.ts';
import { roomStateNames } from '../pipeline/room-keys.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import { RoomLog } from './room-log.ts';

const pageSize = 2_048;

/**
 * The audit file of a room, line by line with its newlines. Throws where there is no draw yet: the
 * secret is not shown before its result. What happens while this runs is left out: the file ends with
 * the decisions that were there when it began.
 */
export async function* auditLines(
  store: AdmissionStore,
  activity: Activity,
): AsyncGenerator<string> {
  const { activityId } = activity;
  const events = await new RoomLog(store, activityId).load();
  const drawn = events.find((event) => event.e === 'drawn');
  const closed = events.find((event) => event.e === 'closed');
  if (drawn?.e !== 'drawn' || closed?.e !== 'closed') {
    throw new Error(
      `room "${activityId}" has not been drawn yet; an audit would give its secret away`,
    );
  }
  const secret = await secretOf(store, roomStateNames.secret(activityId));
  const entryKey = await secretOf(store, roomStateNames.entryKey(activityId));
  const seen = events.at(-1)?.seen ?? 0;

  let lines = 0;
  const digest = createHash('sha256');
  const line = (text: string): string => {
    const whole = `${text}\n`;
    lines += 1;
    digest.update(whole);
    return whole;
  };
  const commitments = {
    commitment: commitmentOf(secret),
    entryCommitment: commitmentOf(entryKey),
  };
  yield line(JSON.stringify(auditHeader(activity, drawn.mode, commitments)));

  const checkpoint = new CheckpointLog();
  for await (const entry of participants(store, activityId, Infinity)) {
    if (entry.sequence >= closed.lobbySize) checkpoint.late(entry);
    yield line(participantLine(entry));
  }
  let decided = 0;
  const decideUpTo = (taken: number): void => {
    for (; decided < events.length; decided += 1) {
      const event = events[decided];
      if (event === undefined || event.seen > taken) return;
      checkpoint.decision(event);
    }
  };
  const left = new Set<number>();
  for (let from = 0; from < seen; ) {
    const page = await store.changes(activityId, from, Math.min(pageSize, seen - from));
    if (page.length === 0) throw new Error(`changes of room "${activityId}" end at ${from}`);
    for (const change of page) {
      if (change.kind === 'left' && from < drawn.seen) left.add(change.sequence);
      decideUpTo(from);
      checkpoint.change(change);
      from += 1;
      yield line(changeLine(change));
    }
  }
  decideUpTo(seen);
  for (const event of events) yield line(eventLine(event));

  for (const [lane, sequences] of await orderOf(store, activity, { secret, drawn, closed, left })) {
    for (let from = 0; from < sequences.length; from += orderLineLength) {
      yield line(orderLine(lane, sequences.slice(from, from + orderLineLength)));
    }
  }
  yield line(JSON.stringify(['s', toHex(secret)]));
  yield line(JSON.stringify(['h', checkpoint.text]));
  yield `${JSON.stringify(['end', lines, digest.digest('hex')])}\n`;
}

async function secretOf(store: AdmissionStore, name: string): Promise<Uint8Array> {
  const stored = await store.loadState(name);
  const secret = stored === undefined ? undefined : fromHex(stored.value);
  if (secret === undefined) throw new Error(`state "${name}" is not there`);
  return secret;
}

async function* participants(
  store: AdmissionStore,
  activityId: string,
  end: number,
): AsyncGenerator<RoomParticipant> {
  for (let from = 0; from < end; ) {
    const page = await store.participants(activityId, from, Math.min(pageSize, end - from));
    if (page.length === 0) return;
    yield* page;
    from += page.length;
  }
}

interface DrawnFacts {
  readonly secret: Uint8Array;
  readonly drawn: { readonly beacon: string; readonly mode: Activity['room']['mode'] };
  readonly closed: { readonly lobbySize: number; readonly root: string };
  readonly left: ReadonlySet<number>;
}

/** The lobby's sequences in drawn order, lane by lane. */
async function orderOf(
  store: AdmissionStore,
  activity: Activity,
  facts: DrawnFacts,
): Promise<ReadonlyMap<string, readonly number[]>> {
  const { drawn, closed, left } = facts;
  const room = { ...activity.room, mode: drawn.mode };
  const model = new RoomModel(
    { ...activity, room },
    { secret: facts.secret, commitment: '', entryCommitment: '' },
  );
  model.applyEvent({ e: 'closed', atMs: 0, seen: 0, ...closed });
  const draw = model.startDraw(drawn.beacon);
  const lanes = new Map<
    string,
    { readonly entry: string; readonly sequence: number; key: number }[]
  >();
  for await (const entry of participants(store, activity.activityId, closed.lobbySize)) {
    // Lanes are counted over everybody, whoever left.
    const lane = model.laneNameFor(entry);
    if (left.has(entry.sequence)) continue;
    const line = lanes.get(lane) ?? [];
    line.push({ entry: entry.entryId, sequence: entry.sequence, key: draw.keyOf(entry) });
    lanes.set(lane, line);
  }
  return new Map(
    [...lanes].map(([lane, line]) => [
      lane,
      line
        .sort((a, b) => a.key - b.key || (a.entry < b.entry ? -1 : 1))
        .map(({ sequence }) => sequence),
    ]),
  );
}
