/**
 * Cookies of the pages. On HTTPS their names carry `__Host-`, by which a browser promises that no
 * other host and no plain connection has set them; on plain HTTP (a laptop) they go without.
 */
export type CookieName =
  | 'sluice-user'
  | 'sluice-entry'
  | 'sluice-lang'
  | 'sluice-claim'
  | 'sluice-request'
  | 'sluice-paying';

export function cookieName(name: CookieName, secure: boolean): string {
  return secure ? `__Host-${name}` : name;
}

/** Bytes of a Cookie header that are read at all. */
const cookieHeaderMax = 8 * 1024;

/** The first cookie of that name, or undefined. Values are our own: no quoting, no decoding. */
export function readCookie(
  header: string | undefined,
  name: CookieName,
  secure: boolean,
): string | undefined {
  if (header === undefined) return undefined;
  const wanted = `${cookieName(name, secure)}=`;
  for (const part of header.slice(0, cookieHeaderMax).split(';')) {
    const pair = part.trim();
    if (pair.startsWith(wanted)) {
      const value = pair.slice(wanted.length);
      return value === '' ? undefined : value;
    }
  }
  return undefined;
}

const safeValue = /^[A-Za-z0-9._~/+=-]*$/;

/**
 * A `Set-Cookie` value. `maxAgeSeconds` 0 forgets the cookie. Throws TypeError for a value that would
 * need quoting: ours never do, so it is a mistake worth hearing of.
 */
export function writeCookie(
  name: CookieName,
  value: string,
  secure: boolean,
  maxAgeSeconds: number,
): string {
  if (!safeValue.test(value))
    throw new TypeError(`cookie ${name}: allowed are characters of ${safeValue.source}`);
  const parts = [
    `${cookieName(name, secure)}=${value}`,
    'Path=/',
    `Max-Age=${Math.max(0, Math.floor(maxAgeSeconds))}`,
    'HttpOnly',
    'SameSite=Lax',
  ];
  if (secure) parts.push('Secure');
  return parts.join('; ');
}
