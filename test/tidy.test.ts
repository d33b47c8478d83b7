import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { commandTree } from '../src/cli/program.ts';
import { scripts } from '../src/stores/redis/scripts.ts';
import { docCommands, docLinks } from './support/tidy/documents.ts';
import type { Known } from './support/tidy/documents.ts';
import { luaHeaders } from './support/tidy/lua.ts';
import {
  bannedCallsRule,
  defaultExports,
  environmentReader,
  idleOptions,
  importDirections,
  propertiesDoor,
  longFiles,
  machineWords,
  orphans,
  registryHosts,
  skippedTests,
  stageNumbers,
  worldTouchers,
} from './support/tidy/rules.ts';
import type { Rule } from './support/tidy/rules.ts';
import { filesBelow } from './support/tidy/source.ts';
import type { SourceFile } from './support/tidy/source.ts';

/**
 * The rules of docs/STYLE.md, held by a test. Each is shown to complain about a bad sample first: a
 * rule that never complains guards nothing.
 */
const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const tree = filesBelow(root);

/** Files past 500 lines, and why. */
const longReasons: Readonly<Record<string, string>> = {
  'src/stores/journal/journal.ts': 'one argument about crashes, from the first byte to compaction',
  'test/contract/inventory-store.ts': 'a list of promises, read as one',
  'test/contract/limits.ts': 'a list of promises, read as one',
  'test/contract/order-store.ts': 'a list of promises, read as one',
  'src/control/admin/admin.test.ts': 'the operator’s API, case by case',
  'src/core/rules/engine.test.ts': 'a list of promises, read as one',
  'src/pipeline/room-door.test.ts': 'a list of promises, read as one',
  'test/e2e/http-routes.test.ts': 'every route, case by case',
  'test/e2e/http-submit.test.ts': 'the contract of one route, case by case',
  'src/stores/memory/order-store.ts': 'the reference model of orders, read against its port',
  'test/support/stand-in/stand-in.ts': 'a whole shop that shares nothing with ours',
  'web/console/style.css': 'one look, sent as one file',
  'web/storefront/style.css': 'one look, sent as one file',
};

const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
  readonly scripts: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, unknown>>;
};

/** Where running begins; everything in src/ and web/ must be reached from here. */
const entryPoints: Readonly<Record<string, string>> = {
  'src/main.ts': 'the command',
  'web/console/main.ts': 'the script of the operator page',
  'web/storefront/main.ts': 'the script of the pages',
  ...Object.fromEntries(
    [...JSON.stringify(manifest.exports).matchAll(/"\.\/dist\/([^"]+)\.js"/g)].map(([, name]) => [
      `src/${name}.ts`,
      'what the package exports',
    ]),
  ),
};

/** Parts that are built and proven by their suites, and composed by no entry point yet. */
const waiting: Readonly<Record<string, string>> = {
  'src/core/pass/decision-token.ts': 'the gate in front of a shop',
  'src/core/pass/index.ts': 'the pass as a library',
};

const file = (path: string, text: string): SourceFile => ({ path, text });

const badSamples: readonly {
  readonly name: string;
  readonly rule: Rule;
  readonly bad: readonly SourceFile[];
  readonly complaints: readonly RegExp[];
}[] = [
  {
    name: 'imports point one way',
    rule: importDirections,
    bad: [
      file('src/core/x.ts', "import { a } from '../gateway/a.ts';\nimport fs from 'node:fs';"),
      file('src/gateway/x.ts', "export { a } from '../stores/a.ts';"),
      file('src/pipeline/x.ts', "const a = await import('../../test/a.ts');"),
      file('src/helpers/x.ts', ''),
      file('src/main.ts', "import type { A } from './core/a.ts';"),
    ],
    complaints: [
      /core imports gateway/,
      /"node:fs", which is not pure/,
      /gateway imports stores/,
      /product code imports "test\/a.ts"/,
      /"helpers" has no place/,
      /main.ts imports core/,
    ],
  },
  {
    name: 'time, chance and network come through ports',
    rule: bannedCallsRule,
    bad: [
      file(
        'src/core/x.ts',
        'const a = Date.now() + Math.random();\nsetTimeout(f, 1); globalThis.fetch(u);\nnew Date();\n// Date.now() in a comment is fine\nconst s = "Date.now()"; port.fetch(u); new Date(5);',
      ),
    ],
    complaints: [/Date\.now/, /Math\.random/, /setTimeout/, /fetch/, /calls Date;/],
  },
  {
    name: 'main reads the environment',
    rule: environmentReader,
    bad: [file('src/app/x.ts', 'const a = process.env.HOME;'), file('src/main.ts', 'process.env')],
    complaints: [/src\/app\/x\.ts:1/],
  },
  {
    name: 'no file past 500 lines without a reason',
    rule: longFiles({ 'src/short.ts': 'was long once' }),
    bad: [file('src/long.ts', 'a;\n'.repeat(501)), file('src/short.ts', 'a;\n'.repeat(500))],
    complaints: [/src\/long\.ts: 501 lines/, /src\/short\.ts: has a reason/],
  },
  {
    name: 'every test runs',
    rule: skippedTests,
    bad: [
      file('src/x.test.ts', 'test.skip("a"); describe.only("b"); it.concurrent.skipIf(c)("d");'),
      file('src/y.test.ts', 'test.each([1])("fine"); list.skip(1); "test.skip";'),
    ],
    complaints: [/test\.skip/, /describe\.only/, /it\.concurrent\.skipIf/],
  },
  {
    name: 'properties come through one door',
    rule: propertiesDoor,
    bad: [
      file('src/x.test.ts', "import fc from 'fast-check';"),
      file('test/support/property.ts', "import fc from 'fast-check';"),
    ],
    complaints: [/src\/x\.test\.ts:1: imports fast-check itself/],
  },
  {
    name: 'no default exports',
    rule: defaultExports,
    bad: [file('src/x.ts', 'export default 1;'), file('vitest.config.ts', 'export default 1;')],
    complaints: [/src\/x\.ts:1: default export/],
  },
  {
    name: 'no file that nothing imports',
    rule: orphans(
      { 'src/main.ts': 'the command', 'src/gone.ts': 'left long ago' },
      { 'src/later/': 'soon', 'src/used.ts': 'was to come' },
    ),
    bad: [
      file('src/main.ts', "await import('./used.ts');"),
      file('src/used.ts', "new Worker(new URL('./thread.js', import.meta.url));"),
      file('vitest.config.ts', "const c = { globalSetup: ['test/support/once.ts'] };"),
      file('test/support/once.ts', ''),
      file('src/thread.ts', ''),
      file('src/only-tested.ts', ''),
      file('src/later/part.ts', ''),
      file('src/x.test.ts', "import './only-tested.ts';"),
      file('test/support/forgotten.ts', ''),
    ],
    complaints: [
      /src\/only-tested\.ts: no entry point/,
      /test\/support\/forgotten\.ts: nothing imports/,
      /src\/gone\.ts: is listed/,
      /src\/used\.ts: is listed as waiting/,
    ],
  },
  {
    name: 'stages are numbered as pipeline.ts runs them',
    rule: stageNumbers,
    bad: [
      file(
        'src/pipeline/pipeline.ts',
        "import { a } from './stages/01-a.ts';\nimport { c } from './stages/03-c.ts';\nexport function stagesOf() { return [a(), c()]; }",
      ),
      file('src/pipeline/stages/01-a.ts', ''),
      file('src/pipeline/stages/02-b.ts', ''),
      file('src/pipeline/stages/03-c.ts', ''),
    ],
    complaints: [/03-c\.ts as number 02/, /02-b\.ts: not in pipeline/],
  },
  {
    name: 'nothing of one machine or workplace',
    rule: machineWords,
    bad: [
      file('docs/x.md', ['see /', 'work/main and spec ', 'part 3'].join('')),
      file('docs/y.md', ['/', 'root/x'].join('')),
      file('src/z.ts', ['// as iss', 'ue #4 says'].join('')),
    ],
    complaints: [/docs\/x/, /docs\/y/, /src\/z/],
  },
  {
    name: 'packages come from the public registry',
    rule: registryHosts,
    bad: [file('package-lock.json', '"resolved": "https://mirror.example/x.tgz"')],
    complaints: [/mirror\.example/],
  },
  {
    name: 'no option that does nothing',
    rule: idleOptions,
    bad: [
      file('src/config/config.ts', 'export interface Config { readonly a: 1; b: { c: 2 }; d: 3 }'),
      file('src/app/x.ts', 'f(config.a); const { b } = config; g({ c: 1 });'),
      file('src/cli/x.ts', 'f(config.d);'),
    ],
    complaints: [/nothing reads "d"/],
  },
];

describe('each rule complains about a bad sample', () => {
  test.each(badSamples)('$name', ({ rule, bad, complaints }) => {
    const said = rule(bad);
    for (const complaint of complaints) expect(said.join('\n')).toMatch(complaint);
    expect(said).toHaveLength(complaints.length);
  });
});

describe('the tree', () => {
  const rules: Readonly<Record<string, Rule>> = {
    'imports point one way': importDirections,
    'time, chance and network come through ports': bannedCallsRule,
    'main reads the environment': environmentReader,
    'no file past 500 lines without a reason': longFiles(longReasons),
    'every test runs': skippedTests,
    'properties come through one door': propertiesDoor,
    'no default exports': defaultExports,
    'no file that nothing imports': orphans(entryPoints, waiting),
    'stages are numbered as pipeline.ts runs them': stageNumbers,
    'nothing of one machine or workplace': machineWords,
    'packages come from the public registry': registryHosts,
    'no option that does nothing': idleOptions,
  };

  test.each(Object.entries(rules))('%s', (_, rule) => {
    expect(rule(tree)).toEqual([]);
  });

  test('every rule that is held has its bad sample', () => {
    expect(badSamples.map(({ name }) => name)).toEqual(Object.keys(rules));
  });

  test('exceptions are of files that are there', () => {
    const paths = new Set(tree.map(({ path }) => path));
    expect(Object.keys(worldTouchers).filter((path) => !paths.has(path))).toEqual([]);
  });
});

describe('Lua scripts', () => {
  test('a header that is not a contract is found', () => {
    const header = (text: string) =>
      `--[[\n${text}\n\nKEYS\n  1 stock  hash  counters\nARGV\n  1 delta  units\nRETURNS\n  a number\n]]\nreturn 1`;
    const contract = { name: 'a', keys: ['stock'], args: ['delta'] };
    const said = luaHeaders(
      [
        file('lua/a.lua', header('a: adds.')),
        file('lua/b.lua', header('a: adds.')),
        file('lua/c.lua', 'return KEYS[1]'),
        file('lua/d.lua', header('d: adds.').replace('1 delta', '2 delta')),
        file('lua/e.lua', `${header('e: adds.')} + KEYS[2]`),
        file('lua/f.lua', header('g: adds.').replace('  a number\n', '')),
        file('lua/h.lua', header('h: adds.')),
      ],
      [
        contract,
        { ...contract, name: 'b', args: [] },
        { ...contract, name: 'd' },
        { ...contract, name: 'e' },
        { ...contract, name: 'f' },
        { ...contract, name: 'i' },
      ],
    );
    expect(said).toEqual([
      'lua/b.lua: its header calls it "a"',
      'lua/b.lua: ARGV: header has delta; registry has ',
      'lua/c.lua: no header (name: purpose, KEYS, ARGV, RETURNS)',
      'lua/d.lua: ARGV: number 1 is missing',
      'lua/e.lua: uses KEYS[2], its header has 1',
      'lua/f.lua: its header calls it "g"',
      'lua/f.lua: its header says no result',
      'lua/h.lua: not in the registry',
      'i.lua: in the registry, and not there',
    ]);
  });

  test('every header says what the registry says', () => {
    const ours = tree.filter(({ path }) => path.startsWith('src/'));
    expect(luaHeaders(ours, Object.values(scripts))).toEqual([]);
  });
});

describe('documents', () => {
  const surroundings = {
    environment: {},
    out: () => undefined,
    err: () => undefined,
    isTty: false,
    errIsTty: false,
    nowMs: () => 0,
    stopSignal: () => Promise.resolve('SIGTERM'),
  };
  const paths = new Set(tree.map(({ path }) => path));
  for (const folder of ['docs/images'])
    if (existsSync(join(root, folder)))
      for (const name of readdirSync(join(root, folder))) paths.add(`${folder}/${name}`);
  paths.add('LICENSE').add('NOTICE');
  const known: Known = {
    scripts: new Set(['test', 'start', ...Object.keys(manifest.scripts)]),
    benches: new Set(
      readdirSync(join(root, 'bench'))
        .filter((name) => name.endsWith('.bench.ts'))
        .map((name) => name.replace('.bench.ts', '')),
    ),
    sluice: commandTree('0', surroundings, () => undefined),
    paths,
  };

  test('a wrong command and a dead link are found', () => {
    const bad = file(
      'docs/x.md',
      [
        'Run `sluice cofnig check`, `sluice config check --jsno`, `sluice config check a b`,',
        '`npm run nothing`, `npm run bench -- nothing`; fine: `sluice config check x.yaml --json`.',
        '```sh',
        'npm ci && npm run nowhere   # and `this` too',
        '```',
        '```yaml',
        'sluice: not a command',
        '```',
        '[a](missing.md) [b](../README.md#top) [c](https://example.com) <img src="no.png">',
      ].join('\n'),
    );
    expect(docCommands([bad], known)).toHaveLength(6);
    expect(docLinks([bad], new Set(['README.md']))).toEqual([
      'docs/x.md: link to missing.md, which is not there',
      'docs/x.md: link to no.png, which is not there',
    ]);
  });

  test('every command that a document shows exists, with its flags', () => {
    expect(docCommands(tree, known)).toEqual([]);
  });

  test('every relative link leads somewhere', () => {
    expect(docLinks(tree, paths)).toEqual([]);
  });
});
