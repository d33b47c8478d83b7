import type { SkuKey } from '../core/activity.ts';
import type { Refusal, StageName } from '../core/decision.ts';
import type { InflightSlots } from '../core/overload/inflight.ts';
import type { RequestRecord, ReserveOutcome } from '../ports/inventory-store.ts';
import type { Code, NextAction, OutcomeState } from '../wire/codes.ts';
import type { Span } from '../ports/tracer.ts';
import type { LimitedRequest } from './limits.ts';

/**
 * One submit on its way. The first groups are facts of the connection and claims of the sender;
 * stages fill the last group in the order of the path. Nothing here is believed before the stage that
 * verifies it has run.
 *
 * The gateway hands in an object whose claims are read lazily, so that a request refused early never
 * pays for what only later stages look at.
 */
export interface Submission {
  /** Monotonic. */
  readonly arrivedUs: number;
  readonly nowMs: number;
  /** Canonical client address (IPv4-mapped folded), after trusted proxies. */
  readonly address: string;
  /** From the path; tells activity and SKU without a body, opens nothing. */
  readonly pathId: string;
  readonly head: RequestHead;

  readonly userToken: string | undefined;
  readonly passToken: string | undefined;
  /** SHA-256 of the device header, hex, or undefined. The raw value goes no further than here. */
  readonly deviceHash: string | undefined;
  readonly idempotencyKey: string | undefined;
  readonly traceparent: string | undefined;
  /** The peer of the connection is one of our proxies. */
  readonly fromTrustedProxy?: boolean;
  /** What is left of the time that the sender gave this request, ms; undefined where it gave none. */
  remainingMs?(): number | undefined;
  /** A header field, by its name in lower case, for rules that name one. */
  header?(name: string): string | undefined;
  /** It relies on a cookie, and no page of ours sent it. */
  readonly fromForeignOrigin: boolean;

  /** Reads and checks the body, once; waits for the network. Never rejects. */
  readBody(): Promise<SubmitBody | Refusal>;

  /** From instance: how limits see this request, and what it holds until it ends. */
  limited: LimitedRequest | undefined;
  /** From the sold-out stage: what the path id stands for. */
  target: SubmitTarget | undefined;
  /** The sold-out stage let this one through to learn whether its flag still holds. */
  probe: SkuKey | undefined;
  /** From identify. */
  userId: string | undefined;
  personId: string | undefined;
  /** Claims of the verified token, for rules that name one. */
  claim?: ((name: string) => string | undefined) | undefined;
  pass: VerifiedPass | undefined;
  /** From budget, the last moment before anything shared is spent. */
  body: SubmitBody | undefined;
  /** Where this request is traced. */
  span: Span | undefined;
  /** From slot: given back by the pipeline, whatever happens after. */
  slots: InflightSlots | undefined;
  /** From reserve, for enqueue. */
  reserved: Extract<ReserveOutcome, { readonly kind: 'reserved' }> | undefined;
}

/** What stages fill in, before any has run. */
export const nothingYet = {
  limited: undefined,
  target: undefined,
  probe: undefined,
  userId: undefined,
  personId: undefined,
  pass: undefined,
  body: undefined,
  span: undefined,
  slots: undefined,
  reserved: undefined,
} as const satisfies Partial<Submission>;

/** What can be said of a request before anything of it is parsed. */
export interface RequestHead {
  readonly method: string;
  /** Header fields as they came, repeated ones counted each time. */
  readonly headerCount: number;
  readonly contentType: string | undefined;
  readonly contentEncoding: string | undefined;
  /** Undefined when the body comes in chunks. */
  readonly contentLength: number | undefined;
  /** A header of ours that must stand alone and came more than once; lower case. */
  readonly repeated: string | undefined;
}

export interface SubmitBody {
  readonly requestId: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly quantity: number;
  readonly seats?: readonly string[];
}

export interface SubmitTarget extends SkuKey {
  readonly activityVersion: number;
}

export interface VerifiedPass {
  readonly nonce: string;
  readonly maxQuantity: number;
  readonly wave: number;
  readonly keyId: string;
  readonly expiresAtMs: number;
  /** Authentic but past its time: may learn what became of its own request, and start nothing. */
  readonly expired: boolean;
}

/** A final answer that is not a refusal: sold out, queued, or what an earlier try became. */
export interface Answer {
  readonly decision: 'handle';
  readonly stage: StageName;
  readonly code: Code;
  /** Short machine word from a closed set: becomes a metric label. */
  readonly reason: string;
  readonly outcome: Outcome;
  /** As for refusals: answers that share it are the same bytes but for the time. */
  readonly template?: object;
}

/** What became of a request, as far as anybody knows; the outcome body without its clock. */
export interface Outcome {
  readonly requestId: string | null;
  readonly activityId: string;
  readonly skuId: string;
  readonly state: OutcomeState;
  readonly message: string;
  readonly reservationId: string | null;
  readonly orderId: string | null;
  readonly payBeforeMs: number | null;
  readonly quantity: number | null;
  readonly retryable: boolean;
  readonly nextAction: NextAction;
  readonly nextPollAfterMs: number | null;
}

export type Verdict = Refusal | Answer;

export type { RequestRecord };

/** Runs one stage. `undefined` lets the request through. Early stages are synchronous by type. */
export interface SyncStage {
  readonly name: StageName;
  run(submission: Submission): Verdict | undefined;
}

/** May answer at once or later; the pipeline goes on without a turn of the loop when it is at once. */
export interface AsyncStage {
  readonly name: StageName;
  run(submission: Submission): Verdict | undefined | Promise<Verdict | undefined>;
}
