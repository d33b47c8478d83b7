import type { Refusal, StageName } from '../core/decision.ts';
import type { RequestRecord } from '../ports/inventory-store.ts';
import type { OutcomeState } from '../wire/codes.ts';
import type { Code } from '../wire/codes.ts';

/**
 * One submit on its way. The gateway fills the first group from the connection; stages fill the rest
 * in the order of the path. Nothing here is believed before the stage that verifies it has run.
 */
export interface Submission {
  readonly arrivedUs: number;
  readonly nowMs: number;
  /** Canonical client address (IPv4-mapped folded), after trusted proxies. */
  readonly address: string;
  /** From the path; tells activity and SKU without a body, opens nothing. */
  readonly pathId: string;
  readonly userToken: string | undefined;
  readonly passToken: string | undefined;
  /** SHA-256 of the device header, hex, or undefined. */
  readonly deviceHash: string | undefined;
  readonly traceparent: string | undefined;
  /** Known once the body is parsed; before that from `Idempotency-Key` when sent. */
  requestId: string | undefined;
  body: SubmitBody | undefined;

  /** From the path id (sold-out stage). */
  target?: SubmitTarget;
  /** From identify. */
  userId?: string;
  personId?: string;
  pass?: VerifiedPass;
}

export interface SubmitBody {
  readonly requestId: string;
  readonly activityId: string;
  readonly skuId: string;
  readonly quantity: number;
  readonly seats?: readonly string[];
}

export interface SubmitTarget {
  readonly activityId: string;
  readonly skuId: string;
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
  readonly reason: string;
  readonly state: OutcomeState;
  readonly record?: RequestRecord;
}

export type Verdict = Refusal | Answer;

/** Runs one stage. `undefined` lets the request through. Early stages are synchronous by type. */
export interface SyncStage {
  readonly name: StageName;
  run(submission: Submission): Verdict | undefined;
}

export interface AsyncStage {
  readonly name: StageName;
  run(submission: Submission): Promise<Verdict | undefined>;
}
