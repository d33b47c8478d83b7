import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { contrast, darkGround, lightGround } from './theme.ts';

/** Colours of a style sheet's `:root`, light, and what its dark block lays over them. */
function tokens(sheet: string): { light: Map<string, string>; dark: Map<string, string> } {
  const css = readFileSync(join(import.meta.dirname, '../../../web', sheet), 'utf8');
  const read = (block: string): [string, string][] =>
    [...block.matchAll(/--([a-z0-9-]+):\s*(#[0-9a-f]{3,6});/g)].map(([, name, colour]) => [
      name!,
      colour!.length === 4 ? colour!.replace(/[0-9a-f]/g, '$&$&') : colour!,
    ]);
  const light = new Map(read(/:root \{([^}]*)\}/.exec(css)![1]!));
  const dark = /prefers-color-scheme: dark\) \{\s*:root[^{]*\{([^}]*)\}/.exec(css)![1]!;
  return { light, dark: new Map([...light, ...read(dark)]) };
}

const text: readonly (readonly [string, readonly string[]])[] = [
  ['ink', ['surface', 'ground', 'sunk']],
  ['ink-2', ['surface', 'ground', 'sunk']],
  ['accent', ['surface', 'ground', 'sunk']],
  ['on-accent', ['accent']],
];

describe.each([
  [
    'storefront/style.css',
    [...text, ['go', ['surface', 'go-wash']], ['warn', ['surface']], ['danger', ['surface']]],
  ],
  [
    'console/style.css',
    [
      ...text,
      ['good', ['surface', 'good-wash']],
      ['warn', ['surface', 'warn-wash']],
      ['bad', ['surface', 'bad-wash']],
    ],
  ],
] as [string, [string, string[]][]][])('contrast in %s', (sheet, pairs) => {
  const { light, dark } = tokens(sheet);

  it.each([
    ['light', light],
    ['dark', dark],
  ] as const)('text reaches 4.5 in %s', (mode, colours) => {
    for (const [ink, grounds] of pairs)
      for (const ground of grounds)
        expect([
          mode,
          ink,
          ground,
          contrast(colours.get(ink)!, colours.get(ground)!) >= 4.5,
        ]).toEqual([mode, ink, ground, true]);
  });

  it('edges of controls reach 3', () => {
    for (const colours of [light, dark])
      expect(contrast(colours.get('edge')!, colours.get('surface')!)).toBeGreaterThanOrEqual(3);
  });

  it('stands on the grounds that themes are checked against', () => {
    if (!sheet.startsWith('storefront')) return;
    expect([light.get('surface'), dark.get('surface')]).toEqual([lightGround, darkGround]);
  });
});
