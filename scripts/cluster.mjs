// A whole deployment on this machine with one command: Redis twice, PostgreSQL, control, two workers,
// two gateway processes behind one port. Ctrl-C stops all of it, by process id, and removes its folder.
//
//   npm run cluster                        ports 8080 and 9090, or free ones where those are taken
//   npm run cluster -- --stock 500 --open-in 10s
//   npm run sluice -- rush --target cluster --people 2000
//
// Where it runs is written to a file that `--target cluster` reads: sluice-cluster.json in the
// system's temporary folder, or wherever --state says.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { buildAll, newestSourceMs, stampFile } from './build.mjs';
import { freePort, startPostgres, startRedis, stopChild } from './servers.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const main = join(root, 'dist', 'main.js');

const { values: options } = parseArgs({
  options: {
    config: { type: 'string', default: join(root, 'examples', 'cluster.yaml') },
    state: { type: 'string', default: join(tmpdir(), 'sluice-cluster.json') },
    'open-in': { type: 'string' },
    stock: { type: 'string' },
    workers: { type: 'string', default: '2' },
    gateways: { type: 'string', default: '2' },
    'no-build': { type: 'boolean', default: false },
  },
});

/** How long a server of ours may take to stop, ms; it promises to need less. */
const stopWithinMs = 15_000;
/** How long one may take until it listens, ms. */
const startWithinMs = 60_000;

const stateFile = resolve(options.state);
const folder = mkdtempSync(join(tmpdir(), 'sluice-cluster-'));
// PostgreSQL may run as another user, who must get through to its own folder and see nothing else.
chmodSync(folder, 0o711);
/** Everything that runs, in the order of its start: name, child, and how it is asked to stop. */
const running = [];
let stopping;

function say(text) {
  process.stdout.write(`${text}\n`);
}

async function isFree(port) {
  const probe = createServer();
  return new Promise((done) => {
    probe.once('error', () => done(false));
    probe.listen({ host: '127.0.0.1', port, exclusive: true }, () => probe.close(() => done(true)));
  });
}

const portOr = async (wanted) => ((await isFree(wanted)) ? wanted : freePort());

function keep(name, child, signal) {
  running.push({ name, child, signal });
  // Asked to stop while something was still starting.
  if (stopping !== undefined) child.kill('SIGKILL');
  child.once('exit', (code, how) => {
    if (stopping === undefined)
      say(`${name} (process ${child.pid}) ended: ${how ?? `exit code ${code}`}`);
  });
  return child;
}

/** Starts `sluice up` and waits for the line that says where it listens. */
async function startSluice(name, flags, environment) {
  const sizes = ['open-in', 'stock'].flatMap((flag) =>
    options[flag] === undefined ? [] : [`--${flag}`, options[flag]],
  );
  const args = [main, 'up', '--config', options.config, '--json', ...sizes, ...flags];
  const child = spawn(process.execPath, args, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...environment },
    // Ctrl-C reaches this script alone, which stops everything in the right order.
    detached: true,
  });
  keep(name, child, 'SIGTERM');
  let printed = '';
  child.stderr.on('data', (part) => {
    printed = (printed + part).slice(-4_000);
    process.stderr.write(part);
  });
  const limit = setTimeout(() => child.kill('SIGKILL'), startWithinMs);
  for await (const line of createInterface(child.stdout)) {
    if (!line.includes('"listening"')) continue;
    clearTimeout(limit);
    child.stdout.resume();
    return { child, ...JSON.parse(line) };
  }
  clearTimeout(limit);
  throw new Error(`${name} did not come up: ${printed}`);
}

/** In the order opposite to the start: gateways first, the database last. */
function stopAll() {
  stopping ??= (async () => {
    const last = running.toReversed();
    const servers = last.filter(({ name }) => /^(redis|postgres)/.test(name));
    const ours = last.filter((one) => !servers.includes(one));
    for (const { child, signal } of ours) await stopChild(child, signal, stopWithinMs);
    await Promise.all(servers.map(({ child, signal }) => stopChild(child, signal, stopWithinMs)));
    if (ownsState()) rmSync(stateFile, { force: true });
    rmSync(folder, { recursive: true, force: true });
  })();
  return stopping;
}

function ownsState() {
  if (!existsSync(stateFile)) return false;
  return JSON.parse(readFileSync(stateFile, 'utf8')).pid === process.pid;
}

async function start() {
  if (
    !options['no-build'] &&
    (!existsSync(stampFile) || statSync(stampFile).mtimeMs < newestSourceMs())
  ) {
    await buildAll();
  }
  say('Starting Redis twice, and PostgreSQL …');
  const [admission, inventory, orders] = await Promise.all([
    startRedis(join(folder, 'admission'), await freePort()),
    startRedis(join(folder, 'inventory'), await freePort()),
    startPostgres(join(folder, 'orders'), await freePort()),
  ]);
  keep('redis-admission', admission.child, 'SIGTERM');
  keep('redis-inventory', inventory.child, 'SIGTERM');
  keep('postgres', orders.child, 'SIGINT');
  const environment = {
    SLUICE_ADMISSION: admission.url,
    SLUICE_INVENTORY: inventory.url,
    SLUICE_ORDERS: orders.url,
    SLUICE_DATA: join(folder, 'data'),
    SLUICE_PORT: String(await portOr(8080)),
    SLUICE_ADMIN_PORT: String(await portOr(9090)),
  };
  say('Starting control, workers and gateways …');
  const control = await startSluice('control', ['--role', 'control'], environment);
  await Promise.all(
    Array.from({ length: Number(options.workers) }, (_, at) =>
      startSluice(`worker-${at + 1}`, ['--role', 'worker', '--admin-port', '0'], environment),
    ),
  );
  const gateways = await startSluice(
    'gateways',
    ['--role', 'gateway', ...(options.gateways === '1' ? [] : ['--processes', options.gateways])],
    environment,
  );
  const state = {
    schema_version: 1,
    pid: process.pid,
    shop: gateways.shop,
    operator: control.operator,
    admin_token_file: join(environment.SLUICE_DATA, 'admin-token'),
    config: resolve(options.config),
    environment,
    processes: Object.fromEntries(running.map(({ name, child }) => [name, child.pid])),
  };
  // Whole or not at all, for whoever reads it meanwhile.
  writeFileSync(`${stateFile}.${process.pid}`, JSON.stringify(state, undefined, 2), {
    mode: 0o600,
  });
  renameSync(`${stateFile}.${process.pid}`, stateFile);
  say(`
  ● A cluster is running

    shop       ${gateways.shop}
    operator   ${control.sign_in}
               this link works once and not for long
    state      ${stateFile}

${running.map(({ name, child }) => `    ${name.padEnd(18)} process ${child.pid}`).join('\n')}

    npm run sluice -- rush --target cluster --people 2000
    Ctrl-C stops all of it.
`);
}

for (const signal of ['SIGINT', 'SIGTERM']) {
  process.on(signal, () => {
    stopAll().then(
      () => process.exit(0),
      (error) => {
        console.error(error);
        process.exit(1);
      },
    );
  });
}

try {
  await start();
  await once(process, 'beforeExit');
} catch (error) {
  if (stopping === undefined) console.error(`cluster: ${error.message}`);
  await stopAll();
  process.exitCode = 1;
}
