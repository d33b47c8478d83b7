import {
  LineCounter,
  Scalar,
  isMap,
  isNode,
  isPair,
  isScalar,
  isSeq,
  parseDocument,
  visit,
} from 'yaml';
import type { Document, Node as YamlNode } from 'yaml';
import { quoted } from './problems.ts';
import type { Problem } from './problems.ts';

/** Bytes of a configuration file: a thousand times what a sale needs. */
export const configMaxBytes = 1024 * 1024;

/** One place in the tree: keys and indices from the root. */
export type Path = readonly (string | number)[];

/** A parsed file that remembers where everything stood, and what came from the environment. */
export interface Source {
  readonly value: unknown;
  readonly problems: readonly Problem[];
  /** Line and column of a value, or of the nearest thing above it that exists. */
  where(path: Path, part: 'key' | 'value'): Pick<Problem, 'source' | 'line' | 'column'>;
  /** Names of the variables that a value was made of. */
  fromEnvironment(path: Path): readonly string[];
}

const variable = /\$\$\{|\$\{[^}\n]*\}?/g;
const wellFormed = /^\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}\n]*))?\}$/;

/** Variables in one file. */
const variablesMax = 4_000;

/** Stand-ins for variables while YAML is parsed: private characters, which no file may contain. */
const tokenOpen = '\uE000';
const tokenPad = '\uE001';
const tokenBase = 0xe100;
const tokenPattern = /\uE000([\uE100-\uF8FF])\uE001*/g;
const privateUse = /[\uE000-\uF8FF]/;

/** What a value becomes whose variable is missing: reported once, and never judged again. */
export const unresolved = Symbol('unresolved');

/**
 * Reads YAML, and puts in `${NAME}` and `${NAME:-fallback}` from the environment (`$${` is a plain
 * `${`). What a variable contains can never change the structure of the file: before parsing each
 * one is replaced by a token of the same length (so that columns stay true and `{ port: ${PORT} }`
 * is good YAML), and the values come in afterwards, into scalars. An unquoted value made of variables
 * is read as YAML reads it, so that `${PORT}` is a number.
 */
export function readSource(
  text: string,
  name: string,
  environment: Readonly<Record<string, string | undefined>>,
): Source {
  const lines = new LineCounter();
  const problems: Problem[] = [];
  const made = new Map<YamlNode, readonly string[]>();
  const placeAt = (offset: number): Pick<Problem, 'source' | 'line' | 'column'> => {
    const { line, col } = lines.linePos(offset);
    return { source: name, line: Math.max(1, line), column: Math.max(1, col) };
  };
  const whole = { source: name, line: 1, column: 1, path: '' };
  const failed = (found: string, allowed: string): Source => ({
    value: undefined,
    problems: [{ ...whole, found, allowed }],
    where: () => whole,
    fromEnvironment: () => [],
  });

  if (Buffer.byteLength(text) > configMaxBytes)
    return failed(`${Buffer.byteLength(text)} bytes`, `at most ${configMaxBytes} bytes`);
  if (privateUse.test(text)) return failed('private-use characters', 'text without them');
  const tokens: string[] = [];
  const tokenized = text.replace(variable, (written) => {
    if (tokens.length >= variablesMax || written.length < 3) return written;
    tokens.push(written);
    const token = tokenOpen + String.fromCharCode(tokenBase + tokens.length - 1);
    return token.padEnd(written.length, tokenPad);
  });
  const restored = (part: string): string =>
    part.replace(tokenPattern, (_, at: string) => tokens[at.charCodeAt(0) - tokenBase] ?? '');

  let document: Document.Parsed;
  let value: unknown;
  try {
    document = parseDocument(tokenized, {
      lineCounter: lines,
      prettyErrors: false,
      version: '1.2',
    });
    problems.push(...syntaxProblems(document, placeAt, restored));
    let keysAreText = true;
    visit(document, {
      Pair(_, pair) {
        if (isScalar(pair.key)) return;
        keysAreText = false;
        const at = isNode(pair.key) ? (pair.key.range?.[0] ?? 0) : 0;
        const found = pair.key === null ? 'a value without a key' : 'a key that is no text';
        problems.push({ ...placeAt(at), path: '', found, allowed: 'a name, a colon, a value' });
      },
      Scalar(_, node, parents) {
        if (typeof node.value !== 'string' || !node.value.includes(tokenOpen)) return;
        const report = (found: string, allowed: string): void => {
          const place = placeAt(node.range?.[0] ?? 0);
          problems.push({ ...place, path: pathText(pathOf(node, parents)), found, allowed });
        };
        const parent = parents.at(-1);
        if (isPair(parent) && parent.key === node) {
          report(quoted(restored(node.value)), 'keys written out, variables in values alone');
          return;
        }
        made.set(node, expand(node, tokens, environment, report));
      },
    });
    const readable = keysAreText && document.errors.length === 0;
    value = readable ? document.toJS({ maxAliasCount: 64 }) : undefined;
  } catch (error) {
    if (error instanceof RangeError)
      return failed('nesting too deep to read', 'a few levels, as the schema has them');
    if (error instanceof ReferenceError)
      return failed(error.message, 'at most 64 uses of a YAML alias');
    throw error;
  }

  const nodeAt = (path: Path): YamlNode | undefined => {
    const found = path.length === 0 ? document.contents : document.getIn(path, true);
    return isNode(found) ? found : undefined;
  };
  return {
    value,
    problems,
    where(path, part) {
      if (part === 'key') {
        const key = keyNode(nodeAt(path.slice(0, -1)), path);
        if (key?.range) return placeAt(key.range[0]);
      }
      for (let length = path.length; length >= 0; length -= 1) {
        const node = nodeAt(path.slice(0, length));
        if (node?.range) return placeAt(node.range[0]);
      }
      return whole;
    },
    fromEnvironment: (path) => made.get(nodeAt(path) ?? new Scalar(null)) ?? [],
  };
}

function keyNode(parent: YamlNode | undefined, path: Path): YamlNode | undefined {
  if (!isMap(parent)) return undefined;
  const wanted = String(path.at(-1));
  const pair = parent.items.find((item) => isScalar(item.key) && String(item.key.value) === wanted);
  return isNode(pair?.key) ? pair.key : undefined;
}

/** `activities[0].skus[1].stock` */
export function pathText(path: Path): string {
  return path
    .map((part, at) => (typeof part === 'number' ? `[${part}]` : at === 0 ? part : `.${part}`))
    .join('');
}

function pathOf(node: YamlNode, parents: readonly unknown[]): Path {
  const chain = [...parents, node];
  return chain.flatMap((one, at): (string | number)[] => {
    if (isPair(one)) return isScalar(one.key) && one.key !== node ? [String(one.key.value)] : [];
    return isSeq(one) ? [one.items.indexOf(chain[at + 1])] : [];
  });
}

/** One broken line makes the parser complain about all that follow: nothing after it is worth reading. */
function syntaxProblems(
  document: Document.Parsed,
  placeAt: (offset: number) => Pick<Problem, 'source' | 'line' | 'column'>,
  restored: (part: string) => string,
): readonly Problem[] {
  const first = document.errors.find((error) => error.code !== 'DUPLICATE_KEY');
  const end = first?.pos[0] ?? Infinity;
  return document.errors
    .filter((error) => error === first || (error.code === 'DUPLICATE_KEY' && error.pos[0] < end))
    .map((error) => ({
      ...placeAt(error.pos[0]),
      path: '',
      found: restored(error.message.split('\n')[0] ?? error.code),
      allowed: error.code === 'DUPLICATE_KEY' ? 'each key once' : 'YAML 1.2',
    }));
}

/** Puts the variables into one scalar; answers their names. */
function expand(
  node: Scalar,
  tokens: readonly string[],
  environment: Readonly<Record<string, string | undefined>>,
  report: (found: string, allowed: string) => void,
): readonly string[] {
  const used: string[] = [];
  let whole = true;
  const expanded = String(node.value).replace(tokenPattern, (_, at: string) => {
    const written = tokens[at.charCodeAt(0) - tokenBase] ?? '';
    if (written === '$${') return '${';
    const [match, name, fallback] = wellFormed.exec(written) ?? [];
    if (match === undefined || name === undefined) {
      report(quoted(written), '${NAME}, ${NAME:-fallback}, or $${ for a plain ${');
      whole = false;
      return '';
    }
    used.push(name);
    const value = environment[name];
    if (value !== undefined && value !== '') return value;
    if (fallback !== undefined) return fallback;
    report(
      `\${${name}}, and no ${name} in the environment`,
      `set ${name}, or write \${${name}:-fallback}`,
    );
    whole = false;
    return '';
  });
  if (!whole) node.value = unresolved;
  else node.value = node.type === Scalar.PLAIN && used.length > 0 ? coreScalar(expanded) : expanded;
  return used;
}

/** A plain scalar by YAML's core schema, without letting it become anything but a scalar. */
function coreScalar(text: string): unknown {
  if (/^-?(0|[1-9]\d{0,14})$/.test(text)) return Number(text);
  if (text === 'true' || text === 'false') return text === 'true';
  return text;
}
