import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { build } from 'esbuild';
import { expect, test } from 'vitest';

/** `sluice/outbound` as others load it: by the package's own name, from the built files. */
const root = join(import.meta.dirname, '../..');

test('does its work in a process of its own, and lets it end', () => {
  const script = `
    import { createOutbound, OutboundRefusedError, OutcomeUnknownError } from 'sluice/outbound';
    const billing = createOutbound({ name: 'billing', timeoutMs: 40, slots: 1, rate: '100/s', burst: 9 });
    const said = [];
    const hung = billing.call(({ signal }) => new Promise((_, reject) => {
      signal.addEventListener('abort', () => reject(signal.reason));
    })).catch((error) => said.push(error instanceof OutcomeUnknownError));
    await billing.call(async () => 1).catch((error) => {
      said.push(error instanceof OutboundRefusedError && error.reason);
    });
    await hung;
    await new Promise((resolve) => setImmediate(resolve));
    said.push(await billing.call(async ({ remainingMs }) => remainingMs > 0 && remainingMs <= 40));
    process.stdout.write(JSON.stringify(said));`;
  const run = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    cwd: root,
    timeout: 20_000,
    encoding: 'utf8',
  });
  expect([run.status, run.stdout, run.stderr]).toEqual([0, '["slots",true,true]', '']);
});

test('brings pure code alone with it', async () => {
  const result = await build({
    entryPoints: [join(root, 'dist/middleware/outbound.js')],
    bundle: true,
    format: 'esm',
    platform: 'node',
    write: false,
    metafile: true,
    logLevel: 'silent',
  });
  const inputs = Object.keys(result.metafile.inputs).map((path) =>
    path.replace(/^.*?dist\//, 'dist/'),
  );
  expect(inputs.filter((path) => !/^dist\/(middleware|outbound|core|ports)\//.test(path))).toEqual(
    [],
  );
});

test('its types say what a call answers, and refuse what there is not', () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-types-'));
  try {
    mkdirSync(join(folder, 'node_modules', '@types'), { recursive: true });
    symlinkSync(root, join(folder, 'node_modules', 'sluice'));
    symlinkSync(
      join(root, 'node_modules/@types/node'),
      join(folder, 'node_modules', '@types', 'node'),
    );
    writeFileSync(join(folder, 'package.json'), '{"type":"module"}');
    writeFileSync(
      join(folder, 'use.ts'),
      `import { createOutbound } from 'sluice/outbound';
const billing = createOutbound({ name: 'billing', timeoutMs: 800, rate: '200/s', retry: { attempts: 3 } });
const text: string = await billing.call(async ({ signal }) => (await fetch('http://x', { signal })).text());
text.length;
// @ts-expect-error: there is no such option
createOutbound({ name: 'billing', timeoutMs: 800, retries: 3 });
// @ts-expect-error: without a time limit there is no call
createOutbound({ name: 'billing' });
`,
    );
    const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
    const flags = '--noEmit --strict --module nodenext --target es2022 --skipLibCheck --types node';
    const run = spawnSync(process.execPath, [tsc, ...flags.split(' '), 'use.ts'], {
      cwd: folder,
      encoding: 'utf8',
    });
    expect([run.stdout, run.status]).toEqual(['', 0]);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

test('the manifest names its types', () => {
  const manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    exports: Record<string, { types: string }>;
  };
  const types = readFileSync(join(root, manifest.exports['./outbound']?.types ?? ''), 'utf8');
  expect(types).toContain('createOutbound');
});
