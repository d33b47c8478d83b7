import type { Risk } from '../core/rules/model.ts';
import type { DecisionSink } from '../core/rules/sink.ts';
import type { LimitedRequest, PathLimits, RouteName } from './limits.ts';
import type { Submission } from './stage.ts';

/**
 * A submit as rules see it: a view, so that nothing is read before a rule asks for it, and what the
 * stages fill in is seen as soon as it is there.
 */
export class LimitedSubmit implements LimitedRequest {
  readonly route = 'submit';
  readonly method = 'POST';
  sink: DecisionSink | undefined = undefined;
  retry: boolean | undefined = undefined;
  readonly #submission: Submission;
  readonly #limits: Pick<PathLimits, 'risk'>;
  #device: string | undefined | null = null;
  #risk: Risk | undefined = undefined;

  constructor(submission: Submission, limits: Pick<PathLimits, 'risk'>) {
    this.#submission = submission;
    this.#limits = limits;
  }

  get arrivedUs(): number {
    return this.#submission.arrivedUs;
  }

  get nowMs(): number {
    return this.#submission.nowMs;
  }

  get address(): string {
    return this.#submission.address;
  }

  get activity(): string | undefined {
    return this.#submission.target?.activityId;
  }

  get sku(): string | undefined {
    return this.#submission.target?.skuId;
  }

  get user(): string | undefined {
    return this.#submission.userId;
  }

  get device(): string | undefined {
    if (this.#device === null) this.#device = this.#submission.deviceHash;
    return this.#device;
  }

  get pass(): string | undefined {
    return this.#submission.pass?.nonce;
  }

  get quantity(): number | undefined {
    return this.#submission.body?.quantity;
  }

  get requestId(): string | undefined {
    return this.#submission.body?.requestId;
  }

  get fromTrustedProxy(): boolean {
    return this.#submission.fromTrustedProxy ?? false;
  }

  get risk(): Risk {
    this.#risk ??= this.#limits.risk(this);
    return this.#risk;
  }

  header(name: string): string | undefined {
    return this.#submission.header?.(name);
  }

  claim(name: string): string | undefined {
    return this.#submission.claim?.(name);
  }
}

/** What is known of any other request; the lane fills in what it learns. */
export interface KnownFacts {
  readonly route: RouteName;
  readonly method: string;
  readonly arrivedUs: number;
  readonly nowMs: number;
  readonly address: string;
  readonly fromTrustedProxy: boolean;
  /** Work that others make room for. */
  readonly p0: boolean;
  readonly header: (name: string) => string | undefined;
}

export class LimitedCall implements LimitedRequest {
  sink: DecisionSink | undefined = undefined;
  retry: boolean | undefined = undefined;
  readonly #known: KnownFacts;
  readonly #limits: Pick<PathLimits, 'risk'>;
  #risk: Risk | undefined = undefined;
  user: string | undefined = undefined;
  device: string | undefined = undefined;
  activity: string | undefined = undefined;
  sku: string | undefined = undefined;
  claims: ((name: string) => string | undefined) | undefined = undefined;

  constructor(known: KnownFacts, limits: Pick<PathLimits, 'risk'>) {
    this.#known = known;
    this.#limits = limits;
  }

  get route(): RouteName {
    return this.#known.route;
  }

  get method(): string {
    return this.#known.method;
  }

  get arrivedUs(): number {
    return this.#known.arrivedUs;
  }

  get nowMs(): number {
    return this.#known.nowMs;
  }

  get address(): string {
    return this.#known.address;
  }

  get fromTrustedProxy(): boolean {
    return this.#known.fromTrustedProxy;
  }

  get p0(): boolean {
    return this.#known.p0;
  }

  get risk(): Risk {
    this.#risk ??= this.#limits.risk(this);
    return this.#risk;
  }

  header(name: string): string | undefined {
    return this.#known.header(name);
  }

  claim(name: string): string | undefined {
    return this.claims?.(name);
  }
}
