import { Agent, createServer, request as ask } from 'node:http';
import underPressure from '@fastify/under-pressure';
import fastify from 'fastify';
import { waitedForCpuMs } from './cpu-wait.ts';
import { systemClock, systemTimers } from '../../src/app/system.ts';
import { InflightSlots } from '../../src/core/overload/inflight.ts';
import { createGateway } from '../../src/gateway/gateway.ts';
import {
  burn,
  overloadDeps,
  type PacedCapacity,
  PacedStock,
  type OverloadScene,
  type Protection,
} from './overload-deps.ts';

/** One server of `bench overload` in a process of its own, told what to be over IPC. */
export type OverloadOrder =
  | {
      readonly start: Protection | 'under_pressure';
      readonly capacity: PacedCapacity;
      readonly fixedPerSecond: number;
    }
  /** A process in front that refuses past so many in progress, and passes the rest on. */
  | { readonly start: 'gate'; readonly backPort: number; readonly slots: number }
  | { readonly capacity: PacedCapacity }
  | { readonly mode: 'CLOSED' | undefined }
  /** Takes all CPU that nobody else here needs, a piece of so many rounds in each turn of the loop. */
  | { readonly jobRounds: number }
  | { readonly tell: true }
  | { readonly stop: true };

export interface OverloadTold {
  readonly cpuUs: number;
  readonly served: number;
  readonly mode: string;
  readonly modeChanges: number;
  readonly share: number;
  readonly limit: number;
  readonly worst: string;
  /** By this process's clock, ms; and pieces of the job done by then. */
  readonly atMs: number;
  readonly jobsDone: number;
  /** Time this process was ready to run and another had the CPU, ms; 0 where nobody counts it. */
  readonly waitedMs: number;
}

let scene: OverloadScene | undefined;
let stock: PacedStock | undefined;
let jobsDone = 0;
let jobsBurnt = 0;

function work(rounds: number): void {
  jobsBurnt ^= burn(rounds);
  jobsDone += 1;
  setImmediate(work, rounds);
}

// Whoever gives the orders has gone.
process.on('disconnect', () => process.exit(0));
process.on('message', (order: OverloadOrder) => {
  void obey(order).then((reply) => process.send?.(reply));
});

async function obey(order: OverloadOrder): Promise<object> {
  if ('stop' in order) process.exit(0);
  if ('tell' in order) return tell();
  if ('mode' in order) {
    if (order.mode === undefined) scene?.loop.unpin();
    else scene?.loop.pin({ mode: order.mode, reason: 'bench', who: 'bench', forMs: 1e9 });
    return {};
  }
  if ('jobRounds' in order) {
    work(order.jobRounds);
    return { jobsBurnt };
  }
  if (!('start' in order)) {
    if (stock !== undefined) stock.capacity = order.capacity;
    return {};
  }
  if (order.start === 'gate') return { port: await gate(order.backPort, order.slots) };
  if (order.start === 'under_pressure') return { port: await pressed(order.capacity) };
  scene = await overloadDeps(order.start, order.capacity, order.fixedPerSecond);
  ({ stock } = scene);
  const gateway = await createGateway(scene.deps);
  return { port: (await gateway.listen()).port };
}

function tell(): OverloadTold {
  const { user, system } = process.cpuUsage();
  const loop = scene?.loop;
  return {
    cpuUs: user + system,
    served: stock?.served ?? 0,
    mode: loop?.mode ?? '',
    modeChanges: loop?.modeChanges ?? 0,
    share: loop?.share ?? 1,
    limit: loop?.slots.submit.limitInForce ?? 0,
    worst: `${loop?.worst?.name ?? ''} ${(loop?.worst?.pressure ?? 0).toFixed(2)}`,
    atMs: systemClock.monoUs() / 1000,
    jobsDone,
    waitedMs: waitedForCpuMs(),
  };
}

/** The plugin as its documentation sets it up, with a tighter event-loop delay than there. */
async function pressed(capacity: PacedCapacity): Promise<number> {
  const paced = new PacedStock(capacity);
  stock = paced;
  const app = fastify();
  await app.register(underPressure, {
    maxEventLoopDelay: 100,
    maxEventLoopUtilization: 0.98,
    eventLoopUtilizationMode: 'interval',
    sampleInterval: 100,
  });
  app.post('/v1/seckill/:path/submit', async (_request, reply) => {
    await paced.work(1);
    return reply.code(202).send({ state: 'QUEUED' });
  });
  app.get('/v1/requests/:id', async () => {
    await new Promise<void>((resolve) => void systemTimers.after(1, resolve));
    return { state: 'QUEUED' };
  });
  app.post('/v1/payments/:provider/callback', async () => ({ received: true }));
  await app.listen({ port: 0, host: '127.0.0.1' });
  const address = app.server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

const refusal = JSON.stringify({ code: 'SYSTEM_OVERLOADED', retry_after_ms: 1_000 });

async function gate(backPort: number, slots: number): Promise<number> {
  const agent = new Agent({ keepAlive: true, maxSockets: slots + 64 });
  const places = new InflightSlots({ adaptive: 'off', ceiling: slots, floor: 1, setpointMs: 20 });
  const server = createServer((request, response) => {
    const isSubmit = request.method === 'POST' && request.url?.startsWith('/v1/seckill/') === true;
    if (isSubmit && !places.tryTake()) {
      response.writeHead(503, [
        'Content-Type',
        'application/problem+json',
        'Retry-After',
        '1',
        'Content-Length',
        String(refusal.length),
      ]);
      response.end(refusal);
      return;
    }
    if (isSubmit) response.once('close', () => places.release('success'));
    const forward = ask(
      {
        agent,
        port: backPort,
        host: '127.0.0.1',
        method: request.method ?? 'GET',
        path: request.url ?? '/',
        headers: request.headers,
      },
      (answer) => {
        response.writeHead(answer.statusCode ?? 502, answer.headers);
        answer.pipe(response);
      },
    );
    forward.on('error', () => response.destroy());
    request.pipe(forward);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : 0;
}
