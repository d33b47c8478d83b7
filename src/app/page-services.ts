import { clientAddress } from '../core/limit/address.ts';
import type { Refusal } from '../core/decision.ts';
import { deviceClassOf, networkOf, type Origin } from '../core/room/measures.ts';
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
  SessionReply,
} from '../gateway/pages/deps.ts';
import type { Theme } from '../gateway/pages/theme.ts';
import type { Person } from '../pipeline/door.ts';
import { ticketHeader } from '../pipeline/limit-desk.ts';
import { spreadRetryMs } from '../pipeline/health.ts';
import { isP0 } from '../gateway/limited.ts';
import { LimitedCall } from '../pipeline/limited-request.ts';
import { delayMsOf, type LimitRefusal, type RouteName } from '../pipeline/limits.ts';
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
  const { clock, timers, door, identity, limits, health, settings, random } = deps;

  const addressOf = (connection: PageConnection): string =>
    clientAddress(
      connection.remoteAddress,
      headerOf(connection, 'x-forwarded-for'),
      settings.proxies,
    );

  const originOf = (connection: PageConnection): Origin => ({
    device: deviceClassOf(headerOf(connection, 'user-agent')),
    ...networkOf(addressOf(connection)),
  });

  /** The same early stages as an API route, then the work; places that limits hold end with it. */
  async function limitedWork<Reply>(
    route: RouteName,
    priority: Priority,
    connection: PageConnection,
    about: { person?: Person; activityId?: string; skuId?: string },
    work: () => Reply | Promise<Reply>,
  ): Promise<Reply | PageRefusal> {
    const address = addressOf(connection);
    if (!health.admit(priority, address)) {
      return {
        kind: 'refused',
        code: 'SYSTEM_OVERLOADED',
        retryAfterMs: spreadRetryMs(random),
      };
    }
    const limited = new LimitedCall(
      {
        route,
        method: 'POST',
        arrivedUs: clock.monoUs(),
        nowMs: clock.wallMs(),
        address,
        fromTrustedProxy: settings.proxies.contains(connection.remoteAddress),
        p0: isP0(route),
        header: (name) => headerOf(connection, name),
      },
      limits,
    );
    limited.user = about.person?.userId;
    limited.device = about.person?.deviceHash;
    limited.activity = about.activityId;
    limited.sku = about.skuId;
    try {
      const by =
        limits.instance(limited) ??
        limits.source(limited) ??
        limits.person(limited) ??
        (await limits.budget(limited));
      if (by !== undefined) return rateLimited(by);
      const delayMs = delayMsOf(limited);
      if (delayMs > 0) {
        await new Promise<void>((resolve) => {
          timers.after(delayMs, resolve);
        });
      }
      return await work();
    } finally {
      limits.end(limited);
    }
  }

  const pageActivity = (activity: Activity): PageActivity => {
    const { activityId } = activity;
    const room = deps.publicRoom?.(activityId);
    return {
      activity,
      phase: board.phase(activity, clock.wallMs()),
      // Nothing is said of stock that nobody has seen yet.
      availability(skuId) {
        const mark = board.glance({ activityId, skuId });
        return mark === undefined ? undefined : board.availability({ activityId, skuId }, mark);
      },
      commitment: room?.commitment ?? null,
      ...(room?.beacon === undefined ? {} : { beacon: room.beacon }),
      ...(room?.halted === true ? { halted: true } : {}),
      ...(room?.checkpoint === undefined ? {} : { checkpoint: room.checkpoint }),
    };
  };

  async function ownOrder(person: Person, orderId: string): Promise<Order | undefined> {
    const order = await deps.orders.orderById(orderId);
    return order?.userId === person.userId ? order : undefined;
  }

  async function change(
    route: RouteName,
    person: Person,
    orderId: string,
    connection: PageConnection,
    how: (order: Order) => Promise<OrderReply>,
  ): Promise<OrderReply> {
    return limitedWork<OrderReply>(route, 0, connection, { person }, async () => {
      const order = await ownOrder(person, orderId);
      return order === undefined ? { kind: 'unknown' } : how(order);
    });
  }

  return {
    clock,
    theme: options.theme,
    assets: options.assets,
    isSecure: (connection) =>
      settings.secure === true ||
      (headerOf(connection, 'x-forwarded-proto') === 'https' &&
        settings.proxies.contains(connection.remoteAddress)),
    activities: () =>
      deps.activities
        .list()
        .filter(({ rehearsalOf }) => rehearsalOf === undefined)
        .map(pageActivity),
    activity(activityId) {
      const activity = deps.activities.get(activityId);
      return activity === undefined ? undefined : pageActivity(activity);
    },
    async identify(userToken, connection) {
      const found = await identity.verify(userToken, clock.wallMs());
      if (found.kind !== 'person') return undefined;
      const { userId, personId, claim } = found;
      return {
        userId,
        personId,
        origin: originOf(connection),
        ...(claim === undefined ? {} : { claim }),
      };
    },
    async session(connection) {
      const { sessions } = deps;
      if (sessions === undefined) return { kind: 'sign_in' };
      return limitedWork<SessionReply>('session', 2, connection, {}, () => {
        const loopback = isFromHere(connection, settings.proxies);
        const issued = sessions.issue({ address: addressOf(connection), loopback });
        if (issued === undefined) return { kind: 'sign_in' };
        const { userId, token, expiresAtMs } = issued;
        const person = { userId, personId: userId, origin: originOf(connection) };
        return { kind: 'session', userToken: token, person, expiresAtMs };
      });
    },
    async join(activityId, person, skuIds, connection, challenge) {
      const wish = { skuIds, ...(challenge === undefined ? {} : { challenge }) };
      return limitedWork('join', 2, connection, { person, activityId }, () =>
        door.join(activityId, person, wish),
      );
    },
    standingByToken: (activityId, entryToken) => door.standingByToken(activityId, entryToken),
    standingByPerson: (activityId, person) => door.standingByPerson(activityId, person),
    leave: (activityId, person) => door.leave(activityId, person),
    async takePass(activityId, person, skuId, connection) {
      return limitedWork('pass', 1, connection, { person, activityId, skuId }, () =>
        door.takePass(activityId, person, skuId),
      );
    },
    async submit(form, connection) {
      forms.inFlight += 1;
      try {
        const submission = formSubmission(
          form,
          clock.monoUs(),
          clock.wallMs(),
          addressOf(connection),
          connection,
          settings.proxies.contains(connection.remoteAddress),
        );
        return outcomeOfVerdict(await pipeline.run(submission), form);
      } finally {
        forms.inFlight -= 1;
      }
    },
    async requestStatus(person, activityId, skuId, requestId) {
      const { userId, personId } = person;
      const sku = { activityId, skuId };
      const known = await deps.status.ask(sku, userId, requestId, personId);
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
    pay: (person, orderId, connection) =>
      change('pay', person, orderId, connection, (order) => deps.payments.pay(order, undefined)),
    cancel: (person, orderId, connection) =>
      change('cancel', person, orderId, connection, (order) => deps.payments.cancel(order)),
  };
}

function headerOf(connection: PageConnection, name: string): string | undefined {
  const value = connection.headers[name];
  return typeof value === 'string' ? value : value?.[0];
}

function rateLimited(limited: LimitRefusal): PageRefusal {
  // These forms bring no ticket and no answer back: for their sender both are a reason to wait.
  const code = limited.answer === 'queue' ? 'WAITING_ROOM' : 'RATE_LIMITED';
  return { kind: 'refused', code, retryAfterMs: limited.retryAfterMs };
}

/** A form as a submission: its head is in order by construction, its body is already here. */
function formSubmission(
  form: PageSubmit,
  arrivedUs: number,
  nowMs: number,
  address: string,
  connection: PageConnection,
  fromTrustedProxy: boolean,
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
    fromTrustedProxy,
    // A page has no headers of its own: what belongs in one comes in the form.
    header: (name) =>
      name === ticketHeader.toLowerCase() ? form.ticket : headerOf(connection, name),
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
  const ticket = extra?.['ticket'];
  // A page cannot work on a challenge: waiting is the other way past it.
  const usual = code === 'CHALLENGE_REQUIRED' ? 'RETRY_LATER' : codes[code].nextAction;
  const live = liveOrderIds(extra?.['holdings']);
  return {
    requestId: form.requestId,
    state: code === 'DEPENDENCY_UNAVAILABLE' ? 'UNKNOWN' : 'REJECTED',
    code,
    nextAction: refusal.nextAction ?? usual,
    quantity: form.quantity,
    orderId: null,
    payBeforeMs: null,
    nextPollAfterMs: retryAfterMs ?? pageRefreshMs,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    ...(typeof ticket === 'string' ? { ticket } : {}),
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
