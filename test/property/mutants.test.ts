import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { hunt } from '../mutants/hunt.ts';
import { mutants } from '../mutants/mutants.ts';
import { mutated, plant } from '../mutants/plant.ts';

const root = join(dirname(fileURLToPath(import.meta.url)), '..', '..');
const named = (name: string) => mutants.find((mutant) => mutant.name === name)!;

const long = process.env['SLUICE_LONG'] !== undefined;

describe('planted bugs', () => {
  test.each(mutants)('$name still has its place', ({ edits }) => {
    for (const edit of edits) {
      const text = readFileSync(join(root, edit.file), 'utf8');
      expect(mutated(text, edit)).not.toBe(text);
    }
  });

  test('without one the same seeds hold', async () => {
    const sound = await plant(undefined);
    for (let seed = 1; seed <= 2; seed += 1) {
      expect((await sound.simulate(sound.planOf(seed))).failure).toBeUndefined();
    }
    sound.remove();
  }, 120_000);

  test.each(
    long ? mutants.map(({ name }) => name) : ['one-unit-too-many', 'acknowledge-before-commit'],
  )(
    '%s is caught',
    async (name) => {
      const found = await hunt(named(name), {
        firstSeed: 1,
        seedsMax: long ? 1_200 : 20,
        shrinkRunsMax: 0,
      });
      expect(found).toMatchObject({ name, caught: true });
    },
    1_200_000,
  );
});
