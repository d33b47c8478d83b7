import { lookup as resolve } from 'node:dns';
import { type ClientRequest, type IncomingMessage, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import ipaddr from 'ipaddr.js';
import type { Timers } from '../ports/clock.ts';
import { UnavailableError } from '../ports/errors.ts';

/**
 * Reads over the network, to addresses from the configuration file only.
 *
 * A URL is checked where it is dangerous: at the address that is connected to, after the name was
 * resolved, in the very lookup that the connection uses, so that a name cannot be public when checked
 * and private when used. Redirects are not followed: they would lead to an address that nobody
 * configured.
 */
export interface OutboundOptions {
  readonly timers: Pick<Timers, 'after'>;
  /** Private ranges that the configuration lists. Canonical addresses. */
  readonly allowsPrivate: (address: string) => boolean;
  readonly timeoutMs: number;
  readonly maxBytes: number;
}

/** GETs JSON. Rejects with UnavailableError that says what was wrong; never with the body. */
export async function getJson(url: string, options: OutboundOptions): Promise<unknown> {
  const target = new URL(url);
  if (target.protocol !== 'https:' && target.protocol !== 'http:') {
    throw new UnavailableError(`${url}: found ${target.protocol}; allowed are https: and http:`);
  }
  // A literal address is connected to without a lookup, so it is checked here.
  const literal = target.hostname.replace(/^\[|\]$/g, '');
  if (isIP(literal) !== 0 && !mayReach(literal, options)) {
    throw new UnavailableError(`${url}: the address is not public, and not listed as allowed`);
  }
  const request = (target.protocol === 'https:' ? requestHttps : requestHttp)(target, {
    method: 'GET',
    agent: false,
    headers: { accept: 'application/json' },
    lookup: guardedLookup(options),
  });
  const timer = options.timers.after(options.timeoutMs, () => {
    request.destroy(new Error(`no answer within ${options.timeoutMs} ms`));
  });
  try {
    return await readJson(await responseOf(request), options.maxBytes);
  } catch (error) {
    throw new UnavailableError(`${url}: ${error instanceof Error ? error.message : String(error)}`);
  } finally {
    timer.cancel();
    request.destroy();
  }
}

function responseOf(request: ClientRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    request.on('response', resolve);
    request.on('error', reject);
    request.end();
  });
}

function guardedLookup(options: OutboundOptions): LookupFunction {
  return (hostname, lookupOptions, callback) => {
    resolve(hostname, { ...lookupOptions, all: true }, (error, found) => {
      if (error !== null) return callback(error, []);
      const reachable = found.filter(({ address }) => mayReach(address, options));
      const [first] = reachable;
      if (first === undefined) {
        return callback(new Error(`${hostname} resolves to no public address`), []);
      }
      return lookupOptions.all === true
        ? callback(null, reachable)
        : callback(null, first.address, first.family);
    });
  };
}

/** Public, or listed. Everything that is not plain unicast counts as private. */
function mayReach(address: string, options: Pick<OutboundOptions, 'allowsPrivate'>): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  return parsed.range() === 'unicast' || options.allowsPrivate(parsed.toString());
}

async function readJson(response: IncomingMessage, maxBytes: number): Promise<unknown> {
  if (response.statusCode !== 200) {
    response.destroy();
    throw new Error(
      `status ${response.statusCode ?? 0}; allowed is 200, redirects are not followed`,
    );
  }
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of response as AsyncIterable<Buffer>) {
    size += part.length;
    if (size > maxBytes) {
      response.destroy();
      throw new Error(`more than the ${maxBytes} bytes allowed`);
    }
    parts.push(part);
  }
  return JSON.parse(Buffer.concat(parts).toString('utf8')) as unknown;
}
