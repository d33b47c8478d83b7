import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { canonicalAddress } from '../core/limit/address.ts';
import { headersMaxBytes, headersMaxCount } from '../core/bounds.ts';
import { type FixedRefusal, type Refusal, refuse } from '../core/decision.ts';
import type { TimerHandle } from '../ports/clock.ts';
import type { GatewayContext } from './context.ts';

/**
 * The one HTTP server: strict parser, bounded connections, and an answer of ours for what the parser
 * itself refuses.
 */

/** How often Node looks for requests past their time, ms: the grain of both time limits. */
const timeoutCheckMs = 1_000;

const malformed: FixedRefusal = {
  decision: 'reject',
  stage: 'receive',
  code: 'INVALID_ARGUMENT',
  reason: 'malformed',
  detail: 'this is not well-formed HTTP',
};
const headersTooLarge: FixedRefusal = {
  ...malformed,
  code: 'HEADERS_TOO_LARGE',
  reason: 'header_bytes',
  detail: `the header fields are larger than the ${headersMaxBytes} bytes allowed`,
};
const tooSlow: FixedRefusal = {
  ...malformed,
  code: 'REQUEST_TIMEOUT',
  reason: 'slow_request',
  detail: 'the request took too long to arrive',
};

const unknownExpectation: Refusal = {
  ...refuse({ ...malformed, reason: 'expectation', detail: 'only 100-continue can be expected' }),
  extra: { errors: [{ path: 'header:expect', found: 'another', allowed: '100-continue' }] },
};

export interface HttpServer {
  readonly server: Server;
  listen(): Promise<AddressInfo>;
  /** Stops taking connections; resolves once the open ones are gone. */
  closed(): Promise<void>;
  /** Ends what is still open, now. */
  endAll(): void;
}

export function httpServer(
  context: GatewayContext,
  serve: (request: IncomingMessage, response: ServerResponse) => void,
): HttpServer {
  const { settings } = context.deps;
  const server = createServer({
    maxHeaderSize: headersMaxBytes,
    insecureHTTPParser: false,
    // HTTP/1.0 without Host is legal; 1.1 without is answered by us, with a body that says why.
    requireHostHeader: false,
    headersTimeout: settings.headersTimeoutMs,
    requestTimeout: settings.requestTimeoutMs,
    // Idle connections are swept by our own timer: Node's costs two timer changes per request.
    keepAliveTimeout: 0,
    connectionsCheckingInterval: timeoutCheckMs,
    noDelay: true,
  });
  // One more than allowed, so that a request with too many can be told from one with exactly enough.
  server.maxHeadersCount = headersMaxCount + 1;
  server.maxConnections = settings.maxConnections;
  if (settings.maxRequestsPerConnection > 0) {
    server.maxRequestsPerSocket = settings.maxRequestsPerConnection;
  }

  server.on('request', serve);
  // The go-ahead is given where the body is read, not before anybody has looked at the head.
  server.on('checkContinue', serve);
  const connections = new Set<Socket>();
  const bounded = boundedPerAddress(context);
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    refuseNow(context, request, response, unknownExpectation);
  });
  server.on('connection', (socket: Socket) => {
    connections.add(socket);
    socket.once('close', () => connections.delete(socket));
    bounded(socket);
  });
  let sweeper: TimerHandle | undefined;
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    refuseOnWire(context, error, socket);
  });

  return {
    server,
    listen: () =>
      new Promise((resolve, reject) => {
        sweeper = context.deps.timers.every(sweepMs(settings.idleTimeoutMs), () => {
          sweepIdle(context, connections);
        });
        server.once('error', reject);
        server.listen(settings.port, settings.host, () => {
          server.off('error', reject);
          resolve(server.address() as AddressInfo);
        });
      }),
    closed: () =>
      new Promise((resolve) => {
        sweeper?.cancel();
        server.close(() => resolve());
        server.closeIdleConnections();
      }),
    endAll: () => server.closeAllConnections(),
  };
}

/** Often enough that an idle connection outlives its time by a tenth at most. */
function sweepMs(idleTimeoutMs: number): number {
  return Math.max(500, Math.floor(idleTimeoutMs / 10));
}

/** O(connections), a few nanoseconds each. */
function sweepIdle(context: GatewayContext, connections: ReadonlySet<Socket>): void {
  const { exchanges, deps } = context;
  const nowUs = deps.clock.monoUs();
  for (const socket of connections) {
    const idleUs = exchanges.idleUs(socket, nowUs);
    if (idleUs !== undefined && idleUs >= deps.settings.idleTimeoutMs * 1000) socket.destroy();
  }
}

/** Connections of one address are bounded, but for proxies that speak for many. */
function boundedPerAddress(context: GatewayContext): (socket: Socket) => void {
  const { proxies, maxConnectionsPerAddress } = context.deps.settings;
  const open = new Map<string, number>();
  return (socket) => {
    const { remoteAddress } = socket;
    const address =
      remoteAddress === undefined ? 'unknown' : (canonicalAddress(remoteAddress) ?? 'unknown');
    if (proxies.contains(address)) return;
    const count = (open.get(address) ?? 0) + 1;
    if (count > maxConnectionsPerAddress) {
      socket.destroy();
      return;
    }
    open.set(address, count);
    socket.once('close', () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left <= 0) open.delete(address);
      else open.set(address, left);
    });
  };
}

/** Answers a request that no lane has seen. */
export function refuseNow(
  context: GatewayContext,
  request: IncomingMessage,
  response: ServerResponse,
  refusal: Refusal,
): void {
  const { deps, exchanges, renderer } = context;
  exchanges.begin(request, response);
  deps.ledger.arrived();
  deps.ledger.left('receive', 'reject', refusal.reason);
  exchanges.send(request, response, renderer.refusal(refusal, deps.clock.wallMs()));
}

/** The parser gave up: there is no request object, so the answer is written by hand. */
function refuseOnWire(context: GatewayContext, error: NodeJS.ErrnoException, socket: Socket): void {
  const { deps, renderer, exchanges } = context;
  const owed = exchanges.owedBy(socket);
  if (owed !== undefined && !owed.req.complete && socket.writable && isParsersWord(error.code)) {
    // Its body did not come in time, or is no HTTP. Whoever waits for it is told once the answer is out.
    owed.once('close', () => owed.req.destroy());
    const refusal = closing(wireRefusal(error.code));
    exchanges.write(owed.req, owed, renderer.refusal(refusal, deps.clock.wallMs()));
    return;
  }
  // A reset, or a connection in the middle of an answer: nothing can be said that would be understood.
  if (error.code === 'ECONNRESET' || !socket.writable || exchanges.isBusy(socket)) {
    socket.destroy();
    return;
  }
  const refusal = wireRefusal(error.code);
  deps.ledger.arrived();
  deps.ledger.left('receive', 'reject', refusal.reason);
  const answer = renderer.refusal(refusal, deps.clock.wallMs());
  const lines = [`HTTP/1.1 ${answer.status} ${statusTexts[answer.status] ?? 'Refused'}`];
  for (let at = 0; at < answer.headers.length; at += 2) {
    lines.push(`${answer.headers[at] ?? ''}: ${answer.headers[at + 1] ?? ''}`);
  }
  lines.push(`Content-Length: ${Buffer.byteLength(answer.body)}`, 'Connection: close', '', '');
  socket.end(lines.join('\r\n') + answer.body);
}

/** The same, as the last word on its connection. */
function closing(refusal: Refusal): Refusal {
  return { ...refusal, headers: [['Connection', 'close']] };
}

const statusTexts: Readonly<Record<number, string>> = {
  400: 'Bad Request',
  408: 'Request Timeout',
  431: 'Request Header Fields Too Large',
};

/** Said of what was sent, not of the connection. */
function isParsersWord(code: string | undefined): boolean {
  return code === 'ERR_HTTP_REQUEST_TIMEOUT' || code?.startsWith('HPE_') === true;
}

function wireRefusal(code: string | undefined): Refusal {
  if (code === 'HPE_HEADER_OVERFLOW') return refuse(headersTooLarge);
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return refuse(tooSlow);
  return refuse(malformed);
}
