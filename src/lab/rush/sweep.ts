import type { Timers } from '../../ports/clock.ts';
import type { Crowd } from './crowd.ts';
import { isLive } from './dossier.ts';
import type { Dossier, RequestTrace } from './dossier.ts';
import { stage, trait } from './population.ts';
import type { Outcome } from './population.ts';

/** Questions in flight at once in the closing sweep. */
const atOnce = 64;

/** Does the closing sweep still have to ask about this request? */
function isOpen(request: RequestTrace): boolean {
  const sentUnanswered = request.state === 'NONE' && request.nonce !== '';
  return (
    request.state === 'QUEUED' || request.state === 'UNKNOWN' || request.uncertain || sentUnanswered
  );
}

const pause = (timers: Timers, ms: number): Promise<void> =>
  new Promise((resolve) => timers.after(ms, resolve));

/**
 * After the crowd has gone: asks, for everybody who ever submitted, what became of each of their
 * requests, until every one has an outcome or `patienceMs` is over. What people believed is replaced
 * by what is true now: an order that its buyer walked away from may have expired since.
 */
export async function sweep(crowd: Crowd, timers: Timers, patienceMs: number): Promise<void> {
  const endMs = crowd.now() + patienceMs;
  crowd.closing = true;
  let first = true;
  for (;;) {
    const open: [Dossier, number][] = [];
    for (const dossier of crowd.dossiers.values()) {
      dossier.requests.forEach((request, index) => {
        if (isOpen(request) || (first && isLive(request.state))) open.push([dossier, index]);
      });
    }
    if (open.length === 0 || crowd.now() > endMs) break;
    for (let at = 0; at < open.length; at += atOnce) {
      for (const [dossier, index] of open.slice(at, at + atOnce)) crowd.ask(dossier, index);
      while (crowd.inFlight > 0 && crowd.now() <= endMs) await pause(timers, 10);
    }
    first = false;
    if (open.some(([dossier, index]) => isOpen(dossier.requests[index] as RequestTrace))) {
      await pause(timers, 400);
    }
  }
  for (const dossier of crowd.dossiers.values()) settleByTruth(crowd, dossier);
}

/** Everybody who is still under way when the run's time is over. */
export function closeDoors(crowd: Crowd): void {
  const { people } = crowd;
  crowd.closing = true;
  for (let person = 0; person < people.size; person += 1) {
    if (people.stage[person] === stage.done) continue;
    const attacking = people.stage[person] === stage.attacking;
    const told = people.has(person, trait.toldSoldOut);
    people.settle(person, attacking ? 'rejected' : told ? 'sold_out' : 'not_admitted');
  }
}

/** The best that any of a person's requests came to. */
function settleByTruth(crowd: Crowd, dossier: Dossier): void {
  const { people, witness } = crowd;
  const states = new Set(dossier.requests.map(({ state }) => state));
  const has = (state: RequestTrace['state']): boolean => states.has(state);
  const open = dossier.requests.filter(isOpen);
  let outcome: Outcome | undefined;
  if (has('PAID')) outcome = 'paid';
  else if (has('ORDERED')) outcome = 'ordered';
  else if (open.length > 0) outcome = 'unknown';
  else if (has('EXPIRED')) outcome = 'expired';
  else if (has('CANCELLED') || has('REFUNDED')) outcome = 'cancelled';
  else if (has('SOLD_OUT')) outcome = 'sold_out';
  if (outcome !== undefined) people.settle(dossier.person, outcome);
  else if (people.outcome(dossier.person) === 'unknown') people.settle(dossier.person, 'rejected');
  for (const request of open) {
    if (request.toldQueued) {
      witness.breach(12, `request ${request.id} was told QUEUED and never an outcome`);
    }
  }
}
