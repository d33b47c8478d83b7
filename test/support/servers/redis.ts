import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { type Socket, connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * Real Redis servers in temporary folders on free ports of the loopback, for tests and benchmarks.
 * Started and stopped by this process alone, by their pids.
 */
export interface RedisServer {
  readonly port: number;
  readonly url: string;
  readonly pid: number;
  /** SIGKILL, then again on the same folder and port. Resolves once it answers. */
  crash(): Promise<void>;
  /** SIGKILL, and stays down until `start`. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Freezes and thaws the process, as a machine that does not answer. */
  pause(): void;
  resume(): void;
  /** One command, on a connection of its own; the raw reply. Throws on an error reply. */
  ask(...args: string[]): Promise<string>;
  stop(): Promise<void>;
}

export interface RedisSettings {
  /** Further settings, such as `{ appendonly: 'yes' }`. */
  readonly settings?: Readonly<Record<string, string>>;
}

export function redisProgram(): string {
  const found = ['/usr/bin/redis-server', '/usr/local/bin/redis-server'].find(existsSync);
  if (found === undefined)
    throw new Error(
      'no redis-server: install the package "redis-server" (apt-get install redis-server)',
    );
  return found;
}

export async function startRedis(options: RedisSettings = {}): Promise<RedisServer> {
  const program = redisProgram();
  const folder = mkdtempSync(join(tmpdir(), 'sluice-redis-'));
  const port = await freePort();
  const settings = {
    port: String(port),
    bind: '127.0.0.1',
    dir: folder,
    save: '',
    appendonly: 'no',
    'maxmemory-policy': 'noeviction',
    ...options.settings,
  };
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value]);
  let child: ChildProcess;
  const stopAtExit = (): void => {
    child.kill('SIGKILL');
  };
  const start = async (): Promise<void> => {
    child = spawn(program, args, { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] });
    for (let tries = 0; ; tries += 1) {
      if (child.exitCode !== null) throw new Error(`redis-server exited with ${child.exitCode}`);
      const answer = await ask(port, ['PING']).catch((error: unknown) => error);
      if (answer === '+PONG\r\n') return;
      if (tries > 500)
        throw new Error(`redis-server on port ${port} does not answer`, { cause: answer });
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };
  await start();
  process.once('exit', stopAtExit);
  return {
    port,
    url: `redis://127.0.0.1:${port}`,
    get pid() {
      return child.pid ?? 0;
    },
    crash: async () => {
      await kill();
      await start();
    },
    kill,
    start,
    pause: () => void child.kill('SIGSTOP'),
    resume: () => void child.kill('SIGCONT'),
    ask: async (...command) => {
      const reply = await ask(port, command);
      if (reply.startsWith('-')) throw new Error(`${command.join(' ')}: ${reply.trim()}`);
      return reply;
    },
    stop: async () => {
      child.kill('SIGCONT');
      await kill();
      process.removeListener('exit', stopAtExit);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export interface RedisCluster {
  readonly nodes: readonly RedisServer[];
  readonly urls: readonly string[];
  /** SIGKILL to all, then again. Resolves once all agree that the cluster is whole: seconds. */
  crash(): Promise<void>;
  stop(): Promise<void>;
}

/** A cluster of primaries that share the slots evenly. */
export async function startRedisCluster(
  primaries = 3,
  options: RedisSettings = {},
): Promise<RedisCluster> {
  const nodes = await Promise.all(
    Array.from({ length: primaries }, async () =>
      startRedis({
        settings: {
          'cluster-enabled': 'yes',
          'cluster-node-timeout': '2000',
          'cluster-port': String(await freePort()),
          ...options.settings,
        },
      }),
    ),
  );
  const [first] = nodes;
  if (first === undefined) throw new RangeError('a cluster needs a primary');
  const share = Math.ceil(16_384 / primaries);
  for (const [at, node] of nodes.entries()) {
    const last = Math.min(16_384, (at + 1) * share) - 1;
    await node.ask('CLUSTER', 'ADDSLOTSRANGE', String(at * share), String(last));
    await node.ask('CLUSTER', 'SET-CONFIG-EPOCH', String(at + 1));
  }
  for (const node of nodes.slice(1)) {
    const bus = /cluster-port\r\n\$\d+\r\n(\d+)/.exec(
      await node.ask('CONFIG', 'GET', 'cluster-port'),
    )?.[1];
    await first.ask('CLUSTER', 'MEET', '127.0.0.1', String(node.port), bus ?? '');
  }
  const ready = async (): Promise<void> => {
    for (const node of nodes) {
      for (let tries = 0; ; tries += 1) {
        const info = await node.ask('CLUSTER', 'INFO');
        const whole = info.includes(`cluster_known_nodes:${primaries}`);
        if (whole && info.includes('cluster_state:ok')) break;
        if (tries > 1_000) throw new Error(`the cluster does not form: ${info}`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  };
  await ready();
  return {
    nodes,
    urls: nodes.map((node) => node.url),
    crash: async () => {
      await Promise.all(nodes.map((node) => node.crash()));
      await ready();
    },
    stop: async () => {
      await Promise.all(nodes.map((node) => node.stop()));
    },
  };
}

/** The node that has the slot of this key. */
export async function ownerOf(cluster: RedisCluster, key: string): Promise<RedisServer> {
  const slot = await slotOf(cluster, key);
  for (const node of cluster.nodes) {
    const ranges = await node.ask('CLUSTER', 'NODES');
    const own = ranges.split('\n').find((line) => line.includes('myself')) ?? '';
    const has = own
      .split(' ')
      .slice(8)
      .some((range) => {
        const [from = '', to = from] = range.trim().split('-');
        return Number(from) <= slot && slot <= Number(to);
      });
    if (has) return node;
  }
  throw new Error(`no node has slot ${slot} of ${key}`);
}

/** Moves the slot of this key to another node, as `redis-cli --cluster reshard` does; clients are not told. */
export async function moveSlot(cluster: RedisCluster, key: string): Promise<void> {
  const slot = String(await slotOf(cluster, key));
  const from = await ownerOf(cluster, key);
  const to = cluster.nodes.find((node) => node !== from);
  if (to === undefined) throw new RangeError('a slot moves between two nodes');
  await to.ask('CLUSTER', 'SETSLOT', slot, 'IMPORTING', await nodeId(from));
  await from.ask('CLUSTER', 'SETSLOT', slot, 'MIGRATING', await nodeId(to));
  const names = (await from.ask('CLUSTER', 'GETKEYSINSLOT', slot, '100'))
    .split('\r\n')
    .filter((_, at) => at > 0 && at % 2 === 0);
  await from.ask('MIGRATE', '127.0.0.1', String(to.port), '', '0', '5000', 'KEYS', ...names);
  for (const node of cluster.nodes)
    await node.ask('CLUSTER', 'SETSLOT', slot, 'NODE', await nodeId(to));
}

/** Another node that follows this one. Resolves once it has everything. */
export async function addReplica(
  cluster: RedisCluster,
  primary: RedisServer,
): Promise<RedisServer> {
  const replica = await startRedis({
    settings: {
      'cluster-enabled': 'yes',
      'cluster-node-timeout': '2000',
      'cluster-port': String(await freePort()),
    },
  });
  const bus = /cluster-port\r\n\$\d+\r\n(\d+)/.exec(
    await primary.ask('CONFIG', 'GET', 'cluster-port'),
  )?.[1];
  await replica.ask('CLUSTER', 'MEET', '127.0.0.1', String(primary.port), bus ?? '');
  const id = await nodeId(primary);
  await until(async () => (await replica.ask('CLUSTER', 'NODES')).includes(id));
  await until(async () =>
    replica.ask('CLUSTER', 'REPLICATE', id).then(
      () => true,
      () => false,
    ),
  );
  await until(async () =>
    (await replica.ask('INFO', 'replication')).includes('master_link_status:up'),
  );
  for (const node of cluster.nodes) {
    const own = await nodeId(replica);
    await until(async () => (await node.ask('CLUSTER', 'NODES')).includes(own));
  }
  return replica;
}

/** Makes a replica the owner of its primary's slots, without asking anybody. */
export async function promote(replica: RedisServer): Promise<void> {
  await replica.ask('CLUSTER', 'FAILOVER', 'TAKEOVER');
  await until(async () => (await replica.ask('ROLE')).includes('master'));
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await holds()); tries += 1) {
    if (tries > 1_000) throw new Error('the cluster does not come to that');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function slotOf(cluster: RedisCluster, key: string): Promise<number> {
  return Number((await cluster.nodes[0]?.ask('CLUSTER', 'KEYSLOT', key))?.slice(1, -2));
}

async function nodeId(node: RedisServer): Promise<string> {
  return (await node.ask('CLUSTER', 'MYID')).split('\r\n')[1] ?? '';
}

async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}

function ask(port: number, args: readonly string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const parts = args.map((arg) => `$${Buffer.byteLength(arg)}\r\n${arg}\r\n`);
    let reply = '';
    const socket: Socket = connect(port, '127.0.0.1', () => {
      // QUIT closes the connection behind the reply, so its end is the reply's end.
      socket.write(`*${args.length}\r\n${parts.join('')}*1\r\n$4\r\nQUIT\r\n`);
    });
    socket.setEncoding('utf8');
    socket.on('data', (some: string) => {
      reply += some;
    });
    socket.on('error', reject);
    socket.on('close', () => resolve(reply.replace(/\+OK\r\n$/, '')));
  });
}
