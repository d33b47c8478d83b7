import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import { skipEmptyBody } from './empty-body.ts';
import { Exchanges } from './exchange.ts';

const exchanges = new Exchanges(new World());
let skips = true;
let ends = 0;
let bodies: string[] = [];
const server = createServer((request: IncomingMessage, response: ServerResponse) => {
  if (skips) skipEmptyBody(request);
  request.on('end', () => (ends += 1));
  const answer = (): void =>
    exchanges.write(request, response, { status: 200, headers: [], body: request.url ?? '' });
  if (request.method === 'GET') return answer();
  let body = '';
  request.on('data', (part: Buffer) => (body += part.toString()));
  request.on('end', () => {
    bodies.push(body);
    answer();
  });
});
beforeAll(() => new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve)));
afterAll(() => void server.close());
beforeEach(() => {
  ends = 0;
  bodies = [];
});

/** Everything that comes back for these pieces, sent one after the other, each in a packet of its own. */
function raw(...pieces: string[]): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.setNoDelay(true);
    let text = '';
    socket.setEncoding('latin1');
    socket.on('data', (part: string) => (text += part));
    socket.on('error', reject);
    socket.on('close', () => resolve(text.replaceAll(/\r\nDate: [^\r]*/g, '\r\nDate')));
    const next = (): void => {
      const piece = pieces.shift();
      if (piece !== undefined) socket.write(piece, () => setImmediate(next));
    };
    next();
  });
}

const get = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
const goodbye = 'GET /bye HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
const post = 'POST /p HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody';

test.each([
  ['one after the other', [get('/a'), get('/b'), goodbye]],
  ['in one packet', [get('/a') + get('/b') + get('/c') + goodbye]],
  ['with a body between', [get('/a') + post, get('/b') + goodbye]],
  ['cut in the middle of the head', ['GET /a HT', 'TP/1.1\r\nHost: x\r\n', '\r\n' + goodbye]],
])('answers are the same with and without: %s', async (_, pieces) => {
  skips = false;
  const usual = await raw(...pieces);
  expect(bodies).toEqual(pieces.join('').includes('POST') ? ['body'] : []);
  bodies = [];
  skips = true;
  expect(await raw(...pieces)).toBe(usual);
  expect(bodies).toEqual(pieces.join('').includes('POST') ? ['body'] : []);
  expect(usual).toContain('/bye');
});

test('the stream of a request without a body goes through none of its states', async () => {
  await raw(get('/a'), goodbye);
  expect(ends).toBe(0);
  skips = false;
  await raw(get('/a'), goodbye);
  expect(ends).toBe(2);
  skips = true;
});

test('a sender who goes away harms nobody', async () => {
  const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
  socket.write(get('/a').repeat(3));
  socket.on('data', () => socket.resetAndDestroy());
  await new Promise((resolve) => socket.once('close', resolve));
  expect(await raw(goodbye)).toContain('/bye');
});
