import { expect, test } from 'vitest';
import { smallSize, start } from './start.bench.ts';

test('the small size starts the real command twice and reports its fields', async () => {
  const { report } = await start(smallSize);
  expect(report).toMatchObject({
    bench: 'start',
    ratio: null,
    first_ms: expect.any(Number),
    again_ms: expect.any(Number),
    rss_mib: expect.any(Number),
  });
}, 240_000);
