import { type FixedRefusal, type Refusal, refuse } from '../core/decision.ts';
import { bodyTooLarge } from '../pipeline/stages/01-receive.ts';
import { invalidBody } from './submission.ts';

const wrongMedia: FixedRefusal = {
  decision: 'reject',
  stage: 'receive',
  code: 'UNSUPPORTED_MEDIA_TYPE',
  reason: 'media_type',
  detail: 'the body is of a media type that this path does not take',
};

/** Fastify's own refusals (media type, size, malformed URL), in our words. */
export function refusalOfFramework(error: unknown): Refusal | undefined {
  if (typeof error !== 'object' || error === null || !('statusCode' in error)) return undefined;
  switch (error.statusCode) {
    case 413:
      return bodyTooLarge;
    case 415:
      return refuse(wrongMedia);
    case 400:
      return invalidBody(
        [{ path: '', found: 'a malformed request', allowed: 'well-formed HTTP' }],
        'receive',
      );
    default:
      return undefined;
  }
}
