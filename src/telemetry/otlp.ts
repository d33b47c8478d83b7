import type { Timers, TimerHandle } from '../ports/clock.ts';
import type { FinishedSpan, Tracing } from './tracing.ts';

/**
 * Spans to a collector: OTLP over HTTP in its JSON form, `POST <endpoint>/v1/traces`.
 * https://opentelemetry.io/docs/specs/otlp/ (bytes as hex, nanoseconds as decimal strings)
 */

interface OtlpValue {
  readonly key: string;
  readonly value: { readonly stringValue: string } | { readonly doubleValue: number };
}

const values = (attributes: Readonly<Record<string, string | number>>): readonly OtlpValue[] =>
  Object.entries(attributes).map(([key, value]) => ({
    key,
    value: typeof value === 'string' ? { stringValue: value } : { doubleValue: value },
  }));

/** Whole microseconds stay exact: a double cannot hold nanoseconds since 1970. */
const nanos = (ms: number): string => `${Math.round(ms * 1000)}000`;

/** The body of one export. */
export function otlpBody(
  spans: readonly FinishedSpan[],
  resource: Readonly<Record<string, string>>,
): string {
  return JSON.stringify({
    resourceSpans: [
      {
        resource: { attributes: values(resource) },
        scopeSpans: [
          {
            scope: { name: 'sluice' },
            spans: spans.map((span) => ({
              traceId: span.context.traceId,
              spanId: span.context.spanId,
              ...(span.parentSpanId === undefined ? {} : { parentSpanId: span.parentSpanId }),
              flags: 1,
              name: span.name,
              kind: span.kind,
              startTimeUnixNano: nanos(span.startMs),
              endTimeUnixNano: nanos(span.endMs),
              attributes: values(span.attributes),
              events: span.events.map(({ name, atMs }) => ({ name, timeUnixNano: nanos(atMs) })),
              status: { code: span.failed ? 2 : 0 },
            })),
          },
        ],
      },
    ],
  });
}

/** Between two exports, ms; and spans in one. */
const exportEveryMs = 1_000;
const batchMax = 512;

export interface OtlpExporterParts {
  readonly tracing: Tracing;
  readonly timers: Timers;
  readonly resource: Readonly<Record<string, string>>;
  /** Sends one body; rejects when the collector did not take it. Has its own deadline. */
  readonly post: (body: string) => Promise<void>;
  readonly onError: (error: unknown, spans: number) => void;
}

/** Sends what has finished, once a second, one request at a time. What cannot be sent is dropped. */
export class OtlpExporter {
  readonly #parts: OtlpExporterParts;
  #timer: TimerHandle | undefined;
  #sending: Promise<void> | undefined;
  #exported = 0;
  #failed = 0;

  constructor(parts: OtlpExporterParts) {
    this.#parts = parts;
  }

  start(): void {
    this.#timer ??= this.#parts.timers.every(exportEveryMs, () => {
      this.#sending ??= this.#send().finally(() => {
        this.#sending = undefined;
      });
    });
  }

  /** Sends what is left, and ends. */
  async close(): Promise<void> {
    this.#timer?.cancel();
    await this.#sending;
    await this.#send();
  }

  /** Spans by what became of them. */
  get counts(): { readonly exported: number; readonly failed: number; readonly dropped: number } {
    return {
      exported: this.#exported,
      failed: this.#failed,
      dropped: this.#parts.tracing.dropped,
    };
  }

  async #send(): Promise<void> {
    const { tracing, post, resource, onError } = this.#parts;
    while (tracing.waiting > 0) {
      const spans = tracing.take(batchMax);
      try {
        await post(otlpBody(spans, resource));
        this.#exported += spans.length;
      } catch (error) {
        this.#failed += spans.length;
        onError(error, spans.length);
        // The next second tries again with what has finished by then.
        return;
      }
    }
  }
}
