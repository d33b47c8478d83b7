import { formatTraceparent, parseTraceparent, type TraceContext } from '../core/trace/context.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import type { DoneWork, Span, Tracer } from '../ports/tracer.ts';

/**
 * Which requests become spans, and where finished spans wait to be sent.
 *
 * Sampling is decided at the first step and carried with the context, so that a trace is whole or not
 * there. A sender that asks for its trace gets it, up to a number per second: the flag comes from
 * outside, and a flood that sets it must not make us pay for itself. Everybody else is sampled by the
 * ratio. What is interesting after the fact (errors, slow ones) is chosen by the collector, which sees
 * whole traces.
 *
 * Finished spans wait in a bounded buffer; what does not fit is dropped and counted. Nothing here ever
 * waits for the collector.
 */
export interface FinishedSpan {
  readonly context: TraceContext;
  readonly parentSpanId: string | undefined;
  readonly name: string;
  /** OTLP's numbers: 1 internal, 2 server, 5 consumer. */
  readonly kind: 1 | 2 | 5;
  readonly startMs: number;
  readonly endMs: number;
  readonly events: readonly { readonly name: string; readonly atMs: number }[];
  readonly attributes: Readonly<Record<string, string | number>>;
  readonly failed: boolean;
}

export interface TracingOptions {
  readonly clock: Clock;
  readonly random: Random;
  /** Share of requests traced without being asked to, 0…1. */
  readonly ratio: number;
}

/** Requests traced per second because their sender asks for it. */
export const askedPerSecond = 50;
/** Finished spans that wait to be sent. */
export const bufferMax = 4_096;
const eventsMax = 32;

export class Tracing implements Tracer {
  readonly #options: TracingOptions;
  readonly #buffer: FinishedSpan[] = [];
  #untilDrawn: number;
  #second = 0;
  #askedThisSecond = 0;
  #dropped = 0;

  constructor(options: TracingOptions) {
    const { ratio } = options;
    if (!(ratio >= 0 && ratio <= 1)) {
      throw new RangeError(`trace ratio ${ratio}; allowed: from 0 to 1`);
    }
    this.#options = options;
    this.#untilDrawn = this.#gap();
  }

  begin(name: string, traceparent: string | undefined): Span | undefined {
    const isDrawn = this.#isDrawn();
    if (traceparent === undefined && !isDrawn) return undefined;
    const parent = parseTraceparent(traceparent);
    const isAsked = parent?.sampled === true && this.#mayAsk();
    if (!isAsked && !isDrawn) return undefined;
    const context = {
      traceId: parent?.traceId ?? this.#id(16),
      spanId: this.#id(8),
      sampled: true,
    };
    return new OpenSpan(name, context, parent?.spanId, this.#options.clock, (span) =>
      this.#keep(span),
    );
  }

  record(name: string, traceparent: string | undefined, done: DoneWork): void {
    const parent = parseTraceparent(traceparent);
    if (parent?.sampled !== true) return;
    this.#keep({
      context: { traceId: parent.traceId, spanId: keyedId(done.key), sampled: true },
      parentSpanId: parent.spanId,
      name,
      kind: 5,
      startMs: done.startedAtMs,
      endMs: Math.max(done.startedAtMs, this.#options.clock.wallMs()),
      events: [],
      attributes: done.attributes,
      failed: done.failed === true,
    });
  }

  /** Takes up to `max` finished spans out of the buffer, oldest first. */
  take(max: number): readonly FinishedSpan[] {
    return this.#buffer.splice(0, max);
  }

  get waiting(): number {
    return this.#buffer.length;
  }

  /** Spans that found the buffer full. */
  get dropped(): number {
    return this.#dropped;
  }

  /** One in so many by chance; the draw is of the gap to the next, so that most cost a countdown. */
  #isDrawn(): boolean {
    this.#untilDrawn -= 1;
    if (this.#untilDrawn > 0) return false;
    this.#untilDrawn = this.#gap();
    return true;
  }

  /** Requests until the next that is drawn, itself included: geometric, so that each is as likely. */
  #gap(): number {
    const { random, ratio } = this.#options;
    if (ratio >= 1) return 1;
    if (ratio <= 0) return Infinity;
    return 1 + Math.floor(Math.log(1 - random.float()) / Math.log(1 - ratio));
  }

  #keep(span: FinishedSpan): void {
    if (this.#buffer.length >= bufferMax) this.#dropped += 1;
    else this.#buffer.push(span);
  }

  #mayAsk(): boolean {
    const second = Math.floor(this.#options.clock.monoUs() / 1_000_000);
    if (second !== this.#second) {
      this.#second = second;
      this.#askedThisSecond = 0;
    }
    this.#askedThisSecond += 1;
    return this.#askedThisSecond <= askedPerSecond;
  }

  /** Random, and never all zeros. */
  #id(bytes: number): string {
    const hex = [...this.#options.random.bytes(bytes)]
      .map((byte) => byte.toString(16).padStart(2, '0'))
      .join('');
    return /^0+$/.test(hex) ? `${hex.slice(1)}1` : hex;
  }
}

class OpenSpan implements Span {
  readonly traceparent: string;
  readonly #name: string;
  readonly #context: TraceContext;
  readonly #parentSpanId: string | undefined;
  readonly #clock: Clock;
  readonly #keep: (span: FinishedSpan) => void;
  readonly #startMs: number;
  readonly #startUs: number;
  readonly #events: { readonly name: string; readonly atMs: number }[] = [];
  readonly #attributes: Record<string, string | number> = {};
  #over = false;

  constructor(
    name: string,
    context: TraceContext,
    parentSpanId: string | undefined,
    clock: Clock,
    keep: (span: FinishedSpan) => void,
  ) {
    this.traceparent = formatTraceparent(context);
    this.#name = name;
    this.#context = context;
    this.#parentSpanId = parentSpanId;
    this.#clock = clock;
    this.#keep = keep;
    this.#startMs = clock.wallMs();
    this.#startUs = clock.monoUs();
  }

  event(name: string): void {
    if (this.#over || this.#events.length >= eventsMax) return;
    this.#events.push({ name, atMs: this.#nowMs() });
  }

  attribute(name: string, value: string | number): void {
    if (!this.#over) this.#attributes[name] = value;
  }

  end(failed: boolean): void {
    if (this.#over) return;
    this.#over = true;
    this.#keep({
      context: this.#context,
      parentSpanId: this.#parentSpanId,
      name: this.#name,
      kind: 2,
      startMs: this.#startMs,
      endMs: this.#nowMs(),
      events: this.#events,
      attributes: this.#attributes,
      failed,
    });
  }

  /** Wall time of the start plus what has passed since: a clock that jumps bends no span. */
  #nowMs(): number {
    return this.#startMs + (this.#clock.monoUs() - this.#startUs) / 1000;
  }
}

/** Sixteen hex digits that are the same for the same key: two FNV-1a runs from different starts. */
function keyedId(key: string): string {
  const run = (start: number): string => {
    let hash = start;
    for (let at = 0; at < key.length; at += 1) {
      hash = Math.imul(hash ^ key.charCodeAt(at), 16_777_619);
    }
    return (hash >>> 0).toString(16).padStart(8, '0');
  };
  const id = run(2_166_136_261) + run(0x9e37_79b9);
  return /^0+$/.test(id) ? '0000000000000001' : id;
}
