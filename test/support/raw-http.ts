import { connect, type Socket } from 'node:net';

/** HTTP as bytes, for what no client library would send. */
export interface RawAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** Opens a connection; resolves once it is open. */
export function openSocket(port: number): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => {
      socket.off('error', reject);
      // A reset is an answer too: it shows as the end.
      socket.on('error', () => undefined);
      resolve(socket);
    });
    socket.once('error', reject);
  });
}

export interface Awaited {
  /** Answers to wait for; interim ones count. */
  readonly answers?: number;
  /** Wait for the server to close the connection too. */
  readonly close?: boolean;
}

/** How long anything is waited for before the exchange is given up as it stands. */
const patienceMs = 10_000;

/**
 * Sends bytes on a fresh connection and reads until what is awaited has come, the server has closed
 * it, or patience ends.
 */
export async function exchange(
  port: number,
  parts: readonly (string | Uint8Array)[],
  awaited: Awaited = {},
): Promise<{ readonly answers: readonly RawAnswer[]; readonly closed: boolean }> {
  const socket = await openSocket(port);
  const heard = listen(socket, awaited.answers ?? 1, awaited.close ?? false);
  for (const part of parts) {
    if (socket.destroyed || !socket.writable) break;
    socket.write(part);
  }
  const { bytes, closed } = await heard;
  socket.destroy();
  return { answers: parseAnswers(bytes), closed };
}

function listen(
  socket: Socket,
  answers: number,
  close: boolean,
): Promise<{ readonly bytes: Buffer; readonly closed: boolean }> {
  return new Promise((resolve) => {
    let bytes = Buffer.alloc(0);
    const end = (closed: boolean): void => {
      clearTimeout(timer);
      resolve({ bytes, closed });
    };
    const timer = setTimeout(() => end(false), patienceMs);
    socket.on('data', (part) => {
      bytes = Buffer.concat([bytes, part]);
      if (!close && completeAnswers(bytes) >= answers) end(false);
    });
    socket.on('end', () => end(true));
    socket.on('close', () => end(true));
  });
}

function completeAnswers(bytes: Buffer): number {
  let count = 0;
  let at = 0;
  for (;;) {
    const end = bytes.indexOf('\r\n\r\n', at);
    if (end < 0) return count;
    const head = bytes.toString('latin1', at, end);
    at = end + 4 + Number(/^content-length: (\d+)/im.exec(head)?.[1] ?? 0);
    if (at > bytes.length) return count;
    count += 1;
  }
}

/** Every answer in the bytes, in order. Throws when they are not HTTP. */
export function parseAnswers(bytes: Buffer): readonly RawAnswer[] {
  const answers: RawAnswer[] = [];
  let at = 0;
  while (at < bytes.length) {
    const end = bytes.indexOf('\r\n\r\n', at);
    if (end < 0) throw new Error(`no end of head in ${bytes.subarray(at).toString('latin1')}`);
    const [first = '', ...lines] = bytes.toString('latin1', at, end).split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3}) /.exec(first)?.[1]);
    if (!(status >= 100)) throw new Error(`not an answer: ${first}`);
    const headers = Object.fromEntries(
      lines.map((line) => {
        const colon = line.indexOf(':');
        return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
      }),
    );
    // The answer to a HEAD names the length of a body that does not come.
    const bodyless =
      bytes.length === end + 4 || bytes.toString('latin1', end + 4, end + 13) === 'HTTP/1.1 ';
    const length = bodyless ? 0 : Number(headers['content-length'] ?? 0);
    answers.push({ status, headers, body: bytes.toString('utf8', end + 4, end + 4 + length) });
    at = end + 4 + length;
  }
  return answers;
}
