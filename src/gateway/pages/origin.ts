/**
 * Was a change asked for by our own page? Cookies ride along with whatever another site makes a
 * browser send, so every change must name its origin.
 *
 * `Origin` is sent by every current browser with a POST, and it must be ours: same scheme, same host
 * and port as the request was sent to. Where it is missing (some older browsers), `Sec-Fetch-Site`
 * decides, then `Referer`; a request with none of the three is refused. `Origin: null` (sandboxed
 * frames, redirects across sites) is not ours.
 */
export interface OriginHeaders {
  readonly host: string | undefined;
  readonly origin: string | undefined;
  readonly secFetchSite: string | undefined;
  readonly referer: string | undefined;
}

export function originAllowed(headers: OriginHeaders, secure: boolean): boolean {
  if (headers.host === undefined) return false;
  const own = `${secure ? 'https' : 'http'}://${headers.host.toLowerCase()}`;
  if (headers.origin !== undefined) return sameOrigin(headers.origin, own);
  if (headers.secFetchSite !== undefined) return headers.secFetchSite === 'same-origin';
  if (headers.referer !== undefined) return sameOrigin(headers.referer, own);
  return false;
}

function sameOrigin(url: string, own: string): boolean {
  if (!URL.canParse(url) || !URL.canParse(own)) return false;
  return new URL(url).origin === new URL(own).origin;
}
