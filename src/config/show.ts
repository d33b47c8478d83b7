import { stringify } from 'yaml';
import { allowedOf } from './check.ts';
import { schemaNode } from './schema.ts';
import type { Node, Written } from './schema.ts';
import { withoutLogin } from './values.ts';

/** What stands in place of a secret, wherever a configuration is shown. */
export const hiddenSecret = '(hidden)';

/** The effective configuration, every default filled in, secrets hidden by their mark in the schema. */
export function showable(written: Written): Readonly<Record<string, unknown>> {
  return hide(schemaNode, written) as Readonly<Record<string, unknown>>;
}

/** The same as YAML: a valid file again, but for its secrets. */
export function showYaml(written: Written): string {
  return stringify(showable(written), { lineWidth: 0 });
}

function hide(node: Node, value: unknown): unknown {
  if (value === undefined) return undefined;
  if (node['x-secret'] === true) return hiddenSecret;
  // Checked by its own reader, and nothing in it is a secret.
  if (node['x-language'] !== undefined) return value;
  if (node['x-url'] === true && typeof value === 'string') return withoutLogin(value);
  if (Array.isArray(value)) {
    const { items } = node;
    return items === undefined ? [] : value.map((item) => hide(items, item));
  }
  if (typeof value !== 'object' || value === null) return value;
  const shown: [string, unknown][] = [];
  for (const [key, one] of Object.entries(value)) {
    const child = node.properties?.[key];
    // What the schema does not know is never shown: it could be anything.
    if (child !== undefined) shown.push([key, hide(child, one)]);
  }
  return Object.fromEntries(shown);
}

/** One setting as the documentation lists it. */
export interface Setting {
  /** `activities[].skus[].stock` */
  readonly path: string;
  /** Empty when it must be written or may be absent. */
  readonly fallback: string;
  readonly needed: boolean;
  readonly allowed: string;
  readonly meaning: string;
}

/** Every setting of the schema, in its order: what docs/CONFIG.md must list, no more and no less. */
export function settings(): readonly Setting[] {
  const found: Setting[] = [];
  const walk = (node: Node, path: string, needed: boolean): void => {
    if (node.properties !== undefined) {
      for (const [key, child] of Object.entries(node.properties)) {
        const required = node.required?.includes(key) === true && child.default === undefined;
        walk(child, path === '' ? key : `${path}.${key}`, required);
      }
      return;
    }
    if (node.items?.properties !== undefined) {
      walk(node.items, `${path}[]`, false);
      return;
    }
    found.push({
      path,
      fallback: node.default === undefined ? '' : JSON.stringify(node.default).replaceAll('"', ''),
      needed,
      allowed: allowedOf(node.items ?? node),
      meaning: node.description ?? '',
    });
  };
  walk(schemaNode, '', false);
  return found;
}

/** The reference table of docs/CONFIG.md. */
export function settingsTable(): string {
  const cell = (text: string): string => text.replaceAll('|', '\\|');
  const rows = settings().map(
    ({ path, fallback, needed, allowed, meaning }) =>
      `| \`${path}\` | ${fallback === '' ? (needed ? '(needed)' : '–') : `\`${fallback}\``} | ${cell(allowed)} | ${cell(meaning)} |`,
  );
  return ['| setting | default | allowed | meaning |', '|---|---|---|---|', ...rows].join('\n');
}
