import { type Refusal, refuse } from '../core/decision.ts';
import { deviceClassOf, networkOf } from '../core/room/measures.ts';
import type { Person, StandingResult } from '../pipeline/door.ts';
import { noSuchActivity, noSuchEntry } from './refusals.ts';
import { type Call, param, personOf } from './route.ts';

/** The person as the door knows them: a device rides along for activities that bind to it. */
export function doorPerson(call: Call): Person {
  const { userId, personId } = personOf(call);
  const claim = call.person?.claim;
  const { deviceHash } = call.credentials;
  const device = deviceClassOf(call.request.headers['user-agent']);
  const origin = { device, ...networkOf(call.address) };
  return {
    userId,
    personId,
    origin,
    ...(deviceHash === undefined ? {} : { deviceHash }),
    ...(claim === undefined ? {} : { claim }),
  };
}

/** By token where one came and holds, else by identity: one store read. */
export async function standingOf(
  call: Call,
): Promise<Extract<StandingResult, { kind: 'standing' }> | Refusal> {
  const { door } = call.context.deps;
  const activityId = param(call, 'activity_id');
  const token = call.credentials.entryToken;
  let result: StandingResult =
    token === undefined ? { kind: 'unknown_entry' } : door.standingByToken(activityId, token);
  if (result.kind === 'unknown_entry' || result.kind === 'bad_token') {
    if (call.person !== undefined) {
      result = await door.standingByPerson(activityId, doorPerson(call));
    }
  }
  switch (result.kind) {
    case 'standing':
      return result;
    case 'unknown_activity':
      return refuse(noSuchActivity);
    case 'unknown_entry':
      return refuse(noSuchEntry);
    case 'bad_token':
      return badEntryToken(result.reason);
  }
}

function badEntryToken(reason: string): Refusal {
  return {
    decision: 'reject',
    stage: 'identify',
    code: 'UNAUTHENTICATED',
    scope: 'user',
    reason: 'entry_token_invalid',
    detail: `the entry token is refused: ${reason.replaceAll('_', ' ')}; sign in, or join again`,
  };
}
