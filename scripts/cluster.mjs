// A whole deployment on this machine with one command: Redis twice, PostgreSQL, control, two workers,
// two gateway processes behind one port. Ctrl-C stops all of it, by process id, and removes its folder.
//
//   npm run cluster                        ports 8080 and 9090 (SLUICE_PORT, SLUICE_ADMIN_PORT), or
//                                          free ones where those are taken
//   npm run cluster -- --stock 500 --open-in 10s
//   npm run cluster -- --standby           the inventory has a replica, which takes over when it dies
//   npm run sluice -- rush --target cluster --people 2000
//
// What dies is started again after a second, as whatever runs such processes on the day would do it.
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
import {
  freePort,
  promoteRedis,
  startPostgres,
  startRedis,
  startRedisReplica,
  stopChild,
} from './servers.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const main = join(root, 'dist', 'main.js');

const help = `npm run cluster [-- OPTIONS]: a whole deployment on this machine; Ctrl-C stops all of it.

  --open-in TIME    when the sale opens, e.g. 10s
  --stock N         units of the sale
  --workers N       worker processes (2)
  --gateways N      gateway processes behind one port (2)
  --standby         the inventory has a replica, which takes over when it dies
  --config FILE     the sale (examples/cluster.yaml)
  --state FILE      where others read what runs (sluice-cluster.json in the temporary folder)
  --no-build        start what was built before`;

/** What was asked for; ends here with what is allowed where it cannot be. */
function asked() {
  try {
    return parseArgs({
      options: {
        help: { type: 'boolean', short: 'h', default: false },
        config: { type: 'string', default: join(root, 'examples', 'cluster.yaml') },
        state: { type: 'string', default: join(tmpdir(), 'sluice-cluster.json') },
        'open-in': { type: 'string' },
        stock: { type: 'string' },
        workers: { type: 'string', default: '2' },
        gateways: { type: 'string', default: '2' },
        standby: { type: 'boolean', default: false },
        'no-build': { type: 'boolean', default: false },
      },
    }).values;
  } catch (error) {
    console.error(`${error.message}\n\n${help}`);
    process.exit(2);
  }
}

const options = asked();
if (options.help) {
  console.log(help);
  process.exit(0);
}

/** How long a server of ours may take to stop, ms; it promises to need less. */
const stopWithinMs = 15_000;
/** How long one may take until it listens, ms. */
const startWithinMs = 60_000;
/** Between the end of a process and the start of the one in its place, ms. */
const againAfterMs = 1_000;

const stateFile = resolve(options.state);
const folder = mkdtempSync(join(tmpdir(), 'sluice-cluster-'));
// PostgreSQL may run as another user, who must get through to its own folder and see nothing else.
chmodSync(folder, 0o711);
/** Everything that runs, in the order of its start: name, child, and how it is asked to stop. */
const running = [];
let stopping;
/** The replica of the inventory that waits for its turn: port and child. */
let standby;
/** What others are told of this cluster, once it runs. */
let state;

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

const portOr = async (wanted) => (wanted > 0 && (await isFree(wanted)) ? wanted : freePort());

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

function keep(name, child, signal) {
  const at = running.findIndex((one) => one.name === name);
  const one = { name, child, signal };
  if (at < 0) running.push(one);
  else running[at] = one;
  // Asked to stop while something was still starting.
  if (stopping !== undefined) child.kill('SIGKILL');
  child.once('exit', (code, how) => {
    if (stopping === undefined)
      say(`${name} (process ${child.pid}) ended: ${how ?? `exit code ${code}`}`);
  });
  return child;
}

/** Starts it, and again whenever it has ended. `start` resolves once it is there, to its child and more. */
async function keepUp(name, start) {
  const started = await start();
  const ended = () => void again(name, start);
  if (started.child.exitCode !== null || started.child.signalCode !== null) ended();
  else started.child.once('exit', ended);
  return started;
}

async function again(name, start) {
  for (;;) {
    await pause(againAfterMs);
    if (stopping !== undefined) return;
    try {
      const { child } = await keepUp(name, start);
      say(`${name} runs again (process ${child.pid})`);
      writeState();
      return;
    } catch (error) {
      if (stopping === undefined) say(`${name} does not start: ${error.message}`);
    }
  }
}

async function startServer(name, signal, start) {
  const started = await start();
  keep(name, started.child, signal);
  return started;
}

/** Where the inventory has a replica, that takes the place of one which died, and gets a replica itself. */
async function startInventory(port) {
  const folderOf = () => mkdtempSync(join(folder, 'inventory-'));
  const name = 'redis-inventory';
  let server;
  if (standby === undefined) {
    server = await startServer(name, 'SIGTERM', () => startRedis(join(folder, 'inventory'), port));
  } else {
    const { port: from, child } = standby;
    standby = undefined;
    await promoteRedis(from, port);
    running.splice(
      running.findIndex((one) => one.child === child),
      1,
    );
    keep(name, child, 'SIGTERM');
    server = { child, url: `redis://127.0.0.1:${port}` };
  }
  if (options.standby) {
    const ofStandby = await freePort();
    const { child } = await startServer('redis-standby', 'SIGTERM', () =>
      startRedisReplica(folderOf(), ofStandby, port),
    );
    standby = { port: ofStandby, child };
  }
  return server;
}

/** Whole or not at all, for whoever reads it meanwhile. */
function writeState() {
  if (state === undefined || stopping !== undefined) return;
  const now = {
    ...state,
    ...(standby === undefined ? {} : { inventory_standby: `redis://127.0.0.1:${standby.port}` }),
    processes: Object.fromEntries(running.map(({ name, child }) => [name, child.pid])),
  };
  const draft = `${stateFile}.${process.pid}`;
  writeFileSync(draft, JSON.stringify(now, undefined, 2), { mode: 0o600 });
  renameSync(draft, stateFile);
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
  child.kill('SIGKILL');
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

/**
 * Rules in a file of their own, so that they can be changed while all of it runs: a configuration that
 * writes none gets the ordinary ones in one. Answers the configuration to start from.
 */
async function withRulesFile(file, environment) {
  const { loadConfig } = await import('../dist/config/load.js');
  const { defaultRules } = await import('../dist/core/rules/default-set.js');
  const text = readFileSync(file, 'utf8');
  const env = { ...process.env, ...environment };
  const loaded = loadConfig({ text, name: file, environment: env, nowMs: Date.now() });
  // What is wrong with it is told by the first process that reads it.
  if (!loaded.ok || loaded.config.rules.kind !== 'default') return file;
  const rules = defaultRules(loaded.config.budgets);
  const rulesFile = join(folder, 'rules.yaml');
  const lines = rules.map((rule) => `  - ${JSON.stringify(rule)}\n`);
  writeFileSync(rulesFile, `version: 1\nrules:\n${lines.join('')}`);
  const made = join(folder, 'cluster.yaml');
  writeFileSync(made, `${text}\nrules_file: ${JSON.stringify(rulesFile)}\n`);
  return made;
}

async function start() {
  if (
    !options['no-build'] &&
    (!existsSync(stampFile) || statSync(stampFile).mtimeMs < newestSourceMs())
  ) {
    await buildAll();
  }
  say('Starting Redis twice, and PostgreSQL …');
  const ports = [await freePort(), await freePort(), await freePort()];
  const [admission, inventory, orders] = await Promise.all([
    keepUp('redis-admission', () =>
      startServer('redis-admission', 'SIGTERM', () =>
        startRedis(join(folder, 'admission'), ports[0]),
      ),
    ),
    keepUp('redis-inventory', () => startInventory(ports[1])),
    keepUp('postgres', () =>
      startServer('postgres', 'SIGINT', () => startPostgres(join(folder, 'orders'), ports[2])),
    ),
  ]);
  const environment = {
    SLUICE_ADMISSION: admission.url,
    SLUICE_INVENTORY: inventory.url,
    SLUICE_ORDERS: orders.url,
    SLUICE_DATA: join(folder, 'data'),
  };
  options.config = await withRulesFile(resolve(options.config), environment);
  // Looked for last: what is free now may not be in a second.
  environment.SLUICE_PORT = String(await portOr(Number(process.env.SLUICE_PORT ?? 8080)));
  environment.SLUICE_ADMIN_PORT = String(
    await portOr(Number(process.env.SLUICE_ADMIN_PORT ?? 9090)),
  );
  say('Starting control, workers and gateways …');
  const control = await keepUp('control', () =>
    startSluice('control', ['--role', 'control'], environment),
  );
  await Promise.all(
    Array.from({ length: Number(options.workers) }, (_, at) => {
      const name = `worker-${at + 1}`;
      const flags = ['--role', 'worker', '--admin-port', '0'];
      return keepUp(name, () => startSluice(name, flags, environment));
    }),
  );
  const many = options.gateways === '1' ? [] : ['--processes', options.gateways];
  const gateways = await keepUp('gateways', () =>
    startSluice('gateways', ['--role', 'gateway', ...many], environment),
  );
  state = {
    schema_version: 1,
    pid: process.pid,
    shop: gateways.shop,
    operator: control.operator,
    admin_token_file: join(environment.SLUICE_DATA, 'admin-token'),
    config: resolve(options.config),
    environment,
  };
  writeState();
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
