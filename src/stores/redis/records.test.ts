import { fc } from '../../../test/support/property.ts';
import { describe, expect, it } from 'vitest';
import { nowMs, request, sku } from '../../../test/contract/stock-samples.ts';
import { messageFor } from '../../../test/contract/stock-samples.ts';
import {
  checkReservationId,
  fieldOf,
  messageOf,
  recordOf,
  textOfRecord,
  textOfRequest,
} from './records.ts';

const anyText = fc.string({ unit: 'binary', maxLength: 40 });

describe('texts of reservations', () => {
  it('bring back every request, whatever its texts hold', () => {
    fc.assert(
      fc.property(
        fc.record({
          requestId: anyText,
          userId: anyText,
          personId: anyText,
          nonce: anyText,
          fingerprint: fc.oneof(
            anyText,
            fc
              .uint8Array({ minLength: 32, maxLength: 32 })
              .map((bytes) => Buffer.from(bytes).toString('hex')),
          ),
          quantity: fc.integer({ min: 1, max: 1_000 }),
          deadlineMs: fc.maxSafeNat(),
        }),
        (more) => {
          const wish = request(more);
          const field = fieldOf(wish.userId, wish.requestId);
          const text = textOfRequest(wish, nowMs);
          expect(text).not.toContain('\n');
          expect(field).not.toContain('\n');
          expect(messageOf(sku, field, text, 1, undefined)).toEqual(messageFor(wish));
          const record = recordOf('h', field, text, '', 7);
          expect(record).toMatchObject({ ...more, generation: 7, state: 'held' });
          const again = recordOf('e', field, textOfRecord(record), '', 9);
          expect(again).toEqual({ ...record, state: 'released', releaseReason: 'expired' });
          // What scripts find by pattern, in bytes.
          const bytes = Buffer.from(text);
          const [, quantity, id, length] = /^\[(\d+),"([^"]*)",(\d+),/.exec(text) ?? [];
          expect([quantity, id]).toEqual([`${wish.quantity}`, wish.reservationId]);
          const start = Buffer.byteLength(`[${quantity},"${id}",${length},`);
          const person = bytes.subarray(start, start + Number(length)).toString();
          expect(JSON.parse(person)).toBe(wish.personId);
        },
      ),
    );
  });

  it('keep different users and requests apart', () => {
    fc.assert(
      fc.property(anyText, anyText, anyText, anyText, (a, b, c, d) => {
        fc.pre(a !== c || b !== d);
        expect(fieldOf(a, b)).not.toBe(fieldOf(c, d));
      }),
    );
  });

  it('refuse reservation ids that a script could misread, and unknown states', () => {
    for (const id of ['', '["x"]', 'a"b', 'a\\b', 'a\nb', 'x'.repeat(129)])
      expect(() => checkReservationId(id)).toThrow(RangeError);
    checkReservationId('rsv_a-B 9');
    const wish = request();
    expect(() => recordOf('z', fieldOf('u', 'r'), textOfRequest(wish, nowMs), '', 1)).toThrow(
      /state z/,
    );
  });
});
