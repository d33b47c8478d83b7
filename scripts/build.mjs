// Builds dist/: TypeScript projects, then the files that are not TypeScript, then the web bundles.
// Run by `npm ci` (prepare), `npm run build`, and scripts/sluice.mjs when dist/ is older than its sources.
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const dist = join(root, 'dist');

/** Every file below `folder`, skipping nothing. */
function filesBelow(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

const assetPattern = /\.(sql|lua|json|css|svg|html|yaml)$/;

function compile() {
  const tsc = join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const result = spawnSync(process.execPath, [tsc, '-b', join(root, 'tsconfig.json')], {
    stdio: 'inherit',
  });
  if (result.status !== 0) {
    console.error('build: TypeScript found errors; dist/ is not complete.');
    process.exit(1);
  }
}

function copyAssets() {
  for (const path of filesBelow(join(root, 'src'))) {
    if (!assetPattern.test(path) || path.endsWith('tsconfig.json')) continue;
    const target = join(dist, relative(join(root, 'src'), path));
    mkdirSync(dirname(target), { recursive: true });
    cpSync(path, target);
  }
}

async function bundleWeb() {
  const { build } = await import('esbuild');
  const out = join(dist, 'web');
  rmSync(out, { recursive: true, force: true });
  mkdirSync(out, { recursive: true });
  const entryPoints = ['storefront', 'console']
    .flatMap((name) => filesBelow(join(root, 'web', name)))
    .filter((path) => /[\\/]main\.ts$/.test(path) || path.endsWith('.css'));
  if (entryPoints.length > 0) {
    await build({
      entryPoints,
      outdir: out,
      outbase: join(root, 'web'),
      bundle: true,
      minify: true,
      format: 'esm',
      target: 'es2022',
      logLevel: 'warning',
    });
  }
}

/** Newest modification time below the folders that dist/ is made from. */
export function newestSourceMs() {
  const inputs = ['src', 'web', 'scripts'].flatMap((name) => filesBelow(join(root, name)));
  inputs.push(join(root, 'package.json'), join(root, 'tsconfig.base.json'));
  return Math.max(...inputs.map((path) => statSync(path).mtimeMs));
}

export const stampFile = join(dist, '.stamp');

/** An empty database, packed: a first start then unpacks it instead of making one. */
async function packDatabase() {
  const { writeTemplate } = await import('../dist/stores/postgres/pglite-start.js');
  const { systemTimers } = await import('../dist/app/system.js');
  await writeTemplate(systemTimers);
}

export async function buildAll() {
  compile();
  copyAssets();
  await packDatabase();
  await bundleWeb();
  writeFileSync(stampFile, '');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildAll();
