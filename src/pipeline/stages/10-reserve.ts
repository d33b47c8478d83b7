import { type Activity, phaseAt, type Sku } from '../../core/activity.ts';
import { reservationDeadlineMs } from '../../core/bounds.ts';
import { type FixedRefusal, type Refusal, refuse } from '../../core/decision.ts';
import { reservationIdAt } from '../../core/stock/shards.ts';
import { type Random, uniqueText } from '../../ports/random.ts';
import type { RequestRecord, ReserveOutcome, ReserveRequest } from '../../ports/inventory-store.ts';
import type { Order, OrderStore } from '../../ports/order-store.ts';
import type { ActivityDirectory } from '../activities.ts';
import { fingerprintOf } from '../fingerprint.ts';
import type { RetrySpread } from '../health.ts';
import { outcomeOf } from '../outcomes.ts';
import type { RequestStatus, StatusResult } from '../request-status.ts';
import type { ReserveBatcher, ReserveResult } from '../reserve-batcher.ts';
import type {
  Answer,
  AsyncStage,
  Submission,
  SubmitBody,
  SubmitTarget,
  Verdict,
  VerifiedPass,
} from '../stage.ts';

export interface ReserveStageParts {
  readonly activities: ActivityDirectory;
  readonly batcher: ReserveBatcher;
  readonly status: RequestStatus;
  /** For the order ids that come along with ALREADY_PURCHASED. */
  readonly orders: Pick<OrderStore, 'liveOfPerson'>;
  readonly random: Random;
  readonly spread: RetrySpread;
  readonly onError: (what: string, error: unknown) => void;
}

const unavailable = (reason: string, detail: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'reserve',
  code: 'DEPENDENCY_UNAVAILABLE',
  scope: 'system',
  reason,
  detail,
});

const outcomeUnknown = unavailable(
  'outcome_unknown',
  'the stock did not answer in time; ask for the same request id',
);
const stockAway = unavailable('stock_unavailable', 'the stock did not answer; nothing was taken');
const stockForgot = unavailable('stock_forgot', 'the stock is being rebuilt after a loss');
const stockNotLoaded = unavailable('stock_not_loaded', 'the stock of this SKU is not loaded yet');
const ordersAway = unavailable('orders_unavailable', 'the orders did not answer; ask again');

const queueFull: FixedRefusal = {
  decision: 'reject',
  stage: 'reserve',
  code: 'SYSTEM_OVERLOADED',
  scope: 'sku',
  reason: 'reserve_queue_full',
  detail: 'as many requests wait for this SKU as may',
};

/** Health's word, not a failure: nobody was asked. */
const notAsked: FixedRefusal = {
  ...queueFull,
  reason: 'inventory_not_asked',
  detail: 'the stock does not answer well and is being probed; nothing was taken',
};

const tooLate: FixedRefusal = {
  ...queueFull,
  reason: 'deadline',
  detail: 'the time that you gave this request was over before it was begun; nothing was taken',
};

const paused: FixedRefusal = {
  ...queueFull,
  reason: 'sku_paused',
  detail: 'the sale of this SKU is paused; nothing was taken',
};

const refusal = (code: Refusal['code'], reason: string, detail: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'reserve',
  code,
  reason,
  detail,
});

const conflict = refusal(
  'REQUEST_ID_CONFLICT',
  'fingerprint',
  'this request id reserved other content before; a new intention needs a new id',
);
const nonceUsed: FixedRefusal = {
  ...refusal('REPLAY_REJECTED', 'nonce_used', 'this pass already serves another request id'),
  scope: 'pass',
};
const expiredPass: FixedRefusal = {
  ...refusal('TOKEN_EXPIRED', 'pass_expired', 'the pass is not valid any more'),
  scope: 'pass',
};
export const reservationLost = refusal(
  'RESERVATION_LOST',
  'lost_in_failover',
  'the reservation was lost in a failover; nothing was charged; submit the same request id again',
);

/** One atomic step in the store, shared with others of the same moment; then what it said. */
export function reserveStage(parts: ReserveStageParts): AsyncStage {
  const { activities, batcher, status, random, spread } = parts;

  /** For whoever may start nothing new: what an earlier try became, or `otherwise`. */
  async function earlierOr(
    submission: Submission,
    target: SubmitTarget,
    body: SubmitBody,
    otherwise: Refusal,
  ): Promise<Verdict> {
    const { userId = '', personId } = submission;
    const known = await status.askStores(target, userId, body.requestId, personId);
    return known === undefined ? otherwise : ofStatus(known, body.requestId, otherwise);
  }

  async function holdings(
    target: SubmitTarget,
    personId: string,
    live: readonly RequestRecord[],
  ): Promise<Refusal> {
    let orders: readonly Order[] = [];
    try {
      orders = await parts.orders.liveOfPerson(target, personId);
    } catch (error) {
      // The refusal stands without them; the ids that are known go out.
      parts.onError('orders of a person', error);
    }
    return alreadyPurchased(live, orders);
  }

  async function ofOutcome(
    submission: Submission,
    target: SubmitTarget,
    body: SubmitBody,
    outcome: ReserveOutcome,
  ): Promise<Verdict | undefined> {
    switch (outcome.kind) {
      case 'reserved':
        submission.reserved = outcome;
        return undefined;
      case 'existing': {
        const otherwise = refuse(outcomeUnknown, 1_000);
        return ofStatus(await status.askRecord(target, outcome.record), body.requestId, otherwise);
      }
      case 'conflict':
        return withRequest(refuse(conflict), body);
      case 'nonce_used':
        return withRequest(refuse(nonceUsed), body);
      case 'limit_reached':
        return withRequest(await holdings(target, submission.personId ?? '', outcome.live), body);
      case 'seat_taken': {
        const sku = activities
          .get(target.activityId)
          ?.skus.find(({ skuId }) => skuId === target.skuId);
        const unknown = outcome.seats.filter((seat) => sku?.seats?.includes(seat) !== true);
        if (unknown.length > 0) return withRequest(noSuchSeats(unknown, sku), body);
        return soldOut(target, body, 'seat_taken', {
          message: seatMessage(outcome.seats),
        });
      }
      case 'sold_out':
        return soldOut(target, body, 'stock');
    }
  }

  function ofResult(
    submission: Submission,
    target: SubmitTarget,
    body: SubmitBody,
    result: ReserveResult,
  ): Promise<Verdict | undefined> | Verdict {
    switch (result.kind) {
      case 'outcome':
        submission.probe = undefined;
        return ofOutcome(submission, target, body, result.outcome);
      case 'full':
        return withRequest(refuse(queueFull, spread.busyMs()), body);
      case 'paused':
        return withRequest(refuse(paused, spread.busyMs()), body);
      case 'forgotten':
        return withRequest(refuse(stockForgot, spread.busyMs()), body);
      case 'unknown_sku':
        return withRequest(refuse(stockNotLoaded, spread.busyMs()), body);
      case 'unavailable':
        return withRequest(refuse(stockAway, spread.busyMs()), body);
      case 'late':
        return withRequest(refuse(tooLate, spread.busyMs()), body);
      case 'not_asked':
        return withRequest(refuse(notAsked, spread.busyMs()), body);
      case 'unknown':
        status.noteUnknown(target, submission.userId ?? '', body.requestId);
        return withRequest(refuse(outcomeUnknown, 1_000), body);
    }
  }

  return {
    name: 'reserve',
    async run(submission) {
      const { target, body, pass } = submission;
      if (target === undefined || body === undefined || pass === undefined) {
        throw new Error('reserve runs after sold_out, identify and budget');
      }
      if (pass.expired) {
        const otherwise = withRequest(refuse(expiredPass), body);
        return earlierOr(submission, target, body, otherwise);
      }
      const activity = activities.get(target.activityId);
      const sku = activity?.skus.find((one) => one.skuId === target.skuId);
      if (activity === undefined || sku === undefined) {
        return withRequest(refuse(stockNotLoaded, spread.busyMs()), body);
      }
      const phase = phaseAt(activity, submission.nowMs);
      if (phase !== 'open') {
        const otherwise = withRequest(notOpen(activity, phase === 'closed'), body);
        return earlierOr(submission, target, body, otherwise);
      }
      const request = requestOf(submission, body, pass, activity, sku, random);
      const result = await batcher.add(target, request, submission.remainingMs?.());
      return ofResult(submission, target, body, result);
    },
  };
}

function requestOf(
  submission: Submission,
  body: SubmitBody,
  pass: VerifiedPass,
  activity: Activity,
  sku: Sku,
  random: Random,
): ReserveRequest {
  const { userId, personId, nowMs, span } = submission;
  const traceparent = span?.traceparent ?? submission.traceparent;
  if (userId === undefined || personId === undefined) {
    throw new Error('reserve runs after identify has set user and person');
  }
  return {
    requestId: body.requestId,
    userId,
    personId,
    fingerprint: fingerprintOf(activity.activityId, personId, body),
    nonce: pass.nonce,
    quantity: body.quantity,
    limit: sku.maxPerPerson,
    reservationId: reservationIdAt(personId, uniqueText(random)),
    deadlineMs: nowMs + reservationDeadlineMs,
    activityVersion: activity.activityVersion,
    unitAmountMinor: sku.price.amountMinor,
    currency: sku.price.currency,
    ...(body.seats === undefined ? {} : { seats: body.seats }),
    ...(traceparent === undefined ? {} : { traceparent }),
  };
}

/** Before opening or after closing, by the server's clock, with both instants. */
export function notOpen(
  times: Pick<Activity, 'opensAtMs' | 'closesAtMs'>,
  over: boolean,
  stage: Refusal['stage'] = 'reserve',
): Refusal {
  const opensAt = new Date(times.opensAtMs).toISOString();
  const closesAt = new Date(times.closesAtMs).toISOString();
  return {
    decision: 'reject',
    stage,
    code: 'NOT_OPEN',
    scope: 'activity',
    reason: over ? 'closed' : 'before_opening',
    detail: over ? `the sale closed at ${closesAt}` : `the sale opens at ${opensAt}`,
    nextAction: over ? 'STOP' : 'RETRY_LATER',
    extra: { opens_at: opensAt, closes_at: closesAt },
  };
}

function alreadyPurchased(live: readonly RequestRecord[], orders: readonly Order[]): Refusal {
  const byReservation = new Map(orders.map((order) => [order.reservationId, order]));
  const holdings = live.map((record) => ({
    request_id: record.requestId,
    reservation_id: record.reservationId,
    order_id: byReservation.get(record.reservationId)?.orderId ?? null,
    quantity: record.quantity,
  }));
  const pending = holdings.some((held) => held.order_id === null);
  return {
    decision: 'reject',
    stage: 'reserve',
    code: 'ALREADY_PURCHASED',
    scope: 'user',
    reason: 'person_limit',
    detail: 'the purchase limit is used by what you hold already',
    nextAction: pending ? 'POLL' : 'STOP',
    extra: { holdings },
  };
}

function ofStatus(known: StatusResult, requestId: string, otherwise: Refusal): Verdict {
  switch (known.kind) {
    case 'outcome':
      return replayed(known.outcome);
    case 'reservation_lost':
      return { ...refuse(reservationLost), extra: { request_id: requestId } };
    case 'unavailable':
      return { ...refuse(ordersAway, 1_000), extra: { request_id: requestId } };
    case 'not_found':
      return otherwise;
  }
}

function replayed(outcome: Answer['outcome']): Answer {
  return {
    decision: 'handle',
    stage: 'reserve',
    code: 'REQUEST_REPLAYED',
    reason: 'replayed',
    outcome,
  };
}

function soldOut(
  target: SubmitTarget,
  body: SubmitBody,
  reason: string,
  known: Partial<Answer['outcome']> = {},
): Answer {
  return {
    decision: 'handle',
    stage: 'reserve',
    code: 'SECKILL_SOLD_OUT',
    reason,
    outcome: outcomeOf('SOLD_OUT', target, body.requestId, known),
  };
}

/** Seats that were never on sale are not taken by anybody: the question was wrong. */
function noSuchSeats(seats: readonly string[], sku: Sku | undefined): Refusal {
  const found = seats.map((seat) => JSON.stringify(seat)).join(', ');
  const allowed =
    sku?.seats === undefined ? 'no seats: this SKU is sold without' : 'seats of this SKU';
  return {
    ...refusal('INVALID_ARGUMENT', 'body', `/seats: found ${found}, allowed is ${allowed}`),
    extra: { errors: [{ path: '/seats', found, allowed }] },
  };
}

function seatMessage(taken: readonly string[]): string {
  return taken.length === 0
    ? 'No seats beside each other are left for this quantity. Nothing was taken from you.'
    : `These seats are taken: ${taken.join(', ')}. Nothing was taken from you; choose others.`;
}

function withRequest(refused: Refusal, body: SubmitBody): Refusal {
  return { ...refused, extra: { ...refused.extra, request_id: body.requestId } };
}
