import type { BreakerState } from '../core/outbound/breaker.ts';
import type { Metrics, Tell } from './metrics.ts';

/** A way out to one dependency, as far as metrics look at it. */
export interface OutboundReading {
  readonly breakerState: BreakerState;
  readonly inflight: number;
  readonly numbers: {
    readonly attempts: number;
    readonly failures: number;
    readonly refused: Readonly<Record<string, number>>;
  };
}

const stateNumbers: Readonly<Record<BreakerState, number>> = { closed: 0, half_open: 1, open: 2 };

/** Calls to others. The names come from the composition: one for each part that it opened. */
export function registerOutbound(
  metrics: Metrics,
  dependencies: () => ReadonlyMap<string, OutboundReading>,
  amplification: () => number | undefined,
): void {
  const each =
    (say: (name: string, outbound: OutboundReading, tell: Tell) => void) =>
    (tell: Tell): void => {
      for (const [name, outbound] of dependencies()) say(name, outbound, tell);
    };
  metrics.gauge(
    {
      name: 'sluice_breaker_state',
      help: 'Whether a dependency is asked: 0 yes, 1 it is being probed, 2 not now.',
      labels: ['dependency'],
    },
    each((name, { breakerState }, tell) => tell(stateNumbers[breakerState], name)),
  );
  metrics.gauge(
    {
      name: 'sluice_outbound_inflight',
      help: 'Calls to a dependency that are in progress.',
      labels: ['dependency'],
    },
    each((name, { inflight }, tell) => tell(inflight, name)),
  );
  metrics.counter(
    {
      name: 'sluice_outbound_attempts_total',
      help: 'Attempts made at a dependency, retries included.',
      labels: ['dependency'],
    },
    each((name, { numbers }, tell) => tell(numbers.attempts, name)),
  );
  metrics.counter(
    {
      name: 'sluice_outbound_failures_total',
      help: 'Attempts that failed or took too long. Refusals of ours are not among them.',
      labels: ['dependency'],
    },
    each((name, { numbers }, tell) => tell(numbers.failures, name)),
  );
  metrics.counter(
    {
      name: 'sluice_outbound_refused_total',
      help: 'Calls that were not begun: no time left, too many per second, no place, or a breaker is open.',
      labels: ['dependency', 'reason'],
    },
    each((name, { numbers }, tell) => {
      for (const [reason, count] of Object.entries(numbers.refused)) tell(count, name, reason);
    }),
  );
  metrics.gauge(
    {
      name: 'sluice_retry_amplification',
      help: 'Attempts per call to dependencies over the last 10 s: 1 means that nothing is repeated.',
      labels: [],
    },
    (tell) => {
      const ratio = amplification();
      if (ratio !== undefined) tell(ratio);
    },
  );
}
