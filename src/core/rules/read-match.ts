import { addressSet } from '../limit/address.ts';
import type { KeyPart, Match, NamedPattern, RiskSettings } from './model.ts';
import { risks } from './model.ts';
import type { TextPattern } from './pattern.ts';
import type { Path, Reader } from './reader.ts';
import { quote } from './reader.ts';

/** Whom rules concern: matches, keys, groups, risk. */

export const idPattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const tokenPattern = /^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$/;
const claimPattern = /^[A-Za-z0-9_:./-]{1,64}$/;

export function readKey(reader: Reader, value: unknown, path: Path): KeyPart[] {
  const plain = ['user', 'device', 'ip', 'ip_prefix', 'activity', 'sku', 'pass', 'route'] as const;
  const seen = new Set<string>();
  return (reader.list(value, path, 8) ?? []).flatMap((item, at): KeyPart[] => {
    const here = [...path, at];
    if (typeof item === 'string' && seen.has(item)) {
      reader.report(here, `"${item}" twice`, 'each part once');
      return [];
    }
    if (typeof item === 'string') seen.add(item);
    const named = typeof item === 'string' ? /^(header|claim):(.*)$/.exec(item) : null;
    if (named === null) {
      const kind = plain.find((word) => word === item);
      if (kind !== undefined) return [{ kind }];
      reader.report(here, quote(item), `one of ${plain.join(', ')}, header:NAME, claim:NAME`);
      return [];
    }
    const kind = named[1] === 'header' ? 'header' : 'claim';
    const name = readName(reader, named[2] ?? '', here, kind);
    return name === undefined ? [] : [{ kind, name }];
  });
}

export function readName(
  reader: Reader,
  value: unknown,
  path: Path,
  kind: 'header' | 'claim',
): string | undefined {
  const pattern = kind === 'header' ? tokenPattern : claimPattern;
  const name = reader.text(value, path, pattern, `the name of a ${kind}`);
  return kind === 'header' ? name?.toLowerCase() : name;
}

export function readMatch(reader: Reader, value: unknown, path: Path): Match | undefined {
  const known = ['route', 'group', 'method', 'activity', 'sku', 'risk', 'header', 'claim'];
  const map = reader.mapping(value, path, known);
  if (map === undefined) return undefined;
  const patterns = (key: string): readonly TextPattern[] | undefined =>
    map.optional(key, (v, p) => readPatterns(reader, v, p), undefined);
  const words = <Word extends string>(
    key: string,
    read: (v: unknown, p: Path) => Word | undefined,
  ): readonly Word[] | undefined =>
    map.optional(key, (v, p) => readMany(reader, v, p, read), undefined);
  return withoutUndefined({
    route: patterns('route'),
    group: words('group', (v, p) => reader.text(v, p, idPattern, 'the name of a group')),
    method: words('method', (v, p) => reader.text(v, p, /^[A-Z]{1,20}$/, 'a method such as GET')),
    activity: patterns('activity'),
    sku: patterns('sku'),
    risk: words('risk', (v, p) => reader.oneOf(v, p, risks)),
    header: map.optional('header', (v, p) => readNamed(reader, v, p, 'header'), undefined),
    claim: map.optional('claim', (v, p) => readNamed(reader, v, p, 'claim'), undefined),
  });
}

function withoutUndefined<Values extends Readonly<Record<string, unknown>>>(
  values: Values,
): { [Key in keyof Values]?: Exclude<Values[Key], undefined> } {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Key in keyof Values]?: Exclude<Values[Key], undefined> };
}

/** One value, or a list of values of which one must hold. */
function readMany<Value>(
  reader: Reader,
  value: unknown,
  path: Path,
  read: (value: unknown, path: Path) => Value | undefined,
): Value[] | undefined {
  if (!Array.isArray(value)) {
    const one = read(value, path);
    return one === undefined ? undefined : [one];
  }
  const list = reader.list(value, path, 100) ?? [];
  if (list.length === 0)
    return reader.report(path, 'an empty list', 'at least one, or leave it out');
  return list.flatMap((item, at) => read(item, [...path, at]) ?? []);
}

export function readPatterns(
  reader: Reader,
  value: unknown,
  path: Path,
): TextPattern[] | undefined {
  return readMany(reader, value, path, (v, p) => reader.pattern(v, p));
}

function readNamed(
  reader: Reader,
  value: unknown,
  path: Path,
  kind: 'header' | 'claim',
): NamedPattern[] | undefined {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return reader.report(path, quote(value), `a mapping from a ${kind}'s name to what it must be`);
  }
  return Object.entries(value).flatMap(([key, given]: [string, unknown]) => {
    const name = readName(reader, key, [...path, key], kind);
    const patterns = readPatterns(reader, given, [...path, key]);
    return name === undefined || patterns === undefined ? [] : [{ name, patterns }];
  });
}

export function readGroups(reader: Reader, value: unknown, path: Path): Map<string, TextPattern[]> {
  const groups = new Map<string, TextPattern[]>();
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    reader.report(path, quote(value), 'a mapping from a name to route patterns');
    return groups;
  }
  for (const [name, given] of Object.entries(value) as [string, unknown][]) {
    const id = reader.text(name, [...path, name], idPattern, 'a name of letters, digits, "-"');
    const patterns = readPatterns(reader, given, [...path, name]);
    if (id !== undefined && patterns !== undefined) groups.set(id, patterns);
  }
  return groups;
}

export function readRisk(reader: Reader, value: unknown, path: Path): RiskSettings | undefined {
  const known = ['header', 'prefixes', 'accounts_per_device', 'forged_pass'];
  const map = reader.mapping(value, path, known);
  if (map === undefined) return undefined;
  const header = map.optional('header', (v, p) => readName(reader, v, p, 'header'), undefined);
  const accounts = map.optional(
    'accounts_per_device',
    (v, p) => {
      const inner = reader.mapping(v, p, ['more', 'risk']);
      const more = inner?.required('more', 'a number', (x, q) => reader.whole(x, q, 1, 1_000));
      const risk = inner?.optional('risk', (x, q) => reader.oneOf(x, q, risks), 'medium' as const);
      return more === undefined || risk === undefined ? undefined : { more, risk };
    },
    undefined,
  );
  const forged = map.optional('forged_pass', (v, p) => reader.oneOf(v, p, risks), undefined);
  return {
    ...(header === undefined ? {} : { header }),
    prefixes: map.optional('prefixes', (v, p) => readPrefixes(reader, v, p), []),
    ...(accounts === undefined ? {} : { accountsPerDevice: accounts }),
    ...(forged === undefined ? {} : { forgedPass: forged }),
  };
}

function readPrefixes(reader: Reader, value: unknown, path: Path): RiskSettings['prefixes'] {
  const map = reader.mapping(value, path, risks);
  if (map === undefined) return [];
  return risks.flatMap((risk) => {
    if (!map.has(risk)) return [];
    const ranges = (reader.list(map.raw(risk), map.at(risk), 10_000) ?? []).flatMap((item, at) => {
      const here = [...map.at(risk), at];
      const text = typeof item === 'string' ? item : '';
      return reader.guard(here, () => addressSet([text])) === undefined ? [] : [text];
    });
    return [{ risk, ranges }];
  });
}
