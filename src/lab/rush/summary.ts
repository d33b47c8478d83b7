import { outcomeNames } from './population.ts';
import { format } from './progress.ts';
import type { RushReport } from './report.ts';

/** The report for people: what became of everybody, does it add up, what held. */
export function summaryOf(report: RushReport): string {
  const { outcomes, stock, rates, latency_ms: latency, run } = report;
  const known = (value: number | null): string => (value === null ? '?' : format(value));
  const ms = (value: number | null): string => (value === null ? '–' : `${value} ms`);
  const lines = [
    '',
    `  ${format(report.people)} people over ${run.over_ms / 1000} s at ${run.target}, activity ${run.activity}, scenario ${run.scenario}, seed ${report.seed}${run.scale === 1 ? '' : `, scaled by ${run.scale}`}`,
    `  ${outcomeNames
      .filter((name) => outcomes[name] > 0)
      .map((name) => `${name} ${format(outcomes[name])}`)
      .join(', ')}`,
    '',
    `  stock      ${known(stock.total)} = sold ${format(stock.sold)} + held ${format(stock.held)} + available ${known(stock.available)}`,
    `  rates      refused ${rates.refused_per_s}/s, reserved ${rates.reserved_per_s}/s, orders ${rates.orders_per_s}/s`,
    `  latency    admitted p50 ${ms(latency.admitted.p50)}, p99 ${ms(latency.admitted.p99)}; refused p50 ${ms(latency.refused.p50)}, p99 ${ms(latency.refused.p99)}`,
    `  arrivals   ${format(report.arrivals_started)} of ${format(report.arrivals_planned)} started in time, worst ${Math.round(run.worst_lateness_ms)} ms late`,
    `  generator  ${run.generator.cpu_s} s of processor, ${run.generator.peak_rss_mib} MiB, longest stall ${run.generator.worst_stall_ms} ms`,
    '',
    ...report.invariants.map(({ id, held, detail, evidence }) => {
      const mark = held ? (evidence === 'none' ? '–' : '✓') : '✗';
      return `  ${mark} ${id.padStart(2)}  ${detail}`;
    }),
    '',
    `  verdict    ${report.verdict}${report.void ? ' (more than 0.1% of the arrivals could not be started: this machine is too slow for this run)' : ''}`,
    '',
  ];
  return `${lines.join('\n')}\n`;
}
