import type { SourceFile } from './source.ts';

/** What the registry says of a script: the names of its keys and arguments, in order. */
export interface ScriptContract {
  readonly name: string;
  readonly keys: readonly string[];
  readonly args: readonly string[];
}

interface Header {
  readonly name: string;
  readonly purpose: string;
  readonly keys: readonly string[];
  readonly args: readonly string[];
  readonly returns: string;
}

/** A script's header is a contract: purpose, every key, every argument, every result. */
export function luaHeaders(
  files: readonly SourceFile[],
  registry: readonly ScriptContract[],
): readonly string[] {
  const scripts = files.filter(({ path }) => path.endsWith('.lua'));
  const byName = new Map(registry.map((script) => [script.name, script]));
  const complaints = scripts.flatMap((file) => {
    const header = headerOf(file.text);
    if (typeof header === 'string') return [`${file.path}: ${header}`];
    const name = file.path.split('/').at(-1)?.replace('.lua', '') ?? '';
    const contract = byName.get(name);
    if (contract === undefined) return [`${file.path}: not in the registry`];
    const body = file.text.slice(file.text.indexOf(']]') + 2);
    const beyond = (table: string, count: number): readonly string[] =>
      [...body.matchAll(new RegExp(`\\b${table}\\[(\\d+)\\]`, 'g'))]
        .filter(([, index]) => Number(index) > count)
        .map(([use]) => `${file.path}: uses ${use}, its header has ${count}`);
    return [
      ...(header.name === name ? [] : [`${file.path}: its header calls it "${header.name}"`]),
      ...(header.purpose === '' ? [`${file.path}: its header says no purpose`] : []),
      ...(header.returns === '' ? [`${file.path}: its header says no result`] : []),
      ...differences(`${file.path}: KEYS`, header.keys, contract.keys),
      ...differences(`${file.path}: ARGV`, header.args, contract.args),
      ...beyond('KEYS', header.keys.length),
      ...beyond('ARGV', header.args.length),
    ];
  });
  const there = new Set(scripts.map(({ path }) => path.split('/').at(-1)));
  const gone = registry.filter(({ name }) => !there.has(`${name}.lua`));
  return [...complaints, ...gone.map(({ name }) => `${name}.lua: in the registry, and not there`)];
}

function differences(
  what: string,
  header: readonly string[],
  registry: readonly string[],
): readonly string[] {
  return header.join(' ') === registry.join(' ')
    ? []
    : [`${what}: header has ${header.join(' ')}; registry has ${registry.join(' ')}`];
}

function headerOf(text: string): Header | string {
  const match = /^--\[\[\n([\w-]+): ([^]*?)\nKEYS\n([^]*?)ARGV\n([^]*?)RETURNS\n([^]*?)\]\]/.exec(
    text,
  );
  if (match === null) return 'no header (name: purpose, KEYS, ARGV, RETURNS)';
  const [, name = '', purpose = '', keys = '', args = '', returns = ''] = match;
  const listed = (block: string): string[] | string => {
    const rows = [...block.matchAll(/^ {2}(\d+) +(\S+)/gm)];
    const gap = rows.findIndex(([, number], at) => Number(number) !== at + 1);
    return gap < 0 ? rows.map(([, , word = '']) => word) : `number ${gap + 1} is missing`;
  };
  const keyNames = listed(keys);
  const argNames = listed(args);
  if (typeof keyNames === 'string') return `KEYS: ${keyNames}`;
  if (typeof argNames === 'string') return `ARGV: ${argNames}`;
  return { name, purpose: purpose.trim(), keys: keyNames, args: argNames, returns: returns.trim() };
}
