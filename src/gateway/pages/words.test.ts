import { describe, expect, it } from 'vitest';
import { liveWords } from './live-words.ts';
import { words } from './words.ts';

/** Every path to a word, with what stands there. */
function leaves(value: unknown, path = ''): [string, unknown][] {
  if (typeof value !== 'object' || value === null) return [[path, value]];
  return Object.entries(value).flatMap(([key, inner]) => leaves(inner, `${path}.${key}`));
}

describe.each([
  ['pages', words],
  ['live', liveWords],
] as const)('words of %s', (_name, table) => {
  const english = new Map(leaves(table.en));
  const chinese = new Map(leaves(table.zh));

  it('has the same keys and kinds in both languages', () => {
    expect([...chinese.keys()].sort()).toEqual([...english.keys()].sort());
    for (const [path, value] of english)
      expect([path, typeof chinese.get(path)]).toEqual([path, typeof value]);
  });

  it('leaves no word empty and none untranslated', () => {
    for (const [path, value] of chinese) {
      if (typeof value !== 'string') continue;
      expect([path, value.trim()]).not.toEqual([path, '']);
      expect([path, /[\u4e00-\u9fff]/.test(value)]).toEqual([path, true]);
      expect([path, value]).not.toEqual([path, english.get(path)]);
    }
  });

  it('has a negative control: a missing key would be seen', () => {
    const shorter = new Map([...chinese].slice(1));
    expect([...shorter.keys()].sort()).not.toEqual([...english.keys()].sort());
  });
});
