import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { metricsTable } from './catalogue.ts';

/** Alerts, dashboard and runbook against the catalogue of metrics and each other, both ways. */
const root = join(import.meta.dirname, '../..');
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

interface Metric {
  readonly labels: ReadonlySet<string>;
  readonly kind: string;
}

const catalogue = new Map<string, Metric>(
  metricsTable()
    .split('\n')
    .slice(2)
    .map((line) => {
      const [, name = '', kind = '', labels = ''] = line.split('|').map((cell) => cell.trim());
      const named = [...labels.matchAll(/`([a-z_]+)`/g)].map(([, label = '']) => label);
      return [name.replaceAll('`', ''), { kind, labels: new Set(named) }];
    }),
);

/** What in an expression is not of the catalogue: a metric, a label of it, a counter without rate. */
function strangersOf(expr: string): readonly string[] {
  return [...expr.matchAll(/(sluice_[a-z0-9_]+)(?:\{([^}]*)\})?(\[)?/g)].flatMap(
    ([, written = '', selector = '', range]) => {
      const name = catalogue.has(written) ? written : written.replace(/_(bucket|sum|count)$/, '');
      const metric = catalogue.get(name);
      if (metric === undefined) return [`${written}: no such metric`];
      if (name !== written && metric.kind !== 'histogram') return [`${written}: no histogram`];
      const labels = [...selector.matchAll(/([a-z_]+)\s*(?:=~|!~|!=|=)/g)].map(([, l = '']) => l);
      const odd = labels.filter((label) => !metric.labels.has(label));
      const bare = metric.kind !== 'gauge' && range === undefined;
      return [
        ...odd.map((label) => `${written}: no label ${label}`),
        ...(bare ? [`${written}: a ${metric.kind} is looked at over a range`] : []),
      ];
    },
  );
}

interface Rule {
  readonly alert: string;
  readonly expr: string;
  readonly for: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook: string };
}

const rules = (
  parse(read('deploy/prometheus-alerts.yaml')) as { groups: { rules: Rule[] }[] }
).groups.flatMap((group) => group.rules);

describe('alerts', () => {
  test('look at metrics and labels that there are', () => {
    expect(rules.flatMap(({ expr }) => strangersOf(expr))).toEqual([]);
    expect(
      strangersOf('sum(sluice_gone) + sluice_mode{who="x"} + sluice_soldout_hits_total'),
    ).toEqual([
      'sluice_gone: no such metric',
      'sluice_mode: no label who',
      'sluice_soldout_hits_total: a counter is looked at over a range',
    ]);
  });

  test('each says how bad it is, when, and where to read on', () => {
    for (const rule of rules) {
      expect(rule.labels.severity).toMatch(/^(critical|warning)$/);
      expect(rule.for).toMatch(/^\d+[sm]$/);
      expect(rule.annotations.summary).toMatch(/\.$/);
      expect(rule.annotations.runbook).toBe(`docs/guide/runbook.md#${rule.alert.toLowerCase()}`);
      // Brackets that do not close are what a hand gets wrong.
      expect(rule.expr.split('(').length).toBe(rule.expr.split(')').length);
    }
    expect(new Set(rules.map(({ alert }) => alert)).size).toBe(rules.length);
  });

  test.each([
    ['check', 'rules', 'prometheus-alerts.yaml'],
    // What they say of made-up histories, and what they must not say.
    ['test', 'rules', 'prometheus-alerts.test.yaml'],
  ])('promtool %s %s %s, where it is, has nothing to say', (...words) => {
    const run = spawnSync('promtool', words, { encoding: 'utf8', cwd: join(root, 'deploy') });
    // Where it is not, the system says so, and nothing else is wrong.
    if (run.error !== undefined) expect(run.error).toMatchObject({ code: 'ENOENT' });
    else expect([run.status, run.stderr]).toEqual([0, '']);
  });
});

test('the runbook has a section for each alert, with three things to do, and no other', () => {
  const sections = read('docs/guide/runbook.md').split('\n## ').slice(1);
  expect(sections.map((text) => text.split('\n')[0])).toEqual(rules.map(({ alert }) => alert));
  for (const text of sections) {
    expect(text.match(/^\d\. .{20,}$/gm)).toHaveLength(3);
    const named = [...text.matchAll(/`(sluice_[a-z_]+)/g)].map(([, name = '']) => name);
    expect(named.filter((name) => !catalogue.has(name))).toEqual([]);
  }
});

test('the dashboard has a panel for each metric, and asks for no other', () => {
  const dashboard = JSON.parse(read('deploy/grafana-dashboard.json')) as {
    panels: { type: string; title: string; targets?: { expr: string }[] }[];
  };
  const panels = dashboard.panels.filter(({ type }) => type !== 'row');
  expect(panels.map(({ title }) => title).toSorted()).toEqual([...catalogue.keys()].toSorted());
  const asked = panels.flatMap(({ targets }) => targets ?? []).map(({ expr }) => expr);
  expect(asked.flatMap(strangersOf)).toEqual([]);
});
