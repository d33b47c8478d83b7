import { expect, test } from 'vitest';
import { room, smallSize } from './room.bench.ts';

test('the small size runs: exact wave, no store call in a poll, and the report has its fields', async () => {
  const { report } = await room(smallSize);
  expect(report).toMatchObject({
    bench: 'room',
    better: 'higher',
    ratio: expect.any(Number) as number,
    entries: smallSize.entries,
    wave: smallSize.wave,
    wave_error: 0,
    store_calls_per_poll: 0,
    memory_mib: expect.any(Number) as number,
    draw_ms: expect.any(Number) as number,
  });
});
