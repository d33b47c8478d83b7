/**
 * Spans, as the code that is traced sees them. Where tracing is off there is no tracer, and what is
 * not sampled has no span: the cost of both is one look at `undefined`.
 */
export interface Tracer {
  /** A span of a request that came in, unless it is not sampled. `traceparent` is the sender's claim. */
  begin(name: string, traceparent: string | undefined): Span | undefined;
  /** A piece of work that began earlier and is over now, under a context of ours that is sampled. */
  record(name: string, traceparent: string | undefined, done: DoneWork): void;
}

export interface DoneWork {
  readonly startedAtMs: number;
  /** The same work told twice is one span: the key makes its id. */
  readonly key: string;
  readonly attributes: Readonly<Record<string, string | number>>;
  readonly failed?: boolean;
}

export interface Span {
  /** For the next hop: this span as the parent. */
  readonly traceparent: string;
  event(name: string): void;
  attribute(name: string, value: string | number): void;
  /** Once; later calls change nothing. */
  end(failed: boolean): void;
}
