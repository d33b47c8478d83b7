import { createHash } from 'node:crypto';
import type { Activity } from '../../core/activity.ts';
import { backlogCeilingDefault } from '../../core/bounds.ts';
import { type FixedRefusal, refuse } from '../../core/decision.ts';
import {
  ActivityBody,
  ActivityListBody,
  ActivityParams,
  AvailabilityBody,
  SkuParams,
} from '../../wire/schemas.ts';
import { availabilityOf } from '../availability.ts';
import { noSuchActivity } from '../refusals.ts';
import { type Call, param, type RouteReply, type RouteSpec } from '../route.ts';

/** What anybody may know of a sale. Cacheable, because a crowd reads it before it can act. */

const factsCache = 'public, s-maxage=1, stale-while-revalidate=5';

const noSuchSku: FixedRefusal = { ...noSuchActivity, reason: 'sku', detail: 'no such SKU here' };

const backlogged: FixedRefusal = {
  decision: 'reject',
  stage: 'slot',
  code: 'SYSTEM_OVERLOADED',
  scope: 'system',
  reason: 'backlog',
  detail: 'as many orders wait to be made as may wait; stock cannot be told now',
};

export const factsRoutes: readonly RouteSpec[] = [
  {
    method: 'GET',
    path: '/v1/activities',
    operationId: 'listActivities',
    summary: 'All sales of this deployment',
    limits: 'facts',
    priority: 3,
    auth: 'none',
    answers: { 200: ActivityListBody, 304: undefined },
    handle: async (call) => {
      const { activities } = call.context.deps;
      const listed = activities.list().filter(({ rehearsalOf }) => rehearsalOf === undefined);
      const bodies = await Promise.all(listed.map((one) => activityFacts(call, one)));
      return cacheable(call, bodies, (serverTime) => ({
        activities: bodies.map((body) => ({ ...body, server_time: serverTime })),
        server_time: serverTime,
      }));
    },
  },
  {
    method: 'GET',
    path: '/v1/activities/{activity_id}',
    operationId: 'getActivity',
    summary: 'One sale: times, room, SKUs, availability',
    limits: 'facts',
    priority: 3,
    params: ActivityParams,
    auth: 'none',
    answers: { 200: ActivityBody, 304: undefined },
    handle: async (call) => {
      const activity = call.context.deps.activities.get(param(call, 'activity_id'));
      if (activity === undefined) return refuse(noSuchActivity);
      const body = await activityFacts(call, activity);
      return cacheable(call, body, (serverTime) => ({ ...body, server_time: serverTime }));
    },
  },
  {
    method: 'GET',
    path: '/v1/activities/{activity_id}/skus/{sku_id}/availability',
    operationId: 'getAvailability',
    summary: 'A hint about stock; never a promise',
    limits: 'facts',
    priority: 3,
    params: SkuParams,
    auth: 'none',
    answers: { 200: AvailabilityBody },
    handle: availability,
  },
];

async function availability(call: Call): Promise<RouteReply> {
  const { deps, board, renderer } = call.context;
  const activity = deps.activities.get(param(call, 'activity_id'));
  if (activity === undefined) return refuse(noSuchActivity);
  const { activityId } = activity;
  const skuId = param(call, 'sku_id');
  if (!activity.skus.some((sku) => sku.skuId === skuId)) return refuse(noSuchSku);
  if ((deps.backlog() ?? 0) >= (deps.backlogCeiling ?? backlogCeilingDefault)) {
    return refuse(backlogged, call.context.spread.busyMs());
  }
  const sku = { activityId, skuId };
  // The cheaper answer: what was seen last, and nobody is asked.
  const mark = call.degradedBy === undefined ? await board.look(sku) : board.seen(sku);
  return {
    status: 200,
    body: {
      availability: mark === undefined ? 'maybe_later' : availabilityOf(mark, board.paid(sku)),
      stock_epoch: mark?.stockEpoch ?? 0,
      server_time: renderer.serverTime(call.nowMs),
    },
    headers: [
      'Cache-Control',
      'public, max-age=1',
      'X-Content-Type-Options',
      'nosniff',
      ...degradedMark(call),
    ],
  };
}

type Facts = Omit<import('../../wire/schemas.ts').ActivityBody, 'server_time'>;

async function activityFacts(call: Call, activity: Activity): Promise<Facts> {
  const { deps, board } = call.context;
  const { activityId } = activity;
  if (call.degradedBy === undefined) {
    await Promise.all(activity.skus.map(({ skuId }) => board.look({ activityId, skuId })));
  }
  const room = deps.publicRoom?.(activityId) ?? { commitment: null };
  return {
    activity_id: activityId,
    name: activity.name,
    revision: activity.revision,
    phase: board.phase(activity, call.nowMs),
    lobby_opens_at: new Date(activity.lobbyOpensAtMs).toISOString(),
    opens_at: new Date(activity.opensAtMs).toISOString(),
    closes_at: new Date(activity.closesAtMs).toISOString(),
    time_zone: activity.timeZone,
    ...(activity.rehearsalOf === undefined ? {} : { rehearsal_of: activity.rehearsalOf }),
    room: {
      mode: activity.room.mode,
      commitment: room.commitment,
      ...(room.beacon === undefined ? {} : { beacon: room.beacon }),
      ...(room.checkpoint === undefined ? {} : { checkpoint: room.checkpoint }),
    },
    skus: activity.skus.map((sku) => ({
      sku_id: sku.skuId,
      name: sku.name,
      price: { amount_minor: sku.price.amountMinor, currency: sku.price.currency },
      max_per_person: sku.maxPerPerson,
      availability: board.availability({ activityId, skuId: sku.skuId }),
    })),
  };
}

/** Says that an answer is the cheaper one, and which rule asked for it. */
function degradedMark({ degradedBy }: Call): readonly string[] {
  return degradedBy === undefined ? [] : ['Sluice-Degraded', degradedBy];
}

/** A weak tag, because `server_time` differs between two answers that say the same. */
function cacheable(call: Call, facts: object, bodyAt: (serverTime: string) => object): RouteReply {
  const hash = createHash('sha256').update(JSON.stringify(facts)).digest('base64url').slice(0, 22);
  const tag = `W/"${hash}"`;
  const headers = [
    'Cache-Control',
    factsCache,
    'ETag',
    tag,
    'X-Content-Type-Options',
    'nosniff',
    ...degradedMark(call),
  ];
  const known = call.request.headers['if-none-match'];
  if (known !== undefined && matchesTag(known, tag)) {
    return { status: 304, body: undefined, headers };
  }
  return { status: 200, body: bodyAt(call.context.renderer.serverTime(call.nowMs)), headers };
}

/** `*` is any. Weak comparison, as RFC 9110 wants for If-None-Match: our tags are all weak. */
function matchesTag(known: string, tag: string): boolean {
  return known.split(',').some((one) => one.trim() === '*' || one.trim() === tag);
}
