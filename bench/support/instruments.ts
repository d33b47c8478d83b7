import { createWriteStream } from 'node:fs';
import { systemClock, systemRandom, systemTimers } from '../../src/app/system.ts';
import { type Exit, Ledger } from '../../src/core/ledger/ledger.ts';
import type { GatewayDeps } from '../../src/gateway/deps.ts';
import { RecentLatency } from '../../src/telemetry/latency.ts';
import { EventLog } from '../../src/telemetry/log.ts';
import { Metrics } from '../../src/telemetry/metrics.ts';
import { Tracing } from '../../src/telemetry/tracing.ts';

export type Instruments = 'off' | 'on' | 'traced';

/**
 * The same gateway as it runs, or with nothing looking at it. On: the ledger, the log of refusals
 * (written, to nowhere), the latency of those turned away, and a scrape every second, as in every
 * deployment. Traced: traces for one in a hundred besides, which a deployment has to ask for. Off: none of them; only the probe of the overload control, which is a part of refusing.
 */
export function instrumented(deps: GatewayDeps, instruments: Instruments): GatewayDeps {
  if (instruments === 'off') {
    return { ...deps, ledger: { arrived: () => undefined, left: () => undefined } };
  }
  const clock = systemClock;
  const ledger = new Ledger(() => 0);
  const log = new EventLog({ level: 'info', clock, destination: createWriteStream('/dev/null') });
  const turnedAway = new RecentLatency(10_000);
  const tracing = new Tracing({ clock, random: systemRandom, ratio: 0.01 });
  const metrics = new Metrics();
  metrics.counter(
    { name: 'sluice_ingress_requests_total', help: 'x', labels: ['stage', 'decision', 'reason'] },
    (tell) => {
      for (const row of ledger.snapshot().rows) {
        tell(row.count, row.stage, row.decision, row.reason);
      }
    },
  );
  systemTimers.every(250, () => log.flush());
  systemTimers.every(1_000, () => {
    metrics.text();
    tracing.take(10_000);
  });
  return {
    ...deps,
    ...(instruments === 'traced' ? { tracer: tracing } : {}),
    ledger: {
      arrived: () => ledger.arrived(),
      left: (stage: string, decision: Exit, reason: string) => {
        ledger.left(stage, decision, reason);
        if (decision === 'reject') log.refusal({ stage, decision, reason });
      },
    },
    onTurnedAway: (elapsedUs) => turnedAway.record(elapsedUs, clock.monoUs()),
  };
}
