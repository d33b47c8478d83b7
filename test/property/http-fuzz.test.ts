import { connect } from 'node:net';
import { fc } from '../support/property.ts';
import { expect, test } from 'vitest';
import { checkerOf } from '../../src/gateway/validate.ts';
import { codes } from '../../src/wire/codes.ts';
import { ProblemBody } from '../../src/wire/schemas.ts';
import { settledBytes } from '../../bench/support/bench.ts';
import { parseAnswers } from '../support/raw-http.ts';
import { openShop, type Shop, sku } from '../support/shop.ts';

/**
 * A hundred thousand malformed requests over raw sockets: no crash, no 500, no unexplained answer, no
 * fault in the log, no growth.
 *
 * Requests are grown from well-formed ones of every route, because random bytes alone never get past
 * the parser: wrong values in bodies and headers, then damage to the bytes themselves. Seeded: the same
 * requests each time, and the one that breaks something stands in the error.
 */
const runs = 1_000;
const perRun = 100;
const seed = 20_270_115;

/** Bytes that the process may keep after 80,000 more requests: noise of the runtime, not a leak. */
const growthMax = 6 * 1024 * 1024;

const statuses = new Set([
  200,
  201,
  202,
  204,
  304,
  100,
  ...Object.values(codes).map((c) => c.http),
]);

const anyJson = fc.oneof(
  fc.constantFrom('1', '"1"', 'null', 'true', '[]', '{}', '-1', '1.5', '1e400', '-0', 'NaN'),
  fc.constantFrom('9007199254740993', '"\\ud800"', '"\\u0000"', '{"__proto__":1}', '1e-7', ''),
  fc.string({ maxLength: 80 }).map((text) => JSON.stringify(text)),
  fc.integer({ min: 1, max: 3_000 }).map((depth) => '['.repeat(depth) + ']'.repeat(depth)),
  fc.integer({ min: 1, max: 4_000 }).map((length) => `"${'x'.repeat(length)}"`),
);

const idLike = fc.oneof(
  fc.constantFrom('act', 'sku', 'r1', 'x', '..', '%2e%2e', '%', '%zz', '%00', ' ', 'a b', ''),
  fc.uint8Array({ maxLength: 40 }).map((bytes) => Buffer.from(bytes).toString('latin1')),
  fc.integer({ min: 60, max: 9_000 }).map((length) => 'a'.repeat(length)),
);

const paths = (at: Shop): readonly string[] => [
  `/v1/seckill/${at.path}/submit`,
  `/v1/seckill/${at.path}/submit`,
  '/v1/seckill/ID/submit',
  '/v1/requests/ID?activity_id=ID&sku_id=ID',
  '/v1/requests/r1?activity_id=act&sku_id=sku',
  '/v1/activities/ID',
  '/v1/activities/act/entries',
  '/v1/activities/act/entries/me',
  '/v1/activities/ID/entries/me',
  '/v1/activities/act/passes',
  '/v1/activities/act/skus/ID/availability',
  '/v1/orders/ID',
  '/v1/orders/ID/pay',
  '/v1/payments/ID/callback',
  '/v1/session',
  '/openapi.json',
  'http://shop.test/healthz',
  '*',
  'ID',
];

interface Wish {
  readonly method: string;
  readonly path: string;
  readonly ids: readonly string[];
  readonly headers: readonly string[];
  readonly members: readonly (readonly [string, string])[];
  readonly framing: 'length' | 'short' | 'long' | 'chunked' | 'none' | 'both' | 'negative';
  readonly damage: readonly (readonly [kind: number, place: number, byte: number])[];
}

function wishes(at: Shop): fc.Arbitrary<Wish> {
  const ann = at.buyer('ann');
  const header = fc.constantFrom(
    `Authorization: ${ann.headers['authorization']}`,
    `Sluice-Pass: ${ann.pass}`,
    'Content-Type: application/json',
    'Authorization: Bearer a.b.c',
    'Authorization: Bearer',
    `Authorization: Bearer ${'x'.repeat(3_000)}`,
    'Sluice-Pass: ..',
    `Sluice-Pass: ${ann.userToken}`,
    'Sluice-Entry: \u00ff\u00fe',
    'Sluice-Device: d',
    'Idempotency-Key: r1',
    'Idempotency-Key: other',
    'Content-Type: text/plain',
    'Content-Type: application/json; charset=utf-16',
    'Content-Encoding: gzip',
    'Cookie: sluice-user=a; sluice-entry=b; =; ;;',
    'Origin: null',
    'X-Forwarded-For: 1.2.3.4, [::1]:80, ,',
    'X-Forwarded-Proto: https',
    'Expect: 100-continue',
    'Expect: nonsense',
    'Upgrade: websocket',
    'Connection: upgrade',
    'traceparent: 00-zz',
    'If-None-Match: W/"',
    'Accept: */*;q=\u00e9',
    'Host: other.test',
    'TE: trailers',
    'Range: bytes=0-',
  );
  const member = fc.tuple(
    fc.constantFrom('request_id', 'activity_id', 'sku_id', 'quantity', 'seats', 'sku_ids', 'z'),
    anyJson,
  );
  return fc.record({
    method: fc.constantFrom(
      'POST',
      'POST',
      'POST',
      'GET',
      'DELETE',
      'PUT',
      'HEAD',
      'OPTIONS',
      'BREW',
    ),
    path: fc.constantFrom(...paths(at)),
    ids: fc.array(idLike, { maxLength: 3 }),
    headers: fc.array(header, { maxLength: 7 }),
    members: fc.array(member, { maxLength: 5 }),
    framing: fc.constantFrom(
      'length',
      'length',
      'length',
      'short',
      'long',
      'chunked',
      'none',
      'both',
      'negative',
    ),
    damage: fc.oneof(
      { weight: 3, arbitrary: fc.constant([]) },
      {
        weight: 2,
        arbitrary: fc.array(
          fc.tuple(fc.nat({ max: 3 }), fc.nat({ max: 2_000 }), fc.nat({ max: 255 })),
          { minLength: 1, maxLength: 4 },
        ),
      },
    ),
  });
}

/** The wish as bytes. Starts from a valid submit's body, so that one wrong member is really the only one. */
function bytesOf(wish: Wish): Buffer {
  const ids = [...wish.ids];
  const path = wish.path.replaceAll('ID', () => ids.shift() ?? 'x');
  const valid: [string, string][] = [
    ['request_id', '"r1"'],
    ['activity_id', `"${sku.activityId}"`],
    ['sku_id', `"${sku.skuId}"`],
    ['quantity', '1'],
  ];
  const members = new Map(valid);
  for (const [name, value] of wish.members) members.set(name, value);
  const body = `{${[...members].map(([name, value]) => `"${name}":${value}`).join(',')}}`;
  const length = Buffer.byteLength(body);
  const framings: Readonly<Record<Wish['framing'], string>> = {
    length: `Content-Length: ${length}\r\n\r\n${body}`,
    short: `Content-Length: ${Math.max(0, length - 7)}\r\n\r\n${body}`,
    long: `Content-Length: ${length + 9}\r\n\r\n${body}`,
    chunked: `Transfer-Encoding: chunked\r\n\r\n${length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
    none: `\r\n${body}`,
    both: `Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
    negative: `Content-Length: -1\r\n\r\n${body}`,
  };
  const head = [`${wish.method} ${path} HTTP/1.1`, 'Host: shop.test', ...wish.headers].join('\r\n');
  let bytes: Buffer = Buffer.from(`${head}\r\n${framings[wish.framing]}`, 'utf8');
  for (const [kind, place, byte] of wish.damage) bytes = damaged(bytes, kind, place, byte);
  return bytes;
}

function damaged(bytes: Buffer, kind: number, place: number, byte: number): Buffer {
  const at = place % (bytes.length + 1);
  const before = bytes.subarray(0, at);
  const after = bytes.subarray(at);
  switch (kind) {
    case 0:
      return Buffer.concat([before, Buffer.from([byte]), after.subarray(1)]);
    case 1:
      return Buffer.concat([before, Buffer.from([byte]), after]);
    case 2:
      return Buffer.concat([before, after.subarray(1 + (byte % 8))]);
    default:
      return Buffer.from(before);
  }
}

/** Sends on a connection of its own, half-closes once the server had its chance, reads to the end. */
function send(port: number, bytes: Buffer): Promise<Buffer> {
  return new Promise((resolve) => {
    const parts: Buffer[] = [];
    const socket = connect(port, '127.0.0.1', () => {
      socket.write(bytes);
      setTimeout(() => socket.end(), 8);
    });
    socket.on('data', (part) => parts.push(part));
    // A reset by the server is an end like another; whether the server lives is asked apart.
    socket.on('error', () => undefined);
    socket.on('close', () => resolve(Buffer.concat(parts)));
  });
}

const checkProblem = checkerOf(ProblemBody);

/** Every answer in the bytes is one that the catalogue knows, with a body that keeps its shape. */
function checkAnswers(bytes: Buffer): number {
  const answers = parseAnswers(bytes);
  for (const { status, headers, body } of answers) {
    if (!statuses.has(status)) throw new Error(`status ${status}: ${body}`);
    if (headers['content-type'] !== 'application/problem+json' || body === '') continue;
    const parsed: unknown = JSON.parse(body);
    const checked = checkProblem(parsed);
    if (!checked.ok) throw new Error(`${JSON.stringify(checked.errors)} in ${body}`);
  }
  return answers.length;
}

test('malformed requests change nothing but the counters', { timeout: 400_000 }, async () => {
  const at = await openShop({
    stock: 1_000_000,
    settings: { maxConnectionsPerAddress: 1_000_000, headersTimeoutMs: 2_000 },
  });
  let sent = 0;
  let answered = 0;
  let settledAtStart = 0;
  await fc.assert(
    fc.asyncProperty(
      fc.array(wishes(at), { minLength: perRun, maxLength: perRun, size: 'max' }),
      async (batch) => {
        const replies = await Promise.all(
          batch.map(async (wish) => {
            const bytes = bytesOf(wish);
            const answers = await send(at.port, bytes);
            try {
              return checkAnswers(answers);
            } catch (error) {
              throw new Error(`after ${JSON.stringify(bytes.toString('latin1'))}`, {
                cause: error,
              });
            }
          }),
        );
        sent += batch.length;
        answered += replies.filter((count) => count > 0).length;
        expect(at.logged).toEqual([]);
        // The runtime's own caches have filled by now; what grows from here on is ours.
        if (settledAtStart === 0 && sent >= 20_000) settledAtStart = settledBytes();
      },
    ),
    // What broke it is in the error; a batch of a hundred shrinks to nothing that helps.
    { numRuns: runs, seed, endOnFailure: true },
  );
  await expect.poll(() => at.gateway.inSystem).toBe(0);
  expect(sent).toBeGreaterThanOrEqual(100_000);
  // Most are told what is wrong with them; the rest gave up before there was anything to answer.
  expect(answered / sent).toBeGreaterThan(0.8);
  expect(settledBytes() - settledAtStart).toBeLessThan(growthMax);
  expect(at.ledger.residual()).toBe(0);
  const alive = await fetch(`${at.url}/healthz`);
  expect(alive.status).toBe(200);
  await at.close();
});
