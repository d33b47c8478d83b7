import { clientAddress } from '../core/limit/address.ts';
import type { Refusal } from '../core/decision.ts';
import type { Priority } from '../core/overload/priority.ts';
import { isFromHere } from '../gateway/context.ts';
import type { GatewayServices } from '../gateway/deps.ts';
import type { Assets } from '../gateway/pages/assets.ts';
import type {
  OrderReply,
  PageActivity,
  PageConnection,
  PageOutcome,
  PageRefusal,
  PagesDeps,
  PageSubmit,
} from '../gateway/pages/deps.ts';
import type { Theme } from '../gateway/pages/theme.ts';
import type { Person } from '../pipeline/door.ts';
import { spreadRetryMs } from '../pipeline/health.ts';
import type { LimitRefusal, RouteName } from '../pipeline/limits.ts';
import { nothingYet, type Outcome, type Submission, type Verdict } from '../pipeline/stage.ts';
import type { Activity } from '../core/activity.ts';
import type { Order } from '../ports/order-store.ts';
import { codes } from '../wire/codes.ts';

/** Pace of a status page whose outcome names none, ms. */
const pageRefreshMs = 1_000;

export interface PageServicesOptions {
  readonly theme: Theme;
  readonly assets: Assets;
}

/** Form submits under way, beside the page request that carries each: the ledger counts both. */
export interface FormCounter {
  inFlight: number;
}

/**
 * The pages as one more client of the services behind the API: the same limits, the same path, the
 * same stores. Nothing is decided here.
 */
export function pageServices(
  gateway: GatewayServices,
  options: PageServicesOptions,
  forms: FormCounter,
): PagesDeps {
  const { deps, pipeline, board } = gateway;
  const { clock, door, identity, limits, health, settings, random } = deps;

  const addressOf = (connection: PageConnection): string =>
    clientAddress(
      connection.remoteAddress,
      headerOf(connection, 'x-forwarded-for'),
      settings.proxies,
    );

  /** The same early stages as an API route; `undefined` lets through. */
  function refused(
    route: RouteName,
    priority: Priority,
    connection: PageConnection,
    person?: Person,
  ): PageRefusal | undefined {
    const address = addressOf(connection);
    if (!health.admit(priority, address)) {
      return {
        kind: 'refused',
        code: 'SYSTEM_OVERLOADED',
        retryAfterMs: spreadRetryMs(random),
      };
    }
    const nowUs = clock.monoUs();
    const limited =
      limits.instance(route, nowUs) ??
      limits.source(route, address, nowUs) ??
      (person === undefined
        ? undefined
        : limits.person(route, person.userId, person.deviceHash, nowUs));
    return limited === undefined ? undefined : rateLimited(limited);
  }

  const pageActivity = (activity: Activity): PageActivity => {
    const { activityId } = activity;
    const room = deps.publicRoom?.(activityId);
    return {
      activity,
      phase: board.phase(activity, clock.wallMs()),
      availability: (skuId) => board.availability({ activityId, skuId }),
      commitment: room?.commitment ?? null,
      ...(room?.beacon === undefined ? {} : { beacon: room.beacon }),
    };
  };

  async function ownOrder(person: Person, orderId: string): Promise<Order | undefined> {
    const order = await deps.orders.orderById(orderId);
    return order?.userId === person.userId ? order : undefined;
  }

  async function change(
    person: Person,
    orderId: string,
    how: (order: Order) => Promise<OrderReply>,
  ): Promise<OrderReply> {
    const limited = limits.person('pay', person.userId, person.deviceHash, clock.monoUs());
    if (limited !== undefined) return rateLimited(limited);
    const order = await ownOrder(person, orderId);
    return order === undefined ? { kind: 'unknown' } : how(order);
  }

  return {
    clock,
    theme: options.theme,
    assets: options.assets,
    isSecure: (connection) =>
      settings.secure === true ||
      (headerOf(connection, 'x-forwarded-proto') === 'https' &&
        settings.proxies.contains(connection.remoteAddress)),
    activities: () => deps.activities.list().map(pageActivity),
    activity(activityId) {
      const activity = deps.activities.get(activityId);
      return activity === undefined ? undefined : pageActivity(activity);
    },
    async identify(userToken) {
      const found = await identity.verify(userToken, clock.wallMs());
      return found.kind === 'person'
        ? { userId: found.userId, personId: found.personId }
        : undefined;
    },
    async session(connection) {
      if (deps.sessions === undefined) return { kind: 'sign_in' };
      const no = refused('session', 2, connection);
      if (no !== undefined) return no;
      const loopback = isFromHere(connection, settings.proxies);
      const issued = deps.sessions.issue({ address: addressOf(connection), loopback });
      if (issued === undefined) return { kind: 'sign_in' };
      const { userId, token, expiresAtMs } = issued;
      const person = { userId, personId: userId };
      return { kind: 'session', userToken: token, person, expiresAtMs };
    },
    async join(activityId, person, skuIds, connection) {
      return refused('join', 2, connection, person) ?? door.join(activityId, person, { skuIds });
    },
    standingByToken: (activityId, entryToken) => door.standingByToken(activityId, entryToken),
    standingByPerson: (activityId, person) => door.standingByPerson(activityId, person),
    leave: (activityId, person) => door.leave(activityId, person),
    async takePass(activityId, person, skuId, connection) {
      return refused('pass', 1, connection, person) ?? door.takePass(activityId, person, skuId);
    },
    async submit(form, connection) {
      forms.inFlight += 1;
      try {
        const submission = formSubmission(
          form,
          clock.monoUs(),
          clock.wallMs(),
          addressOf(connection),
        );
        return outcomeOfVerdict(await pipeline.run(submission), form);
      } finally {
        forms.inFlight -= 1;
      }
    },
    async requestStatus(person, activityId, skuId, requestId) {
      const known = await deps.status.ask({ activityId, skuId }, person.userId, requestId);
      switch (known.kind) {
        case 'outcome':
          return pageOutcome(known.outcome, requestId, 'REQUEST_REPLAYED');
        case 'not_found':
          return undefined;
        case 'reservation_lost':
          return refusedOutcome(
            { code: 'RESERVATION_LOST', retryAfterMs: pageRefreshMs },
            { requestId, quantity: 1 },
          );
        case 'unavailable':
          return refusedOutcome(
            { code: 'DEPENDENCY_UNAVAILABLE', retryAfterMs: pageRefreshMs },
            { requestId, quantity: 1 },
          );
      }
    },
    order: ownOrder,
    demoPayments: deps.payments.demo,
    pay: (person, orderId) =>
      change(person, orderId, (order) => deps.payments.pay(order, undefined)),
    cancel: (person, orderId) => change(person, orderId, (order) => deps.payments.cancel(order)),
  };
}

function headerOf(connection: PageConnection, name: string): string | undefined {
  const value = connection.headers[name];
  return typeof value === 'string' ? value : value?.[0];
}

function rateLimited(limited: LimitRefusal): PageRefusal {
  return { kind: 'refused', code: 'RATE_LIMITED', retryAfterMs: limited.retryAfterMs };
}

/** A form as a submission: its head is in order by construction, its body is already here. */
function formSubmission(
  form: PageSubmit,
  arrivedUs: number,
  nowMs: number,
  address: string,
): Submission {
  const { requestId, activityId, skuId, quantity } = form;
  return {
    ...nothingYet,
    arrivedUs,
    nowMs,
    address,
    pathId: form.pathId,
    head: {
      method: 'POST',
      headerCount: 1,
      contentType: 'application/json',
      contentEncoding: undefined,
      contentLength: undefined,
      repeated: undefined,
    },
    userToken: form.userToken,
    passToken: form.pass,
    deviceHash: undefined,
    idempotencyKey: requestId,
    traceparent: undefined,
    // The pages have checked the form's origin before they asked for anything.
    fromForeignOrigin: false,
    readBody: () => Promise.resolve({ requestId, activityId, skuId, quantity }),
  };
}

function outcomeOfVerdict(verdict: Verdict, form: PageSubmit): PageOutcome {
  return verdict.decision === 'handle'
    ? pageOutcome(verdict.outcome, form.requestId, verdict.code)
    : refusedOutcome(verdict, form);
}

function pageOutcome(outcome: Outcome, requestId: string, code: PageOutcome['code']): PageOutcome {
  return {
    requestId,
    state: outcome.state,
    code,
    nextAction: outcome.nextAction,
    quantity: outcome.quantity ?? 1,
    orderId: outcome.orderId,
    payBeforeMs: outcome.payBeforeMs,
    nextPollAfterMs: outcome.nextPollAfterMs ?? pageRefreshMs,
  };
}

function refusedOutcome(
  refusal: Pick<Refusal, 'code' | 'retryAfterMs' | 'nextAction' | 'extra'>,
  form: Pick<PageSubmit, 'requestId' | 'quantity'>,
): PageOutcome {
  const { code, retryAfterMs, extra } = refusal;
  const live = liveOrderIds(extra?.['holdings']);
  return {
    requestId: form.requestId,
    state: code === 'DEPENDENCY_UNAVAILABLE' ? 'UNKNOWN' : 'REJECTED',
    code,
    nextAction: refusal.nextAction ?? codes[code].nextAction,
    quantity: form.quantity,
    orderId: null,
    payBeforeMs: null,
    nextPollAfterMs: retryAfterMs ?? pageRefreshMs,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(live.length === 0 ? {} : { liveOrderIds: live }),
  };
}

function liveOrderIds(holdings: unknown): readonly string[] {
  if (!Array.isArray(holdings)) return [];
  return holdings.flatMap((held: unknown) =>
    typeof held === 'object' &&
    held !== null &&
    'order_id' in held &&
    typeof held.order_id === 'string'
      ? [held.order_id]
      : [],
  );
}
