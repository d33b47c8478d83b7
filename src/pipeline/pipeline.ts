import type { Refusal } from '../core/decision.ts';
import type { Exit, StageLedger } from '../core/ledger/ledger.ts';
import type { Release } from '../core/overload/inflight.ts';
import type { Span, Tracer } from '../ports/tracer.ts';
import type { Health } from './health.ts';
import type { IdentityVerifier } from './identity.ts';
import type { PathLimits } from './limits.ts';
import type { SoldOutFlags } from './sold-out-flags.ts';
import type { AsyncStage, Submission, SyncStage, Verdict } from './stage.ts';
import { receiveStage } from './stages/01-receive.ts';
import { shedStage } from './stages/02-shed.ts';
import { instanceStage } from './stages/03-instance.ts';
import { sourceStage } from './stages/04-source.ts';
import { type PathIndex, soldOutStage } from './stages/05-sold-out.ts';
import { identifyStage, type PassVerifier } from './stages/06-identify.ts';
import { personStage } from './stages/07-person.ts';
import { budgetStage } from './stages/08-budget.ts';
import { type BacklogDepth, slotStage } from './stages/09-slot.ts';
import { reserveStage, type ReserveStageParts } from './stages/10-reserve.ts';
import { enqueueStage } from './stages/11-enqueue.ts';

/**
 * The path of a submit, cheapest refusal first. Read this before anything else.
 *
 *   receive   method, size, type, repeated headers              405 413 415 431 400
 *   shed      mode, in-flight ceiling, admission budget         503
 *   instance  this process's own bucket                         429
 *   source    address and prefix                                429
 *   sold out  local flag, and not among the holders             200 SOLD_OUT, 404 unknown path
 *   identify  user token, pass and its bindings                 401 403
 *   person    user and device                                   429
 *   budget    body; activity and SKU budget                     400 408 413 429
 *   slot      backlog, a place downstream                       503
 *   reserve   one atomic step, shared with others               200 400 403 409 503
 *   enqueue   already done in that step                         202 QUEUED
 *
 * Up to and including `source` and `sold out` nothing is parsed and nothing waits. Each stage lets a
 * request through by saying nothing, or ends the path by a value.
 */
export interface PipelineParts extends ReserveStageParts {
  readonly health: Health;
  readonly limits: PathLimits;
  readonly paths: PathIndex;
  readonly flags: SoldOutFlags;
  readonly identity: IdentityVerifier;
  readonly passes: PassVerifier;
  readonly backlog: BacklogDepth;
  readonly backlogCeiling?: number;
  readonly ledger: StageLedger;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer;
}

export function stagesOf(parts: PipelineParts): readonly (SyncStage | AsyncStage)[] {
  const { health, limits, spread } = parts;
  return [
    receiveStage(),
    shedStage(health, spread),
    instanceStage(limits),
    sourceStage(limits),
    soldOutStage(parts.paths, parts.flags, parts.identity),
    identifyStage(parts.identity, parts.passes),
    personStage(limits),
    budgetStage(limits),
    slotStage(health, spread, parts.backlog, parts.backlogCeiling),
    reserveStage(parts),
    enqueueStage(),
  ];
}

export class SubmitPipeline {
  readonly #stages: readonly (SyncStage | AsyncStage)[];
  readonly #ledger: StageLedger;
  readonly #flags: SoldOutFlags;
  readonly #limits: PathLimits;
  readonly #tracer: Tracer | undefined;
  readonly #onError: (what: string, error: unknown) => void;

  constructor(parts: PipelineParts) {
    this.#stages = stagesOf(parts);
    this.#ledger = parts.ledger;
    this.#flags = parts.flags;
    this.#limits = parts.limits;
    this.#tracer = parts.tracer;
    this.#onError = parts.onError;
  }

  /**
   * Runs the path. The verdict comes at once where no stage had to wait, so that an early refusal
   * costs no turn of the event loop. Never throws, never rejects; every call is counted in and out.
   */
  run(submission: Submission): Verdict | Promise<Verdict> {
    this.#ledger.arrived();
    if (this.#tracer !== undefined) this.#trace(submission, this.#tracer);
    const verdict = this.#from(submission, 0);
    return verdict instanceof Promise
      ? verdict.then((later) => this.#leave(submission, later))
      : this.#leave(submission, verdict);
  }

  #trace(submission: Submission, tracer: Tracer): void {
    submission.span = tracer.begin('submit', submission.traceparent);
  }

  #from(submission: Submission, first: number): Verdict | Promise<Verdict> {
    for (let at = first; at < this.#stages.length; at += 1) {
      const said = this.#runStage(submission, at);
      if (said === undefined) continue;
      if (!(said instanceof Promise)) return said;
      return said.then(
        (later) => later ?? this.#from(submission, at + 1),
        (error: unknown) => this.#broken(at, error),
      );
    }
    return this.#broken(this.#stages.length - 1, new Error('no stage gave the last answer'));
  }

  #runStage(submission: Submission, at: number): ReturnType<AsyncStage['run']> {
    try {
      const stage = this.#stages[at];
      if (submission.span !== undefined && stage !== undefined) submission.span.event(stage.name);
      return stage?.run(submission);
    } catch (error) {
      return this.#broken(at, error);
    }
  }

  /** A fault of ours. What it did is not known, and that is what the buyer is told. */
  #broken(at: number, error: unknown): Refusal {
    const stage = this.#stages[at]?.name ?? 'receive';
    this.#onError(`stage ${stage}`, error);
    return {
      decision: 'reject',
      stage,
      code: 'DEPENDENCY_UNAVAILABLE',
      scope: 'system',
      reason: 'internal_error',
      detail: 'something went wrong here; ask for the same request id',
      retryAfterMs: 1_000,
    };
  }

  #leave(submission: Submission, verdict: Verdict): Verdict {
    const unavailable = verdict.code === 'DEPENDENCY_UNAVAILABLE';
    submission.slots?.release(releaseOf(verdict, unavailable));
    submission.slots = undefined;
    if (submission.limited !== undefined) this.#limits.end(submission.limited);
    if (forgeries.has(verdict.reason)) this.#limits.forged(submission.address);
    if (submission.probe !== undefined) this.#flags.probeLost(submission.probe);
    const exit = verdict.decision === 'handle' ? 'handle' : unavailable ? 'fail' : 'reject';
    this.#ledger.left(verdict.stage, exit, verdict.reason);
    if (submission.span !== undefined) endSpan(submission, submission.span, verdict, exit);
    return verdict;
  }
}

/** Ids of the sale and words of ours; nothing of the person. */
function endSpan(submission: Submission, span: Span, verdict: Verdict, exit: Exit): void {
  span.attribute('sluice.stage', verdict.stage);
  span.attribute('sluice.decision', exit);
  span.attribute('sluice.code', verdict.code);
  span.attribute('sluice.reason', verdict.reason);
  const { target } = submission;
  if (target !== undefined) {
    span.attribute('sluice.activity', target.activityId);
    span.attribute('sluice.sku', target.skuId);
  }
  span.end(exit === 'fail');
}

/** Passes that nobody here signed, or that were signed for something else. */
const forgeries: ReadonlySet<string> = new Set([
  'pass_signature',
  'pass_structure',
  'pass_algorithm',
]);

/** What the slot learns: a dependency that did not answer is a drop, a refusal says nothing. */
function releaseOf(verdict: Verdict, unavailable: boolean): Release {
  if (unavailable) return 'dropped';
  return verdict.decision === 'handle' ? 'success' : 'ignore';
}
