import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** A span as it came over the wire. */
export interface ReceivedSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly {
    readonly key: string;
    readonly value: { readonly stringValue?: string; readonly doubleValue?: number };
  }[];
  readonly events: readonly { readonly name: string; readonly timeUnixNano: string }[];
  readonly status: { readonly code: number };
}

export interface Collector {
  readonly url: string;
  readonly spans: readonly ReceivedSpan[];
  readonly requests: number;
  /** What it answers from now on. */
  answer(status: number): void;
  close(): Promise<void>;
}

/**
 * A collector that speaks OTLP over HTTP, JSON: takes `POST /v1/traces` as the protocol has it, and
 * answers 400 to what is not.
 */
export async function startCollector(): Promise<Collector> {
  const spans: ReceivedSpan[] = [];
  let requests = 0;
  let status = 200;
  const server = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      requests += 1;
      const problem =
        request.method !== 'POST' || request.url !== '/v1/traces'
          ? `${request.method} ${request.url}`
          : request.headers['content-type'] === 'application/json'
            ? take(Buffer.concat(parts).toString('utf8'), status === 200 ? spans : [])
            : `content-type ${request.headers['content-type']}`;
      response.writeHead(problem === undefined ? status : 400, {
        'content-type': 'application/json',
      });
      response.end(problem === undefined ? '{"partialSuccess":{}}' : JSON.stringify({ problem }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    get requests() {
      return requests;
    },
    answer: (next) => void (status = next),
    close: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

/** Keeps the spans of one export, or says what in it is not OTLP. */
function take(text: string, spans: ReceivedSpan[]): string | undefined {
  const body = JSON.parse(text) as {
    resourceSpans?: {
      resource: { attributes: { key: string; value: { stringValue: string } }[] };
      scopeSpans: { scope: { name: string }; spans: ReceivedSpan[] }[];
    }[];
  };
  for (const { resource, scopeSpans } of body.resourceSpans ?? []) {
    if (!resource.attributes.some(({ key }) => key === 'service.name')) return 'no service.name';
    for (const span of scopeSpans.flatMap((scope) => scope.spans)) {
      const isOk =
        /^[0-9a-f]{32}$/.test(span.traceId) &&
        /^[0-9a-f]{16}$/.test(span.spanId) &&
        (span.parentSpanId === undefined || /^[0-9a-f]{16}$/.test(span.parentSpanId)) &&
        /^\d{19}$/.test(span.startTimeUnixNano) &&
        /^\d{19}$/.test(span.endTimeUnixNano) &&
        BigInt(span.endTimeUnixNano) >= BigInt(span.startTimeUnixNano);
      if (!isOk) return `span ${JSON.stringify(span)}`;
      spans.push(span);
    }
  }
  return undefined;
}
