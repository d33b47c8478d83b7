// `npm run bench -- NAME [--small]`: builds when needed, then runs bench/NAME.ts.
import { spawn } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { buildAll, newestSourceMs, stampFile } from './build.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const [name, ...rest] = process.argv.slice(2);
const known = readdirSync(join(root, 'bench'))
  .filter((file) => file.endsWith('.bench.ts'))
  .map((file) => file.replace('.bench.ts', ''));
if (name === undefined || !known.includes(name)) {
  console.error(
    `usage: npm run bench -- NAME [--small]\nfound "${name ?? ''}", allowed: ${known.join(', ')}`,
  );
  process.exit(2);
}
if (!existsSync(stampFile) || statSync(stampFile).mtimeMs < newestSourceMs()) await buildAll();
const child = spawn(
  process.execPath,
  ['--expose-gc', '--import', 'tsx', join(root, 'bench', `${name}.bench.ts`), ...rest],
  { cwd: root, stdio: 'inherit' },
);
child.on('exit', (code, signal) => process.exit(signal ? 1 : (code ?? 1)));
