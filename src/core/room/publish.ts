import { gateOf } from './decide.ts';
import type { LaneModel } from './lane-model.ts';
import type { RoomModel } from './model.ts';
import { paceFor, pollBudgetDefault } from './pace.ts';
import type { WaveGate } from './pick.ts';
import type { LaneState, ReleaseState, RoomCounts, RoomStage } from './release.ts';

/** What the room looks like to gateways. O(lanes + waves + marks), and the lefts of the last period. */
export function releaseStateOf(
  model: RoomModel,
  stamp: { readonly epoch: number; readonly version: number; readonly publishedAtMs: number },
  stage: RoomStage,
): ReleaseState {
  const { activity, decided, secrets } = model;
  const counts = countsOf(model);
  const gate = gateOf(model);
  const perSecond = activity.room.pollsPerSecond ?? pollBudgetDefault.perSecond;
  return {
    schemaVersion: 1,
    activityId: activity.activityId,
    activityVersion: activity.activityVersion,
    ...stamp,
    mode: model.mode,
    stage,
    held: decided.held,
    paused: decided.paused,
    commitment: secrets.commitment,
    entryCommitment: secrets.entryCommitment,
    checkpoint: model.checkpoint.text,
    beacon:
      activity.room.beacon === undefined
        ? null
        : { source: activity.room.beacon, value: decided.beacon ?? null },
    draw: model.drawFacts,
    lobbySize: decided.lobby?.size ?? null,
    placed: model.placed,
    waves: model.book.windows(),
    lanes: model.lanes.map((lane) => laneState(model, lane, gate, stamp.publishedAtMs)),
    left: model.left.snapshot(),
    claimed: model.book.claimed.snapshot(),
    lapsed: model.book.lapsed.snapshot(),
    bypassed: [...decided.bypassed],
    revoked: { waves: model.book.revokedWaves, keys: [...decided.revokedKeys] },
    counts,
    pace: paceFor(counts.waiting, { ...pollBudgetDefault, perSecond }),
  };
}

export function countsOf(model: RoomModel): RoomCounts {
  const { released, missed, finished } = model.book.totals;
  const waiting = model.drawn
    ? model.lanes.reduce((sum, lane) => sum + lane.waiting, 0) + (model.joined - model.placed)
    : model.joined - model.left.size;
  return {
    joined: model.joined,
    waiting: Math.max(0, waiting),
    left: model.left.size,
    released,
    active: model.book.active,
    claimed: model.book.claimed.size,
    missed,
    finished,
  };
}

function laneState(
  model: RoomModel,
  lane: LaneModel,
  gate: WaveGate | undefined,
  nowMs: number,
): LaneState {
  const { lobby, late } = lane.sketches();
  const { passed } = lane;
  const { skuIds } = lane.parts;
  const skus = (model.signals?.skus ?? []).filter(
    (sku) => skuIds.length === 0 || skuIds.includes(sku.skuId),
  );
  const reach = gate?.reach(lane);
  const place = gate === undefined || gate.hasPlace(lane);
  return {
    lane: lane.lane,
    released: lane.released(),
    lobby,
    late,
    lobbyPassed: passed.lobby,
    latePassed: passed.late,
    again: lane.again,
    // Nothing known of the sale is not the same as sold out.
    open: gate === undefined || (place && skus.some((sku) => sku.available > 0)),
    mayReopen: gate === undefined || skus.some((sku) => sku.held > 0 || sku.available > 0),
    drawnUpTo: drawnUpTo(model, lane, gate),
    forecast: {
      ...lane.forecaster.forecast(nowMs),
      likelyPlaces: reach === undefined ? 0 : Math.floor(reach.likely),
      unlikelyPlaces: reach === undefined ? Number.MAX_SAFE_INTEGER : Math.ceil(reach.atBest),
    },
  };
}

/**
 * In a lottery the results are out once every place has been given: who is behind the front then, and
 * behind the places that became free since, is told so.
 */
function drawnUpTo(model: RoomModel, lane: LaneModel, gate: WaveGate | undefined): number | null {
  const { room } = model.activity;
  if (room.mode !== 'lottery' || gate === undefined) return null;
  const places = room.lotteryPlaces ?? 0;
  const lobbyEmpty = lane.passed.lobby >= lane.lobby.living;
  if (model.book.totals.released < places && !lobbyEmpty) return null;
  return lane.passed.lobby + gate.lotteryPlacesLeft;
}
