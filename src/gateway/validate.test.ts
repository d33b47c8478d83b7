import { fc } from '../../test/support/property.ts';
import { expect, test } from 'vitest';
import { SubmitRequest } from '../wire/schemas.ts';
import { repeatedHeader } from './head.ts';
import { submitBodyOf } from './submission.ts';
import { checkerOf, idText, parseJson, quote } from './validate.ts';

const check = checkerOf(SubmitRequest);
const good = { request_id: 'r', activity_id: 'a', sku_id: 's', quantity: 1 };

test('a complaint names the place once, what was found, and what is allowed', () => {
  expect(check(good)).toEqual({ ok: true, value: good });
  const { quantity: _gone, ...without } = good;
  expect(check({ ...without, request_id: ['x'], 'a/b~c': 1 })).toEqual({
    ok: false,
    errors: [
      { path: '/quantity', found: 'nothing', allowed: 'integer 1 to 1000' },
      {
        path: '/a~1b~0c',
        found: 'an unknown member',
        allowed: 'only request_id, activity_id, sku_id, quantity, seats',
      },
      {
        path: '/request_id',
        found: 'an array of 1',
        allowed: 'a string of 1 to 64 characters of A-Z a-z 0-9 _ -, or an integer from 0 to 2^53',
      },
    ],
  });
  expect(check(null)).toMatchObject({ errors: [{ path: '', found: 'null' }] });
});

test('complaints are few, however much is wrong', () => {
  const many = Object.fromEntries(Array.from({ length: 1_000 }, (_, n) => [`m${n}`, n]));
  const checked = check(many);
  expect(checked.ok ? [] : checked.errors).toHaveLength(16);
});

test('whatever comes in, the answer is a submit or a refusal that says why', () => {
  fc.assert(
    fc.property(
      fc.oneof(
        fc.uint8Array({ maxLength: 200 }),
        fc.json().map((text) => new TextEncoder().encode(text)),
        fc
          .record({
            request_id: fc.anything(),
            activity_id: fc.anything(),
            sku_id: fc.anything(),
            quantity: fc.anything(),
            seats: fc.anything(),
          })
          .map((body) => {
            try {
              return new TextEncoder().encode(JSON.stringify(body));
            } catch {
              return new Uint8Array();
            }
          }),
      ),
      (bytes) => {
        const said = submitBodyOf(bytes);
        if ('decision' in said) {
          expect(said.code).toBe('INVALID_ARGUMENT');
          expect(said.detail.length).toBeLessThan(400);
          return;
        }
        expect(said.quantity).toBeGreaterThanOrEqual(1);
        expect(Number.isInteger(said.quantity)).toBe(true);
        for (const id of [said.requestId, said.activityId, said.skuId]) {
          expect(id).toMatch(/^[A-Za-z0-9_-]{1,64}$/);
        }
      },
    ),
    { numRuns: 2_000 },
  );
});

test('ids are the same text, however they were written, or are refused', () => {
  expect(idText(0, '', '/p')).toBe('0');
  expect(idText(-0, '', '/p')).toBe('0');
  expect(idText(2 ** 53 - 1, '', '/p')).toBe('9007199254740991');
  expect(idText(2 ** 53, '{"x":9007199254740992}', '/p')).toBe('9007199254740992');
  expect(idText(2 ** 53, '{"x":9007199254740993}', '/p')).toMatchObject({ path: '/p' });
});

test('bytes that are not UTF-8 are no JSON', () => {
  expect(parseJson(new Uint8Array([0x22, 0xc0, 0x80, 0x22]))).toMatchObject({ ok: false });
  expect(parseJson(new Uint8Array([0xef, 0xbb, 0xbf, 0x31]))).toMatchObject({ ok: true, value: 1 });
});

test('a quotation is short, and never a copy of a container', () => {
  expect(quote('x'.repeat(1_000)).length).toBeLessThanOrEqual(65);
  expect(quote({ secret: 'x' })).toBe('an object');
});

test('a header that must stand alone is found twice in any case, and only then', () => {
  const names = ['Authorization', 'sluice-pass', 'HOST', 'Content-Length', 'Origin'];
  for (const name of names) {
    expect(repeatedHeader([name, 'a', 'X', 'b', name.toUpperCase(), 'c'])).toBe(name.toLowerCase());
  }
  expect(
    repeatedHeader(['Host', 'a', 'Hoax', 'b', 'Accept-Ranges', 'c', 'Authorization', 'd']),
  ).toBe(undefined);
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom('Host', 'hOST', 'Hoax', 'Origin', 'Oxygen', 'X')),
      (list) => {
        const folded = list.map((name) => name.toLowerCase());
        const twice = ['host', 'origin'].some(
          (name) => folded.filter((one) => one === name).length > 1,
        );
        expect(repeatedHeader(list.flatMap((name) => [name, 'v'])) !== undefined).toBe(twice);
      },
    ),
  );
});
