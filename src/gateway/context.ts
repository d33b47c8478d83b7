import type { IncomingMessage } from 'node:http';
import { clientAddress, type TrustedProxies } from '../core/limit/address.ts';
import type { RetrySpread } from '../pipeline/health.ts';
import type { ReturnQueue } from '../pipeline/return-queue.ts';
import type { SubmitPipeline } from '../pipeline/pipeline.ts';
import type { Renderer } from './answer.ts';
import type { AvailabilityBoard } from './availability.ts';
import type { GatewayDeps } from './deps.ts';
import type { Exchanges } from './exchange.ts';
import { headerText } from './head.ts';

/** What the lanes share. */
export interface GatewayContext {
  readonly deps: GatewayDeps;
  readonly renderer: Renderer;
  readonly exchanges: Exchanges;
  readonly pipeline: SubmitPipeline;
  readonly board: AvailabilityBoard;
  readonly spread: RetrySpread;
  /** For those refused by health who lose nothing by waiting. */
  readonly returns: ReturnQueue;
}

/** The sender's canonical address, after trusted proxies. */
export function addressOf(context: GatewayContext, request: IncomingMessage): string {
  return clientAddress(
    request.socket.remoteAddress,
    headerText(request, 'x-forwarded-for'),
    context.deps.settings.proxies,
  );
}

/**
 * From this very machine: the last hop is loopback and nobody says that they forward for somebody
 * else. A proxy on this machine that is not configured as trusted must not make the whole internet
 * look local.
 */
export function isFromHere(
  sender: {
    readonly remoteAddress: string | undefined;
    readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>;
  },
  proxies: TrustedProxies,
): boolean {
  const { remoteAddress, headers } = sender;
  const forwarded =
    headers['x-forwarded-for'] !== undefined ||
    headers['forwarded'] !== undefined ||
    headers['via'] !== undefined;
  if (forwarded && (remoteAddress === undefined || !proxies.contains(remoteAddress))) return false;
  const said = headers['x-forwarded-for'];
  const address = clientAddress(
    remoteAddress,
    typeof said === 'string' ? said : said?.[0],
    proxies,
  );
  return address === '::1' || address.startsWith('127.');
}
