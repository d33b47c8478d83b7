import type { IncomingMessage } from 'node:http';
import { bodyMaxBytes } from '../core/bounds.ts';

/** How reading a body ended. `aborted`: the sender went away; nobody is left to answer. */
export type RawBody =
  | { readonly kind: 'bytes'; readonly bytes: Buffer }
  | { readonly kind: 'too_large' }
  | { readonly kind: 'aborted' };

/**
 * Reads at most `maxBytes`. What comes after is not kept: the connection is closed by whoever answers.
 * Slow senders are the server's business (`requestTimeout`). Never rejects.
 */
export function readRawBody(request: IncomingMessage, maxBytes = bodyMaxBytes): Promise<RawBody> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    let size = 0;
    const done = (result: RawBody): void => {
      request.off('data', onData);
      request.off('end', onEnd);
      request.off('close', onClose);
      request.off('error', onClose);
      resolve(result);
    };
    const onData = (part: Buffer): void => {
      size += part.length;
      if (size > maxBytes) {
        // Let the rest drain into nowhere, so that our answer can be read before the close.
        request.resume();
        done({ kind: 'too_large' });
        return;
      }
      parts.push(part);
    };
    const onEnd = (): void => {
      const [only] = parts;
      done({
        kind: 'bytes',
        bytes: parts.length === 1 && only !== undefined ? only : Buffer.concat(parts),
      });
    };
    const onClose = (): void => done({ kind: 'aborted' });
    if (request.readableEnded) return done({ kind: 'bytes', bytes: Buffer.alloc(0) });
    if (request.destroyed) return done({ kind: 'aborted' });
    request.on('data', onData);
    request.on('end', onEnd);
    request.on('close', onClose);
    request.on('error', onClose);
  });
}
