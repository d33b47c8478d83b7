/**
 * Is a request meant for this server? A page of another site can make a browser send requests to
 * 127.0.0.1 under a name of its own (DNS rebinding); such a request carries that name as its Host.
 * Only names that we answer to are let in.
 */
export function allowedHosts(
  host: string,
  port: number,
  configured: readonly string[],
): ReadonlySet<string> {
  const names = new Set(configured.map((name) => name.toLowerCase()));
  const own = ['127.0.0.1', 'localhost', '[::1]'];
  if (host !== '0.0.0.0' && host !== '::') own.push(host.includes(':') ? `[${host}]` : host);
  for (const name of own) {
    names.add(`${name.toLowerCase()}:${port}`);
    if (port === 80 || port === 443) names.add(name.toLowerCase());
  }
  return names;
}

/** True for a peer on this very machine that speaks for itself: not for one that was forwarded. */
export function isLoopback(
  remoteAddress: string | undefined,
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
): boolean {
  if (headers['x-forwarded-for'] !== undefined || headers.forwarded !== undefined) return false;
  if (remoteAddress === undefined) return false;
  const plain = remoteAddress.replace(/^::ffff:/i, '');
  return plain === '::1' || /^127\.\d{1,3}\.\d{1,3}\.\d{1,3}$/.test(plain);
}
