import { bodyMaxBytes, headersMaxCount } from '../../core/bounds.ts';
import { type FixedRefusal, type Refusal, refuse } from '../../core/decision.ts';
import type { RequestHead, Submission, SyncStage } from '../stage.ts';

const stage = 'receive';

const wrongMethod: FixedRefusal = {
  decision: 'reject',
  stage,
  code: 'METHOD_NOT_ALLOWED',
  reason: 'method',
  detail: 'this path takes POST only',
};

const manyHeaders: FixedRefusal = {
  decision: 'reject',
  stage,
  code: 'HEADERS_TOO_LARGE',
  reason: 'header_count',
  detail: `more header fields than the ${headersMaxCount} allowed`,
};

const tooLarge: FixedRefusal = {
  decision: 'reject',
  stage,
  code: 'PAYLOAD_TOO_LARGE',
  reason: 'body_size',
  detail: `the body is larger than the ${bodyMaxBytes} bytes allowed`,
};

const wrongType: FixedRefusal = {
  decision: 'reject',
  stage,
  code: 'UNSUPPORTED_MEDIA_TYPE',
  reason: 'media_type',
  detail: 'the body must be application/json in UTF-8, not compressed',
};

export const bodyTooLarge: Refusal = refuse(tooLarge);
export const tooManyHeaders: Refusal = refuse(manyHeaders);

/** What can be refused by looking at the head alone. O(1). */
export function receiveStage(): SyncStage {
  return { name: stage, run: (submission: Submission) => refuseHead(submission.head, 'POST') };
}

/** Shared with the other routes that take a body. `method` undefined skips that check. */
export function refuseHead(head: RequestHead, method: string | undefined): Refusal | undefined {
  if (method !== undefined && head.method !== method) {
    return refuse(wrongMethod, undefined, [['Allow', method]]);
  }
  if (head.headerCount > headersMaxCount) return tooManyHeaders;
  if (head.repeated !== undefined) return refuseRepeated(head.repeated);
  if (head.contentLength !== undefined && head.contentLength > bodyMaxBytes) return bodyTooLarge;
  return isPlainJson(head) ? undefined : refuse(wrongType);
}

function isPlainJson(head: RequestHead): boolean {
  if (head.contentEncoding !== undefined && head.contentEncoding !== 'identity') return false;
  const { contentType } = head;
  if (contentType === undefined) return false;
  if (contentType === 'application/json') return true;
  return /^application\/json[ \t]*(?:;[ \t]*charset="?utf-8"?[ \t]*)?$/i.test(contentType);
}

export function refuseRepeated(name: string): Refusal {
  return {
    decision: 'reject',
    stage,
    code: 'INVALID_ARGUMENT',
    reason: 'repeated_header',
    detail: `header ${name} came more than once`,
    extra: { errors: [{ path: `header:${name}`, found: 'several values', allowed: 'one value' }] },
  };
}
