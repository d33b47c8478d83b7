import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { freeze } from './freeze.ts';

/**
 * A real NATS server with JetStream in a temporary folder on a free port of the loopback. Started and
 * stopped by this process alone, by its pid.
 */
export interface NatsServer {
  readonly port: number;
  readonly url: string;
  /** SIGKILL, then again on the same folder and port. Resolves once JetStream answers. */
  crash(): Promise<void>;
  /** SIGKILL, and stays down until `start`. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Freezes and thaws the process, as a machine that does not answer. */
  pause(): Promise<void>;
  resume(): void;
  stop(): Promise<void>;
}

export interface NatsServerOptions {
  /** Words of the command line past those for address and folder. */
  readonly words?: readonly string[];
  /** Off: a server that only passes messages on. */
  readonly jetStream?: boolean;
}

export async function startNats(options: NatsServerOptions = {}): Promise<NatsServer> {
  const program = ['/usr/sbin/nats-server', '/usr/bin/nats-server', '/usr/local/bin/nats-server']
    // Debian keeps it among the programs for administrators.
    .find(existsSync);
  if (program === undefined)
    throw new Error(
      'no nats-server: install the package "nats-server" (apt-get install nats-server)',
    );
  const folder = mkdtempSync(join(tmpdir(), 'sluice-nats-'));
  const port = await freePort();
  const storage = options.jetStream === false ? [] : ['-js', '-sd', folder];
  const words = ['-a', '127.0.0.1', '-p', String(port), ...storage, ...(options.words ?? [])];
  let child: ChildProcess;
  let log = '';
  const start = async (): Promise<void> => {
    log = '';
    child = spawn(program, words, { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'] });
    child.stderr?.on('data', (chunk: Buffer) => {
      log = (log + chunk.toString()).slice(-8_000);
    });
    for (let tries = 0; !log.includes('Server is ready') || !(await listens(port)); tries += 1) {
      if (child.exitCode !== null || tries > 500)
        throw new Error(`nats-server on port ${port} did not start:\n${log}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  };
  const kill = async (): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = once(child, 'exit');
    child.kill('SIGKILL');
    await gone;
  };
  const killAtExit = (): void => {
    child.kill('SIGKILL');
  };
  await start();
  process.once('exit', killAtExit);
  return {
    port,
    url: `nats://127.0.0.1:${port}`,
    crash: async () => {
      await kill();
      await start();
    },
    kill,
    start,
    pause: () => freeze(child.pid),
    resume: () => void child.kill('SIGCONT'),
    stop: async () => {
      child.kill('SIGCONT');
      await kill();
      process.removeListener('exit', killAtExit);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function listens(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.destroy();
      resolve(true);
    });
    socket.on('error', () => resolve(false));
  });
}

export async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') throw new Error('no port');
  return address.port;
}
