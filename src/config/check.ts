import { nearest, quoted } from './problems.ts';
import type { Problem } from './problems.ts';
import { schemaNode } from './schema.ts';
import type { Node, Written } from './schema.ts';
import { pathText, unresolved } from './source.ts';
import type { Path, Source } from './source.ts';
import { kinds, withoutLogin } from './values.ts';

/** Variables whose names look like this are never quoted, wherever they were put by mistake. */
const secretName = /secret|token|pass|key|credential|auth/i;

/** Reports one problem at a path. */
export type Report = (path: Path, found: string, allowed: string, part?: 'key' | 'value') => void;

/** A reporter that puts the place of `source` to each problem. */
export function reporter(source: Source, problems: Problem[]): Report {
  return (path, found, allowed, part = 'value') => {
    problems.push({ ...source.where(path, part), path: pathText(path), found, allowed });
  };
}

/**
 * Walks a value by the schema: reports everything that is wrong at once, and returns the value with
 * defaults filled in (meaningless where problems were reported). Agrees with a JSON Schema validator
 * on what is valid, but for the languages of values.ts, where it is the stricter one.
 */
export function checkAgainstSchema(source: Source, report: Report): Written {
  const walk = (node: Node, value: unknown, path: Path): unknown => {
    if (value === unresolved) return blank(node);
    if (node['x-language'] !== undefined) return value;
    if (value === undefined || value === null) {
      if (node.default !== undefined) return walk(node, node.default, path);
      report(path, 'nothing', allowedOf(node));
      return blank(node);
    }
    if (node.type === 'object') return walkObject(node, value, path);
    if (node.type === 'array') return walkArray(node, value, path);
    const wrong = scalarProblem(node, value);
    if (wrong !== undefined) report(path, foundOf(node, value, path), wrong);
    return value;
  };

  const walkObject = (node: Node, value: unknown, path: Path): unknown => {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) {
      report(path, quoted(value), allowedOf(node));
      return blank(node);
    }
    const properties = node.properties ?? {};
    const given = new Map(Object.entries(value));
    for (const key of given.keys()) {
      if (Object.hasOwn(properties, key)) continue;
      const meant = nearest(key, Object.keys(properties));
      const known = Object.keys(properties).join(', ');
      const hint = meant === undefined ? '' : `${meant}? Known here: `;
      report([...path, key], `unknown key ${quoted(key)}`, `${hint}${known}`, 'key');
    }
    const filled: Record<string, unknown> = {};
    for (const [key, child] of Object.entries(properties)) {
      const here = [...path, key];
      const one = given.get(key);
      if (one === undefined || one === null) {
        if (child.default !== undefined) filled[key] = walk(child, child.default, here);
        else if (one === null || node.required?.includes(key) === true) {
          report(here, 'nothing', allowedOf(child), one === null ? 'value' : 'key');
          filled[key] = blank(child);
        }
      } else filled[key] = walk(child, one, here);
    }
    return filled;
  };

  const walkArray = (node: Node, value: unknown, path: Path): unknown => {
    if (!Array.isArray(value)) {
      report(path, quoted(value), allowedOf(node));
      return [];
    }
    const { minItems = 0, maxItems = 1_000, items } = node;
    if (value.length < minItems || value.length > maxItems)
      report(path, `a list of ${value.length}`, `a list of ${minItems} to ${maxItems}`);
    return value
      .slice(0, maxItems)
      .map((item, at) => (items === undefined ? item : walk(items, item, [...path, at])));
  };

  const foundOf = (node: Node, value: unknown, path: Path): string => {
    const variables = source.fromEnvironment(path).map((name) => `\${${name}}`);
    const from = variables.length === 0 ? '' : ` (from ${variables.join(', ')})`;
    const secret = node['x-secret'] === true || variables.some((name) => secretName.test(name));
    if (secret)
      return typeof value === 'string'
        ? `a secret of ${value.length} characters${from}`
        : `a secret that is no text${from}`;
    // What should be a URL and is not may hold a password all the same.
    const shown = node['x-url'] === true && typeof value === 'string' ? withoutLogin(value) : value;
    return `${quoted(shown)}${from}`;
  };

  return walk(schemaNode, source.value ?? {}, []) as Written;
}

/** The shape of a node without its values, for places that cannot be judged. */
function blank(node: Node): unknown {
  if (node.type === 'array') return [];
  if (node.properties === undefined) return node.default;
  const children = Object.entries(node.properties);
  return Object.fromEntries(children.map(([key, child]) => [key, blank(child)]));
}

/** What is wrong with a scalar, in words of what is allowed. */
export function scalarProblem(node: Node, value: unknown): string | undefined {
  const allowed = allowedOf(node);
  if (node.enum !== undefined)
    return typeof value === 'string' && node.enum.includes(value) ? undefined : allowed;
  if (node.type === 'boolean') return typeof value === 'boolean' ? undefined : allowed;
  if (node.type === 'integer') {
    const { minimum = -Infinity, maximum = Infinity } = node;
    const fits =
      typeof value === 'number' &&
      Number.isSafeInteger(value) &&
      value >= minimum &&
      value <= maximum;
    return fits ? undefined : allowed;
  }
  if (typeof value !== 'string') return `${allowed}; put it in quotes`;
  const length = Array.from(value).length;
  if (length < (node.minLength ?? 0) || length > (node.maxLength ?? 4096)) return allowed;
  const kind = node['x-kind'];
  return kind === undefined || kinds[kind].accepts(value) ? undefined : allowed;
}

/** What may stand at a node, in words. */
export function allowedOf(node: Node): string {
  if (node['x-language'] === 'rules') return 'rules, as in `sluice rules check`';
  if (node.enum !== undefined)
    return node.enum.length === 1 ? String(node.enum[0]) : `one of ${node.enum.join(', ')}`;
  if (node['x-kind'] !== undefined) return kinds[node['x-kind']].allowed;
  switch (node.type) {
    case 'boolean':
      return 'true or false';
    case 'integer':
      return `a whole number from ${node.minimum ?? 0} to ${node.maximum ?? Number.MAX_SAFE_INTEGER}`;
    case 'string':
      return `text of ${node.minLength ?? 0} to ${node.maxLength ?? 4096} characters`;
    case 'array':
      return `a list of ${node.minItems ?? 0} to ${node.maxItems ?? 1_000}`;
    default:
      return `a mapping of ${Object.keys(node.properties ?? {}).join(', ')}`;
  }
}
