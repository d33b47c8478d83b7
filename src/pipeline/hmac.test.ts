import { createHmac, randomBytes } from 'node:crypto';
import { fc } from '../../test/support/property.ts';
import { expect, test } from 'vitest';
import { hmacSha256 } from './hmac.ts';

test('is the HMAC of RFC 2104, for secrets and messages of any length and any characters', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ minLength: 1, maxLength: 200 }),
      fc
        .array(fc.nat({ max: 0xffff }), { maxLength: 4_000 })
        .map((units) => String.fromCharCode(...units)),
      (secret, message) => {
        const expected = createHmac('sha256', secret).update(message, 'utf8').digest('base64url');
        expect(hmacSha256(secret)(message)).toBe(expected);
      },
    ),
    { numRuns: 500 },
  );
  const long = 'ü'.repeat(5_000);
  const secret = randomBytes(32);
  const expected = createHmac('sha256', secret).update(long, 'utf8').digest('base64url');
  expect(hmacSha256(secret)(long)).toBe(expected);
});

test('nothing of one message is left for the next', () => {
  const mac = hmacSha256(randomBytes(32));
  const first = mac('short');
  mac('something much longer than that');
  expect(mac('short')).toBe(first);
});
