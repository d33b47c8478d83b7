import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseAst } from 'vite';

/** One file of the tree, as the tidy rules see it. Paths are relative to the root, with slashes. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

/** Anything in a syntax tree. */
export interface AstNode {
  readonly type: string;
  readonly start: number;
  readonly [key: string]: unknown;
}

const ignoredFolders = new Set([
  'node_modules',
  'dist',
  'build',
  'data',
  'coverage',
  '.cache',
  '.git',
]);
const textFile =
  /\.(?:ts|mjs|mts|js|css|html|json|md|yaml|yml|sql|lua|sh)$|^\.ci\/run$|^\.[a-z]+ignore$/;

/** Every text file below `root` that could be tracked. */
export function filesBelow(root: string, folder = ''): readonly SourceFile[] {
  return readdirSync(join(root, folder), { withFileTypes: true }).flatMap(
    (entry): readonly SourceFile[] => {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (entry.isDirectory()) return ignoredFolders.has(entry.name) ? [] : filesBelow(root, path);
      if (!entry.isFile() || !textFile.test(path)) return [];
      return [{ path, text: readFileSync(join(root, path), 'utf8') }];
    },
  );
}

const parsed = new WeakMap<SourceFile, AstNode>();

/** The syntax tree of a TypeScript or JavaScript file. */
export function astOf(file: SourceFile): AstNode {
  const known = parsed.get(file);
  if (known !== undefined) return known;
  const tree = parse(file);
  parsed.set(file, tree);
  return tree;
}

function parse(file: SourceFile): AstNode {
  try {
    return parseAst(file.text, {
      lang: file.path.endsWith('ts') ? 'ts' : 'js',
    }) as unknown as AstNode;
  } catch (cause) {
    throw new Error(`${file.path} cannot be parsed`, { cause });
  }
}

export function isCode(file: SourceFile): boolean {
  return /\.(?:ts|mjs)$/.test(file.path) && !file.path.endsWith('.d.mts');
}

/** Every node, parents before children. */
export function* nodesOf(root: unknown): Generator<AstNode> {
  if (Array.isArray(root)) {
    for (const item of root) yield* nodesOf(item);
    return;
  }
  if (typeof root !== 'object' || root === null) return;
  const node = root as AstNode;
  if (typeof node.type === 'string') yield node;
  for (const value of Object.values(node)) {
    if (typeof value === 'object' && value !== null) yield* nodesOf(value);
  }
}

export function lineOf(file: SourceFile, node: AstNode): number {
  return file.text.slice(0, node.start).split('\n').length;
}

/** `Date.now` of a member, `fetch` of a name, `globalThis.fetch` as `fetch`; empty for anything else. */
export function nameOf(node: unknown): string {
  if (typeof node !== 'object' || node === null) return '';
  const one = node as AstNode;
  if (one.type === 'Identifier') return String(one['name']);
  if (one.type !== 'MemberExpression' || one['computed'] === true) return '';
  const owner = nameOf(one['object']);
  const member = nameOf(one['property']);
  if (owner === '' || member === '') return '';
  return owner === 'globalThis' ? member : `${owner}.${member}`;
}

/** One file named by another. */
export interface Mention {
  readonly to: string;
  readonly line: number;
  /** `text`: named in a string, to be read or started, not imported. */
  readonly kind: 'import' | 'text';
}

/** What a file imports or re-exports, statically or not, and code that it names in strings. */
export function mentionsOf(file: SourceFile): readonly Mention[] {
  const found: Mention[] = [];
  const sources = new Set<unknown>();
  for (const node of nodesOf(astOf(file))) {
    const value = (node['source'] as AstNode | undefined)?.['value'];
    if (typeof value === 'string') {
      sources.add(node['source']);
      found.push({ to: value, line: lineOf(file, node), kind: 'import' });
    } else if (node.type === 'Literal' && !sources.has(node)) {
      const text = node['value'];
      if (typeof text === 'string' && /^[\w./-]+\.(?:ts|js|mjs)$/.test(text))
        found.push({ to: text, line: lineOf(file, node), kind: 'text' });
    }
  }
  return found;
}
