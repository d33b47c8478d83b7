import { createGateway } from '../../src/gateway/gateway.ts';
import { bareServer } from './bare-server.ts';
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
    order.start === 'bare'
      ? await bareServer(order.answer)
      : await sluice(order.kind, order.instruments);
  process.send?.({ port });
}

async function sluice(kind: RefusalKind, instruments: Instruments | undefined): Promise<number> {
  const plain = await refusingDeps(kind);
  const deps = instruments === undefined ? plain : instrumented(plain, instruments);
  const gateway = await createGateway(deps);
  return (await gateway.listen()).port;
}
