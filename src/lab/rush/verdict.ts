import type { OrderView, StockView } from './back-office.ts';
import type { Crowd } from './crowd.ts';
import type { DrawCheck } from './draw-check.ts';
import type { Monitor } from './monitor.ts';
import type { Evidence, InvariantResult } from './report.ts';
import { Witness } from './witness.ts';
import type { SeenInvariant } from './witness.ts';

/** What is known at the end of a run, from the crowd and, with a credential, from the operator. */
export interface Findings {
  readonly crowd: Crowd;
  readonly monitor: Monitor;
  /** Is an operator's credential at hand? Then what it should show and did not is a failure. */
  readonly operated: boolean;
  readonly stock: StockView | undefined;
  /** Every order, as the operator has them. */
  readonly orders: readonly OrderView[] | undefined;
  readonly maxPerPerson: (skuId: string) => number;
  readonly residual: number | undefined;
  /** What a reconciliation found; undefined where the target has none, or it could not be asked. */
  readonly reconciliation: readonly string[] | undefined;
  readonly draw: DrawCheck;
  /** Units put on sale, where this run set them. */
  readonly initialStock: number | undefined;
  /** The room's strict rate and its claim window, where this run set them. */
  readonly admission: { readonly perSecond: number; readonly claimWindowMs: number } | undefined;
  /** Why parts of the operator's side could not be read. */
  readonly troubles: readonly string[];
  readonly peakServerMib: number | undefined;
}

interface Judged {
  readonly held: boolean;
  readonly detail: string;
  readonly evidence: Evidence;
}

/** Judges the thirteen invariants. `held` is false when a breach was seen, or when what had to be read was not. */
export function judge(findings: Findings): readonly InvariantResult[] {
  const judged: Readonly<Record<string, Judged>> = {
    1: stockAddsUp(findings),
    2: perPerson(findings),
    3: oneRequestEach(findings),
    4: retriesChangeNothing(findings),
    5: noPassNoSubmit(findings),
    6: admissionRate(findings),
    7: unseen('no part of the target was made to fail in this run'),
    8: epochs(findings),
    9: bounds(findings),
    10: unseen('no outage was made in this run, so there was nothing to recover from'),
    11: ledger(findings),
    12: everyoneHasAnOutcome(findings),
    13: draw(findings),
  };
  return Object.entries(judged).map(([id, result]) => ({ id, ...result }));
}

function unseen(why: string): Judged {
  return { held: true, detail: `Not observed: ${why}.`, evidence: 'none' };
}

function breachText(witness: Witness, id: SeenInvariant): string | undefined {
  const { count, described } = witness.breaches(id);
  if (count === 0) return undefined;
  return `${count} breach${count === 1 ? '' : 'es'}: ${described.join('; ')}`;
}

function stockAddsUp(findings: Findings): Judged {
  const { crowd, stock, initialStock, operated, troubles } = findings;
  const seen = breachText(crowd.witness, 1);
  const told = `${crowd.witness.paidUnits} units told paid`;
  if (stock === undefined) {
    if (operated) {
      return {
        held: false,
        detail: `Stock could not be read: ${troubles.join('; ')}`,
        evidence: 'none',
      };
    }
    return {
      held: seen === undefined,
      detail: seen ?? `${told}; without an operator's credential the stock itself is not visible.`,
      evidence: 'crowd',
    };
  }
  const { total, sold, held, available } = stock;
  const sum = `sold ${sold} + held ${held} + available ${available} = ${sold + held + available} of ${total}`;
  const wrong: string[] = [];
  if (seen !== undefined) wrong.push(seen);
  const { reconciliation = [] } = findings;
  if (reconciliation.length > 0) wrong.push(`a reconciliation found: ${reconciliation.join(', ')}`);
  if (sold + held + available !== total) wrong.push(`does not add up: ${sum}`);
  if (initialStock !== undefined && total !== initialStock) {
    wrong.push(`${initialStock} units were put on sale, the operator counts ${total}`);
  }
  if (available < 0 || sold > total) wrong.push(`out of range: ${sum}`);
  if (crowd.witness.paidUnits > total) wrong.push(`${told}, more than the ${total} on sale`);
  const rows = unitsLive(findings.orders ?? []);
  if (findings.orders !== undefined && rows !== sold) {
    wrong.push(`live orders add up to ${rows} units, the stock says ${sold} sold`);
  }
  if (crowd.witness.paidUnits > sold) wrong.push(`${told}, but the operator counts ${sold} sold`);
  return {
    held: wrong.length === 0,
    detail: wrong.length > 0 ? wrong.join('; ') : `${sum}; ${told}.`,
    evidence: 'both',
  };
}

const liveOrderStates: ReadonlySet<string> = new Set(['PENDING_PAYMENT', 'PAID']);

/** Units of orders that are pending or paid. */
export function unitsLive(orders: readonly OrderView[]): number {
  return orders.reduce(
    (units, { quantity, state }) => units + (liveOrderStates.has(state) ? quantity : 0),
    0,
  );
}

function liveOrders({ orders }: Findings): readonly OrderView[] {
  return (orders ?? []).filter(({ state }) => liveOrderStates.has(state));
}

function perPerson(findings: Findings): Judged {
  const { crowd, orders, maxPerPerson } = findings;
  const seen = breachText(crowd.witness, 2);
  let several = 0;
  for (const { requests } of crowd.dossiers.values()) if (requests.length > 1) several += 1;
  const held = new Map<string, number>();
  for (const { skuId, personId, quantity } of liveOrders(findings)) {
    const key = `${skuId} ${personId}`;
    held.set(key, (held.get(key) ?? 0) + quantity);
  }
  const over = [...held].filter(([key, units]) => units > maxPerPerson(key.split(' ', 1)[0] ?? ''));
  const wrong = [
    ...(seen === undefined ? [] : [seen]),
    ...(over.length === 0
      ? []
      : [
          `${over.length} people have live orders beyond the limit, the first ${over[0]?.[1]} units`,
        ]),
  ];
  return {
    held: wrong.length === 0,
    detail:
      wrong.length > 0
        ? wrong.join('; ')
        : `Nobody held more live units than allowed; ${several} people tried with more than one request id${orders === undefined ? '' : `, and of ${orders.length} orders no person has more live than the limit`}.`,
    evidence: orders === undefined ? 'crowd' : 'both',
  };
}

function oneRequestEach({ crowd }: Findings): Judged {
  const { witness } = crowd;
  const seen = breachText(witness, 3);
  return {
    held: seen === undefined,
    detail:
      seen ??
      `${witness.reservations} reservations, each told under one request id and one nonce; ${witness.replays} replays of used passes and ${witness.conflicts} reused ids with other content were refused.`,
    evidence: 'crowd',
  };
}

function retriesChangeNothing({ crowd }: Findings): Judged {
  const { witness } = crowd;
  const seen = breachText(witness, 4);
  return {
    held: seen === undefined,
    detail:
      seen ??
      `${witness.retries} repeats of request ids that had reserved were answered with the same reservation.`,
    evidence: 'crowd',
  };
}

function noPassNoSubmit({ crowd }: Findings): Judged {
  const { witness } = crowd;
  const seen = breachText(witness, 5);
  if (seen === undefined && witness.forged === 0) {
    return unseen('no bot forged a pass (use --bots)');
  }
  return {
    held: seen === undefined,
    detail: seen ?? `${witness.forged} submits without a valid pass, none let in.`,
    evidence: 'crowd',
  };
}

function admissionRate({ crowd, admission }: Findings): Judged {
  const { waves } = crowd.witness;
  const released = [...waves.values()].reduce((sum, count) => sum + count, 0);
  if (admission === undefined || waves.size === 0) {
    return unseen(
      `${released} people were seen released in ${waves.size} waves, but the room's rate is not public`,
    );
  }
  const { perSecond, claimWindowMs } = admission;
  const instants = [...waves]
    .map(([claimBefore, count]) => ({ atMs: Date.parse(claimBefore) - claimWindowMs, count }))
    .sort((a, b) => a.atMs - b.atMs);
  let most = 0;
  let inWindow = 0;
  let from = 0;
  for (const { atMs, count } of instants) {
    inWindow += count;
    while ((instants[from]?.atMs ?? atMs) <= atMs - 1000) {
      inWindow -= instants[from]?.count ?? 0;
      from += 1;
    }
    most = Math.max(most, inWindow);
  }
  return {
    held: most <= perSecond,
    detail: `${released} people seen released in ${waves.size} waves; at most ${most} in any second, ${perSecond} allowed.`,
    evidence: 'crowd',
  };
}

function epochs({ crowd, monitor }: Findings): Judged {
  const seen = breachText(crowd.witness, 8);
  if (seen === undefined && monitor.epochsRead === 0) {
    return unseen(`availability was never answered (${monitor.lastError || 'not asked'})`);
  }
  return {
    held: seen === undefined,
    detail: seen ?? `Stock epochs never went back in ${monitor.epochsRead} readings.`,
    evidence: 'crowd',
  };
}

function bounds({ peakServerMib }: Findings): Judged {
  if (peakServerMib === undefined)
    return unseen('bounds inside the target are not visible from outside');
  return {
    held: true,
    detail: `Not observed one by one; the server's resident memory peaked at ${peakServerMib} MiB.`,
    evidence: 'none',
  };
}

function ledger({ residual, operated, troubles }: Findings): Judged {
  if (residual === undefined) {
    if (!operated) return unseen("the ledger needs an operator's credential");
    return {
      held: false,
      detail: `The ledger could not be read: ${troubles.join('; ')}`,
      evidence: 'none',
    };
  }
  return {
    held: residual === 0,
    detail: `Residual ${residual}.`,
    evidence: 'operator',
  };
}

function everyoneHasAnOutcome({ crowd, orders }: Findings): Judged {
  const { witness } = crowd;
  const seen = breachText(witness, 12);
  const unknown = crowd.people.outcomes().unknown;
  const kept = new Map((orders ?? []).map(({ orderId, state }) => [orderId, state]));
  let lost = 0;
  if (orders !== undefined) {
    for (const [orderId, state] of Witness.toldOrders(crowd.dossiers.values())) {
      const now = kept.get(orderId);
      if (now === undefined || (state === 'PAID' && now !== 'PAID' && now !== 'REFUNDED'))
        lost += 1;
    }
  }
  const wrong = [
    ...(seen === undefined ? [] : [seen]),
    ...(unknown > 0 ? [`${unknown} people have no known outcome`] : []),
    ...(lost > 0 ? [`${lost} orders that people were told of are not kept as told`] : []),
  ];
  return {
    held: wrong.length === 0,
    detail:
      wrong.length > 0
        ? wrong.join('; ')
        : `${witness.queuedTold} requests were told QUEUED and each was told an outcome; all ${witness.orders} orders are ${orders === undefined ? 'answered for' : 'kept as told'}.`,
    evidence: orders === undefined ? 'crowd' : 'both',
  };
}

function draw({ draw: check }: Findings): Judged {
  switch (check.kind) {
    case 'reproduced':
      return { held: true, detail: check.detail, evidence: 'both' };
    case 'wrong':
      return { held: false, detail: check.why, evidence: 'operator' };
    default:
      return unseen(check.why);
  }
}
