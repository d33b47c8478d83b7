import { Type, type Static, type TSchema } from 'typebox';
import { idMaxLength, quantityMax } from '../core/bounds.ts';
import { type Code, codes } from './codes.ts';

/**
 * Every body and parameter on the wire, once. The same objects validate requests, describe them in
 * `/openapi.json`, and check answers in the end-to-end test. A leaf's `description` is what an
 * INVALID_ARGUMENT answer quotes as `allowed`, so it is written for the person who got it wrong.
 */

const closed = { additionalProperties: false } as const;

/** Largest JSON integer that is an id: 2^53. Above it two different texts parse to one number. */
export const idIntegerMax = 2 ** 53;

const idText = Type.String({
  pattern: `^[A-Za-z0-9_-]{1,${idMaxLength}}$`,
  description: `1 to ${idMaxLength} characters of A-Z a-z 0-9 _ -`,
});

/** An id as text: what answers carry, and what stands in paths and queries. */
export const Id = idText;

/**
 * An id in a request body: text, or a JSON integer that is kept as its decimal text. One schema with
 * two types rather than a union of two, so that a wrong value gets one error and not three.
 */
export const IdInput = Type.Unsafe<string | number>({
  type: ['string', 'integer'],
  pattern: `^[A-Za-z0-9_-]{1,${idMaxLength}}$`,
  minimum: 0,
  maximum: idIntegerMax,
  description: `a string of 1 to ${idMaxLength} characters of A-Z a-z 0-9 _ -, or an integer from 0 to 2^53`,
});

const Instant = Type.String({
  pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z$',
  description: 'RFC 3339, UTC, with milliseconds',
});

const nullable = <Schema extends TSchema>(schema: Schema) => Type.Union([schema, Type.Null()]);

const words = <const Words extends readonly string[]>(list: Words, description: string) =>
  Type.Unsafe<Words[number]>({ type: 'string', enum: [...list], description });

const DurationMs = Type.Integer({ minimum: 0, description: 'milliseconds, from 0' });
const Count = Type.Integer({ minimum: 0 });

export const nextActions = [
  'POLL',
  'PAY',
  'STOP',
  'RETRY_LATER',
  'REJOIN',
  'SIGN_IN',
  'CHALLENGE',
] as const;

export const scopes = [
  'source',
  'user',
  'device',
  'pass',
  'route',
  'activity',
  'sku',
  'instance',
  'region',
  'system',
] as const;

export const outcomeStates = [
  'QUEUED',
  'ORDERED',
  'PAID',
  'REFUNDED',
  'SOLD_OUT',
  'REJECTED',
  'EXPIRED',
  'CANCELLED',
  'UNKNOWN',
] as const;

export const availabilities = ['plenty', 'low', 'maybe_later', 'sold_out'] as const;
export type Availability = (typeof availabilities)[number];

const codeNames = Object.keys(codes) as Code[];
const CodeName = words(codeNames, 'a code of the catalogue');
const NextAction = words(nextActions, 'what to do next');

// ---- requests ------------------------------------------------------------------------------------

export const quantityAllowed = `integer 1 to ${quantityMax}`;

export const SubmitRequest = Type.Object(
  {
    request_id: IdInput,
    activity_id: IdInput,
    sku_id: IdInput,
    quantity: Type.Integer({ minimum: 1, maximum: quantityMax, description: quantityAllowed }),
    seats: Type.Optional(
      Type.Array(idText, {
        minItems: 1,
        maxItems: 100,
        uniqueItems: true,
        description: '1 to 100 different seat ids',
      }),
    ),
  },
  closed,
);
export type SubmitRequest = Static<typeof SubmitRequest>;

export const JoinRequestBody = Type.Object(
  {
    sku_ids: Type.Optional(
      Type.Array(IdInput, { minItems: 1, maxItems: 50, description: '1 to 50 SKU ids' }),
    ),
    challenge: Type.Optional(
      Type.String({ maxLength: 1024, description: 'a solved challenge, up to 1024 characters' }),
    ),
  },
  closed,
);
export type JoinRequestBody = Static<typeof JoinRequestBody>;

export const TakePassRequestBody = Type.Object({ sku_id: IdInput }, closed);
export type TakePassRequestBody = Static<typeof TakePassRequestBody>;

export const payMethods = ['card', 'wallet', 'transfer'] as const;
export const PayRequestBody = Type.Object(
  { method: Type.Optional(words(payMethods, `one of ${payMethods.join(', ')}`)) },
  closed,
);
export type PayRequestBody = Static<typeof PayRequestBody>;

/** For routes whose body says nothing yet: an empty object, or no body at all. */
export const EmptyBody = Type.Object({}, closed);

export const ActivityParams = Type.Object({ activity_id: Id }, closed);
export const SkuParams = Type.Object({ activity_id: Id, sku_id: Id }, closed);
export const RequestParams = Type.Object({ request_id: Id }, closed);
export const OrderParams = Type.Object({ order_id: Id }, closed);
export const PathParams = Type.Object({ path_id: Id }, closed);
export const ProviderParams = Type.Object({ provider: Id }, closed);
export const RequestQuery = Type.Object({ activity_id: Id, sku_id: Id }, closed);
export type RequestQuery = Static<typeof RequestQuery>;

// ---- answers -------------------------------------------------------------------------------------

export const OutcomeBody = Type.Object(
  {
    request_id: nullable(Id),
    activity_id: Id,
    sku_id: Id,
    state: words(outcomeStates, 'what became of the request'),
    code: CodeName,
    message: Type.String(),
    reservation_id: nullable(Id),
    order_id: nullable(Id),
    pay_before: nullable(Instant),
    quantity: nullable(Type.Integer({ minimum: 1 })),
    retryable: Type.Boolean(),
    next_action: NextAction,
    next_poll_after_ms: nullable(DurationMs),
    server_time: Instant,
  },
  closed,
);
export type OutcomeBody = Static<typeof OutcomeBody>;

export const FieldError = Type.Object(
  { path: Type.String(), found: Type.String(), allowed: Type.String() },
  closed,
);
export type FieldError = Static<typeof FieldError>;

/** Problem details (RFC 9457). More members may come with a code; they are listed where they come. */
export const ProblemBody = Type.Object({
  type: Type.String(),
  title: Type.String(),
  status: Type.Integer({ minimum: 400, maximum: 599 }),
  detail: Type.String(),
  code: CodeName,
  scope: words(scopes, 'whose limit or which part said no'),
  reason: Type.String({ pattern: '^[a-z0-9_]{1,64}$' }),
  rule_id: Type.Optional(Type.String()),
  retryable: Type.Boolean(),
  retry_after_ms: Type.Optional(DurationMs),
  next_action: NextAction,
  request_id: Type.Optional(Id),
  gray: Type.Optional(Type.Boolean()),
  errors: Type.Optional(Type.Array(FieldError, { maxItems: 16 })),
  server_time: Instant,
});
export type ProblemBody = Static<typeof ProblemBody>;

/** Past a limit whose answer is the waiting room: no problem, nothing taken, and where to stand. */
export const WaitingRoomBody = Type.Object({
  ...ProblemBody.properties,
  status: Type.Literal(202),
  code: Type.Literal('WAITING_ROOM'),
  activity_id: Type.Optional(Id),
  /** Asking there costs the sale nothing. */
  standing_path: Type.Optional(Type.String()),
  activities_path: Type.Optional(Type.String()),
});

/** Past a limit that gives places ahead: nothing done yet, and what to bring along when. */
export const AcceptedLaterBody = Type.Object({
  ...ProblemBody.properties,
  status: Type.Literal(202),
  code: Type.Literal('ACCEPTED_LATER'),
  ticket: Type.String(),
  ticket_header: Type.Literal('Sluice-Ticket'),
  not_before: Instant,
  expires_at: Instant,
});

const SkuBody = Type.Object(
  {
    sku_id: Id,
    name: Type.String(),
    price: Type.Object(
      { amount_minor: Count, currency: Type.String({ pattern: '^[A-Z]{3}$' }) },
      closed,
    ),
    max_per_person: Type.Integer({ minimum: 1 }),
    availability: words(availabilities, 'never a promise'),
  },
  closed,
);

export const phases = ['scheduled', 'lobby', 'open', 'sold_out', 'closed'] as const;

export const ActivityBody = Type.Object(
  {
    activity_id: Id,
    name: Type.String(),
    revision: Count,
    phase: words(phases, 'by the server clock, with stock laid over it'),
    lobby_opens_at: Instant,
    opens_at: Instant,
    closes_at: Instant,
    time_zone: Type.String(),
    rehearsal_of: Type.Optional(
      Type.String({
        description: 'the sale that this is a copy of, for a rehearsal: nothing in it is real',
      }),
    ),
    room: Type.Object(
      {
        mode: Type.String(),
        commitment: nullable(Type.String()),
        beacon: Type.Optional(Type.String()),
        checkpoint: Type.Optional(
          Type.String({
            description:
              'binds what was decided so far: decisions, late arrivals and a digest; note it, and the audit must contain it',
          }),
        ),
      },
      closed,
    ),
    skus: Type.Array(SkuBody),
    server_time: Instant,
  },
  closed,
);
export type ActivityBody = Static<typeof ActivityBody>;

export const ActivityListBody = Type.Object(
  { activities: Type.Array(ActivityBody), server_time: Instant },
  closed,
);

export const AvailabilityBody = Type.Object(
  {
    availability: words(availabilities, 'never a promise'),
    stock_epoch: Count,
    server_time: Instant,
  },
  closed,
);

export const HealthBody = Type.Object({ status: Type.Literal('alive') }, closed);
export const ReadyBody = Type.Object(
  { ready: Type.Boolean(), reasons: Type.Array(Type.String()), server_time: Instant },
  closed,
);

export const SessionBody = Type.Object(
  { user_id: Type.String(), token: Type.String(), expires_at: Instant },
  closed,
);

const standingMembers = {
  state: words(
    ['waiting', 'admitted', 'claimed', 'left', 'missed', 'not_drawn', 'sold_out', 'closed'],
    'where the entry stands',
  ),
  cohort: words(['lobby', 'late'], 'joined before or after the draw'),
  position: nullable(Count),
  ahead: nullable(Count),
  eta: nullable(
    Type.Object(
      {
        low_ms: DurationMs,
        high_ms: DurationMs,
        held_ratio: nullable(Type.Number({ minimum: 0, maximum: 1 })),
      },
      closed,
    ),
  ),
  sell_through: words(['likely', 'uncertain', 'unlikely', 'gone_for_now'], 'chance of stock'),
  claim_before: nullable(Instant),
  order_rule: Type.String(),
  next_poll_after_ms: DurationMs,
  server_time: Instant,
} as const;

export const StandingBody = Type.Object(standingMembers, closed);
export const JoinBody = Type.Object(
  { ...standingMembers, entry_id: Id, entry_token: Type.String() },
  closed,
);

export const PassBody = Type.Object(
  {
    pass: Type.String(),
    path_id: Id,
    submit_path: Type.String(),
    nonce: Type.String(),
    not_before: Instant,
    expires_at: Instant,
    max_quantity: Type.Integer({ minimum: 1 }),
  },
  closed,
);

export const orderStates = ['PENDING_PAYMENT', 'PAID', 'EXPIRED', 'CANCELLED', 'REFUNDED'] as const;

export const OrderBody = Type.Object(
  {
    order_id: Id,
    reservation_id: Id,
    request_id: Id,
    activity_id: Id,
    sku_id: Id,
    quantity: Type.Integer({ minimum: 1 }),
    amount: Type.Object({ amount_minor: Count, currency: Type.String() }, closed),
    state: words(orderStates, 'state of the order'),
    created_at: Instant,
    pay_before: nullable(Instant),
    paid_at: nullable(Instant),
    closed_at: nullable(Instant),
    seats: Type.Optional(Type.Array(Type.String())),
    next_action: NextAction,
    server_time: Instant,
  },
  closed,
);
export type OrderBody = Static<typeof OrderBody>;

export const CallbackBody = Type.Object(
  { received: Type.Literal(true), duplicate: Type.Boolean() },
  closed,
);
