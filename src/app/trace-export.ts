import { type ClientRequest, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { Clock, Timers } from '../ports/clock.ts';
import { UnavailableError } from '../ports/errors.ts';
import type { Random } from '../ports/random.ts';
import type { EventLog } from '../telemetry/log.ts';
import { OtlpExporter } from '../telemetry/otlp.ts';
import { Tracing } from '../telemetry/tracing.ts';
import type { Dependencies } from './dependencies.ts';

export interface TraceExportParts {
  /** Base URL of the collector, without `/v1/traces`. */
  readonly endpoint: string;
  readonly ratio: number;
  readonly instance: string;
  readonly dependencies: Pick<Dependencies, 'collector'>;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly log: EventLog;
}

export interface TraceExport {
  readonly tracing: Tracing;
  readonly exporter: OtlpExporter;
}

/** Traces, where the configuration names a collector. */
export function openTraces(parts: TraceExportParts): TraceExport {
  const { endpoint, ratio, instance, clock, timers, random, log } = parts;
  const tracing = new Tracing({ clock, random: random.fork('traces'), ratio });
  const url = new URL('v1/traces', endpoint.endsWith('/') ? endpoint : `${endpoint}/`);
  const outbound = parts.dependencies.collector();
  const exporter = new OtlpExporter({
    tracing,
    timers,
    resource: { 'service.name': 'sluice', 'service.instance.id': instance },
    post: (body) => outbound.call(({ signal }) => post(url, body, signal)),
    onError: (error, spans) => log.error('traces_lost', error, { cost: spans }),
  });
  exporter.start();
  return { tracing, exporter };
}

/** Resolves on 2xx. The answer's body says nothing that we would act on. */
async function post(url: URL, body: string, signal: AbortSignal): Promise<void> {
  const request = (url.protocol === 'https:' ? requestHttps : requestHttp)(url, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
    signal,
  });
  const response = await answerOf(request, body);
  response.resume();
  const { statusCode = 0 } = response;
  if (statusCode < 200 || statusCode > 299) {
    throw new UnavailableError(`the collector answered ${statusCode}; allowed is 2xx`);
  }
}

function answerOf(request: ClientRequest, body: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.on('response', resolve);
    request.on('error', (error) => {
      reject(new UnavailableError(`the collector cannot be reached: ${error.message}`));
    });
    request.end(body);
  });
}
