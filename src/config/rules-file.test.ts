import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { algorithmNames } from '../core/limit/algorithm.ts';
import { routeNames } from '../core/rules/model.ts';
import { ruleKeys } from '../core/rules/read.ts';
import { renderProblems } from './problems.ts';
import { checkRules } from './rules-file.ts';

const good = `
version: 3
groups:
  reads: [facts, status]
rules:
  - id: submit-per-user
    match: { route: submit, activity: "*" }
    key: [user]
    limit: { algorithm: token_bucket, rate: 0.5/s, burst: 3 }
`;

test('a rules file is read whole; so are a bare list and the rules of a configuration', () => {
  const checked = checkRules(good, 'rules.yaml');
  expect(checked).toMatchObject({ ok: true, set: { version: 3 }, notes: [] });
  const list = good.slice(good.indexOf('  - id'));
  expect(checkRules(list, 'x')).toMatchObject({ ok: true });
  const config = `server: { port: 8080 }\nrules:\n${list}`;
  expect(checkRules(config, 'sluice.yaml')).toMatchObject({
    ok: true,
    set: { rules: [{ id: 'submit-per-user' }] },
  });
  expect(checkRules('', 'empty.yaml')).toMatchObject({ ok: true, set: { rules: [] } });
});

test('every problem stands with its line and its path', () => {
  const bad = good
    .replace('0.5/s', '0.5 a second')
    .replace('key: [user]', 'kei: [user]')
    .replace('route: submit', 'route: sumbit');
  const checked = checkRules(bad, 'rules.yaml', { routes: ['submit', 'facts', 'status'] });
  if (checked.ok) throw new Error('it must not pass');
  const text = renderProblems(checked.problems);
  expect(text).toContain('rules.yaml:8:5  rules[0].kei');
  expect(text).toContain('key? Known here: ');
  expect(text).toContain('rules.yaml:9:45  rules[0].limit.rate\n    found    "0.5 a second"');
  expect(checked.problems).toHaveLength(2);
  const typo = checkRules(good.replace('route: submit', 'route: sumbit'), 'r', {
    routes: ['submit'],
  });
  expect(typo).toMatchObject({ ok: false, problems: [{ path: 'rules[0].match.route', line: 7 }] });
});

test('what is no YAML is said so, once', () => {
  expect(checkRules('rules: [', 'r.yaml')).toMatchObject({ ok: false, problems: [{ line: 1 }] });
});

test('a rule that can never refuse is a note, and passes', () => {
  const twice = `${good}  - { id: looser, match: { route: submit }, key: [user], limit: { rate: 9/s, burst: 9 } }\n  - { id: tighter, key: [user], limit: { rate: 1/s, burst: 1 } }\n`;
  const checked = checkRules(twice, 'r.yaml');
  expect(checked.ok).toBe(true);
  expect(checked.notes.map(({ path }) => path)).toContain('rules[1].limit');
});

test('the rules of the guide are good, judged against the routes there are', () => {
  const guide = readFileSync('docs/guide/rules.md', 'utf8');
  const text = /```yaml\n([^]*?)```/.exec(guide)?.[1] ?? '';
  const checked = checkRules(text, 'guide', { routes: routeNames, maxInstances: 8 });
  if (!checked.ok) throw new Error(renderProblems(checked.problems));
  expect(checked.set.rules).toHaveLength(4);
  expect(checked.notes).toEqual([]);
});

test('the guide names every key of a rule, and every algorithm', () => {
  const guide = readFileSync('docs/guide/rules.md', 'utf8');
  for (const word of [...ruleKeys, ...algorithmNames]) expect(guide).toContain(`\`${word}\``);
});
