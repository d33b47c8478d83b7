import { expect, test } from 'vitest';
import { SeededRandom } from '../../test/support/world.ts';
import { ReturnQueue, returnMaxMs, returnsPerSecond } from './return-queue.ts';

/** Everybody is refused every time and does as told: requests in each second of a minute. */
function crowd(people: number, hint: (nowUs: number) => number): readonly number[] {
  const perSecond = Array.from({ length: 120 }, () => 0);
  // In order of time, by millisecond.
  const due = Array.from({ length: 120_000 }, () => 0);
  for (let person = 0; person < people; person += 1) {
    const at = Math.floor((person * 1_000) / people);
    due[at] = (due[at] ?? 0) + 1;
  }
  for (let ms = 0; ms < 120_000; ms += 1) {
    for (let person = 0; person < (due[ms] ?? 0); person += 1) {
      const second = Math.floor(ms / 1_000);
      perSecond[second] = (perSecond[second] ?? 0) + 1;
      const back = ms + hint(ms * 1_000);
      if (back < 120_000) due[back] = (due[back] ?? 0) + 1;
    }
  }
  return perSecond;
}

test('a crowd that is refused comes back no faster than the pace, however large it is', () => {
  for (const people of [20_000, 50_000]) {
    let nowUs = 0;
    const queue = new ReturnQueue(new SeededRandom('returns'), () => nowUs);
    const seen = crowd(people, (atUs) => {
      nowUs = atUs;
      return queue.nextMs();
    });
    // The first minute settles; past the longest hint the crowd's size decides, twice as slow at worst.
    const pace = Math.max(returnsPerSecond, people / (returnMaxMs / 2_000));
    for (const count of seen.slice(60, 118)) expect(count, `${people}`).toBeLessThan(pace * 1.3);
  }
});

test('control: told the same whatever the crowd, it comes back ten times as fast', () => {
  const seen = crowd(20_000, () => 2_000);
  expect(seen[61]! + seen[62]!).toBeGreaterThan(15 * returnsPerSecond);
});

test('a few are told a second or a little more; and at most the longest', () => {
  const queue = new ReturnQueue(new SeededRandom('few'), () => 5_000_000);
  for (let one = 0; one < 500; one += 1) {
    const ms = queue.nextMs();
    expect(ms).toBeGreaterThanOrEqual(1_000);
    expect(ms).toBeLessThan(3_000);
  }
  for (let one = 0; one < 100_000; one += 1) {
    expect(queue.nextMs()).toBeLessThanOrEqual(returnMaxMs);
  }
});
