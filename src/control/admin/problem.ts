import type { FastifyReply } from 'fastify';

/** A refusal of the admin API: RFC 9457, with a short machine word as `code`. */
export function problem(
  reply: FastifyReply,
  status: number,
  code: string,
  detail: string,
  more: Readonly<Record<string, unknown>> = {},
): FastifyReply {
  return reply
    .code(status)
    .header('content-type', 'application/problem+json; charset=utf-8')
    .send(JSON.stringify({ type: 'about:blank', title: code, status, code, detail, ...more }));
}

/** A reason as the audit wants it: said, and short enough to be read. */
export const reasonMin = 3;
export const reasonMax = 500;

export function asReason(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  const text = value.trim();
  return text.length >= reasonMin && text.length <= reasonMax ? text : undefined;
}
