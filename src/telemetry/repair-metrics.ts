import type { Metrics } from './metrics.ts';

/** What needs a hand, as last looked at; undefined before the first look, and where nobody looks. */
export interface RepairReading {
  /** Findings of the last reconciliation by class; every class, so that an alarm ends. */
  readonly findings: ReadonlyMap<string, number> | undefined;
  readonly paymentsStuck: number | undefined;
}

export function registerRepairs(metrics: Metrics, reading: () => RepairReading): void {
  metrics.gauge(
    {
      name: 'sluice_reconcile_findings',
      help: 'Differences between what is reserved, ordered and paid that the last reconciliation found.',
      labels: ['class'],
    },
    (tell) => {
      for (const [name, count] of reading().findings ?? []) tell(count, name);
    },
  );
  metrics.gauge(
    {
      name: 'sluice_payments_stuck',
      help: 'Payments that have been in progress for more than 15 minutes.',
      labels: [],
    },
    (tell) => {
      const { paymentsStuck } = reading();
      if (paymentsStuck !== undefined) tell(paymentsStuck);
    },
  );
}
