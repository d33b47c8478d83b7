import { type FixedRefusal, type Refusal, refuse } from '../../core/decision.ts';
import type { JoinResult, PassResult } from '../../pipeline/door.ts';
import { notOpen } from '../../pipeline/stages/10-reserve.ts';
import {
  ActivityParams,
  JoinBody,
  JoinRequestBody,
  PassBody,
  StandingBody,
  TakePassRequestBody,
  WaitingRoomBody,
} from '../../wire/schemas.ts';
import { noSuchActivity, noSuchEntry } from '../refusals.ts';
import { writeCookie } from '../pages/cookies.ts';
import { bodyOf, type Call, param, type RouteReply, type RouteSpec } from '../route.ts';
import { doorPerson, standingOf } from '../standing.ts';
import { standingEvents } from '../standing-events.ts';
import { invalidBody } from '../submission.ts';
import { idText } from '../validate.ts';

/** Joining, standing, leaving, and the pass. The door decides; this says it in HTTP. */

/** Life of the entry cookie, s: longer than any sale's wait. */
const entryCookieSeconds = 24 * 3600;

const held: FixedRefusal = {
  decision: 'reject',
  stage: 'identify',
  code: 'NOT_OPEN',
  scope: 'activity',
  reason: 'room_closed',
  detail: 'this room lets nobody in at present',
};

const challengeRequired: FixedRefusal = {
  decision: 'reject',
  stage: 'identify',
  code: 'CHALLENGE_REQUIRED',
  scope: 'user',
  reason: 'challenge',
  detail: 'answer the challenge and join again with it',
};

export const roomRoutes: readonly RouteSpec[] = [
  {
    method: 'POST',
    path: '/v1/activities/{activity_id}/entries',
    operationId: 'joinRoom',
    summary: 'Join the waiting room; the same place on every device of a person',
    limits: 'join',
    priority: 2,
    params: ActivityParams,
    body: JoinRequestBody,
    bodyOptional: true,
    auth: 'user',
    answers: { 200: JoinBody, 201: JoinBody },
    handle: join,
  },
  {
    method: 'GET',
    path: '/v1/activities/{activity_id}/entries/me',
    operationId: 'getStanding',
    summary: 'Where you stand; free of store calls with an entry token',
    limits: 'standing',
    priority: 3,
    params: ActivityParams,
    auth: 'user_or_entry',
    answers: { 200: StandingBody },
    handle: async (call) => {
      const found = await standingOf(call);
      return 'decision' in found ? found : { status: 200, body: found.standing };
    },
  },
  {
    method: 'GET',
    path: '/v1/activities/{activity_id}/entries/me/events',
    operationId: 'watchStanding',
    summary: 'The same as Server-Sent Events',
    limits: 'standing',
    priority: 3,
    params: ActivityParams,
    auth: 'user_or_entry',
    answers: { 200: undefined },
    media: 'text/event-stream',
    handle: standingEvents,
  },
  {
    method: 'DELETE',
    path: '/v1/activities/{activity_id}/entries/me',
    operationId: 'leaveRoom',
    summary: 'Leave; joining again makes a later arrival',
    limits: 'join',
    priority: 2,
    params: ActivityParams,
    auth: 'user',
    answers: { 204: undefined },
    handle: async (call) => {
      const { deps } = call.context;
      const activityId = param(call, 'activity_id');
      if (deps.activities.get(activityId) === undefined) return refuse(noSuchActivity);
      // Leaving twice, or without a place, ends in the same state: not being there.
      await deps.door.leave(activityId, doorPerson(call));
      const cookie = writeCookie('sluice-entry', '', call.credentials.secure, 0);
      return { status: 204, body: undefined, cookies: [cookie] };
    },
  },
  {
    method: 'POST',
    path: '/v1/activities/{activity_id}/passes',
    operationId: 'takePass',
    summary: 'Take the pass once admitted; asking again gives the same one',
    limits: 'pass',
    priority: 1,
    params: ActivityParams,
    body: TakePassRequestBody,
    auth: 'user',
    answers: { 200: PassBody, 202: WaitingRoomBody },
    handle: takePass,
  },
];

async function join(call: Call): Promise<RouteReply> {
  const { deps } = call.context;
  const body = bodyOf(call, JoinRequestBody);
  const skuIds: string[] = [];
  for (const [at, id] of (body.sku_ids ?? []).entries()) {
    const text = idText(id, call.bodyText, `/sku_ids/${at}`);
    if (typeof text === 'object') return invalidBody([text], 'receive');
    skuIds.push(text);
  }
  const wish = { skuIds, ...(body.challenge === undefined ? {} : { challenge: body.challenge }) };
  const result = await deps.door.join(param(call, 'activity_id'), doorPerson(call), wish);
  if (result.kind !== 'joined') return refusalOfJoin(result);
  const { entryId, entryToken, standing, created } = result;
  const cookie = writeCookie(
    'sluice-entry',
    entryToken,
    call.credentials.secure,
    entryCookieSeconds,
  );
  return {
    status: created ? 201 : 200,
    body: { ...standing, entry_id: entryId, entry_token: entryToken },
    cookies: [cookie],
  };
}

export function refusalOfJoin(result: Exclude<JoinResult, { kind: 'joined' }>): Refusal {
  switch (result.kind) {
    case 'not_open':
      return notOpen(result, result.over, 'identify');
    case 'unknown_activity':
      return refuse(noSuchActivity);
    case 'unknown_sku':
      return unknownSku('/sku_ids', result);
    case 'held':
      return refuse(held, 5_000);
    case 'challenge': {
      const { kind, token, bits, url, expiresAtMs } = result.demand;
      const expires = new Date(expiresAtMs).toISOString();
      return {
        ...refuse(challengeRequired),
        extra: {
          challenge: { kind, token, bits, url, expires_at: expires, reason: result.reason },
        },
      };
    }
  }
}

function unknownSku(
  path: string,
  result: { readonly skuId: string; readonly allowed: readonly string[] },
): Refusal {
  const found = JSON.stringify(result.skuId);
  return invalidBody([{ path, found, allowed: `one of ${result.allowed.join(', ')}` }], 'receive');
}

async function takePass(call: Call): Promise<RouteReply> {
  const { deps } = call.context;
  const skuId = idText(bodyOf(call, TakePassRequestBody).sku_id, call.bodyText, '/sku_id');
  if (typeof skuId === 'object') return invalidBody([skuId], 'receive');
  const result = await deps.door.takePass(param(call, 'activity_id'), doorPerson(call), skuId);
  if (result.kind !== 'pass') return refusalOfPass(result);
  return {
    status: 200,
    body: {
      pass: result.pass,
      path_id: result.pathId,
      submit_path: `/v1/seckill/${result.pathId}/submit`,
      nonce: result.nonce,
      not_before: new Date(result.notBeforeMs).toISOString(),
      expires_at: new Date(result.expiresAtMs).toISOString(),
      max_quantity: result.maxQuantity,
    },
  };
}

/** In words that say what to do. */
function detailOf({ why, standing, skuId }: Extract<PassResult, { kind: 'not_admitted' }>): string {
  switch (why) {
    case 'not_your_turn':
      return standing.ahead === null
        ? 'it is not your turn yet: the order has not been made'
        : `it is not your turn yet: at most ${standing.ahead} people are ahead of you`;
    case 'turn_over':
      return 'your turn is over: the time to take a pass has passed, or its pass was used or ran out; join again to stand in line';
    case 'left':
      return 'you have left this room; join again to stand in line';
    case 'other_sku':
      return `your pass is for ${JSON.stringify(skuId)}, and it still lives; use it, or wait until it has run out`;
    case 'not_drawn':
      return 'you were not among those drawn';
    case 'room_paused':
      return 'the room is paused: nobody gets a pass for the moment, and your place is kept';
    case 'room_unknown':
      return 'the state of the room is not known here for the moment; your place is kept';
  }
}

export function refusalOfPass(result: Exclude<PassResult, { kind: 'pass' }>): Refusal {
  switch (result.kind) {
    case 'not_admitted':
      return {
        decision: 'reject',
        stage: 'identify',
        code: 'NOT_ADMITTED',
        scope: 'activity',
        reason: result.why,
        detail: detailOf(result),
        nextAction: result.missed ? 'REJOIN' : 'RETRY_LATER',
        ...(result.missed ? {} : { retryAfterMs: result.standing.next_poll_after_ms }),
        extra: { standing: result.standing },
      };
    case 'not_open':
      return notOpen(result, result.over, 'identify');
    case 'unknown_activity':
      return refuse(noSuchActivity);
    case 'unknown_sku':
      return unknownSku('/sku_id', result);
    case 'unknown_entry':
      return refuse(noSuchEntry);
  }
}
