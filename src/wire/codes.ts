/**
 * The catalogue of everything a buyer can be told. One table: HTTP status, next action, whether the
 * same request may be repeated, and a title. `docs/ERRORS.md` is compared with it by a test, both ways.
 */

/** What became of a submit, as the buyer sees it. */
export type OutcomeState =
  | 'QUEUED'
  | 'ORDERED'
  | 'PAID'
  | 'REFUNDED'
  | 'SOLD_OUT'
  | 'REJECTED'
  | 'EXPIRED'
  | 'CANCELLED'
  | 'UNKNOWN';

/** What the caller should do next. */
export type NextAction =
  | 'POLL'
  | 'PAY'
  | 'STOP'
  | 'RETRY_LATER'
  | 'REJOIN'
  | 'SIGN_IN'
  | 'CHALLENGE';

/** Whose limit said no. */
export type Scope =
  | 'source'
  | 'user'
  | 'device'
  | 'pass'
  | 'route'
  | 'activity'
  | 'sku'
  | 'instance'
  | 'region'
  | 'system';

export interface CodeEntry {
  readonly http: number;
  readonly nextAction: NextAction;
  /** May the caller send the same request again by itself? */
  readonly retryable: boolean;
  readonly title: string;
  /** `outcome` answers in the outcome shape; `problem` in RFC 9457 problem details. */
  readonly shape: 'outcome' | 'problem';
}

const entry = (
  http: number,
  shape: CodeEntry['shape'],
  nextAction: NextAction,
  retryable: boolean,
  title: string,
): CodeEntry => ({ http, shape, nextAction, retryable, title });

export const codes = {
  SECKILL_QUEUED: entry(202, 'outcome', 'POLL', false, 'Taken in; no order yet'),
  SECKILL_SOLD_OUT: entry(200, 'outcome', 'STOP', false, 'Sold out'),
  REQUEST_REPLAYED: entry(200, 'outcome', 'POLL', false, 'This request reserved before'),
  WAITING_ROOM: entry(202, 'problem', 'RETRY_LATER', true, 'Wait in the room, then try again'),
  ACCEPTED_LATER: entry(202, 'problem', 'RETRY_LATER', true, 'A place was taken; come back for it'),
  INVALID_ARGUMENT: entry(400, 'problem', 'STOP', false, 'Body or parameter is wrong'),
  REQUEST_ID_CONFLICT: entry(400, 'problem', 'STOP', false, 'Request id reserved other content'),
  UNAUTHENTICATED: entry(401, 'problem', 'SIGN_IN', false, 'No valid user token'),
  TOKEN_INVALID: entry(403, 'problem', 'STOP', false, 'Pass is not valid here'),
  TOKEN_EXPIRED: entry(403, 'problem', 'REJOIN', false, 'Pass is not valid at this time'),
  REPLAY_REJECTED: entry(403, 'problem', 'STOP', false, 'Pass already serves another request'),
  NOT_ADMITTED: entry(403, 'problem', 'RETRY_LATER', true, 'Not your turn'),
  CHALLENGE_REQUIRED: entry(
    403,
    'problem',
    'CHALLENGE',
    true,
    'A challenge must be answered first',
  ),
  FORBIDDEN_ORIGIN: entry(403, 'problem', 'STOP', false, 'Change asked for by another origin'),
  NOT_FOUND: entry(404, 'problem', 'STOP', false, 'No such thing'),
  METHOD_NOT_ALLOWED: entry(405, 'problem', 'STOP', false, 'Method not allowed here'),
  REQUEST_TIMEOUT: entry(408, 'problem', 'STOP', false, 'Request took too long to arrive'),
  ALREADY_PURCHASED: entry(409, 'problem', 'POLL', false, 'Purchase limit is used'),
  NOT_OPEN: entry(409, 'problem', 'RETRY_LATER', true, 'Sale is not open'),
  ORDER_STATE: entry(409, 'problem', 'POLL', false, 'Order cannot do that now'),
  RESERVATION_LOST: entry(
    409,
    'problem',
    'RETRY_LATER',
    true,
    'Reservation was lost; nothing charged',
  ),
  PAYLOAD_TOO_LARGE: entry(413, 'problem', 'STOP', false, 'Body too large'),
  UNSUPPORTED_MEDIA_TYPE: entry(415, 'problem', 'STOP', false, 'Body must be application/json'),
  HEADERS_TOO_LARGE: entry(431, 'problem', 'STOP', false, 'Headers too large'),
  RATE_LIMITED: entry(429, 'problem', 'RETRY_LATER', true, 'A configured limit said no'),
  SYSTEM_OVERLOADED: entry(503, 'problem', 'RETRY_LATER', true, 'Too busy to take this now'),
  DEPENDENCY_UNAVAILABLE: entry(503, 'problem', 'POLL', true, 'A needed part did not answer'),
} as const satisfies Record<string, CodeEntry>;

export type Code = keyof typeof codes;
