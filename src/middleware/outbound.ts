import { Outbound, type OutboundOptions } from '../outbound/outbound.ts';
import { parseRate } from '../core/limit/rate.ts';
import { systemAfter, systemWorld } from './system.ts';

/**
 * Calls to what is not yours, with everything that keeps a slow dependency from taking you with it:
 *
 *     import { createOutbound } from 'sluice/outbound';
 *     const billing = createOutbound({ name: 'billing', timeoutMs: 800, slots: 50, rate: '200/s' });
 *     const reply = await billing.call(({ signal }) => fetch(url, { signal }), {
 *       remainingMs: request.deadline - Date.now(),
 *       repeatable: true,
 *     });
 *
 * In this order: deadline, rate, slots, breaker, one bounded attempt, and retries with full jitter that
 * successes pay for.
 */
export interface CreateOutboundOptions extends Omit<OutboundOptions, 'rate'> {
  /** Attempts per period, e.g. `200/s`. Default: no limit. */
  readonly rate?: string;
  /** Attempts at once, from the rate. Default 1. */
  readonly burst?: number;
}

/** @throws RangeError for options that cannot work, quoting them. */
export function createOutbound(options: CreateOutboundOptions): Outbound {
  const { rate, burst = 1, ...rest } = options;
  return new Outbound(
    rate === undefined ? rest : { ...rest, rate: { rate: parseRate(rate), burst } },
    {
      nowMs: () => systemWorld.monoUs() / 1000,
      after: systemAfter,
      float: () => systemWorld.float(),
    },
  );
}

export type { Outbound };
export type { Attempt, CallOptions, RetryOptions, OutboundNumbers } from '../outbound/outbound.ts';
export type { BreakerSettings, BreakerState } from '../core/outbound/breaker.ts';
export { OutboundRefusedError } from '../outbound/outbound.ts';
export { OutcomeUnknownError } from '../ports/errors.ts';
