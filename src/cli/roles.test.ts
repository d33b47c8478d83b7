import { expect, test } from 'vitest';
import { runCommand } from './program.ts';

async function up(...flags: readonly string[]): Promise<{ code: number; err: string }> {
  let err = '';
  const code = await runCommand(['up', ...flags], '0', {
    environment: {},
    out: () => undefined,
    err: (text) => {
      err += text;
    },
    isTty: false,
    errIsTty: false,
    nowMs: () => 0,
    stopSignal: () => new Promise(() => undefined),
  });
  return { code, err };
}

test.each([
  [['--role', 'gatway'], /--role: found "gatway"; allowed: gateway, worker, control/],
  [['--processes', '0'], /--processes: found "0"; allowed: 1 to 64/],
  [['--processes', '2'], /found with roles gateway, worker, control; allowed: with --role gateway/],
  [['--role', 'gateway', '--processes', '2'], /stores\.admission: memory.*one process keeps/],
  [['--role', 'worker'], /--role worker: found .*stores\.orders: pglite.*examples\/cluster\.yaml/],
])('up %j is refused with what is allowed', async (flags, message) => {
  const { code, err } = await up(...flags);
  expect(code).toBe(2);
  expect(err).toMatch(message);
});
