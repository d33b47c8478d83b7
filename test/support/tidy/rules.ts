import { posix } from 'node:path';
import { astOf, mentionsOf, isCode, lineOf, nameOf, nodesOf } from './source.ts';
import type { AstNode, SourceFile } from './source.ts';

/**
 * The rules of docs/STYLE.md that no linter knows, as functions from files to complaints. Each is
 * fed the tree by test/tidy.test.ts, and a bad sample to show that it can complain.
 */
export type Rule = (files: readonly SourceFile[]) => readonly string[];

const isTest = (path: string): boolean => path.endsWith('.test.ts');
const product = (files: readonly SourceFile[]): readonly SourceFile[] =>
  files.filter((file) => isCode(file) && /^(?:src|web)\//.test(file.path) && !isTest(file.path));

/** What each folder of src/ may import, besides itself. Lower floors never see higher ones. */
const floors: Readonly<Record<string, readonly string[]>> = {
  wire: ['core'],
  core: ['wire'],
  ports: ['core', 'wire'],
  config: ['core', 'wire'],
  telemetry: ['core', 'wire', 'ports'],
  pipeline: ['core', 'wire', 'ports'],
  outbound: ['core', 'wire', 'ports'],
  stores: ['core', 'wire', 'ports'],
  queues: ['core', 'wire', 'ports', 'stores'],
  workers: ['core', 'wire', 'ports', 'pipeline'],
  gateway: ['core', 'wire', 'ports', 'pipeline'],
  control: ['core', 'wire', 'ports', 'pipeline'],
  middleware: ['core', 'wire', 'ports', 'pipeline', 'outbound'],
  sdk: ['wire'],
  lab: ['core', 'wire', 'ports', 'config'],
  simulator: [
    'core',
    'wire',
    'ports',
    'pipeline',
    'stores',
    'queues',
    'workers',
    'gateway',
    'control',
    'app',
  ],
  app: [
    'core',
    'wire',
    'ports',
    'pipeline',
    'outbound',
    'stores',
    'queues',
    'workers',
    'gateway',
    'control',
    'telemetry',
    'config',
  ],
  cli: ['core', 'wire', 'ports', 'config', 'pipeline', 'stores', 'app', 'lab', 'simulator'],
  'main.ts': ['app', 'cli'],
};

/** Packages that pure code may use: they compute, and touch nothing outside. */
const purePackages = new Set(['ipaddr.js', 'typebox']);

/** Imports point one way. */
export const importDirections: Rule = (files) =>
  product(files).flatMap((file) => {
    const from = floorOf(file.path);
    const allowed = floors[from];
    if (!file.path.startsWith('src/')) return [];
    if (allowed === undefined) return [`${file.path}: folder "${from}" has no place in the plan`];
    return mentionsOf(file).flatMap(({ to, line, kind }) => {
      if (kind === 'text') return [];
      const at = `${file.path}:${line}`;
      if (!to.startsWith('.')) {
        const pure = ['core', 'wire', 'ports', 'sdk'].includes(from);
        const packageName = to.split('/')[0] ?? to;
        return pure && !purePackages.has(packageName)
          ? [`${at}: ${from} imports "${to}", which is not pure`]
          : [];
      }
      const target = posix.join(posix.dirname(file.path), to);
      if (!target.startsWith('src/')) return [`${at}: product code imports "${target}"`];
      const floor = floorOf(target);
      return floor === from || allowed.includes(floor)
        ? []
        : [`${at}: ${from} imports ${floor}; allowed: ${allowed.join(', ')}`];
    });
  });

function floorOf(path: string): string {
  return path.split('/')[1] ?? '';
}

/** Files that touch the world's own time, chance or network, and why they may. */
export const worldTouchers: Readonly<Record<string, string>> = {
  'src/app/system.ts': 'the real adapters',
  'src/middleware/system.ts': 'the library in the process of an application',
  'src/sdk/system.ts': 'the client where it runs: browser or Node',
  'src/cli/admin-client.ts': 'a command that asks a running server once and ends',
};

const bannedCalls = new Set([
  'Date.now',
  'performance.now',
  'process.hrtime',
  'process.hrtime.bigint',
  'setTimeout',
  'setInterval',
  'setImmediate',
  'Math.random',
  'randomUUID',
  'crypto.randomUUID',
  'crypto.getRandomValues',
  'fetch',
  'window.setTimeout',
  'window.setInterval',
  'window.fetch',
]);

/** Time, chance and network come in through ports; pages run in the browser, on its own. */
export const bannedCallsRule: Rule = (files) =>
  product(files)
    .filter((file) => file.path.startsWith('src/'))
    .filter((file) => !Object.hasOwn(worldTouchers, file.path))
    .flatMap((file) =>
      [...nodesOf(astOf(file))].flatMap((node) => {
        const name = nameOf(node['callee']);
        const call = node.type === 'CallExpression' && bannedCalls.has(name);
        const bareDate =
          node.type === 'NewExpression' &&
          name === 'Date' &&
          (node['arguments'] as readonly unknown[]).length === 0;
        return call || bareDate
          ? [`${file.path}:${lineOf(file, node)}: calls ${name}; take it through a port`]
          : [];
      }),
    );

/** One place reads the environment. */
export const environmentReader: Rule = (files) =>
  product(files)
    .filter((file) => file.path !== 'src/main.ts')
    .flatMap((file) =>
      [...nodesOf(astOf(file))]
        .filter((node) => nameOf(node) === 'process.env')
        .map((node) => `${file.path}:${lineOf(file, node)}: reads process.env; main hands it in`),
    );

const linesMax = 500;

/** No file past 500 lines without a reason. */
export const longFiles =
  (reasons: Readonly<Record<string, string>>): Rule =>
  (files) => {
    const long = files
      .filter(({ path }) => /\.(?:ts|mjs|css|sql|lua|sh)$/.test(path))
      .map(({ path, text }) => ({ path, lines: text.split('\n').length - 1 }))
      .filter(({ lines }) => lines > linesMax);
    const stale = Object.keys(reasons).filter((path) => !long.some((file) => file.path === path));
    return [
      ...long
        .filter(({ path }) => !Object.hasOwn(reasons, path))
        .map(({ path, lines }) => `${path}: ${lines} lines; allowed: ${linesMax}, or a reason`),
      ...stale.map((path) => `${path}: has a reason to be long, and is not`),
    ];
  };

const frozen = new Set(['skip', 'only', 'todo', 'skipIf', 'runIf']);
const runners = new Set(['test', 'it', 'describe', 'suite', 'bench']);

/** Every test runs, always. */
export const skippedTests: Rule = (files) =>
  files.filter(isCode).flatMap((file) =>
    [...nodesOf(astOf(file))].flatMap((node) => {
      const parts = nameOf(node).split('.');
      const hit = runners.has(parts[0] ?? '') && parts.slice(1).some((part) => frozen.has(part));
      return node.type === 'MemberExpression' && hit
        ? [`${file.path}:${lineOf(file, node)}: ${parts.join('.')}`]
        : [];
    }),
  );

/** Properties come through one door, which says what they draw: see test/support/property.ts. */
export const propertiesDoor: Rule = (files) =>
  files
    .filter((file) => isCode(file) && file.path !== 'test/support/property.ts')
    .flatMap((file) =>
      mentionsOf(file)
        .filter(({ to, kind }) => kind === 'import' && to === 'fast-check')
        .map(({ line }) => `${file.path}:${line}: imports fast-check itself`),
    );

/** No default exports, but where a tool asks for one. */
export const defaultExports: Rule = (files) =>
  files
    .filter((file) => isCode(file) && !file.path.endsWith('.config.ts'))
    .flatMap((file) =>
      [...nodesOf(astOf(file))]
        .filter((node) => node.type === 'ExportDefaultDeclaration')
        .map((node) => `${file.path}:${lineOf(file, node)}: default export`),
    );

/**
 * Product code that only tests use is not product code, and a helper that nothing uses is nothing.
 * `waiting` names parts (files, or folders by a slash at the end) that no entry point composes yet,
 * with the reason; one that is composed by now is a complaint too.
 */
export const orphans =
  (roots: Readonly<Record<string, string>>, waiting: Readonly<Record<string, string>> = {}): Rule =>
  (files) => {
    const code = files.filter(isCode);
    const byPath = new Map(code.map((file) => [file.path, file]));
    const reached = (start: readonly string[]): ReadonlySet<string> => {
      const seen = new Set<string>();
      const waiting = [...start];
      for (let path = waiting.pop(); path !== undefined; path = waiting.pop()) {
        const file = byPath.get(path);
        if (file === undefined || seen.has(path)) continue;
        seen.add(path);
        for (const { to, kind } of mentionsOf(file)) {
          const target = posix.join(posix.dirname(path), to);
          // A string may mean a place beside its file or one below the root.
          if (kind === 'text') waiting.push(to, target, target.replace(/\.js$/, '.ts'));
          else if (to.startsWith('.')) waiting.push(target);
        }
      }
      return seen;
    };
    const tests = code.filter(
      ({ path }) =>
        isTest(path) || /^(?:bench\/.*\.bench\.ts|scripts\/.*\.mjs|vitest\.config\.ts)$/.test(path),
    );
    const fromProduct = reached(Object.keys(roots));
    const fromAll = reached([...Object.keys(roots), ...tests.map(({ path }) => path)]);
    const stale = Object.keys(roots).filter((path) => !byPath.has(path));
    const unreached = code
      .map(({ path }) => path)
      .filter((path) => /^(?:src|web)\//.test(path) && !isTest(path) && !fromProduct.has(path));
    const isOf = (path: string, part: string): boolean =>
      part.endsWith('/') ? path.startsWith(part) : path === part;
    const parts = Object.keys(waiting);
    return [
      ...unreached
        .filter((path) => !parts.some((part) => isOf(path, part)))
        .map((path) => `${path}: no entry point reaches it`),
      ...parts
        .filter((part) => !unreached.some((path) => isOf(path, part)))
        .map((part) => `${part}: is listed as waiting, and waits no more`),
      ...code
        .filter(({ path }) => /^(?:test|bench|scripts)\//.test(path) && !fromAll.has(path))
        .map(({ path }) => `${path}: nothing imports it`),
      ...stale.map((path) => `${path}: is listed as an entry point, and is not there`),
    ];
  };

/** Stages are numbered in the order in which pipeline.ts runs them, without a gap. */
export const stageNumbers: Rule = (files) => {
  const pipeline = files.find(({ path }) => path === 'src/pipeline/pipeline.ts');
  if (pipeline === undefined) return ['src/pipeline/pipeline.ts: not there'];
  const fileOf = new Map<string, string>();
  for (const node of nodesOf(astOf(pipeline))) {
    if (node.type !== 'ImportDeclaration') continue;
    const from = String((node['source'] as AstNode)['value']);
    for (const specifier of node['specifiers'] as readonly AstNode[])
      fileOf.set(nameOf(specifier['local']), posix.join('src/pipeline', from));
  }
  const stagesOf = [...nodesOf(astOf(pipeline))].find(
    (node) => node.type === 'FunctionDeclaration' && nameOf(node['id']) === 'stagesOf',
  );
  const list = [...nodesOf(stagesOf)].find((node) => node.type === 'ArrayExpression');
  const run = ((list?.['elements'] ?? []) as readonly AstNode[]).map(
    (element) => fileOf.get(nameOf(element['callee'])) ?? '(not an imported stage)',
  );
  const there = files
    .map(({ path }) => path)
    .filter((path) => path.startsWith('src/pipeline/stages/') && !isTest(path))
    .toSorted();
  const complaints = run.flatMap((path, at) => {
    const number = String(at + 1).padStart(2, '0');
    return path.startsWith(`src/pipeline/stages/${number}-`)
      ? []
      : [`pipeline.ts runs ${path} as number ${number}`];
  });
  const unlisted = there.filter((path) => !run.includes(path));
  return [...complaints, ...unlisted.map((path) => `${path}: not in pipeline.ts`)];
};

/** What only this or that machine knows has no place in the tree. */
export const machineWords: Rule = (files) =>
  files
    .filter(({ path }) => path !== 'package-lock.json')
    .flatMap((file) =>
      file.text.split('\n').flatMap((line, at) => {
        const hit = machinePatterns.find((pattern) => pattern.test(line));
        return hit === undefined ? [] : [`${file.path}:${at + 1}: ${line.trim().slice(0, 120)}`];
      }),
    );

/** Assembled, so that this file does not complain about itself. */
const machinePatterns: readonly RegExp[] = [
  new RegExp(`/(?:${['work', 'root', 'home'].join('|')})/[a-z]`),
  new RegExp(['/tmp', 'brief'].join('/')),
  new RegExp(['spec', 'part'].join(' '), 'i'),
  new RegExp(`\\b(?:${['issue', 'task', 'ticket'].join('|')}) #?\\d+\\b`, 'i'),
];

/** Packages come from the public registry, or from whatever the reader's own setting says. */
export const registryHosts: Rule = (files) =>
  files
    .filter(({ path }) => path === 'package-lock.json' || path === '.npmrc')
    .flatMap((file) =>
      [...file.text.matchAll(/"resolved": "(https?:\/\/[^/"]+)/g)]
        .map((match) => match[1] ?? '')
        .filter((host) => host !== 'https://registry.npmjs.org')
        .map((host) => `${file.path}: packages from ${host}`),
    );

/** Settings of the configuration that no other part of the product ever names: options that do nothing. */
export const idleOptions: Rule = (files) => {
  const config = files.find(({ path }) => path === 'src/config/config.ts');
  if (config === undefined) return ['src/config/config.ts: not there'];
  const used = new Set<string>();
  for (const file of product(files)) {
    // The file's reader and the command line only pass settings on; config.ts itself uses instants.
    if (/^src\/(?:config|cli)\//.test(file.path) && file !== config) continue;
    for (const node of nodesOf(astOf(file))) {
      if (node.type === 'MemberExpression') used.add(nameOf(node['property']));
      if (node.type === 'Property') used.add(nameOf(node['key']));
    }
  }
  return [...nodesOf(astOf(config))]
    .filter((node) => node.type === 'TSPropertySignature')
    .map((node) => nameOf(node['key']))
    .filter((name) => !used.has(name))
    .map((name) => `src/config/config.ts: nothing reads "${name}"`);
};
