import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { World } from '../../test/support/world.ts';
import { leadingZeroBits } from '../core/pass/challenge.ts';
import { solveWork } from './work.ts';

/** A device whose clock moves a little at each look, so that slices end. */
function device(hidden = false) {
  const world = new World();
  const slept: number[] = [];
  let nowMs = world.wallMs();
  return {
    slept,
    nowMs: () => (nowMs += 0.5),
    hidden: () => hidden,
    after: (delayMs: number, run: () => void) => {
      slept.push(delayMs);
      queueMicrotask(run);
      return () => undefined;
    },
  };
}

const bitsOf = (answer: string): number =>
  leadingZeroBits(createHash('sha256').update(answer).digest());

describe('proof of work', () => {
  it('is found for a token of any length, and holds by the platform’s hash', async () => {
    for (let length = 0; length < 140; length += 1) {
      const token = 'ä'.repeat(length % 3) + 'x'.repeat(length);
      const answer = await solveWork(device(), token, 5);
      expect(answer?.startsWith(`${token}~`)).toBe(true);
      expect([length, bitsOf(answer ?? '') >= 5]).toEqual([length, true]);
    }
  });

  it('takes about two to the bits tries, and lets the page live between slices', async () => {
    const here = device();
    const shares: number[] = [];
    const answer = await solveWork(here, 'token', 13, {
      onProgress: (share, remainingMs) => {
        shares.push(share);
        expect(remainingMs).toBeGreaterThan(0);
      },
    });
    expect(bitsOf(answer ?? '')).toBeGreaterThanOrEqual(13);
    expect(shares).toEqual(shares.toSorted((a, b) => a - b));
    expect(here.slept).toHaveLength(shares.length);
    expect(shares.length).toBeGreaterThan(0);
  });

  it('works in longer slices where the tab is hidden', async () => {
    const [seen, unseen] = [device(false), device(true)];
    await solveWork(seen, 'token', 14);
    await solveWork(unseen, 'token', 14);
    expect(unseen.slept.length).toBeLessThan(seen.slept.length / 5);
  });

  it('is given up when told to, or when its time is over', async () => {
    const stop = new AbortController();
    stop.abort();
    expect(await solveWork(device(), 'token', 30, { signal: stop.signal })).toBeUndefined();
    expect(await solveWork(device(), 'token', 30, { limitMs: 20 })).toBeUndefined();
  });

  it('refuses bits that nobody could do', async () => {
    await expect(solveWork(device(), 'token', 31)).rejects.toThrow('31 bits');
    await expect(solveWork(device(), 'token', 1.5)).rejects.toThrow('1.5 bits');
  });
});
