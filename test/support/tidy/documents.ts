import { posix } from 'node:path';
import type { Command } from 'commander';
import type { SourceFile } from './source.ts';

/** What documents may name. */
export interface Known {
  readonly scripts: ReadonlySet<string>;
  readonly benches: ReadonlySet<string>;
  readonly sluice: Command;
  readonly paths: ReadonlySet<string>;
}

const isDocument = ({ path }: SourceFile): boolean => path.endsWith('.md');

/** One command line in a document. */
interface Mention {
  readonly at: string;
  readonly words: readonly string[];
}

/** Commands in fenced blocks and in inline code: `npm …`, `sluice …`. */
function mentions(file: SourceFile): readonly Mention[] {
  const found: Mention[] = [];
  let fence: string | undefined;
  for (const [at, line] of file.text.split('\n').entries()) {
    const place = `${file.path}:${at + 1}`;
    const open = /^\s*```(\w*)/.exec(line);
    if (open !== null) fence = fence === undefined ? (open[1] ?? '') : undefined;
    else if (fence !== undefined) {
      if (['', 'sh', 'bash', 'console', 'text'].includes(fence)) found.push(...split(place, line));
    } else
      for (const [, code = ''] of line.matchAll(/`([^`]+)`/g)) found.push(...split(place, code));
  }
  return found.filter(({ words }) => words[0] === 'npm' || words[0] === 'sluice');
}

function split(at: string, line: string): readonly Mention[] {
  return line
    .replace(/^\s*\$\s+/, '')
    .replace(/(?:^|\s)#.*$/, '')
    .split(/\s*(?:&&|\||;)\s*/)
    .map((command) => ({ at, words: command.trim().match(/"[^"]*"|\S+/g) ?? [] }));
}

/** Every command that a document shows exists, with every flag that it shows. */
export function docCommands(files: readonly SourceFile[], known: Known): readonly string[] {
  return files.filter(isDocument).flatMap((file) =>
    mentions(file).flatMap(({ at, words }) => {
      const wrong =
        words[0] === 'npm' ? npmProblem(words, known) : sluiceProblem(words.slice(1), known.sluice);
      return wrong === undefined ? [] : [`${at}: \`${words.join(' ')}\`: ${wrong}`];
    }),
  );
}

function npmProblem(words: readonly string[], known: Known): string | undefined {
  const [, verb = '', ...rest] = words;
  if (['ci', 'install', 'i', 'pack', 'publish', 'exec'].includes(verb)) return undefined;
  const script = verb === 'run' ? rest[0] : verb;
  if (script === undefined || !known.scripts.has(script)) return `no script "${script ?? ''}"`;
  const after = words.slice(words.indexOf('--') + 1);
  if (!words.includes('--')) return undefined;
  if (script === 'sluice') return sluiceProblem(after, known.sluice);
  if (script === 'start') return sluiceProblem(['up', ...after], known.sluice);
  if (script === 'bench' && !/^[A-Z]+$/.test(after[0] ?? '') && !known.benches.has(after[0] ?? ''))
    return `no bench "${after[0] ?? ''}"`;
  return undefined;
}

/** Walks the command tree as far as words name commands, then looks at flags and counts of values. */
function sluiceProblem(words: readonly string[], root: Command): string | undefined {
  let command = root;
  let at = 0;
  for (; at < words.length; at += 1) {
    const next = command.commands.find((one) => one.name() === words[at]);
    if (next === undefined) break;
    command = next;
  }
  // `sluice COMMAND --help` and the like speak of all.
  const first = words[at];
  if (first !== undefined && /^[A-Z]+$|^…$/.test(first) && command === root) return undefined;
  const values: string[] = [];
  for (; at < words.length; at += 1) {
    const word = words[at] ?? '';
    if (!word.startsWith('-')) {
      values.push(word);
      continue;
    }
    const flag = word.split('=')[0] ?? word;
    if (flag === '--help' || flag === '-h' || (command === root && flag === '--version')) continue;
    const option = command.options.find((one) => one.long === flag || one.short === flag);
    if (option === undefined) return `no flag ${flag} of "${command.name()}"`;
    if (option.required && !word.includes('=')) at += 1;
  }
  const named = words.some((word) => word === '--help' || word === '-h');
  const args = command.registeredArguments;
  if (command.commands.length > 0 && values.length > 0)
    return `no command "${values[0] ?? ''}" of "${command.name()}"`;
  if (values.length > args.length && !(args.at(-1)?.variadic === true))
    return `"${command.name()}" takes ${args.length} values`;
  if (!named && values.length < args.filter((arg) => arg.required).length && values.length > 0)
    return `"${command.name()}" needs ${args.length} values`;
  return undefined;
}

/** Every relative link of a document leads somewhere. */
export function docLinks(
  files: readonly SourceFile[],
  paths: ReadonlySet<string>,
): readonly string[] {
  return files.filter(isDocument).flatMap((file) =>
    [...file.text.matchAll(/(?:\]\(|src=")([^)"\s]+)[)"]/g)].flatMap(([, link = '']) => {
      if (/^[a-z]+:|^#/.test(link)) return [];
      const target = posix.normalize(
        posix.join(posix.dirname(file.path), link.split('#')[0] ?? ''),
      );
      const found =
        paths.has(target.replace(/\/$/, '')) ||
        [...paths].some((path) => path.startsWith(`${target.replace(/\/$/, '')}/`));
      return found ? [] : [`${file.path}: link to ${link}, which is not there`];
    }),
  );
}
