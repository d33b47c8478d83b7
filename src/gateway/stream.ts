import type { ServerResponse } from 'node:http';
import type { StreamTarget } from './route.ts';

/** An event stream over one response. Whoever reads too slowly is seen by `pending`. */
export function serveStream(response: ServerResponse): StreamTarget {
  return {
    start() {
      response.writeHead(200, [
        'Content-Type',
        'text/event-stream',
        'Cache-Control',
        'no-store',
        'X-Content-Type-Options',
        'nosniff',
        // Proxies that buffer would hold every event back.
        'X-Accel-Buffering',
        'no',
      ]);
    },
    write(text) {
      if (!response.destroyed && !response.writableEnded) response.write(text);
    },
    get pending() {
      return response.writableLength;
    },
    end() {
      response.end();
    },
    onClose(run) {
      response.once('close', run);
    },
  };
}
