import type { Overview } from '../../src/control/admin/source.ts';

/** A sale as the operator would see it `second` seconds in: drawn from a formula, adding up always. */
export function saleAt(takenAtMs: number, second: number): Overview {
  const wave = (period: number, depth: number): number => 1 + depth * Math.sin(second / period);
  /** A counter that only grows, at a rate that breathes. */
  const grown = (perSecond: number, from: number): number => {
    const t = Math.max(0, second - from);
    return Math.floor(perSecond * (t + 0.35 * 17 * (1 - Math.cos(t / 17))));
  };
  const total = 5_000;
  const reserved = Math.min(total, grown(22, 20));
  const ordered = Math.max(0, Math.min(reserved, grown(22, 22)));
  const paid = Math.floor(Math.min(ordered, grown(17, 28)) * 0.94);
  const soldOut = reserved === total ? grown(900, 240) : 0;
  const address = grown(120, 10);
  const person = grown(46, 22);
  const busy = Math.floor(grown(14, 60) * 0.4);
  const arrivals = grown(1_900, 0) + 400;
  const rejected = soldOut + address + person + busy;
  return {
    takenAtMs,
    counters: {
      arrivals,
      handled: arrivals - rejected,
      rejected,
      failed: 0,
      limited: Math.floor((address + person) * 0.28),
      shed: busy,
      reserved,
      ordered,
      paid,
    },
    funnel: [
      { step: 'arrived', count: arrivals },
      { step: 'joined', count: Math.min(48_000, 9_000 + grown(400, 0)) },
      { step: 'released', count: Math.floor(reserved * 1.32) },
      { step: 'claimed', count: Math.floor(reserved * 1.17) },
      { step: 'submitted', count: Math.floor(reserved * 1.08) },
      { step: 'reserved', count: reserved },
      { step: 'ordered', count: ordered },
      { step: 'paid', count: paid },
    ],
    refusals: [
      { stage: 'source', reason: 'address', count: address },
      { stage: 'person', reason: 'user', count: person },
      { stage: 'shed', reason: 'mode', count: busy },
      { stage: 'sold_out', reason: 'flag', count: soldOut },
    ].filter((row) => row.count > 0),
    stock: [
      {
        activityId: 'night-tide',
        skuId: 'floor',
        name: 'Standing, floor',
        total,
        paid,
        pending: ordered - paid,
        held: reserved - ordered,
        available: total - reserved,
      },
    ],
    mode: {
      mode: second % 200 > 150 ? 'DEGRADED' : 'NORMAL',
      sinceMs: takenAtMs - (second % 200) * 1_000,
      driver: { signal: 'queue_wait', value: 9, z: 0.32 + 0.25 * Math.abs(Math.sin(second / 31)) },
    },
    rooms: [
      {
        activityId: 'night-tide',
        name: 'Night Tide',
        phase: second < 20 ? 'lobby' : 'open',
        rule: 'draw',
        state: 'running',
        joined: Math.min(48_000, 9_000 + grown(400, 0)),
        waiting: Math.max(0, 40_000 - Math.floor(reserved * 1.32)),
        released: Math.floor(reserved * 1.32),
        claimed: Math.floor(reserved * 1.17),
        finished: ordered,
        left: 210,
        waves: Math.floor(second / 3),
      },
    ],
    queue: {
      depth: Math.floor(30 * wave(5, 0.6)),
      oldestAgeMs: Math.floor(45 * wave(7, 0.5)),
      buried: 0,
    },
    latency: {
      admitted: { p50Ms: 4 * wave(9, 0.2), p95Ms: 12 * wave(9, 0.2), p99Ms: 23 * wave(11, 0.35) },
      refused: { p50Ms: 0.3, p95Ms: 0.7, p99Ms: 1.4 * wave(6, 0.3) },
    },
    instances: [
      {
        instance: 'one',
        roles: ['gateway', 'worker', 'control'],
        uptimeMs: second * 1_000,
        mode: 'NORMAL',
        inFlight: 12,
        inFlightLimit: 512,
        loopDelayMs: 1.8,
        memoryBytes: 312 * 1_048_576,
        rulesVersion: 3,
      },
    ],
    ledgerResidual: 0,
  };
}
