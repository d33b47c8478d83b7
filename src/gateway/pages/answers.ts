import type { FastifyReply } from 'fastify';
import { codes } from '../../wire/codes.ts';
import type { PageRefusal } from './deps.ts';
import { messagePage } from './layout.ts';
import type { PageRequest } from './request-context.ts';

/** Bytes of a form: a hundred ids fit. */
export const formMaxBytes = 8 * 1024;

/** Fields of a form that are read at all. */
const formMaxFields = 128;

export type Form = Readonly<Record<string, readonly string[]>>;

export function parseForm(body: string): Form {
  const fields: Record<string, string[]> = Object.create(null) as Record<string, string[]>;
  let count = 0;
  for (const [name, value] of new URLSearchParams(body)) {
    count += 1;
    if (count > formMaxFields) break;
    (fields[name] ??= []).push(value);
  }
  return fields;
}

/** What a limit or health said, as a page that comes back by itself. */
export function refusedPage(page: PageRequest, refusal: PageRefusal, back: string): FastifyReply {
  const w = page.view.words;
  const entry = codes[refusal.code];
  const [heading, text] =
    refusal.code === 'RATE_LIMITED'
      ? [w.limitedTitle, w.limitedText]
      : refusal.code === 'NOT_OPEN'
        ? [w.notOpenHeading, w.notOpenText]
        : refusal.code === 'DEPENDENCY_UNAVAILABLE'
          ? [w.unavailableTitle, w.unavailableText]
          : [w.overloadedTitle, w.overloadedText];
  const afterMs = refusal.retryAfterMs ?? 5_000;
  const reply = page.page(
    entry.http,
    messagePage(page.view, heading, text, {
      link: back,
      label: w.tryAgain,
      refreshMs: afterMs,
      refreshPath: back,
    }),
  );
  return reply;
}

/** The page of an activity that is not there. */
export function notFoundPage(page: PageRequest): FastifyReply {
  const w = page.view.words;
  return page.page(404, messagePage(page.view, w.notFoundTitle, w.notFoundText));
}
