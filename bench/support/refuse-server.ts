import { createServer } from 'node:http';
import { createGateway } from '../../src/gateway/gateway.ts';
import { type Instruments, instrumented } from './instruments.ts';
import { refusingDeps } from './refuse-deps.ts';
import type { RefusalKind } from './refuse-requests.ts';

/**
 * The server of `bench refuse`, in a process of its own: the whole gateway made to refuse at one stage,
 * or a bare `node:http` server that sends the bytes it is told. Told by its parent over IPC, and
 * answers with its CPU time.
 */
export type Order =
  | { readonly start: 'sluice'; readonly kind: RefusalKind; readonly instruments?: Instruments }
  | { readonly start: 'bare'; readonly answer: string }
  | { readonly cpu: true }
  | { readonly stop: true };

process.on('message', (order: Order) => {
  void obey(order);
});

async function obey(order: Order): Promise<void> {
  if ('stop' in order) process.exit(0);
  if ('cpu' in order) {
    const { user, system } = process.cpuUsage();
    process.send?.({ cpuUs: user + system });
    return;
  }
  const port =
    order.start === 'bare' ? await bare(order.answer) : await sluice(order.kind, order.instruments);
  process.send?.({ port });
}

function bare(answer: string): Promise<number> {
  const split = answer.indexOf('\r\n\r\n');
  const [first = '', ...lines] = answer.slice(0, split).split('\r\n');
  const status = Number(first.slice(9, 12));
  // Node adds these three itself, to this server as to ours.
  const headers = lines
    .filter((line) => !/^(date|connection|keep-alive):/i.test(line))
    .flatMap((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon), line.slice(colon + 2)];
    });
  const body = answer.slice(split + 4);
  const server = createServer((_request, response) => {
    response.writeHead(status, headers);
    response.end(body);
  });
  return new Promise((resolve) => {
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      resolve(typeof address === 'object' && address !== null ? address.port : 0);
    });
  });
}

async function sluice(kind: RefusalKind, instruments: Instruments | undefined): Promise<number> {
  const plain = await refusingDeps(kind);
  const deps = instruments === undefined ? plain : instrumented(plain, instruments);
  const gateway = await createGateway(deps);
  return (await gateway.listen()).port;
}
