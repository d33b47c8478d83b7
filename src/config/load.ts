import { allowedOf, checkAgainstSchema, reporter, scalarProblem } from './check.ts';
import { buildConfig } from './build.ts';
import type { Config } from './config.ts';
import { quoted } from './problems.ts';
import type { Problem } from './problems.ts';
import { schemaNode } from './schema.ts';
import type { Node, Written } from './schema.ts';
import { pathText, readSource } from './source.ts';
import type { Path } from './source.ts';
import { kinds } from './values.ts';

/** Values given on the command line, which win over the file. Texts as typed. */
export interface Overrides {
  readonly host?: string;
  readonly port?: string;
  readonly adminPort?: string;
  readonly data?: string;
  readonly fsync?: string;
  /** Every sale: lobby at the first start, opening so much later. */
  readonly openIn?: string;
  /** Units of every SKU. */
  readonly stock?: string;
}

export interface LoadRequest {
  /** The text of the file; empty for none. */
  readonly text: string;
  /** Its name in messages. */
  readonly name: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly overrides?: Overrides;
  readonly nowMs: number;
}

export type Loaded =
  | { readonly ok: true; readonly config: Config; readonly written: Written }
  | { readonly ok: false; readonly problems: readonly Problem[] };

/**
 * Reads a configuration whole: every problem at once, or the values. Pure: the text, the environment
 * and the time are handed in.
 */
export function loadConfig(request: LoadRequest): Loaded {
  const source = readSource(request.text, request.name, request.environment);
  const problems: Problem[] = [...source.problems];
  if (source.value === undefined && problems.length > 0) return failed(problems);
  const report = reporter(source, problems);
  const filled = checkAgainstSchema(source, report);
  const written = override(filled, request.overrides ?? {}, problems);
  const clean = (path: Path): boolean => {
    const prefix = pathText(path);
    return !problems.some(
      (problem) =>
        problem.path.startsWith(prefix) && /^(?:$|[.[])/.test(problem.path.slice(prefix.length)),
    );
  };
  const config = buildConfig(written, report, clean, request.nowMs);
  return config === undefined || problems.length > 0
    ? failed(problems)
    : { ok: true, config, written };
}

/** In the order of the file, so that a person can go through it once. */
function failed(problems: readonly Problem[]): Loaded {
  const inOrder = problems.toSorted((a, b) => a.line - b.line || a.column - b.column);
  return { ok: false, problems: inOrder };
}

/** Puts the command line's values in, checked by the same schema. */
function override(written: Written, overrides: Overrides, problems: Problem[]): Written {
  const onFlag = (flag: string, found: string, allowed: string): void => {
    problems.push({
      source: 'command line',
      line: 0,
      column: 0,
      path: flag,
      found: quoted(found),
      allowed,
    });
  };
  const checked = (flag: string, path: Path, given: string | undefined): unknown => {
    if (given === undefined) return undefined;
    const node = nodeAt(path);
    const value = node.type === 'integer' && /^\d{1,15}$/.test(given) ? Number(given) : given;
    if (scalarProblem(node, value) === undefined) return value;
    onFlag(flag, given, allowedOf(node));
    return undefined;
  };
  const server = {
    host: checked('--host', ['server', 'host'], overrides.host),
    port: checked('--port', ['server', 'port'], overrides.port),
    admin_port: checked('--admin-port', ['server', 'admin_port'], overrides.adminPort),
  };
  const data = checked('--data', ['data'], overrides.data);
  const fsync = checked('--fsync', ['stores', 'fsync'], overrides.fsync);
  const stock = checked('--stock', ['activities', 0, 'skus', 0, 'stock'], overrides.stock);
  const { openIn } = overrides;
  const openInFits = openIn !== undefined && kinds.duration.accepts(openIn);
  if (openIn !== undefined && !openInFits) onFlag('--open-in', openIn, kinds.duration.allowed);
  const sale = openInFits ? { lobby_opens_at: '+0s', opens_at: `+${openIn}` } : {};
  return {
    ...written,
    server: { ...written.server, ...given(server) },
    stores: { ...written.stores, ...given({ fsync }) },
    ...given({ data }),
    activities: written.activities.map((one) => ({
      ...one,
      ...sale,
      skus: one.skus.map((sku) => ({ ...sku, ...given({ stock }) })),
    })),
  };
}

function given<Values extends object>(values: Values): object {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));
}

function nodeAt(path: Path): Node {
  let node: Node | undefined = schemaNode;
  for (const part of path) node = typeof part === 'number' ? node?.items : node?.properties?.[part];
  if (node === undefined) throw new Error(`the schema has no ${pathText(path)}`);
  return node;
}
