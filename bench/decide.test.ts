import { expect, test } from 'vitest';
import { decide, smallSize } from './decide.bench.ts';

test('the small size runs, every contender admits everything, and the report has its fields', async () => {
  const { report } = await decide(smallSize);
  expect(report).toMatchObject({ bench: 'decide', better: 'lower', ratio: expect.any(Number) });
  const hashes = new Set(String(report.result_hash).split(' '));
  expect(hashes.size).toBe(1);
  // What a key costs is told at a million of them; in a small heap it drowns in the rest.
  expect(report.bytes_per_key).toEqual(expect.any(Number));
  expect(report.vs_rate_limiter_flexible).toEqual(expect.any(Number));
  expect(report.max_slice_ms).toEqual(expect.any(Number));
});
