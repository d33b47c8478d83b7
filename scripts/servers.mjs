// Redis and PostgreSQL in a temporary folder, on free ports of the loopback: started as children,
// stopped by their ids. Used by scripts/cluster.mjs.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, chownSync, existsSync, mkdirSync, readdirSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import pg from 'pg';

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** A port that was free a moment ago. */
export async function freePort() {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

function programOf(names, what) {
  const found = names.find(existsSync);
  if (found === undefined)
    throw new Error(`no ${what}: node scripts/setup.mjs installs it, or apt-get install ${what}`);
  return found;
}

/** Waits, at most half a minute, for a server that may end instead. */
async function answering(child, ask, what) {
  for (let tries = 0; ; tries += 1) {
    if (child.exitCode !== null) throw new Error(`${what} ended with exit code ${child.exitCode}`);
    if (await ask().catch(() => false)) return;
    if (tries > 300) {
      child.kill('SIGKILL');
      throw new Error(`${what} does not answer`);
    }
    await pause(100);
  }
}

/** One command on a connection of its own; the beginning of the reply as it came. */
export function redisSay(port, ...words) {
  return new Promise((resolve, reject) => {
    const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
    const socket = connect(port, '127.0.0.1', () =>
      socket.write(`*${words.length}\r\n${parts.join('')}`),
    );
    socket.setTimeout(2_000, () => socket.destroy(new Error(`no answer to ${words[0]}`)));
    socket.once('error', reject);
    socket.once('close', () => reject(new Error(`cut off at ${words[0]}`)));
    socket.once('data', (data) => {
      resolve(data.toString());
      socket.destroy();
    });
  });
}

const redisAnswers = async (port) => (await redisSay(port, 'PING')).startsWith('+PONG');

/** One Redis server; what it answered is with the system before it answers. `more` are settings. */
export async function startRedis(folder, port, more = {}) {
  const program = programOf(
    ['/usr/bin/redis-server', '/usr/local/bin/redis-server'],
    'redis-server',
  );
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const settings = {
    port,
    bind: '127.0.0.1',
    dir: folder,
    save: '',
    appendonly: 'yes',
    appendfsync: 'everysec',
    'maxmemory-policy': 'noeviction',
    // A replica need not wait for others that might want the same.
    'repl-diskless-sync-delay': 0,
    // A drill lets it restart, data and all.
    'enable-debug-command': 'local',
    ...more,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [
    `--${name}`,
    ...(value === '' ? [''] : String(value).split(' ')),
  ]);
  const child = spawn(program, args, { cwd: folder, stdio: 'ignore', detached: true });
  await answering(child, () => redisAnswers(port), `redis-server on port ${port}`);
  return { child, url: `redis://127.0.0.1:${port}` };
}

/** PostgreSQL refuses to run as root: then a user that owns nothing runs it. */
function unprivileged() {
  if (process.getuid() !== 0) return {};
  for (const user of ['postgres', 'nobody']) {
    try {
      const id = (flag) =>
        Number(execFileSync('id', [flag, user], { encoding: 'utf8', stdio: 'pipe' }));
      return { uid: id('-u'), gid: id('-g') };
    } catch {
      // The next one.
    }
  }
  throw new Error(
    'PostgreSQL does not run as root, and there is neither a user postgres nor nobody',
  );
}

/** A server that follows the one on port `of`, in step with it. */
export async function startRedisReplica(folder, port, of) {
  const started = await startRedis(folder, port, { replicaof: `127.0.0.1 ${of}` });
  const inStep = async () =>
    (await redisSay(port, 'INFO', 'replication')).includes('master_link_status:up');
  await answering(started.child, inStep, `the replica on port ${port}`);
  return started;
}

/** A replica takes the place, and the port, of a server that is gone: as behind a name that is moved. */
export async function promoteRedis(from, to) {
  await redisSay(from, 'REPLICAOF', 'NO', 'ONE');
  for (let tries = 0; ; tries += 1) {
    if ((await redisSay(from, 'CONFIG', 'SET', 'port', String(to))).startsWith('+OK')) return;
    if (tries > 100) throw new Error(`port ${to} does not become free`);
    await pause(50);
  }
}

/** One PostgreSQL server with an empty database, or with what is in the folder from before. */
export async function startPostgres(folder, port) {
  const base = '/usr/lib/postgresql';
  const versions = existsSync(base)
    ? readdirSync(base)
        .map(Number)
        .sort((a, b) => b - a)
    : [];
  const bin = programOf(
    versions.map((version) => join(base, String(version), 'bin', 'postgres')),
    'postgresql',
  );
  const user = unprivileged();
  mkdirSync(folder, { recursive: true });
  chmodSync(folder, 0o700);
  if (user.uid !== undefined) chownSync(folder, user.uid, user.gid);
  const data = join(folder, 'data');
  const asUser = { ...user, cwd: folder, env: { PATH: process.env.PATH, LC_ALL: 'C' } };
  const making = ['-D', data, '-U', 'sluice', '-A', 'trust', '-E', 'UTF8', '--no-sync'];
  const isNew = !existsSync(join(data, 'PG_VERSION'));
  if (isNew)
    execFileSync(join(bin, '..', 'initdb'), making, {
      ...asUser,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
  const settings = {
    listen_addresses: '127.0.0.1',
    port,
    unix_socket_directories: folder,
    max_connections: 100,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
  const child = spawn(bin, ['-D', data, ...args], { ...asUser, stdio: 'ignore', detached: true });
  const ask = async (text, database = 'postgres') => {
    const client = new pg.Client({
      connectionString: `postgres://sluice@127.0.0.1:${port}/${database}`,
      connectionTimeoutMillis: 2_000,
    });
    client.on('error', () => undefined);
    await client.connect();
    try {
      await client.query(text);
      return true;
    } finally {
      await client.end();
    }
  };
  await answering(child, () => ask('SELECT 1'), `PostgreSQL on port ${port}`);
  if (isNew) await ask('CREATE DATABASE sluice');
  return { child, url: `postgres://sluice@127.0.0.1:${port}/sluice` };
}

/** Ends a child by its id: gently first, by force past the limit. */
export async function stopChild(child, signal, withinMs) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = once(child, 'exit');
  // A process that was frozen hears nothing until it goes on.
  child.kill('SIGCONT');
  child.kill(signal);
  const limit = setTimeout(() => child.kill('SIGKILL'), withinMs);
  await gone;
  clearTimeout(limit);
}
