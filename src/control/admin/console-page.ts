import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { AdminDeps } from './deps.ts';
import { problem } from './problem.ts';

/** Nothing but our own files, no inline script; styles of plots are set through the object model. */
export const consolePolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

interface File {
  readonly path: string;
  readonly type: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
}

/** The console: one page and its two files. It holds nothing secret; what it shows needs a session. */
export function registerConsolePage(app: FastifyInstance, deps: AdminDeps): void {
  const folder = deps.consoleFolder;
  if (folder === undefined) return;
  const script = load(folder, 'main.js', 'text/javascript; charset=utf-8');
  const style = load(folder, 'style.css', 'text/css; charset=utf-8');
  const page = Buffer.from(`<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><title>Sluice</title>
<link rel="icon" href="data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' height='32' rx='9' fill='%230b5c73'/%3E%3Cpath d='M9 6v9M16 6v6M23 6v9M5 21c2.500-2.400 5-2.400 7.300 0s5 2.400 7.400 0 5-2.400 7.300 0' fill='none' stroke='%23fff' stroke-width='2.600' stroke-linecap='round'/%3E%3C/svg%3E">
<link rel="stylesheet" href="${style.path}"><script type="module" src="${script.path}"></script></head>
<body><div id="app"><noscript>This page needs JavaScript. 本页需要 JavaScript。</noscript></div></body></html>
`);
  app.get('/', (_request, reply) =>
    reply
      .headers({
        'content-security-policy': consolePolicy,
        'content-type': 'text/html; charset=utf-8',
      })
      .send(page),
  );
  app.get<{ Params: { file: string } }>('/assets/:file', (request, reply) => {
    const file = [script, style].find((one) => one.path === `/assets/${request.params.file}`);
    if (file === undefined) return problem(reply, 404, 'NOT_FOUND', 'No such file.');
    return send(request, reply, file);
  });
}

function send(request: FastifyRequest, reply: FastifyReply, file: File): FastifyReply {
  void reply.headers({
    'cache-control': 'public, max-age=31536000, immutable',
    'content-type': file.type,
    vary: 'Accept-Encoding',
  });
  return /\bgzip\b/.test(String(request.headers['accept-encoding'] ?? ''))
    ? reply.header('content-encoding', 'gzip').send(file.gzip)
    : reply.send(file.plain);
}

function load(folder: string, name: string, type: string): File {
  const path = join(folder, name);
  let plain: Buffer;
  try {
    plain = readFileSync(path);
  } catch (cause) {
    throw new Error(`console: cannot read ${path}; run "npm run build" first`, { cause });
  }
  const hash = createHash('sha256').update(plain).digest('base64url').slice(0, 10);
  return {
    path: `/assets/${name.replace('.', `-${hash}.`)}`,
    type,
    plain,
    gzip: gzipSync(plain, { level: 9 }),
  };
}
