import { fc } from '../../../test/support/property.ts';
import { createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import { afterEach, describe, expect, test } from 'vitest';
import { systemClock, systemTimers } from '../../app/system.ts';
import { HttpPool, poolLimitsDefault } from './http-pool.ts';
import type { Call, PoolLimits } from './http-pool.ts';
import { BadReplyError, ReplyParser, headerOf } from './reply-parser.ts';
import type { Reply } from './reply-parser.ts';

describe('reading replies', () => {
  const texts = [
    'HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello',
    'HTTP/1.1 204 No Content\r\nX: y\r\n\r\n',
    'HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length:2\r\n\r\nok',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=y\r\nwiki\r\n2\r\npe\r\n0\r\nTrailer: t\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n你好',
  ];

  test('every reply is read the same however it is cut', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...texts),
        fc.array(fc.nat(80), { maxLength: 6 }),
        (text, cuts) => {
          const bytes = Buffer.from(text, 'utf8');
          const whole = new ReplyParser().take(bytes);
          const parser = new ReplyParser();
          const places = [...new Set(cuts.filter((cut) => cut > 0 && cut < bytes.length))].sort(
            (a, b) => a - b,
          );
          const pieces = [0, ...places].map((from, at) => bytes.subarray(from, places[at]));
          const replies = pieces.map((piece) => parser.take(piece));
          expect(replies.slice(0, -1).every((reply) => reply === undefined)).toBe(true);
          expect(replies.at(-1)).toEqual(whole);
          expect(whole).toBeDefined();
        },
      ),
    );
  });

  test('a reply without a length ends with its connection', () => {
    const parser = new ReplyParser();
    expect(parser.take(Buffer.from('HTTP/1.0 200 OK\r\n\r\nabc'))).toBeUndefined();
    expect(parser.end()).toMatchObject({ status: 200, body: 'abc', closes: true });
  });

  test.each([
    'SSH-2.0-OpenSSH\r\n\r\n',
    'HTTP/1.1 xyz\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n',
  ])('not HTTP: %j', (text) => {
    expect(() => new ReplyParser().take(Buffer.from(text))).toThrow(BadReplyError);
  });

  test('headers are found without regard to case, and only as whole names', () => {
    const head = 'HTTP/1.1 429 X\r\nX-Retry-After: 9\r\nRETRY-AFTER:  3 ';
    expect(headerOf(head, 'retry-after')).toBe('3');
    expect(headerOf(head, 'after')).toBeUndefined();
  });
});

let stopListening = (): Promise<void> => Promise.resolve();
afterEach(() => stopListening());

async function serve(onConnection: (socket: Socket) => void): Promise<URL> {
  const made = createServer(onConnection);
  stopListening = () => new Promise((resolve) => made.close(() => resolve()));
  await new Promise<void>((resolve) => made.listen(0, '127.0.0.1', resolve));
  return new URL(`http://127.0.0.1:${(made.address() as AddressInfo).port}`);
}

function callOf(detail: number): Call {
  const text = `GET /${detail} HTTP/1.1\r\nHost: x\r\n\r\n`;
  return {
    kind: 'test',
    person: 0,
    detail,
    text,
    dueMs: 0,
    sentMs: 0,
    begun: false,
    settled: false,
  };
}

/** Sends calls and resolves with what became of each, in order of their numbers. */
async function outcomes(
  origin: URL,
  count: number,
  limits: Partial<PoolLimits> = {},
  meddle: (pool: HttpPool<string>, calls: readonly Call[]) => void = () => undefined,
): Promise<string[]> {
  const seen = Array.from({ length: count }, () => '');
  let left = count;
  return await new Promise((resolve) => {
    const tick = systemTimers.every(10, () => pool.tick());
    const note = (call: Call, what: string): void => {
      seen[call.detail] = what;
      left -= 1;
      if (left > 0) return;
      tick.cancel();
      pool.close();
      resolve(seen);
    };
    const pool = new HttpPool<string>(
      origin,
      { ...poolLimitsDefault, ...limits },
      {
        begun: () => undefined,
        replied: (call, reply: Reply) => note(call, `${reply.status} ${reply.body}`),
        failed: (call, reason) => note(call, reason),
      },
      systemClock,
    );
    const calls = Array.from({ length: count }, (_, detail) => callOf(detail));
    for (const call of calls) pool.send(call);
    meddle(pool, calls);
  });
}

const echo = (socket: Socket): void => {
  socket.on('data', (data: Buffer) => {
    const path = data.toString().split(' ')[1] ?? '';
    socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${path.length}\r\n\r\n${path}`);
  });
  socket.on('error', () => socket.destroy());
};

describe('the pool', () => {
  test('every call gets its own answer, over no more connections than allowed', async () => {
    let connections = 0;
    const origin = await serve((socket) => {
      connections += 1;
      echo(socket);
    });
    const seen = await outcomes(origin, 200, { maxConnections: 7 });
    expect(seen).toEqual(Array.from({ length: 200 }, (_, i) => `200 /${i}`));
    expect(connections).toBeLessThanOrEqual(7);
  });

  test('nobody listens: everyone in line is told', async () => {
    const origin = await serve(echo);
    await stopListening();
    expect(new Set(await outcomes(origin, 20))).toEqual(new Set(['refused']));
  });

  test('cut in mid-answer, never answered, answered with nonsense', async () => {
    const origin = await serve((socket) => {
      socket.on('error', () => socket.destroy());
      socket.on('data', (data: Buffer) => {
        const path = data.toString().split(' ')[1];
        if (path === '/0') socket.end('HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf');
        if (path === '/2') socket.write('what?\r\n\r\n');
      });
    });
    expect(await outcomes(origin, 3, { replyTimeoutMs: 80 })).toEqual([
      'reset',
      'timeout',
      'bad_reply',
    ]);
  });

  test('a server that closes after each answer is served by new connections', async () => {
    const origin = await serve((socket) => {
      socket.on('error', () => socket.destroy());
      socket.on('data', () =>
        socket.end('HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok'),
      );
    });
    expect(new Set(await outcomes(origin, 30, { maxConnections: 3 }))).toEqual(new Set(['200 ok']));
  });

  test('an abandoned call is never answered, and the others are', async () => {
    const origin = await serve(echo);
    const seen = await outcomes(origin, 4, { maxConnections: 1 }, (pool, calls) => {
      pool.abandon(calls[1]!);
      pool.send(callOf(1));
    });
    expect(seen).toEqual(['200 /0', '200 /1', '200 /2', '200 /3']);
  });

  test('after close every call fails at once', async () => {
    const origin = await serve((socket) => socket.resume());
    const seen = await outcomes(origin, 3, { maxConnections: 1 }, (pool) => {
      systemTimers.after(30, () => pool.close());
    });
    expect(seen).toEqual(['closed', 'closed', 'closed']);
  });
});
