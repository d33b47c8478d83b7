import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { codes } from '../wire/codes.ts';
import { nextActions } from '../wire/schemas.ts';

const page = readFileSync(fileURLToPath(new URL('../../docs/ERRORS.md', import.meta.url)), 'utf8');

interface Row {
  readonly code: string;
  readonly http: number;
  readonly shape: string;
  readonly nextAction: string;
  readonly retryable: boolean;
}

function rowsOf(text: string): readonly Row[] {
  return [...text.matchAll(/^\| ([A-Z_]+) \| (\d{3}) \| (\w+) \| (\w+) \| (yes|no) \|/gm)].map(
    ([, code = '', http = '', shape = '', nextAction = '', retryable = '']) => ({
      code,
      http: Number(http),
      shape,
      nextAction,
      retryable: retryable === 'yes',
    }),
  );
}

const catalogue = Object.entries(codes).map(([code, { http, shape, nextAction, retryable }]) => ({
  code,
  http,
  shape,
  nextAction,
  retryable,
}));

test('docs/ERRORS.md and the catalogue say the same, both ways and in the same order', () => {
  expect(rowsOf(page)).toEqual(catalogue);
});

test('a code that is only in one of them is noticed', () => {
  const without = page.replace(/^\| NOT_OPEN .*\n/m, '');
  expect(rowsOf(without)).not.toEqual(catalogue);
  const more = `${page}\n| SOMETHING_ELSE | 400 | problem | STOP | no | x | y |\n`;
  expect(rowsOf(more)).not.toEqual(catalogue);
  const changed = page.replace('| NOT_OPEN | 409 |', '| NOT_OPEN | 403 |');
  expect(rowsOf(changed)).not.toEqual(catalogue);
});

test('every next action is explained', () => {
  const explained = [...page.matchAll(/^\| ([A-Z_]+) \| [a-z]/gm)].map(([, action]) => action);
  expect(explained).toEqual([...nextActions]);
});
