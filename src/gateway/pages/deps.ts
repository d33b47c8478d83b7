import type { Activity, Phase } from '../../core/activity.ts';
import type { JoinResult, PassResult, Person, StandingResult } from '../../pipeline/door.ts';
import type { Clock } from '../../ports/clock.ts';
import type { Order } from '../../ports/order-store.ts';
import type { Code, NextAction, OutcomeState } from '../../wire/codes.ts';
import type { Assets } from './assets.ts';
import type { Theme } from './theme.ts';

/**
 * Everything the pages need of the system, and nothing more. The pages are one more client of the
 * services behind the API: they decide nothing about admission, stock or orders themselves.
 *
 * Any of the promises may reject with UnavailableError or OutcomeUnknownError; the pages answer both
 * with a page that says what is known and asks again by itself.
 */
export interface PagesDeps {
  readonly clock: Clock;
  readonly theme: Theme;
  readonly assets: Assets;

  /** True if the buyer's connection is HTTPS, behind a trusted proxy too: decides cookie names. */
  isSecure(connection: PageConnection): boolean;

  activities(): readonly PageActivity[];
  activity(activityId: string): PageActivity | undefined;

  /** Whose user token this is; `undefined` if it does not verify. */
  identify(userToken: string, connection: PageConnection): Promise<Person | undefined>;
  /** Set where people sign in on another site: where, if configured (http or https). */
  readonly signInElsewhere?: { readonly url?: string };
  /** A demo person where the configuration allows; else `sign_in`. */
  session(connection: PageConnection): Promise<SessionReply>;

  join(
    activityId: string,
    person: Person,
    skuIds: readonly string[],
    connection: PageConnection,
    /** What was found or handed back, where a challenge was set. */
    challenge?: string,
  ): Promise<JoinResult | PageRefusal>;
  standingByToken(activityId: string, entryToken: string): StandingResult;
  standingByPerson(activityId: string, person: Person): Promise<StandingResult>;
  leave(activityId: string, person: Person): Promise<boolean>;
  takePass(
    activityId: string,
    person: Person,
    skuId: string,
    connection: PageConnection,
  ): Promise<PassResult | PageRefusal>;

  /** The whole path of a submit, all stages. Refusals come back as outcomes. */
  submit(request: PageSubmit, connection: PageConnection): Promise<PageOutcome>;
  /** `undefined`: no such request of this person. */
  requestStatus(
    person: Person,
    activityId: string,
    skuId: string,
    requestId: string,
  ): Promise<PageOutcome | undefined>;

  /** `undefined` also for an order of somebody else. */
  order(person: Person, orderId: string): Promise<Order | undefined>;
  /** True where the built-in demo provider takes payments. */
  readonly demoPayments: boolean;
  pay(person: Person, orderId: string, connection: PageConnection): Promise<OrderReply>;
  cancel(person: Person, orderId: string, connection: PageConnection): Promise<OrderReply>;
}

/** What a page request says of its sender. */
export interface PageConnection {
  /** As the socket says it; trusted proxies are the wiring's matter. */
  readonly remoteAddress: string;
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
}

export type Availability = 'plenty' | 'low' | 'maybe_later' | 'sold_out';

export interface PageActivity {
  readonly activity: Activity;
  /** `sold_out` already laid over `open`. */
  readonly phase: Phase;
  /** `undefined` while nobody knows: then nothing is said. */
  readonly availability: (skuId: string) => Availability | undefined;
  /** Hex SHA-256 of the draw's secret; null where the mode draws nothing. */
  readonly commitment: string | null;
  /** Name of the public beacon mixed into the draw, if one was named. */
  readonly beacon?: string;
  /** Binds what was decided so far; absent before the lobby has closed. */
  readonly checkpoint?: string;
  /** Held or paused: nobody is let in at the moment. */
  readonly halted?: boolean;
}

export type SessionReply =
  | {
      readonly kind: 'session';
      readonly userToken: string;
      readonly person: Person;
      readonly expiresAtMs: number;
    }
  /** People sign in elsewhere. */
  | { readonly kind: 'sign_in' }
  | PageRefusal;

/** A limit, or health, said no. */
export interface PageRefusal {
  readonly kind: 'refused';
  readonly code: Code;
  readonly retryAfterMs?: number;
}

export interface PageSubmit {
  readonly userToken: string;
  readonly pass: string;
  readonly pathId: string;
  readonly requestId: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly quantity: number;
  /** For a place that an earlier try of this request took. */
  readonly ticket?: string;
}

export interface PageOutcome {
  readonly requestId: string;
  readonly state: OutcomeState;
  readonly code: Code;
  readonly nextAction: NextAction;
  readonly quantity: number;
  readonly orderId: string | null;
  readonly payBeforeMs: number | null;
  readonly nextPollAfterMs: number;
  readonly retryAfterMs?: number;
  /** To be sent along with the next try. */
  readonly ticket?: string;
  /** Live orders that use up the person's limit (ALREADY_PURCHASED). */
  readonly liveOrderIds?: readonly string[];
}

export type OrderReply =
  | { readonly kind: 'done'; readonly order: Order }
  | { readonly kind: 'refused'; readonly order: Order }
  | { readonly kind: 'unknown' }
  | PageRefusal;
