import { defineConfig } from 'vitest/config';

/**
 * Two projects: `unit` needs nothing but Node; `system` starts real processes, servers and a
 * browser, so its files run two at a time and see a fresh build.
 */
export default defineConfig({
  test: {
    passWithNoTests: false,
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
          testTimeout: 240_000,
          hookTimeout: 240_000,
          // Two at a time: each starts servers of its own and mostly waits for them.
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
          globalSetup: ['test/support/build-once.ts'],
        },
      },
    ],
  },
});
