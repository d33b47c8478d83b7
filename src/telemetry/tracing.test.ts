import { describe, expect, test } from 'vitest';
import { fc } from '../../test/support/property.ts';
import { SeededRandom, World } from '../../test/support/world.ts';
import { formatTraceparent, parseTraceparent } from '../core/trace/context.ts';
import { OtlpExporter, otlpBody } from './otlp.ts';
import { askedPerSecond, bufferMax, Tracing } from './tracing.ts';

const asked = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

function scene(ratio = 0) {
  const world = new World();
  const tracing = new Tracing({ clock: world, random: new SeededRandom('traces'), ratio });
  return { world, tracing };
}

describe('the context', () => {
  test('what is written is read back, and anything else is none', () => {
    const hex = (length: number) =>
      fc
        .array(fc.constantFrom(...'0123456789abcdef'.split('')), {
          minLength: length,
          maxLength: length,
        })
        .map((digits) => digits.join(''))
        .filter((text) => !/^0+$/.test(text));
    fc.assert(
      fc.property(hex(32), hex(16), fc.boolean(), (traceId, spanId, sampled) => {
        const context = { traceId, spanId, sampled };
        expect(parseTraceparent(formatTraceparent(context))).toEqual(context);
      }),
    );
    fc.assert(fc.property(fc.string(), (text) => parseTraceparent(text) === undefined));
  });
});

describe('sampling', () => {
  test('who asks is traced, so many per second; the ratio is for everybody else', async () => {
    const { world, tracing } = scene();
    const traced = (count: number, traceparent?: string): number =>
      Array.from({ length: count }, () => tracing.begin('submit', traceparent)).filter(
        (span) => span !== undefined,
      ).length;
    expect(traced(1_000, asked)).toBe(askedPerSecond);
    expect(traced(1_000)).toBe(0);
    await world.advance(1_000);
    expect(traced(10, asked)).toBe(10);
    expect(traced(10, asked.replace(/1$/, '0'))).toBe(0);
    const some = scene(0.1).tracing;
    const count = Array.from({ length: 5_000 }, () => some.begin('submit', undefined)).filter(
      (span) => span !== undefined,
    ).length;
    expect(count).toBeGreaterThan(350);
    expect(count).toBeLessThan(650);
  });

  test('a ratio that is none is quoted', () => {
    expect(() => scene(1.5)).toThrow(/ratio 1.5/);
  });

  test('the buffer is bounded, and what does not fit is counted', () => {
    const { tracing } = scene(1);
    for (let i = 0; i < bufferMax + 10; i += 1) tracing.begin('submit', undefined)?.end(false);
    expect([tracing.waiting, tracing.dropped]).toEqual([bufferMax, 10]);
  });

  test('a clock that jumps bends no span, and an end is said once', async () => {
    const { world, tracing } = scene(1);
    const span = tracing.begin('submit', undefined);
    world.jumpWall(-3_600_000);
    await world.advance(5);
    span?.end(false);
    span?.end(true);
    const [kept, ...more] = tracing.take(10);
    expect(more).toEqual([]);
    expect([(kept?.endMs ?? 0) - (kept?.startMs ?? 0), kept?.failed]).toEqual([5, false]);
  });

  test('work told twice is one span', () => {
    const { tracing } = scene();
    const done = { startedAtMs: 0, key: 'rsv_1', attributes: {} };
    tracing.record('order', asked, done);
    tracing.record('order', asked, done);
    tracing.record('order', asked.replace(/1$/, '0'), done);
    tracing.record('order', undefined, done);
    const [one, two, ...more] = tracing.take(10);
    expect([one?.context.spanId, more]).toEqual([two?.context.spanId, []]);
  });
});

test('nanoseconds stay exact, ids stay hex', () => {
  const { tracing } = scene(1);
  tracing.begin('submit', asked)?.end(true);
  const body = otlpBody(tracing.take(1), { 'service.name': 'sluice' });
  expect(body).toContain('"startTimeUnixNano":"1800000000000000000"');
  expect(body).toContain('"traceId":"4bf92f3577b34da6a3ce929d0e0e4736"');
  expect(body).toContain('"status":{"code":2}');
});

test('what cannot be sent is lost and counted; the next second sends what has finished by then', async () => {
  const { world, tracing } = scene(1);
  const sent: string[] = [];
  const lost: number[] = [];
  let isDown = true;
  const exporter = new OtlpExporter({
    tracing,
    timers: world,
    resource: {},
    post: async (body) => {
      if (isDown) throw new Error('down');
      sent.push(body);
    },
    onError: (_error, spans) => lost.push(spans),
  });
  exporter.start();
  for (let i = 0; i < 3; i += 1) tracing.begin('submit', undefined)?.end(false);
  await world.advance(1_100);
  expect([lost, exporter.counts.failed]).toEqual([[3], 3]);
  isDown = false;
  tracing.begin('submit', undefined)?.end(false);
  await exporter.close();
  expect([sent.length, exporter.counts]).toEqual([1, { exported: 1, failed: 3, dropped: 0 }]);
});
