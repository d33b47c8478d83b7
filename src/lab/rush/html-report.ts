import { escapeText, histogramPlot, linePlot } from './plots.ts';
import { outcomeNames } from './population.ts';
import { format } from './progress.ts';
import type { RushReport } from './report.ts';

/** The report as one HTML page that needs nothing else: no script, no network. */
export function htmlReport(report: RushReport): string {
  const { run, outcomes, stock, rates, latency_ms: latency } = report;
  const { series } = run;
  const known = (value: number | null): string => (value === null ? '?' : format(value));
  const ms = (value: number | null): string => (value === null ? '–' : `${value} ms`);
  const verdicts = {
    holds: 'Everything that could be checked holds.',
    broken: 'An invariant is broken.',
    void: 'Void: this machine could not keep the schedule of arrivals.',
  };
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Rush: ${report.verdict}</title>
<style>${style}</style>
<main>
<h1>Rush <b class="${report.verdict}">${report.verdict}</b></h1>
<p>${verdicts[report.verdict]} ${format(report.people)} people came over ${run.over_ms / 1000} s to ${escapeText(run.target)}, activity <code>${escapeText(run.activity)}</code>: ${escapeText(run.about)}. Scenario <code>${escapeText(run.scenario)}</code>, seed ${report.seed}${run.scale === 1 ? '' : `, <strong>scaled by ${run.scale}</strong>`}, ${escapeText(run.started_at)}.</p>

<h2>What became of everybody</h2>
${outcomeBar(report)}
<table><tr>${outcomeNames.map((name) => `<th>${name.replace('_', ' ')}`).join('')}<tr>${outcomeNames
    .map((name) => `<td>${format(outcomes[name])}`)
    .join('')}</table>
<dl>
<dt>stock<dd>${known(stock.total)} = sold ${format(stock.sold)} + held ${format(stock.held)} + available ${known(stock.available)}
<dt>rates<dd>refused ${rates.refused_per_s}/s, reserved ${rates.reserved_per_s}/s, durable orders ${rates.orders_per_s}/s (over the seconds with any)
<dt>latency of admitted submits<dd>p50 ${ms(latency.admitted.p50)}, p99 ${ms(latency.admitted.p99)}
<dt>latency of refusals<dd>p50 ${ms(latency.refused.p50)}, p99 ${ms(latency.refused.p99)}
<dt>arrivals<dd>${format(report.arrivals_started)} of ${format(report.arrivals_planned)} started in time, the latest ${run.worst_lateness_ms} ms late; from ${escapeText(run.arrivals_from)}, ${format(run.households)} households
<dt>crowd<dd>bots ${percent(run.shares.bots)}, duplicates ${percent(run.shares.duplicates)}, timeouts ${percent(run.shares.timeouts)}; ${format(run.attacks.forged)} forged submits, ${format(run.attacks.replayed)} replays, ${format(run.attacks.conflicting)} reused ids
<dt>generator<dd>${run.generator.cpu_s} s of processor, ${run.generator.peak_rss_mib} MiB
<dt>machine<dd>${report.machine.cpus} × ${escapeText(report.machine.model)}, ${report.machine.memory_mib} MiB, ${escapeText(report.machine.platform)}, Node ${escapeText(report.machine.node)}
</dl>

<h2>Invariants</h2>
<table class="invariants"><tr><th>id<th>held<th>seen by<th>detail
${report.invariants
  .map(
    ({ id, held, evidence, detail }) =>
      `<tr><td>${id}<td class="${held ? (evidence === 'none' ? 'unseen' : 'holds') : 'broken'}">${held ? (evidence === 'none' ? 'no breach seen' : 'held') : 'broken'}<td>${evidence === 'none' ? 'nobody' : evidence}<td>${escapeText(detail)}`,
  )
  .join('\n')}</table>

<h2>Over time</h2>
${linePlot('Requests per second', [
  { name: 'sent', values: series.requests, tone: 'a' },
  { name: 'refused', values: series.refused, tone: 'd' },
  { name: 'no answer', values: series.failures, tone: 'e' },
])}
${linePlot('People per second', [
  { name: 'arrived', values: series.arrivals, tone: 'a' },
  { name: 'admitted', values: series.admitted, tone: 'b' },
  { name: 'reserved', values: series.reserved, tone: 'c' },
  { name: 'ordered', values: series.ordered, tone: 'd' },
  { name: 'paid', values: series.paid, tone: 'e' },
])}
${linePlot('Requests in flight, highest in each second', [
  { name: 'in flight', values: series.in_flight, tone: 'b' },
])}

<h2>How long it took</h2>
${histogramPlot('Admitted submits', run.histograms.admitted, 'b')}
${histogramPlot('Refusals', run.histograms.refused, 'd')}

<h2>Answers</h2>
<table class="answers"><tr><th>request<th>answer<th>count
${Object.entries(run.answers)
  .map(([key, count]) => {
    const [kind = '', ...answer] = key.split(' ');
    return `<tr><td>${escapeText(kind)}<td>${escapeText(answer.join(' '))}<td>${format(count)}`;
  })
  .join('\n')}</table>
</main>
</html>
`;
}

/** Everybody as one bar, in proportion. */
function outcomeBar({ outcomes, people }: RushReport): string {
  const parts = outcomeNames
    .filter((name) => outcomes[name] > 0)
    .map(
      (name) =>
        `<i class="o-${name}" style="flex-grow:${outcomes[name] / people}" title="${name} ${outcomes[name]}">${outcomes[name] / people > 0.08 ? name.replace('_', ' ') : ''}</i>`,
    );
  return `<div class="bar">${parts.join('')}</div>`;
}

function percent(share: number): string {
  return `${Math.round(share * 1000) / 10}%`;
}

const style = `
:root{color-scheme:light dark;--ink:#1c2430;--faint:#667080;--paper:#fff;--line:#d9dee6;--good:#1a7f4b;--bad:#c2293a}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--faint:#9aa4b2;--paper:#14181f;--line:#2c3440;--good:#4cc38a;--bad:#ff6b7a}}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:60rem;margin:auto;padding:1.5rem}
h1 b{font-size:.6em;padding:.2em .6em;border-radius:1em;color:#fff;background:var(--bad);vertical-align:middle}
h1 b.holds{background:var(--good)}
h2{margin-top:2.2rem;border-bottom:1px solid var(--line)}
table{border-collapse:collapse;display:block;overflow-x:auto}
th,td{padding:.25rem .7rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top}
th{color:var(--faint);font-weight:500}
td:last-child{font-variant-numeric:tabular-nums}
td.holds{color:var(--good)}td.broken{color:var(--bad);font-weight:700}td.unseen{color:var(--faint)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1rem}dt{color:var(--faint)}dd{margin:0}
@media(max-width:40rem){dl{grid-template-columns:1fr}dd{margin-bottom:.5rem}}
figure{margin:1rem 0}figcaption{font-weight:600}small{font-weight:400;margin-left:1rem;color:var(--faint)}
svg{width:100%;height:auto}svg text{fill:var(--faint);font-size:11px}
.grid{stroke:var(--line)}polyline{fill:none;stroke-width:2}
polyline.a{stroke:#3b82f6}polyline.b{stroke:#14a38b}polyline.c{stroke:#a855f7}polyline.d{stroke:#e08a00}polyline.e{stroke:#e0455a}
rect.b{fill:#14a38b}rect.d{fill:#e08a00}
.key{display:inline-block;width:.8em;height:.8em;border-radius:.2em;margin:0 .3em 0 .8em}
.key.a{background:#3b82f6}.key.b{background:#14a38b}.key.c{background:#a855f7}.key.d{background:#e08a00}.key.e{background:#e0455a}
.bar{display:flex;height:2.2rem;border-radius:.4rem;overflow:hidden;margin:1rem 0}
.bar i{min-width:2px;color:#fff;font-style:normal;font-size:.8rem;line-height:2.2rem;text-align:center;overflow:hidden;white-space:nowrap}
.o-paid{background:#176b42}.o-ordered{background:#0f766e}.o-expired{background:#92560a}.o-cancelled{background:#8a4b08}.o-sold_out{background:#475569}.o-rejected{background:#9f2436}.o-not_admitted{background:#57534e}.o-gave_up{background:#6b4f8a}.o-unknown{background:#000}
`;
