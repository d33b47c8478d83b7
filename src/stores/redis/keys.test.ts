import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Keys, keyCatalogue } from './keys.ts';
import { scripts } from './scripts.ts';

const document = readFileSync(new URL('../../../docs/KEYS.md', import.meta.url), 'utf8');

/** The rows that the document must have, made from the catalogue. */
const rows = Object.values(keyCatalogue).map(
  ({ name, scope, type, owner, life, holds }) =>
    `| \`${name}\` | ${scope} | ${type} | ${owner} | ${life} | ${holds} |`,
);

describe('docs/KEYS.md', () => {
  it('has a row for each key of the catalogue, word for word, and no other', () => {
    const written = document.split('\n').filter((line) => line.startsWith('| `'));
    expect(written.sort()).toEqual([...rows].sort());
  });
});

describe('keys', () => {
  it('of one SKU share a hash tag that no other SKU has', () => {
    const keys = new Keys('p');
    const tag = (key: string): string | undefined => /\{([^}]*)\}/.exec(key)?.[1];
    const one = { activityId: 'a', skuId: 'b-c' };
    const tags = Object.values(scripts)
      .flatMap((script) => script.keys)
      .map((name) => tag(keys.sku(one, name)));
    expect(new Set(tags)).toEqual(new Set(['a/b-c']));
    expect(tag(keys.staged(one, 't', 'requests'))).toBe('a/b-c');
    expect(tag(keys.sku({ activityId: 'a-b', skuId: 'c' }, 'stock'))).not.toBe('a/b-c');
  });

  it('have names of their own', () => {
    const names = Object.values(keyCatalogue).map((spec) => spec.name);
    expect(new Set(names).size).toBe(names.length);
  });
});
