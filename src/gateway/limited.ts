import type { IncomingMessage } from 'node:http';
import type { Refusal } from '../core/decision.ts';
import { LimitedCall } from '../pipeline/limited-request.ts';
import type { LimitedRequest, PathLimits, RouteName } from '../pipeline/limits.ts';
import type { HttpAnswer } from './answer.ts';
import { addressOf, type GatewayContext } from './context.ts';
import { headerText } from './head.ts';

/** Work that is never put behind anything: what people do who hold something already. */
const p0Routes: ReadonlySet<RouteName> = new Set(['status', 'order', 'cancel', 'pay', 'callback']);

export const isP0 = (route: RouteName): boolean => p0Routes.has(route);

/** A request of any route but submit, as limits see it. */
export function limitedCall(
  context: GatewayContext,
  request: IncomingMessage,
  route: RouteName,
): LimitedCall {
  const { clock, settings, limits } = context.deps;
  const { remoteAddress } = request.socket;
  return new LimitedCall(
    {
      route,
      // Rules name what is asked for: HEAD asks for the same as GET.
      method: request.method === 'HEAD' ? 'GET' : (request.method ?? ''),
      arrivedUs: clock.monoUs(),
      nowMs: clock.wallMs(),
      address: addressOf(context, request),
      fromTrustedProxy: remoteAddress !== undefined && settings.proxies.contains(remoteAddress),
      p0: isP0(route),
      header: (name) => headerText(request, name),
    },
    limits,
  );
}

/**
 * The answer, with where the limits that counted the request stand now. A limit that refused has said
 * its own. @param said what is answered, as far as it may be a refusal.
 */
export function standingLimits(
  limits: Pick<PathLimits, 'headers'>,
  limited: LimitedRequest | undefined,
  said: object | undefined,
  answer: HttpAnswer,
): HttpAnswer {
  if (limited === undefined || (said as Partial<Refusal> | undefined)?.headers !== undefined) {
    return answer;
  }
  const more = limits.headers(limited);
  if (more.length === 0) return answer;
  return { ...answer, more: more.flat() };
}
