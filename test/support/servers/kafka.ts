import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { kafkaJars } from '../../../scripts/kafka-jars.mjs';
import { freePort } from './nats.ts';

/**
 * A real Kafka broker, its own controller, in a temporary folder on free ports of the loopback.
 * Started and stopped by this process alone, by its pid. Starting takes some seconds.
 */
export interface KafkaServer {
  readonly port: number;
  readonly url: string;
  /** The same broker for whoever is user `shop` with password `p@ss`. */
  readonly securedUrl: string;
  /** SIGKILL, then again on the same folder and ports. Resolves once it takes connections. */
  crash(): Promise<void>;
  kill(): Promise<void>;
  start(): Promise<void>;
  stop(): Promise<void>;
}

const root = fileURLToPath(new URL('../../../', import.meta.url));

export async function startKafka(): Promise<KafkaServer> {
  const jars = kafkaJars(root);
  if (!existsSync(jars.marker))
    throw new Error(`no Kafka in ${jars.folder}: run node scripts/setup.mjs (needs java and mvn)`);
  const folder = mkdtempSync(join(tmpdir(), 'sluice-kafka-'));
  const [port, secured, controller] = [await freePort(), await freePort(), await freePort()];
  const settings = {
    'process.roles': 'broker,controller',
    'node.id': '1',
    'controller.quorum.voters': `1@127.0.0.1:${controller}`,
    listeners: `PLAINTEXT://127.0.0.1:${port},SASL_PLAINTEXT://127.0.0.1:${secured},CONTROLLER://127.0.0.1:${controller}`,
    'advertised.listeners': `PLAINTEXT://127.0.0.1:${port},SASL_PLAINTEXT://127.0.0.1:${secured}`,
    'controller.listener.names': 'CONTROLLER',
    'inter.broker.listener.name': 'PLAINTEXT',
    'listener.security.protocol.map':
      'PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT',
    'sasl.enabled.mechanisms': 'PLAIN',
    'listener.name.sasl_plaintext.plain.sasl.jaas.config':
      'org.apache.kafka.common.security.plain.PlainLoginModule required user_shop="p@ss";',
    'log.dirs': join(folder, 'log'),
    'offsets.topic.num.partitions': '1',
    'offsets.topic.replication.factor': '1',
    'transaction.state.log.num.partitions': '1',
    'transaction.state.log.replication.factor': '1',
    'transaction.state.log.min.isr': '1',
    'group.initial.rebalance.delay.ms': '0',
    'group.min.session.timeout.ms': '500',
    'auto.create.topics.enable': 'false',
    // A broker that was killed is let in again only when its old session is over.
    'broker.session.timeout.ms': '1000',
    'broker.heartbeat.interval.ms': '200',
    'num.network.threads': '2',
    'num.io.threads': '2',
    'log.cleaner.dedupe.buffer.size': '2097152',
  };
  const file = join(folder, 'server.properties');
  writeFileSync(
    file,
    Object.entries(settings)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(''),
  );
  const logging = join(folder, 'log4j.properties');
  writeFileSync(
    logging,
    'log4j.rootLogger=ERROR, e\nlog4j.appender.e=org.apache.log4j.ConsoleAppender\nlog4j.appender.e.target=System.err\nlog4j.appender.e.layout=org.apache.log4j.PatternLayout\nlog4j.appender.e.layout.ConversionPattern=%p %c %m%n\n',
  );
  const java = [
    '-Xmx256m',
    '-XX:+UseSerialGC',
    // A short life: quick to start matters, not quick code.
    '-XX:TieredStopAtLevel=1',
    '-Xshare:auto',
    `-Dlog4j.configuration=file:${logging}`,
    '-cp',
    jars.classPath,
  ];
  const cluster = 'c2x1aWNlLXRlc3Qta2Fma2E';
  execFileSync('java', [...java, 'kafka.tools.StorageTool', 'format', '-t', cluster, '-c', file], {
    cwd: folder,
    // It says of itself that it has no logger; of failures too, and those are thrown.
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let child: ChildProcess;
  let log = '';
  const start = async (): Promise<void> => {
    log = '';
    child = spawn('java', [...java, 'kafka.Kafka', file], {
      cwd: folder,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    child.stderr?.on('data', (chunk: Buffer) => {
      log = (log + chunk.toString()).slice(-8_000);
    });
    for (let tries = 0; !(await listens(port)); tries += 1) {
      if (child.exitCode !== null || tries > 1_200)
        throw new Error(`Kafka on port ${port} did not start:\n${log}`);
      await new Promise((resolve) => setTimeout(resolve, 50));
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
    url: `kafka://127.0.0.1:${port}`,
    securedUrl: `kafka://shop:p%40ss@127.0.0.1:${secured}`,
    crash: async () => {
      await kill();
      await start();
    },
    kill,
    start,
    stop: async () => {
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
