import { expect, test } from 'vitest';
import { overloadDefaults } from '../src/control/overload-loop.ts';
import { words } from '../web/console/words.ts';

test('every health signal has a name in every language of the operator page', () => {
  const signals = Object.keys(overloadDefaults.marks).sort();
  for (const [language, { signals: named }] of Object.entries(words)) {
    expect(Object.keys(named).sort(), language).toEqual(signals);
  }
  expect(Object.values(words.zh.signals).join(''), 'no word was left in English').not.toMatch(
    /[a-z]{3}/,
  );
});
