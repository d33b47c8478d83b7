import { connect, type Socket } from 'node:net';
import type { Timers } from '../../ports/clock.ts';

/** What Redis replies, as it is on the wire; an error reply rejects instead. */
export type RedisReply = string | number | null | readonly RedisReply[];

const patienceMs = 5_000;

/**
 * One connection to a Redis server for commands that no store has: to pause it, to cut its
 * connections, to let it restart. A fresh connection for each command, because they cut connections.
 */
export class RedisHand {
  readonly #url: URL;
  readonly #timers: Timers;

  constructor(url: string, timers: Timers) {
    this.#url = new URL(url);
    this.#timers = timers;
  }

  /** @throws Error with the server's words, or when it does not answer within five seconds. */
  async say(...words: readonly string[]): Promise<RedisReply> {
    const password = decodeURIComponent(this.#url.password);
    const user = decodeURIComponent(this.#url.username);
    const login = user === '' ? [password] : [user, password];
    const commands = password === '' ? [words] : [['AUTH', ...login], words];
    const socket = connect(Number(this.#url.port || '6379'), this.#url.hostname);
    const guard = this.#timers.after(patienceMs, () =>
      socket.destroy(new Error(`Redis did not answer ${words[0]} within ${patienceMs} ms`)),
    );
    try {
      const replies = await repliesOf(socket, commands);
      return replies.at(-1) ?? null;
    } finally {
      guard.cancel();
      socket.destroy();
    }
  }
}

function repliesOf(
  socket: Socket,
  commands: readonly (readonly string[])[],
): Promise<readonly RedisReply[]> {
  return new Promise((resolve, reject) => {
    let bytes = Buffer.alloc(0);
    socket.on('connect', () => {
      for (const words of commands) {
        const parts = words.map((word) => `$${Buffer.byteLength(word)}\r\n${word}\r\n`);
        socket.write(`*${words.length}\r\n${parts.join('')}`);
      }
    });
    socket.on('data', (part) => {
      bytes = Buffer.concat([bytes, part]);
      const replies: RedisReply[] = [];
      let at = 0;
      while (replies.length < commands.length) {
        const read = readReply(bytes, at);
        if (read === undefined) return;
        if (read.reply instanceof Error) return reject(read.reply);
        replies.push(read.reply);
        at = read.end;
      }
      resolve(replies);
    });
    socket.on('error', reject);
    socket.on('close', () => reject(new Error('Redis closed the connection')));
  });
}

interface Read {
  readonly reply: RedisReply | Error;
  readonly end: number;
}

/** One reply that begins at `at`; undefined until all of it is there. */
function readReply(bytes: Buffer, at: number): Read | undefined {
  const lineEnd = bytes.indexOf('\r\n', at);
  if (lineEnd < 0) return undefined;
  const kind = String.fromCharCode(bytes[at] ?? 0);
  const line = bytes.toString('utf8', at + 1, lineEnd);
  const end = lineEnd + 2;
  if (kind === '+') return { reply: line, end };
  if (kind === '-') return { reply: new Error(line), end };
  if (kind === ':') return { reply: Number(line), end };
  const size = Number(line);
  if (kind === '$') {
    if (size < 0) return { reply: null, end };
    if (bytes.length < end + size + 2) return undefined;
    return { reply: bytes.toString('utf8', end, end + size), end: end + size + 2 };
  }
  const items: RedisReply[] = [];
  let next = end;
  for (let item = 0; item < size; item += 1) {
    const read = readReply(bytes, next);
    if (read === undefined) return undefined;
    if (read.reply instanceof Error) return read;
    items.push(read.reply);
    next = read.end;
  }
  return { reply: items, end: next };
}
