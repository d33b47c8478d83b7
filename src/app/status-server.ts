import { createServer } from 'node:http';
import type { Readiness } from '../gateway/deps.ts';

export interface StatusServerParts {
  readonly host: string;
  /** 0 takes any free one. */
  readonly port: number;
  readonly readiness: () => Readiness;
  readonly metrics: () => Promise<{ readonly contentType: string; readonly body: string }>;
  readonly wallMs: () => number;
}

export interface StatusServer {
  readonly url: string;
  close(): Promise<void>;
}

/** Whoever asks after a process that serves no buyers: a probe or two, and a scrape. */
const connectionsMax = 64;

/** `/healthz`, `/readyz` and `/metrics` of a process that has no other server. */
export async function startStatusServer(parts: StatusServerParts): Promise<StatusServer> {
  const server = createServer({ requestTimeout: 5_000 }, (request, response) => {
    const send = (status: number, body: object): void => {
      response.writeHead(status, {
        'content-type': 'application/json',
        'cache-control': 'no-store',
      });
      response.end(JSON.stringify(body));
    };
    const path = request.url?.split('?', 1)[0];
    if (request.method !== 'GET') send(405, { detail: 'only GET is answered here' });
    else if (path === '/healthz') send(200, { status: 'alive' });
    else if (path === '/readyz') {
      const { ready, reasons } = parts.readiness();
      const serverTime = new Date(parts.wallMs()).toISOString();
      send(ready ? 200 : 503, { ready, reasons, server_time: serverTime });
    } else if (path === '/metrics') {
      parts.metrics().then(
        ({ contentType, body }) => {
          response.writeHead(200, { 'content-type': contentType, 'cache-control': 'no-store' });
          response.end(body);
        },
        () => send(500, { detail: 'the metrics could not be read' }),
      );
    } else send(404, { detail: 'answered here: /healthz, /readyz, /metrics' });
  });
  server.maxConnections = connectionsMax;
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(parts.port, parts.host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : parts.port;
  const host = parts.host.includes(':') ? `[${parts.host}]` : parts.host;
  return {
    url: `http://${host}:${port}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
