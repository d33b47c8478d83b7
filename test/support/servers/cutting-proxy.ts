import { connect, createServer, type Server, type Socket } from 'node:net';

/** Stands between a client and a server, to break the connection at one exact message. */
export interface CuttingProxy {
  readonly port: number;
  /**
   * At the next message to the server that holds `word`: the message is not passed on, or its answer
   * is not.
   */
  cut(before: 'to server' | 'to client', word: string): void;
  close(): Promise<void>;
}

export async function openProxy(serverPort: number): Promise<CuttingProxy> {
  let armed: { before: 'to server' | 'to client'; word: string } | undefined;
  const sockets = new Set<Socket>();
  const listener: Server = createServer((client) => {
    const upstream = connect(serverPort, '127.0.0.1');
    let deaf = false;
    sockets.add(client).add(upstream);
    const end = (): void => {
      client.destroy();
      upstream.destroy();
    };
    client.on('data', (chunk: Buffer) => {
      if (armed !== undefined && chunk.includes(armed.word)) {
        const { before } = armed;
        armed = undefined;
        if (before === 'to server') {
          end();
          return;
        }
        deaf = true;
      }
      upstream.write(chunk);
    });
    upstream.on('data', (chunk: Buffer) => {
      if (deaf) end();
      else client.write(chunk);
    });
    for (const socket of [client, upstream]) {
      socket.on('close', end);
      socket.on('error', end);
    }
  });
  await new Promise<void>((listening) => listener.listen(0, '127.0.0.1', listening));
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    port: address.port,
    cut(before, word) {
      armed = { before, word };
    },
    close() {
      for (const socket of sockets) socket.destroy();
      return new Promise((closed) => listener.close(() => closed()));
    },
  };
}
