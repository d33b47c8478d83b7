import type { RoomEventBody, WaveEvent } from './events.ts';
import type { RoomModel } from './model.ts';
import { pickWave, WaveGate } from './pick.ts';
import { waveSize } from './sizing.ts';

/** Below this share of the stock waves become smaller. */
const nearEndShare = 0.1;

/** The gate as the sale stands now, or undefined while nothing is known of the sale. */
export function gateOf(model: RoomModel): WaveGate | undefined {
  const { signals } = model;
  if (signals === undefined) return undefined;
  return new WaveGate(
    model.activity.room,
    model.lanes,
    model.book,
    signals.skus,
    signals.unitsPerBuyer,
  );
}

/** The next wave, or undefined where there is none to be. Changes nothing. */
export function decideWave(model: RoomModel, nowMs: number, monoMs: number): WaveEvent | undefined {
  const { room } = model.activity;
  const { signals, decided } = model;
  const gate = gateOf(model);
  if (signals === undefined || gate === undefined) return undefined;
  if (!model.hasLines || !model.drawn || decided.held || decided.paused) return undefined;

  const available = signals.skus.reduce((sum, sku) => sum + sku.available, 0);
  const total = signals.skus.reduce((sum, sku) => sum + sku.total, 0);
  const size = waveSize({
    wanted: gate.wanted,
    first: decided.lastWave === 0,
    ratePerSecond: Math.min(model.rate.perSecond, signals.budgetPerSecond ?? Infinity),
    sinceLastWaveMs: Math.max(0, nowMs - decided.lastWaveAtMs),
    mode: signals.mode,
    newPerSecondCap: room.maxAdmissionsPerSecond,
    newLastSecond: model.window.lastSecond(monoMs),
    activeCap: room.maxActive,
    active: model.book.active,
    nearEnd: available < total * nearEndShare,
  });
  const lanes = pickWave(model.lanes, size, gate);
  if (lanes.length === 0) return undefined;
  return {
    e: 'wave',
    wave: decided.lastWave + 1,
    claimBeforeMs: nowMs + room.claimWindowMs,
    lanes,
  };
}

/** Letting in one entry past the order; undefined where it is in, gone or unknown. Both caps hold. */
export function decideBypass(
  model: RoomModel,
  entry: { readonly sequence: number; readonly entryId: string },
  reason: { readonly who: string; readonly why: string },
  nowMs: number,
  monoMs: number,
): RoomEventBody | undefined {
  const { room } = model.activity;
  if (!model.drawn || entry.sequence >= model.placed) return undefined;
  if (model.window.lastSecond(monoMs) >= room.maxAdmissionsPerSecond) return undefined;
  if (model.book.active >= room.maxActive) return undefined;
  const { lane, position } = model.whereIs(entry.sequence, entry.entryId);
  if (position < 0 || lane.isGone(position) || (lane.waveAt(position) ?? 0) !== 0) return undefined;
  return {
    e: 'bypassed',
    wave: model.decided.lastWave + 1,
    claimBeforeMs: nowMs + room.claimWindowMs,
    sequence: entry.sequence,
    entryId: entry.entryId,
    lane: lane.lane,
    ...reason,
  };
}
