// `npm test`: set-up, build, types, lint, format, every test; nothing skipped. The last line is plain:
// "N passed, N failed". `--long` gives randomised tests and benches their long sizes.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { advice, setUp } from './setup.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const known = ['--long'];
const wrong = process.argv.slice(2).filter((word) => !known.includes(word));
if (wrong.length > 0) {
  console.error(`test: found ${wrong.join(' ')}; allowed: ${known.join(' ')}, or nothing.
To run some tests only: npx vitest run PATH`);
  process.exit(2);
}
const long = process.argv.includes('--long');
const bin = (name) => join(root, 'node_modules', '.bin', name);

/** Runs a program; resolves with its exit code and all it said. Quiet ones are shown when they fail. */
function run(file, args, { quiet = false, env = {} } = {}) {
  return new Promise((resolve, reject) => {
    const child = spawn(file, args, {
      cwd: root,
      stdio: ['ignore', quiet ? 'pipe' : 'inherit', quiet ? 'pipe' : 'inherit'],
      env: { ...process.env, ...env },
    });
    let said = '';
    const listen = (chunk) => {
      said += chunk;
    };
    child.stdout?.on('data', listen);
    child.stderr?.on('data', listen);
    child.on('error', reject);
    child.on('exit', (code) => resolve({ code: code ?? 1, said }));
  });
}

const failedSteps = [];
let passedSteps = 0;

async function step(name, file, args) {
  const startedMs = performance.now();
  const { code, said } = await run(file, args, { quiet: true });
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  console.log(`${code === 0 ? 'ok    ' : 'FAILED'}  ${name}  (${seconds} s)`);
  if (code === 0) passedSteps += 1;
  else {
    failedSteps.push(name);
    console.log(said);
  }
}

const absent = setUp();
if (absent.length > 0) {
  failedSteps.push('set-up');
  console.error(advice(absent));
}
await step('build', process.execPath, ['scripts/build.mjs']);
// Two at a time: the smallest machine has two cores.
await Promise.all([
  (async () => {
    await step('types of tests', bin('tsc'), ['-p', 'test/tsconfig.json']);
    await step('types of pages', bin('tsc'), ['-p', 'web/tsconfig.json']);
  })(),
  (async () => {
    await step('lint', bin('oxlint'), ['--type-aware', '--deny-warnings']);
    await step('format', bin('biome'), ['format', '.']);
  })(),
]);

const folder = mkdtempSync(join(tmpdir(), 'sluice-test-'));
const resultFile = join(folder, 'result.json');
await run(
  bin('vitest'),
  ['run', '--reporter=default', '--reporter=json', `--outputFile.json=${resultFile}`],
  { env: long ? { SLUICE_LONG: '1' } : {} },
).then(({ code }) => {
  let result;
  try {
    result = JSON.parse(readFileSync(resultFile, 'utf8'));
  } catch (error) {
    failedSteps.push(`tests (no result: ${error.message})`);
    return;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  passedSteps += result.numPassedTests;
  for (const file of result.testResults) {
    if (
      file.status === 'failed' &&
      file.assertionResults.every(({ status }) => status !== 'failed')
    )
      failedSteps.push(`${file.name}: ${file.message}`);
    for (const { status, fullName } of file.assertionResults) {
      if (status === 'failed') failedSteps.push(fullName);
      // A test that does not run proves nothing, and looks as if it did.
      else if (status !== 'passed')
        failedSteps.push(`${fullName} (${status}: every test must run)`);
    }
  }
  if (code !== 0 && failedSteps.length === 0)
    failedSteps.push('tests (an error outside of any test; see above)');
});

for (const name of failedSteps) console.log(`failed: ${name.split('\n')[0]}`);
console.log(`${passedSteps} passed, ${failedSteps.length} failed`);
process.exit(failedSteps.length === 0 ? 0 : 1);
