import type { IncomingMessage, ServerResponse } from 'node:http';
import { idPattern } from '../core/bounds.ts';
import { type FixedRefusal, type Refusal, refuse } from '../core/decision.ts';
import type { StandingResult } from '../pipeline/door.ts';
import type { IdentityResult, KnownPerson } from '../pipeline/identity.ts';
import { limitRefusals } from '../pipeline/limit-refusal.ts';
import type { StatusResult } from '../pipeline/request-status.ts';
import type { Verdict } from '../pipeline/stage.ts';
import { noUserToken, refusalOfIdentity } from '../pipeline/stages/06-identify.ts';
import { reservationLost } from '../pipeline/stages/10-reserve.ts';
import type { FieldError } from '../wire/schemas.ts';
import { type HttpAnswer, jsonHeaders } from './answer.ts';
import type { LimitedCall } from '../pipeline/limited-request.ts';
import type { GatewayContext } from './context.ts';
import { Credentials } from './credentials.ts';
import { routeDeadlineMs, within } from './deadline.ts';
import { skipEmptyBody } from './empty-body.ts';
import { limitedCall, standingLimits } from './limited.ts';
import { standingText } from './standing-text.ts';
import { noSuchActivity, noSuchEntry } from './refusals.ts';
import { HttpSubmission, invalidBody } from './submission.ts';

/**
 * The three requests that a crowd repeats: submit, its status, and one's standing in the room. They
 * are told apart by method and the beginning of the URL, before any router, framework or parser has
 * looked, so that what must be refused costs little more than an empty server would.
 */

const submitPrefix = '/v1/seckill/';
const submitSuffix = '/submit';
const statusPrefix = '/v1/requests/';
const activitiesPrefix = '/v1/activities/';
const standingSuffix = '/entries/me';

const statusLimits = limitRefusals('source', 'too many questions; keep to the pace you were given');
const personLimits = limitRefusals('person', 'too many questions; keep to the pace you were given');
const budgetLimits = limitRefusals('budget', 'as many questions are asked as may be');

const shedStanding: FixedRefusal = {
  decision: 'reject',
  stage: 'shed',
  code: 'SYSTEM_OVERLOADED',
  scope: 'system',
  reason: 'admission_budget',
  detail: 'the admission budget of this moment is used; your place is kept',
};

/** Standings of people who have been let in, and whose time runs. */
const inTurn: ReadonlySet<string> = new Set(['admitted', 'claimed']);

const noStatusSlot: FixedRefusal = {
  ...shedStanding,
  stage: 'slot',
  reason: 'slots',
  detail: 'as many questions are being answered as may be',
};

const notFound = (reason: string, detail: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'reserve',
  code: 'NOT_FOUND',
  reason,
  detail,
});

const noSuchRequest = notFound('request', 'no request of yours with this id is known');
const partAway = (part: string): FixedRefusal => ({
  decision: 'reject',
  stage: 'reserve',
  code: 'DEPENDENCY_UNAVAILABLE',
  scope: 'system',
  reason: `${part}_unavailable`,
  detail: `the ${part} did not answer; ask again`,
});
const partsAway = { inventory: partAway('inventory'), orders: partAway('orders') } as const;

const storesSilent: StatusResult = { kind: 'unavailable', part: 'inventory' };

export class HotLane {
  readonly #context: GatewayContext;

  constructor(context: GatewayContext) {
    this.#context = context;
  }

  /** Takes the request, or leaves it to the other lane (`false`). */
  take(request: IncomingMessage, response: ServerResponse): boolean {
    const url = request.url ?? '';
    if (url.startsWith(submitPrefix)) {
      const path = pathOf(url);
      if (!path.endsWith(submitSuffix)) return false;
      const pathId = path.slice(submitPrefix.length, -submitSuffix.length);
      this.#submit(request, response, pathId);
      return true;
    }
    if (request.method !== 'GET' && request.method !== 'HEAD') return false;
    if (url.startsWith(statusPrefix)) {
      this.#status(request, response, url);
      return true;
    }
    if (url.startsWith(activitiesPrefix)) {
      const path = pathOf(url);
      if (!path.endsWith(standingSuffix)) return false;
      return this.#standing(request, response, path);
    }
    return false;
  }

  #submit(request: IncomingMessage, response: ServerResponse, pathId: string): void {
    const { pipeline } = this.#context;
    const submission = new HttpSubmission(this.#context, request, response, pathId);
    this.#context.exchanges.begin(request, response);
    const verdict = pipeline.run(submission);
    if (verdict instanceof Promise) {
      verdict.then(
        (later) => this.#answerSubmit(request, response, later, submission),
        (error: unknown) => this.#broken(request, response, error),
      );
      return;
    }
    this.#answerSubmit(request, response, verdict, submission);
  }

  #answerSubmit(
    request: IncomingMessage,
    response: ServerResponse,
    verdict: Verdict,
    { arrivedUs, limited }: HttpSubmission,
  ): void {
    const { deps, renderer } = this.#context;
    if (verdict.decision === 'handle' && verdict.code === 'SECKILL_QUEUED')
      deps.onAdmitted?.(deps.clock.monoUs() - arrivedUs, verdict.outcome);
    else deps.onTurnedAway?.(deps.clock.monoUs() - arrivedUs);
    const answer = renderer.verdict(verdict, deps.clock.wallMs());
    // Sold out is said to a crowd before anybody is known, the same to all: nothing of one caller.
    const said =
      verdict.stage === 'sold_out' ? answer : standingLimits(deps.limits, limited, verdict, answer);
    this.#send(request, response, said);
  }

  #status(request: IncomingMessage, response: ServerResponse, url: string): void {
    const { deps, renderer } = this.#context;
    skipEmptyBody(request);
    this.#context.exchanges.begin(request, response);
    deps.ledger.arrived();
    const limited = limitedCall(this.#context, request, 'status');
    const leave = (answer: Refusal | StatusResult): void => {
      deps.limits.end(limited);
      const nowMs = deps.clock.wallMs();
      const { said, decision, reason } = statusAnswer(answer);
      deps.ledger.left('status', decision, reason);
      const body = 'state' in said ? renderer.outcome(said, nowMs) : renderer.refusal(said, nowMs);
      this.#send(request, response, standingLimits(deps.limits, limited, said, body));
    };
    const refused = this.#statusAsked(request, url, limited, leave);
    if (refused !== undefined) leave(refused);
  }

  /** Own limits, own slots: never behind the submit limit. Answers through `leave` when it can ask. */
  #statusAsked(
    request: IncomingMessage,
    url: string,
    limited: LimitedCall,
    leave: (answer: Refusal | StatusResult) => void,
  ): Refusal | undefined {
    const { deps } = this.#context;
    const early = deps.limits.instance(limited) ?? deps.limits.source(limited);
    if (early !== undefined) return statusLimits(early);
    const asked = statusQuestion(url);
    if (!('requestId' in asked)) return asked;
    const credentials = this.#credentials(request);
    const token = credentials.userToken;
    if (token === undefined) return refuse(noUserToken);
    limited.activity = asked.activityId;
    limited.sku = asked.skuId;
    limited.device = credentials.deviceHash;

    const withPerson = (found: IdentityResult): Refusal | undefined => {
      const refused = refusalOfIdentity(found);
      if (refused !== undefined || found.kind !== 'person') return refused;
      limited.user = found.userId;
      limited.claims = found.claim;
      const tooMany = deps.limits.person(limited);
      if (tooMany !== undefined) return personLimits(tooMany);
      const budget = deps.limits.budget(limited);
      if (!(budget instanceof Promise)) {
        return budget === undefined ? ask(found) : budgetLimits(budget);
      }
      budget.then(
        (late) => {
          const refusal = late === undefined ? ask(found) : budgetLimits(late);
          if (refusal !== undefined) leave(refusal);
        },
        (error: unknown) => {
          deps.log.error('limits_failed', { error: String(error) });
          leave(storesSilent);
        },
      );
      return undefined;
    };

    const ask = ({ userId, personId }: KnownPerson): Refusal | undefined => {
      const slots = deps.health.slots.status;
      if (!slots.tryTake()) return refuse(noStatusSlot, this.#context.spread.busyMs());
      const asking = deps.status.ask(asked, userId, asked.requestId, personId);
      // The slot is held as long as the stores really work, the asker only as long as is bearable.
      asking.then(
        (result) => slots.release(result.kind === 'unavailable' ? 'dropped' : 'success'),
        () => slots.release('dropped'),
      );
      within(deps.timers, routeDeadlineMs, asking, storesSilent).then(leave, (error: unknown) => {
        deps.log.error('status_failed', { error: String(error) });
        leave(storesSilent);
      });
      return undefined;
    };

    const found = deps.identity.verify(token, deps.clock.wallMs());
    if (!(found instanceof Promise)) return withPerson(found);
    found.then(
      (later) => {
        const refused = withPerson(later);
        if (refused !== undefined) leave(refused);
      },
      (error: unknown) => {
        deps.log.error('identity_failed', { error: String(error) });
        leave(refusalOfIdentity({ kind: 'unavailable' }) ?? refuse(noUserToken));
      },
    );
    return undefined;
  }

  /** By entry token alone; without one, or with a bad one, the other lane asks by identity. */
  #standing(request: IncomingMessage, response: ServerResponse, path: string): boolean {
    const { deps, exchanges } = this.#context;
    const activityId = path.slice(activitiesPrefix.length, -standingSuffix.length);
    const token = this.#credentials(request).entryToken;
    if (token === undefined || !idPattern.test(activityId)) return false;
    const limited = limitedCall(this.#context, request, 'standing');
    limited.activity = activityId;
    const early = deps.limits.instance(limited) ?? deps.limits.source(limited);
    const result = early === undefined ? this.#standingOf(activityId, token) : statusLimits(early);
    if ('kind' in result && result.kind === 'bad_token') {
      deps.limits.end(limited);
      return false;
    }
    skipEmptyBody(request);
    exchanges.begin(request, response);
    deps.ledger.arrived();
    const leave = (said: StandingResult | Refusal): void => {
      deps.limits.end(limited);
      this.#answerStanding(request, response, limited, said);
    };
    const late = 'decision' in result ? undefined : deps.limits.budget(limited);
    if (late instanceof Promise) {
      late.then(
        (by) => leave(by === undefined ? result : budgetLimits(by)),
        (error: unknown) => {
          deps.log.error('limits_failed', { error: String(error) });
          leave(refuse(partsAway.inventory, 1_000));
        },
      );
    } else leave(late === undefined ? result : budgetLimits(late));
    return true;
  }

  /**
   * Polls are shed early, but for one kind: whoever has been let in holds something with a deadline, and
   * must not learn of it too late. That is asked once the poll would be refused, and costs a signature.
   */
  #standingOf(activityId: string, token: string): StandingResult | Refusal {
    const { health, door } = this.#context.deps;
    if (health.admit(3, token)) return door.standingByToken(activityId, token);
    const said = door.standingByToken(activityId, token);
    const letIn = said.kind === 'standing' && inTurn.has(said.standing.state);
    return letIn && health.admit(0, token)
      ? said
      : refuse(shedStanding, this.#context.returns.nextMs());
  }

  #answerStanding(
    request: IncomingMessage,
    response: ServerResponse,
    limited: LimitedCall,
    result: StandingResult | Refusal,
  ): void {
    const { deps, renderer } = this.#context;
    if ('kind' in result && result.kind === 'standing') {
      deps.ledger.left('standing', 'handle', 'standing');
      const body = standingText(result.standing);
      const answer: HttpAnswer = { status: 200, headers: jsonHeaders, body, ascii: true };
      this.#send(request, response, standingLimits(deps.limits, limited, undefined, answer));
      return;
    }
    const refusal =
      'decision' in result
        ? result
        : refuse(result.kind === 'unknown_activity' ? noSuchActivity : noSuchEntry);
    deps.ledger.left('standing', 'reject', refusal.reason);
    const answer = renderer.refusal(refusal, deps.clock.wallMs());
    this.#send(request, response, standingLimits(deps.limits, limited, refusal, answer));
  }

  #credentials(request: IncomingMessage): Credentials {
    const { settings } = this.#context.deps;
    return new Credentials(request, settings.proxies, settings.secure ?? false);
  }

  #send(request: IncomingMessage, response: ServerResponse, answer: HttpAnswer): void {
    this.#context.exchanges.send(request, response, answer);
  }

  /** The pipeline never rejects; should it, the connection ends rather than hang. */
  #broken(request: IncomingMessage, response: ServerResponse, error: unknown): void {
    this.#context.deps.log.error('submit_failed', { error: String(error) });
    this.#context.exchanges.end(request);
    response.destroy();
  }
}

function pathOf(url: string): string {
  const end = url.indexOf('?');
  return end < 0 ? url : url.slice(0, end);
}

interface StatusQuestion {
  readonly requestId: string;
  readonly activityId: string;
  readonly skuId: string;
}

/** `/v1/requests/{id}?activity_id=&sku_id=`, each exactly once and nothing else. */
export function statusQuestion(url: string): StatusQuestion | Refusal {
  const requestId = pathOf(url).slice(statusPrefix.length);
  const query = new URLSearchParams(url.slice(pathOf(url).length));
  const errors: FieldError[] = [];
  const allowed = '1 to 64 characters of A-Z a-z 0-9 _ -';
  const take = (name: string): string => {
    const values = query.getAll(name);
    const [value] = values;
    if (values.length === 1 && value !== undefined && idPattern.test(value)) return value;
    errors.push({
      path: `query:${name}`,
      found: values.length > 1 ? 'several values' : JSON.stringify((value ?? '').slice(0, 64)),
      allowed,
    });
    return '';
  };
  const activityId = take('activity_id');
  const skuId = take('sku_id');
  for (const name of new Set(query.keys())) {
    if (name === 'activity_id' || name === 'sku_id' || errors.length >= 16) continue;
    errors.push({
      path: `query:${name.slice(0, 64)}`,
      found: 'an unknown parameter',
      allowed: 'only activity_id, sku_id',
    });
  }
  if (!idPattern.test(requestId)) {
    errors.push({
      path: 'path:request_id',
      found: JSON.stringify(requestId.slice(0, 64)),
      allowed,
    });
  }
  return errors.length > 0 ? invalidBody(errors, 'receive') : { requestId, activityId, skuId };
}

interface StatusAnswer {
  readonly said: Refusal | Extract<StatusResult, { kind: 'outcome' }>['outcome'];
  readonly decision: 'handle' | 'reject' | 'fail';
  readonly reason: string;
}

function statusAnswer(answer: Refusal | StatusResult): StatusAnswer {
  if ('decision' in answer) {
    const failed = answer.code === 'DEPENDENCY_UNAVAILABLE';
    return { said: answer, decision: failed ? 'fail' : 'reject', reason: answer.reason };
  }
  switch (answer.kind) {
    case 'outcome':
      return {
        said: answer.outcome,
        decision: 'handle',
        reason: answer.outcome.state.toLowerCase(),
      };
    case 'not_found':
      return { said: refuse(noSuchRequest), decision: 'reject', reason: 'not_found' };
    case 'reservation_lost':
      return { said: refuse(reservationLost), decision: 'reject', reason: 'reservation_lost' };
    case 'unavailable':
      return {
        said: refuse(partsAway[answer.part], 1_000),
        decision: 'fail',
        reason: `${answer.part}_unavailable`,
      };
  }
}
