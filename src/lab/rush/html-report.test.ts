import { expect, test } from 'vitest';
import { htmlReport } from './html-report.ts';
import { escapeText, histogramPlot, linePlot, ticksUpTo } from './plots.ts';
import { outcomeNames } from './population.ts';
import type { Outcome } from './population.ts';
import type { RushReport } from './report.ts';
import { seriesNames } from './series.ts';

const report: RushReport = {
  people: 10,
  arrivals_planned: 10,
  arrivals_started: 10,
  void: false,
  outcomes: {
    ...(Object.fromEntries(outcomeNames.map((name) => [name, 0])) as Record<Outcome, number>),
    paid: 4,
    sold_out: 6,
  },
  stock: { total: 4, sold: 4, held: 0, available: 0 },
  rates: { refused_per_s: 1, reserved_per_s: 2, orders_per_s: 3 },
  latency_ms: { admitted: { p50: 1.5, p99: 9 }, refused: { p50: null, p99: null } },
  ledger: { residual: 0 },
  invariants: [
    { id: '1', held: true, detail: 'a < b & "c"', evidence: 'both' },
    { id: '2', held: false, detail: 'broke', evidence: 'crowd' },
    { id: '7', held: true, detail: 'not observed', evidence: 'none' },
  ],
  verdict: 'broken',
  seed: 5,
  machine: { cpus: 2, model: 'M', memory_mib: 100, platform: 'linux x64', node: 'v20' },
  run: {
    scenario: 'even',
    about: 'about it',
    target: 'http://<evil>',
    activity: 'a',
    started_at: '2027-01-01T00:00:00.000Z',
    duration_ms: 1000,
    over_ms: 1000,
    scale: 0.5,
    shares: { bots: 0.2, duplicates: 0.125, timeouts: 0 },
    arrivals_from: 'constant',
    households: 4,
    worst_lateness_ms: 3,
    answers: { 'submit 200 SECKILL_SOLD_OUT': 1234 },
    attacks: { forged: 1, replayed: 2, conflicting: 3 },
    retries_of_reserved: 0,
    waves: 1,
    generator: { cpu_s: 1, peak_rss_mib: 80, priority: 'usual', worst_stall_ms: 9 },
    poll_ms: { p50: 1, p99: 2 },
    series: Object.fromEntries(
      seriesNames.map((name) => [name, [1, 20, 3]]),
    ) as unknown as RushReport['run']['series'],
    histograms: {
      admitted: [
        [0.5, 10],
        [1, 20],
      ],
      refused: [],
    },
  },
};

test('the page says what the report says, and nothing in it is taken for markup', () => {
  const html = htmlReport(report);
  expect(html).toContain('Rush <b class="broken">broken</b>');
  expect(html).toContain('a &lt; b &amp; &quot;c&quot;');
  expect(html).toContain('http://&lt;evil&gt;');
  expect(html).not.toContain('<evil>');
  expect(html).toContain('scaled by 0.5');
  expect(html).toContain('no breach seen');
  expect(html).toContain('duplicates 12.5%');
  expect(html).toContain('1,234');
  expect(html.match(/<svg/g)).toHaveLength(4);
  expect(html).not.toMatch(/<script|https?:\/\/(?!&lt;)/);
  expect(html).not.toContain('NaN');
});

test('axes are marked at round numbers that reach the maximum', () => {
  expect(ticksUpTo(7)).toEqual([0, 2, 4, 6, 8]);
  expect(ticksUpTo(1)).toEqual([0, 0.5, 1]);
  expect(ticksUpTo(0)).toEqual([0, 1]);
  for (const max of [3, 19, 480, 99_999]) {
    const ticks = ticksUpTo(max);
    expect(ticks.at(-1)).toBeGreaterThanOrEqual(max);
    expect(ticks.length).toBeLessThanOrEqual(6);
  }
});

test('plots of nothing are still plots', () => {
  expect(linePlot('t', [{ name: 'x', values: [], tone: 'a' }])).not.toContain('NaN');
  expect(histogramPlot('t', [], 'b')).toContain('nothing was measured');
  expect(histogramPlot('t', [[3, 1]], 'b')).not.toContain('NaN');
  expect(escapeText('<&">')).toBe('&lt;&amp;&quot;&gt;');
});
