import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { TrustedProxies } from '../core/limit/address.ts';
import { headerText } from './head.ts';
import { readCookie } from './pages/cookies.ts';
import { originAllowed } from './pages/origin.ts';

/**
 * Who a request says it comes from. Headers win over cookies. A cookie rides along with whatever
 * another site makes a browser send, so a change that relies on one must come from our own origin.
 */

const bearer = /^Bearer +(\S+)$/i;

/** Longest value of `Sluice-Device` that is hashed, characters. */
const deviceMaxLength = 512;

function bearerToken(authorization: string): string | undefined {
  // As everybody writes it; the pattern is for the rest.
  if (authorization.startsWith('Bearer ') && !authorization.includes(' ', 7)) {
    return authorization.length > 7 ? authorization.slice(7) : undefined;
  }
  return bearer.exec(authorization)?.[1];
}

export class Credentials {
  readonly #request: IncomingMessage;
  readonly #proxies: TrustedProxies;
  readonly #secureByConfig: boolean;

  constructor(request: IncomingMessage, proxies: TrustedProxies, secure: boolean) {
    this.#request = request;
    this.#proxies = proxies;
    this.#secureByConfig = secure;
  }

  get userToken(): string | undefined {
    const { authorization } = this.#request.headers;
    if (authorization !== undefined) return bearerToken(authorization);
    return this.#cookie('sluice-user');
  }

  get entryToken(): string | undefined {
    return headerText(this.#request, 'sluice-entry') ?? this.#cookie('sluice-entry');
  }

  get passToken(): string | undefined {
    return headerText(this.#request, 'sluice-pass');
  }

  /** SHA-256, hex; the raw value is not kept anywhere. */
  get deviceHash(): string | undefined {
    const device = headerText(this.#request, 'sluice-device');
    if (device === undefined || device === '') return undefined;
    return createHash('sha256').update(device.slice(0, deviceMaxLength)).digest('hex');
  }

  /** A change by cookie that our own pages did not ask for. */
  get fromForeignOrigin(): boolean {
    const { headers } = this.#request;
    if (headers.authorization !== undefined || headers.cookie === undefined) return false;
    if (this.#cookie('sluice-user') === undefined && this.#cookie('sluice-entry') === undefined) {
      return false;
    }
    return !this.originIsOurs;
  }

  /** Whether the browser says that a page of ours sent this. */
  get originIsOurs(): boolean {
    const { headers } = this.#request;
    return originAllowed(
      {
        host: headers.host,
        origin: headers.origin,
        secFetchSite: headerText(this.#request, 'sec-fetch-site'),
        referer: headers.referer,
      },
      this.secure,
    );
  }

  /** HTTPS as far as the buyer's browser is concerned. */
  get secure(): boolean {
    if (this.#secureByConfig) return true;
    const said = headerText(this.#request, 'x-forwarded-proto');
    const peer = this.#request.socket.remoteAddress;
    return said === 'https' && peer !== undefined && this.#proxies.contains(peer);
  }

  #cookie(name: 'sluice-user' | 'sluice-entry'): string | undefined {
    const { cookie } = this.#request.headers;
    return cookie === undefined ? undefined : readCookie(cookie, name, this.secure);
  }
}
