import { connect, type Socket } from 'node:net';

/**
 * A closed load over raw sockets: each connection sends its next request as soon as the last answer is
 * complete. Requests are bytes made beforehand, answers are measured by their head alone, so that the
 * generator costs little and is the same for every server.
 */
export interface LoadResult {
  readonly requests: number;
  readonly wallMs: number;
  /** Answers by status. */
  readonly statuses: ReadonlyMap<number, number>;
}

export async function closedLoad(
  port: number,
  requests: readonly Buffer[],
  connections: number,
): Promise<LoadResult> {
  const statuses = new Map<number, number>();
  let next = 0;
  const started = process.hrtime.bigint();
  const drive = (socket: Socket): Promise<void> =>
    new Promise((resolve, reject) => {
      let pending = Buffer.alloc(0);
      const send = (): void => {
        const request = requests[next];
        if (request === undefined) {
          socket.end();
          resolve();
          return;
        }
        next += 1;
        socket.write(request);
      };
      socket.on('data', (part) => {
        pending = pending.length === 0 ? part : Buffer.concat([pending, part]);
        const answer = readAnswer(pending);
        if (answer === undefined) return;
        statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
        pending = pending.subarray(answer.length);
        send();
      });
      socket.on('error', reject);
      socket.on('close', () => reject(new Error('the server closed a connection')));
      send();
    });
  const sockets = await Promise.all(Array.from({ length: connections }, () => connected(port)));
  await Promise.all(sockets.map(drive));
  const wallMs = Number(process.hrtime.bigint() - started) / 1e6;
  return { requests: next, wallMs, statuses };
}

function connected(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.off('error', reject);
      resolve(socket);
    });
    socket.setNoDelay(true);
    socket.once('error', reject);
  });
}

/** Status and whole length of the first answer in the bytes, once it is complete. */
function readAnswer(bytes: Buffer): { status: number; length: number } | undefined {
  const end = bytes.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const head = bytes.toString('latin1', 0, end);
  const length = /content-length: (\d+)/i.exec(head)?.[1];
  if (length === undefined) throw new Error(`an answer without Content-Length: ${head}`);
  const total = end + 4 + Number(length);
  return bytes.length < total ? undefined : { status: Number(head.slice(9, 12)), length: total };
}

/** One answer, whole: for a peer that is to send the same bytes. */
export async function oneAnswer(port: number, request: Buffer): Promise<string> {
  const socket = await connected(port);
  socket.write(request);
  let bytes = Buffer.alloc(0);
  for await (const part of socket as AsyncIterable<Buffer>) {
    bytes = Buffer.concat([bytes, part]);
    if (readAnswer(bytes) !== undefined) break;
  }
  return bytes.toString('latin1');
}
