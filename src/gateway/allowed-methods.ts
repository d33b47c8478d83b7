import type { RouteSpec } from './route.ts';

/** Path → the methods that it takes, for `Allow`; undefined for a path that nobody serves. */
export function allowedMethods(routes: readonly RouteSpec[]): (url: string) => string | undefined {
  const rows = routes.map((route) => ({
    method: route.method,
    pattern: new RegExp(`^${route.path.replaceAll(/\{\w+\}/g, '[^/]+')}$`),
  }));
  rows.push({ method: 'GET', pattern: /^\/openapi\.json$/ });
  return (url) => {
    const path = url.split('?', 1)[0] ?? '';
    const methods = rows.filter((row) => row.pattern.test(path)).map((row) => row.method);
    return methods.length === 0 ? undefined : [...new Set(methods)].join(', ');
  };
}
