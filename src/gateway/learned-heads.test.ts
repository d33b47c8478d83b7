import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import type { HttpAnswer } from './answer.ts';
import { Exchanges } from './exchange.ts';
import { keepHead, LearnedHeads } from './learned-heads.ts';

/** Answers that are put together must be, byte for byte, what Node would have sent. */
let answer: (request: IncomingMessage) => HttpAnswer;
const world = new World();
const exchanges = new Exchanges(world);
const server = createServer((request: IncomingMessage, response: ServerResponse) => {
  exchanges.write(request, response, answer(request));
});
beforeAll(() => new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve)));
afterAll(() => void server.close());

/** Everything that comes back for these bytes, the date cut out. */
function raw(sent: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    let text = '';
    socket.setEncoding('latin1');
    socket.on('data', (part: string) => (text += part));
    socket.on('error', reject);
    socket.on('close', () => resolve(text.replaceAll(/\r\nDate: [^\r]*/g, '\r\nDate')));
    socket.write(sent);
  });
}

const get = (more = ''): string => `GET / HTTP/1.1\r\nHost: x\r\n${more}\r\n`;
const goodbye = get('Connection: close\r\n');
const count = (text: string): number => text.split('HTTP/1.1 200 OK').length - 1;
const ordered = (text: string): string[] => text.split('\r\n').sort();

test('the second answer is the first, and goes on with the connection', async () => {
  const headers = keepHead(['Content-Type', 'application/json', 'X-One', 'a b']);
  let at = 0;
  answer = () => ({ status: 200, headers, body: '{"n":' + '9'.repeat((at += 1)) + '}' });
  const text = await raw(get() + get() + get() + goodbye);
  const answers = text.split('HTTP/1.1 200 OK').slice(1);
  expect(answers).toHaveLength(4);
  const [first, second, third, last] = answers;
  expect(second).toBe(first?.replace('Length: 7', 'Length: 8').replace('{"n":9}', '{"n":99}'));
  expect(third).toContain('Content-Length: 9\r\n');
  expect(third).toContain('Connection: keep-alive\r\n');
  expect(last).toContain('Connection: close\r\n');
  expect(last?.endsWith('{"n":9999}')).toBe(true);
});

test('headers of one answer alone are in it, and in no other', async () => {
  const headers = keepHead(['Content-Type', 'application/json']);
  let at = 0;
  answer = () => {
    at += 1;
    return {
      status: 200,
      headers,
      body: '{}',
      ...(at % 2 === 1 ? { more: ['X-At', `${at}`] } : {}),
    };
  };
  const text = await raw(get() + get() + get() + get() + goodbye);
  const answers = text.split('HTTP/1.1 200 OK').slice(1);
  expect(answers.map((one) => /X-At: (\d)/.exec(one)?.[1])).toEqual([
    '1',
    undefined,
    '3',
    undefined,
    '5',
  ]);
  const [first, , third] = answers;
  expect(ordered(third ?? '')).toEqual(ordered((first ?? '').replace('X-At: 1', 'X-At: 3')));
});

test.each([
  ['a head without body', (): string => `HEAD / HTTP/1.1\r\nHost: x\r\n\r\n`, /\r\n\r\n$/],
  ['a closing connection', (): string => goodbye, /Connection: close/],
  ['an old client', (): string => 'GET / HTTP/1.0\r\n\r\n', /Connection: close/],
])('%s is answered as ever', async (_, sent, expected) => {
  const headers = keepHead(['Content-Type', 'text/plain']);
  answer = () => ({ status: 200, headers, body: 'text' });
  await raw(get() + goodbye);
  const text = await raw(
    sent() + (sent().startsWith('HEAD') ? goodbye.replace('GET', 'HEAD') : ''),
  );
  expect(text).toMatch(expected);
  expect(text).toContain('Content-Length: 4\r\n');
});

test('a body that is not ASCII, and a header that would end the line, go Node’s way', async () => {
  const headers = keepHead(['Content-Type', 'text/plain']);
  answer = () => ({ status: 200, headers, body: 'ok' });
  await raw(get() + goodbye);
  answer = () => ({ status: 200, headers, body: '满' });
  expect(await raw(get() + goodbye)).toContain('Content-Length: 3\r\n');
  answer = () => ({ status: 200, headers, body: 'ok', more: ['X', 'a\r\nSet-Cookie: b'] });
  const heads = new LearnedHeads(() => 0);
  const response = { shouldKeepAlive: true } as unknown as ServerResponse;
  expect(heads.put(response, 200, headers, ['X', 'fine'], 2)).toBe(true);
  expect(heads.put(response, 200, headers, ['X', 'a\r\nSet-Cookie: b'], 2)).toBe(false);
});

test('what nobody asked to keep is not kept; statuses are apart', async () => {
  const headers = ['Content-Type', 'text/plain'];
  answer = () => ({ status: 200, headers, body: 'ok' });
  expect(count(await raw(get() + goodbye))).toBe(2);
  const response = { shouldKeepAlive: true } as unknown as ServerResponse;
  expect(new LearnedHeads(() => 0).put(response, 200, headers, [], 2)).toBe(false);
  keepHead(headers);
  answer = (request) => ({ status: request.url === '/' ? 200 : 404, headers, body: 'ok' });
  const text = await raw(get() + get().replace('/ ', '/x ') + get().replace('/ ', '/x ') + goodbye);
  expect([...text.matchAll(/HTTP\/1\.1 (\d+ [A-Za-z ]+)/g)].map(([, status]) => status)).toEqual([
    '200 OK',
    '404 Not Found',
    '404 Not Found',
    '200 OK',
  ]);
});

// Node writes how long it keeps an idle connection, or, where it does not mind, nothing of it.
test.each([0, 5_000])('a head is learnt where Node keeps connections for %d ms', async (keepMs) => {
  const was = server.keepAliveTimeout;
  server.keepAliveTimeout = keepMs;
  const headers = keepHead(['Content-Type', 'text/plain']);
  answer = () => ({ status: 200, headers, body: 'ok' });
  const answers = (await raw(get() + get() + goodbye)).split('HTTP/1.1 200 OK').slice(1);
  server.keepAliveTimeout = was;
  expect(answers[1]).toBe(answers[0]);
  expect(answers[0]?.includes('Keep-Alive: timeout')).toBe(keepMs > 0);
  const response = { shouldKeepAlive: true } as unknown as ServerResponse;
  expect(new LearnedHeads(() => 0).put(response, 200, headers, [], 2)).toBe(true);
});
