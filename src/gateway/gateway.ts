import type { IncomingMessage, ServerResponse } from 'node:http';
import { type FixedRefusal, type Refusal, refuse } from '../core/decision.ts';
import { headersMaxCount } from '../core/bounds.ts';
import { RetrySpread } from '../pipeline/health.ts';
import { ReturnQueue } from '../pipeline/return-queue.ts';
import { SubmitPipeline } from '../pipeline/pipeline.ts';
import { Renderer } from './answer.ts';
import { AvailabilityBoard } from './availability.ts';
import type { GatewayContext } from './context.ts';
import type { GatewayDeps } from './deps.ts';
import { Exchanges } from './exchange.ts';
import { fastifyLane } from './fastify-lane.ts';
import { HotLane } from './hot-lane.ts';
import { openApiDocument } from './openapi.ts';
import { routeTable } from './routes/table.ts';
import { httpServer, refuseNow } from './server.ts';
import { refuseRepeated, tooManyHeaders } from '../pipeline/stages/01-receive.ts';
import { repeatedHeader } from './head.ts';
import { streamsFor } from './standing-events.ts';

/**
 * The gateway: one server, two lanes.
 *
 *                          ┌─ submit, status, standing ──▶ hot lane (by hand)
 *     socket ─▶ parser ─▶ ─┤
 *                          └─ everything else ──────────▶ Fastify: JSON routes and pages
 *
 * It is stateless: whatever it answers stands in a store or follows from a token.
 */
export interface Gateway {
  listen(): Promise<GatewayAddress>;
  /** Where it listens; undefined before `listen`. */
  address(): GatewayAddress | undefined;
  /**
   * Takes nothing new, finishes what is in progress within `drainMs`, then ends what is left.
   * Resolves when every connection is gone. Idempotent.
   */
  close(options: { readonly drainMs: number }): Promise<void>;
  /** Requests without an answer yet: what the ledger calls "in system". */
  readonly inSystem: number;
  /** Open event streams. */
  readonly streams: number;
  readonly board: AvailabilityBoard;
  readonly pipeline: SubmitPipeline;
}

export interface GatewayAddress {
  readonly host: string;
  readonly port: number;
  /** `http://host:port`, for people and tests. */
  readonly url: string;
}

const noHost: FixedRefusal = {
  decision: 'reject',
  stage: 'receive',
  code: 'INVALID_ARGUMENT',
  reason: 'host',
  detail: 'HTTP/1.1 needs exactly one Host header',
};

/** Wires the lanes. Rejects when routes contradict each other: a fault of the program. */
export async function createGateway(deps: GatewayDeps, version = '0'): Promise<Gateway> {
  const spread = new RetrySpread(deps.random);
  const context: GatewayContext = {
    deps,
    spread,
    returns: new ReturnQueue(deps.random, () => deps.clock.monoUs()),
    renderer: new Renderer(deps.settings.canary),
    exchanges: new Exchanges(deps.clock),
    board: new AvailabilityBoard(
      deps.inventory,
      deps.orders,
      deps.clock,
      (sku, error) => deps.log.warn('availability_read_failed', { ...sku, error: String(error) }),
      { isCalm: () => deps.health.mode === 'NORMAL', draw: () => spread.draw() },
    ),
    pipeline: new SubmitPipeline({
      ...deps.submit,
      activities: deps.activities,
      status: deps.status,
      random: deps.random,
      spread,
      health: deps.health,
      limits: deps.limits,
      flags: deps.flags,
      identity: deps.identity,
      backlog: deps.backlog,
      ...(deps.backlogCeiling === undefined ? {} : { backlogCeiling: deps.backlogCeiling }),
      ledger: deps.ledger,
      ...(deps.tracer === undefined ? {} : { tracer: deps.tracer }),
      onError: (what, error) =>
        deps.log.error('stage_failed', {
          what,
          error: error instanceof Error ? (error.stack ?? error.message) : String(error),
        }),
    }),
  };
  const hot = new HotLane(context);
  const rest = await fastifyLane(context, routeTable, openApiDocument(routeTable, version));
  const http = httpServer(context, (request, response) => {
    if (refuseAnywhere(context, request, response)) return;
    if (!hot.take(request, response)) rest.handle(request, response);
  });
  let where: GatewayAddress | undefined;
  let closing: Promise<void> | undefined;

  async function shutDown(drainMs: number): Promise<void> {
    context.exchanges.startClosing();
    const gone = http.closed();
    streamsFor(context).closeAll();
    await raceTimer(context, context.exchanges.idle(), drainMs);
    http.endAll();
    await gone;
    await rest.close();
  }

  return {
    async listen() {
      // Before anybody looks: pages glance at what is known, and nothing known reads as "all taken".
      await Promise.all(
        deps.activities
          .list()
          .flatMap(({ activityId, skus }) =>
            skus.map(({ skuId }) => context.board.look({ activityId, skuId })),
          ),
      );
      const { address, port, family } = await http.listen();
      const host = family === 'IPv6' ? `[${address}]` : address;
      where = { host: address, port, url: `http://${host}:${port}` };
      return where;
    },
    address: () => where,
    close({ drainMs }) {
      closing ??= shutDown(drainMs);
      return closing;
    },
    get inSystem() {
      return context.exchanges.open;
    },
    get streams() {
      return streamsFor(context).open;
    },
    board: context.board,
    pipeline: context.pipeline,
  };
}

/** What is wrong with a request whatever it asks for. */
function refuseAnywhere(
  context: GatewayContext,
  request: IncomingMessage,
  response: ServerResponse,
): boolean {
  const { url = '', rawHeaders } = request;
  if (!url.startsWith('/')) request.url = pathOfAbsolute(url);
  let refusal: Refusal | undefined;
  if (rawHeaders.length >>> 1 > headersMaxCount) refusal = tooManyHeaders;
  else {
    const repeated = repeatedHeader(rawHeaders);
    if (repeated !== undefined) refusal = refuseRepeated(repeated);
    else if (request.headers.host === undefined && request.httpVersionMinor === 1) {
      refusal = refuse(noHost);
    }
  }
  if (refusal === undefined) return false;
  refuseNow(context, request, response, refusal);
  return true;
}

/** `http://host/path` as some proxies send it; anything else has no path of ours. */
function pathOfAbsolute(url: string): string {
  if (!/^https?:\/\//i.test(url) || !URL.canParse(url)) return '/*';
  const { pathname, search } = new URL(url);
  return pathname + search;
}

async function raceTimer(
  context: GatewayContext,
  work: Promise<void>,
  timeoutMs: number,
): Promise<void> {
  let stop = (): void => undefined;
  const over = new Promise<void>((resolve) => {
    const timer = context.deps.timers.after(timeoutMs, resolve);
    stop = () => timer.cancel();
  });
  await Promise.race([work, over]);
  stop();
}
