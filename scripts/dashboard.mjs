// Writes deploy/grafana-dashboard.json from the catalogue of metrics: one panel for each, in its order.
// A test compares both, both ways. Run after a build: node scripts/dashboard.mjs
import { writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const { metricsTable } = await import('../dist/telemetry/catalogue.js');

const rows = [
  ['The path of requests', /ingress|admitted|rejected|load_shed|soldout|pass_verify|replay_claim/],
  [
    'Overload',
    /mode|admission_rate_limit|inflight|limiter_(reject|entries|overflow)|reserve_seconds/,
  ],
  [
    'Dependencies',
    /breaker|outbound|amplification|trace_spans|budget_|limiter_unknown|lease_|clock_skew/,
  ],
  ['Rules', /rule_|rules_|shadow|fail_policy/],
  ['The sale', /stock|orders|queue|outbox|reconcile|payments/],
  ['The room', /./],
];

const metrics = metricsTable()
  .split('\n')
  .slice(2)
  .map((line) => {
    const [, name, kind, labels, help] = line.split('|').map((cell) => cell.trim());
    return {
      name: name.replaceAll('`', ''),
      kind,
      labels: labels
        .split(' ')
        .filter(Boolean)
        .map((label) => label.replaceAll('`', '')),
      help,
    };
  });

function targetsOf({ name, kind, labels }) {
  const by = labels.length > 0 ? ` by (${labels.join(', ')})` : '';
  const legendFormat = labels.map((label) => `{{${label}}}`).join(' ');
  if (kind === 'histogram') {
    return [0.5, 0.99].map((q) => ({
      expr: `histogram_quantile(${q}, sum by (le) (rate(${name}_bucket[1m])))`,
      legendFormat: `p${q * 100}`,
    }));
  }
  if (kind === 'counter') return [{ expr: `sum${by} (rate(${name}[1m]))`, legendFormat }];
  return [{ expr: `max${by} (${name})`, legendFormat }];
}

let id = 0;
let y = 0;
const left = [...metrics];
const panels = rows.flatMap(([title, pattern]) => {
  const own = left.filter(({ name }) => pattern.test(name));
  for (const one of own) left.splice(left.indexOf(one), 1);
  const row = { id: (id += 1), type: 'row', title, gridPos: { h: 1, w: 24, x: 0, y } };
  y += 1;
  const made = own.map((metric, at) => ({
    id: (id += 1),
    type: 'timeseries',
    title: metric.name,
    description: metric.help,
    datasource: { type: 'prometheus', uid: '${datasource}' },
    gridPos: { h: 7, w: 8, x: (at % 3) * 8, y: y + Math.floor(at / 3) * 7 },
    fieldConfig: {
      defaults: {
        unit: metric.name.includes('_seconds')
          ? 's'
          : metric.kind === 'counter'
            ? 'reqps'
            : 'short',
      },
      overrides: [],
    },
    targets: targetsOf(metric).map((target, n) => ({ refId: 'ABCD'[n], ...target })),
  }));
  y += Math.ceil(own.length / 3) * 7;
  return [row, ...made];
});

const dashboard = {
  uid: 'sluice',
  title: 'Sluice',
  tags: ['sluice'],
  timezone: 'browser',
  refresh: '5s',
  time: { from: 'now-30m', to: 'now' },
  schemaVersion: 39,
  templating: {
    list: [{ name: 'datasource', type: 'datasource', query: 'prometheus', label: 'Prometheus' }],
  },
  panels,
};
writeFileSync(
  join(root, 'deploy/grafana-dashboard.json'),
  `${JSON.stringify(dashboard, undefined, 2)}\n`,
);
console.log(`dashboard: ${metrics.length} metrics`);
