import { describe, expect, test } from 'vitest';
import { laneKey } from './lanes.ts';
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

describe('the yield', () => {
  const lanes = [laneKey('', ['fri']), laneKey('', ['sat'])];

  /** Waves whose people of Friday come, and of Saturday nobody; Saturday has no stock, or has some. */
  function yieldWith(onSale: readonly string[], mode: 'NORMAL' | 'DEGRADED' = 'NORMAL'): number {
    const book = new WaveBook(expiresAtMs, closesAtMs);
    book.onSale = new Set(onSale);
    let sequence = 0;
    for (let wave = 1; wave <= 30; wave += 1) {
      const atMs = wave * 1_000;
      book.release(
        wave,
        atMs,
        atMs + closesAtMs,
        lanes.map((lane) => ({ lane, people: 5 })),
      );
      book.settle(atMs + 500, mode);
      for (let one = 0; one < 5; one += 1) {
        sequence += 1;
        const claim = { entryId: `e${sequence}`, wave, skuId: 'fri' };
        book.claim(sequence, lanes[0]!, { ...claim, expiresAtMs: atMs + 500 + expiresAtMs });
        book.finish(sequence, lanes[0]!, 'bought', mode);
      }
    }
    book.settle(60_000, mode);
    return book.yield;
  }

  test('does not fall where people do not come for what is sold out', () => {
    expect(yieldWith(['fri'])).toBeGreaterThan(0.85);
    // The same silence where there is stock is their own decision.
    expect(yieldWith(['fri', 'sat'])).toBeLessThan(0.65);
  });

  test('is frozen outside NORMAL', () => {
    expect(yieldWith(['fri', 'sat'], 'DEGRADED')).toBeCloseTo(1 / 1.2, 5);
  });

  test('is not moved by failures, and by people who think better of it', () => {
    const after = (outcome: 'failed' | 'gave_up'): number => {
      const book = new WaveBook(expiresAtMs, closesAtMs);
      book.release(1, 0, closesAtMs, [{ lane: '', people: 200 }]);
      for (let one = 0; one < 200; one += 1) {
        book.claim(one, '', { entryId: `e${one}`, wave: 1, skuId: 'a', expiresAtMs });
        book.finish(one, '', outcome, 'NORMAL');
      }
      book.settle(closesAtMs, 'NORMAL');
      return book.yield;
    };
    expect(after('failed')).toBeGreaterThan(0.8);
    expect(after('gave_up')).toBeLessThan(0.8);
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
