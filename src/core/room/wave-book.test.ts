import { describe, expect, test } from 'vitest';
import { WaveBook } from './wave-book.ts';

const closesAtMs = 10_000;
const expiresAtMs = 30_000;
/** A pass is given up this long after it expired: its request may still be on its way. */
const givenUpAtMs = expiresAtMs + 3_000;

/** One person let in, who has taken a pass. */
function bookWithPass(): WaveBook {
  const book = new WaveBook(expiresAtMs, closesAtMs);
  book.release(1, 0, closesAtMs, [{ lane: '', people: 1 }]);
  claim(book);
  return book;
}

function claim(book: WaveBook): void {
  book.claim(0, '', { entryId: 'e', wave: 1, skuId: 'a', expiresAtMs });
}

/** The same person, whom the clock has taken for somebody who never came. */
function bookOfNoShow(): WaveBook {
  const book = bookWithPass();
  book.settle(givenUpAtMs - 1, 'NORMAL');
  expect(book.totals.missed).toBe(0);
  book.settle(givenUpAtMs, 'NORMAL');
  expect(book.totals).toMatchObject({ missed: 1, finished: 0 });
  expect(book.active).toBe(0);
  return book;
}

describe('news that comes after the clock has concluded', () => {
  const lateNews: Readonly<
    Record<string, readonly [tell: (book: WaveBook) => void, missed: number, active: number]>
  > = {
    bought: [(book) => book.finish(0, '', 'bought', 'NORMAL'), 0, 0],
    'gave up': [(book) => book.finish(0, '', 'gave_up', 'NORMAL'), 0, 0],
    failed: [(book) => book.finish(0, '', 'failed', 'NORMAL'), 0, 0],
    left: [(book) => book.leave(0, '', 1, givenUpAtMs, 'NORMAL'), 0, 0],
    'took the pass again': [claim, 0, 1],
    'the wave is revoked': [(book) => void book.revoke(1), 0, 0],
    // The window is over, so nobody can come of it any more: missed, and once only.
    'the request ended': [(book) => book.end(0, ''), 1, 0],
  };

  test.each(Object.entries(lateNews))('%s: what was counted as missed', (_, given) => {
    const [tell, missed, active] = given;
    const book = bookOfNoShow();
    tell(book);
    expect(book.totals.missed).toBe(missed);
    expect(book.active).toBe(active);
  });

  test('bought, after its request had ended and the window closed', () => {
    const book = bookWithPass();
    book.end(0, '');
    book.settle(closesAtMs, 'NORMAL');
    expect(book.totals.missed).toBe(1);
    book.finish(0, '', 'bought', 'NORMAL');
    expect(book.totals).toMatchObject({ missed: 0, bought: 1 });
  });

  test('ended after the window closed, or before: missed either way, when it is closed', () => {
    const late = bookWithPass();
    late.settle(closesAtMs, 'NORMAL');
    late.end(0, '');
    const early = bookWithPass();
    early.end(0, '');
    expect(early.totals.missed).toBe(0);
    early.settle(closesAtMs, 'NORMAL');
    expect(late.totals).toEqual(early.totals);
    expect(late.totals.missed).toBe(1);
  });
});

test('what is over is settled, and what is not stays, however many there are', () => {
  const book = new WaveBook(expiresAtMs, closesAtMs);
  for (let wave = 1; wave <= 10; wave += 1) {
    book.release(wave, wave * 100, wave * 100 + closesAtMs, [{ lane: '', people: 2 }]);
    book.claim(wave, '', {
      entryId: `e${wave}`,
      wave,
      skuId: 'a',
      expiresAtMs: wave * 100 + expiresAtMs,
    });
  }
  // Five windows closed, each with one who never came; all ten passes live.
  book.settle(500 + closesAtMs, 'NORMAL');
  expect(book.totals.missed).toBe(5);
  expect(book.active).toBe(15);
  // Every window closed, and the first three passes given up.
  book.settle(300 + givenUpAtMs, 'NORMAL');
  expect(book.totals.missed).toBe(13);
  expect(book.active).toBe(7);
  expect(book.livingWaves()).toEqual([4, 5, 6, 7, 8, 9, 10]);
});
