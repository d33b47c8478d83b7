import { defineConfig } from 'vitest/config';
import { SlowestFirst } from './test/support/slowest-first.ts';

/** Tests that take minutes run when asked for: `npm run test:long`. */
const long = process.env['SLUICE_LONG'] === '1';

/**
 * Two projects: `unit` needs nothing but Node; `system` starts real processes, servers and a
 * browser, so its files run a few at a time and see a fresh build.
 */
export default defineConfig({
  test: {
    passWithNoTests: false,
    sequence: { sequencer: SlowestFirst },
    projects: [
      {
        test: {
          name: 'unit',
          include: [
            'src/**/*.test.ts',
            'test/property/**/*.test.ts',
            'test/contract/**/*.test.ts',
            'test/*.test.ts',
            'bench/**/*.test.ts',
          ],
          // A busy machine is no fault: a test that hangs is found soon enough.
          testTimeout: 120_000,
          hookTimeout: 120_000,
          // By default one processor is left idle, which on a small machine is half of them.
          maxWorkers: '100%',
        },
      },
      {
        test: {
          name: 'system',
          include: [
            'test/e2e/**/*.test.ts',
            'test/scenarios/**/*.test.ts',
            'test/packaging/**/*.test.ts',
          ],
          exclude: long ? [] : ['**/*.long.test.ts'],
          testTimeout: 240_000,
          hookTimeout: 240_000,
          // Four at a time: each starts servers of its own and mostly waits for them.
          maxWorkers: 4,
          sequence: { groupOrder: 1 },
          globalSetup: ['test/support/build-once.ts'],
        },
      },
    ],
  },
});
