import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { type Theme, themeCss } from './theme.ts';

/**
 * The few files a page loads, read once, named by their content (so that they may be cached for
 * ever), and compressed once (so that serving them costs a copy).
 */
export interface Asset {
  readonly path: string;
  readonly type: string;
  readonly plain: Buffer;
  readonly gzip: Buffer;
  readonly brotli: Buffer;
}

export interface Assets {
  readonly script: Asset;
  readonly style: Asset;
  readonly theme: Asset;
  readonly icon: Asset;
  byPath(path: string): Asset | undefined;
}

function asset(name: string, extension: string, type: string, content: Buffer): Asset {
  const hash = createHash('sha256').update(content).digest('base64url').slice(0, 10);
  return {
    path: `/assets/${name}-${hash}.${extension}`,
    type,
    plain: content,
    gzip: gzipSync(content, { level: 9 }),
    brotli: brotliCompressSync(content, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } }),
  };
}

const icon = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="9" fill="#0b5c73"/><g fill="none" stroke="#fff" stroke-width="2.6" stroke-linecap="round"><path d="M9 6v9M16 6v6M23 6v9"/><path d="M5 21c2.5-2.4 5-2.4 7.300 0s5 2.400 7.400 0 5-2.400 7.300 0"/></g></svg>`;

/**
 * Reads the bundles made by the build from `folder` (…/web/storefront). Throws when they are not
 * there: a server whose pages have no style should not start.
 */
export function loadAssets(folder: string, theme: Theme): Assets {
  const script = asset('main', 'js', 'text/javascript; charset=utf-8', read(folder, 'main.js'));
  const style = asset('style', 'css', 'text/css; charset=utf-8', read(folder, 'style.css'));
  const themed = asset('theme', 'css', 'text/css; charset=utf-8', Buffer.from(themeCss(theme)));
  const mark = asset('icon', 'svg', 'image/svg+xml', Buffer.from(icon));
  const all = new Map([script, style, themed, mark].map((one) => [one.path, one]));
  return { script, style, theme: themed, icon: mark, byPath: (path) => all.get(path) };
}

function read(folder: string, name: string): Buffer {
  const path = join(folder, name);
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new Error(`pages: cannot read ${path}; run "npm run build" first`, { cause });
  }
}
