import { afterEach, describe, expect, test } from 'vitest';
import { checkerOf } from '../../src/gateway/validate.ts';
import { ProblemBody } from '../../src/wire/schemas.ts';
import { withReserve, openShop, type Shop, type ShopOptions, sku } from '../support/shop.ts';
import { exchange, openSocket, type RawAnswer } from '../support/raw-http.ts';

let shop: Shop | undefined;
afterEach(async () => {
  const ran = shop;
  shop = undefined;
  if (ran === undefined) return;
  await ran.close();
  expect(ran.ledger.residual()).toBe(0);
});

async function open(options: ShopOptions = {}): Promise<Shop> {
  shop = await openShop(options);
  return shop;
}

const checkProblem = checkerOf(ProblemBody);

/** The one answer, whose body must be a problem of this code. */
function problem(answers: readonly RawAnswer[], code: string): RawAnswer {
  expect(answers.map(({ status }) => status)).toHaveLength(1);
  const [answer] = answers;
  const body = JSON.parse(answer!.body) as Record<string, unknown>;
  expect(checkProblem(body)).toMatchObject({ ok: true });
  expect(body).toMatchObject({ code, status: answer!.status });
  return answer!;
}

const host = 'Host: shop.test\r\n';

function submitBytes(at: Shop, requestId = 'r1', extra = ''): string {
  const { headers } = at.buyer('ann');
  const body = JSON.stringify({
    request_id: requestId,
    activity_id: sku.activityId,
    sku_id: sku.skuId,
    quantity: 1,
  });
  return (
    `POST /v1/seckill/${at.path}/submit HTTP/1.1\r\n${host}` +
    `Authorization: ${headers['authorization']}\r\nSluice-Pass: ${headers['sluice-pass']}\r\n` +
    `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n${extra}\r\n${body}`
  );
}

describe('what the parser refuses is answered like everything else', () => {
  test('garbage, oversize heads, conflicting lengths', async () => {
    const at = await open();
    const cases: [string, string, number][] = [
      ['nonsense\r\n\r\n', 'INVALID_ARGUMENT', 400],
      [`GET / HTTP/1.1\r\n${host}Content-Length: x\r\n\r\n`, 'INVALID_ARGUMENT', 400],
      [
        `POST /v1/session HTTP/1.1\r\n${host}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`,
        'INVALID_ARGUMENT',
        400,
      ],
      [
        `POST /v1/session HTTP/1.1\r\n${host}Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}`,
        'INVALID_ARGUMENT',
        400,
      ],
      [`GET / HTTP/1.1\r\n${host}X: ${'a'.repeat(17_000)}\r\n\r\n`, 'HEADERS_TOO_LARGE', 431],
      [`GET / HTTP/1.1\r\n${host}${'X: a\r\n'.repeat(101)}\r\n`, 'HEADERS_TOO_LARGE', 431],
      ['GET / HTTP/1.1\r\n\r\n', 'INVALID_ARGUMENT', 400],
      [`GET / HTTP/1.1\r\n${host}${host}\r\n`, 'INVALID_ARGUMENT', 400],
      [`GET /v1/activities HTTP/1.1\r\n${host}X: a\nb\r\n\r\n`, 'INVALID_ARGUMENT', 400],
    ];
    for (const [bytes, code, status] of cases) {
      const { answers } = await exchange(at.port, [bytes]);
      expect(problem(answers, code).status, JSON.stringify(bytes.slice(0, 80))).toBe(status);
    }
  });

  test('repeated credentials are refused, whatever their case', async () => {
    const at = await open();
    for (const name of ['Authorization', 'sLUICE-pASS', 'Idempotency-Key', 'Content-Type']) {
      const again = `${name}: x\r\n${name.toLowerCase()}: y\r\n`;
      const { answers } = await exchange(at.port, [submitBytes(at, 'r1', again)]);
      const answer = problem(answers, 'INVALID_ARGUMENT');
      expect(answer.body).toContain(`header:${name.toLowerCase()}`);
    }
    // Two headers that only look alike by length and first letter are no repetition.
    const { answers } = await exchange(at.port, [
      submitBytes(at, 'r1', 'Accept-Ranges: none\r\nOrigin: http://shop.test\r\nOcelot: 1\r\n'),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([202]);
  });
});

describe('bodies', () => {
  test('a slow body is awaited, a split one is put together, a chunked one is read', async () => {
    const at = await open();
    const whole = submitBytes(at);
    const cut = whole.length - 20;
    const socket = await openSocket(at.port);
    const heard = new Promise<string>((resolve) => {
      socket.once('data', (part) => resolve(part.toString('latin1')));
    });
    socket.write(whole.slice(0, cut));
    await expect.poll(() => at.gateway.inSystem).toBe(1);
    socket.write(whole.slice(cut));
    expect(await heard).toMatch(/^HTTP\/1\.1 202 /);
    socket.destroy();

    const body = whole.slice(whole.indexOf('\r\n\r\n') + 4);
    const chunked =
      whole.slice(0, whole.indexOf('Content-Length')) +
      `Transfer-Encoding: chunked\r\n\r\n5\r\n${body.slice(0, 5)}\r\n` +
      `${(body.length - 5).toString(16)}\r\n${body.slice(5)}\r\n0\r\n\r\n`;
    const { answers } = await exchange(at.port, [chunked]);
    expect(answers[0]?.body).toContain('REQUEST_REPLAYED');
  });

  test('a chunked body without end is cut off at its bound', async () => {
    const at = await open();
    const head = submitBytes(at).slice(0, submitBytes(at).indexOf('Content-Length'));
    const chunk = `1000\r\n${' '.repeat(4096)}\r\n`;
    const { answers, closed } = await exchange(
      at.port,
      [`${head}Transfer-Encoding: chunked\r\n\r\n`, ...Array.from({ length: 20 }, () => chunk)],
      { close: true },
    );
    problem(answers, 'PAYLOAD_TOO_LARGE');
    expect(closed).toBe(true);
  });

  test('who expects a go-ahead gets it only after the cheap refusals', async () => {
    const at = await open();
    const bytes = submitBytes(at, 'r1', 'Expect: 100-continue\r\n');
    const { answers } = await exchange(at.port, [bytes], { answers: 2 });
    expect(answers.map(({ status }) => status)).toEqual([100, 202]);
    const noPass = bytes.replace(/Sluice-Pass: .*\r\n/, '');
    const head = noPass.slice(0, noPass.indexOf('\r\n\r\n') + 4);
    const refused = await exchange(at.port, [head], { close: true });
    expect(refused.answers.map(({ status }) => status)).toEqual([403]);
    expect(refused.closed).toBe(true);
  });

  test('a sender who goes away in the middle leaves nothing behind', async () => {
    const at = await open();
    const whole = submitBytes(at);
    const socket = await openSocket(at.port);
    socket.write(whole.slice(0, -10));
    await expect.poll(() => at.gateway.inSystem).toBe(1);
    socket.destroy();
    await expect.poll(() => at.gateway.inSystem).toBe(0);
    expect(await at.store.mark(sku)).toMatchObject({ available: 10 });
  });
});

describe('connections', () => {
  test('pipelined requests are answered in order', async () => {
    const at = await open();
    const get = `GET /healthz HTTP/1.1\r\n${host}\r\n`;
    const { answers } = await exchange(
      at.port,
      [`${submitBytes(at)}${get}GET /v1/seckill/x/submit HTTP/1.1\r\n${host}\r\n${get}`],
      { answers: 4 },
    );
    expect(answers.map(({ status }) => status)).toEqual([202, 200, 405, 200]);
  });

  test('a refused small body leaves the connection usable, a large one ends it', async () => {
    const at = await open();
    const post = (length: number): string =>
      `POST /v1/seckill/none/submit HTTP/1.1\r\n${host}Content-Type: application/json\r\nContent-Length: ${length}\r\n\r\n${' '.repeat(length)}`;
    const small = await exchange(at.port, [post(100), post(100)], { answers: 2 });
    expect(small.answers.map(({ status }) => status)).toEqual([404, 404]);
    expect(small.closed).toBe(false);
    const large = await exchange(at.port, [post(30_000), post(100)], { close: true });
    expect(large.answers.map(({ status }) => status)).toEqual([413]);
    expect(large.closed).toBe(true);
  });

  test('are bounded per address and in total', async () => {
    const perAddress = await open({ settings: { maxConnectionsPerAddress: 2 } });
    const held = [await openSocket(perAddress.port), await openSocket(perAddress.port)];
    const third = await exchange(perAddress.port, [`GET /healthz HTTP/1.1\r\n${host}\r\n`]);
    expect(third).toEqual({ answers: [], closed: true });
    held[0]?.destroy();
    await expect
      .poll(async () => {
        const { answers } = await exchange(perAddress.port, [
          `GET /healthz HTTP/1.1\r\n${host}\r\n`,
        ]);
        return answers.length;
      })
      .toBe(1);
    held[1]?.destroy();
    await perAddress.close();

    const total = await open({ settings: { maxConnections: 1 } });
    const one = await openSocket(total.port);
    one.write(`GET /healthz HTTP/1.1\r\n${host}\r\n`);
    await new Promise((resolve) => one.once('data', resolve));
    const second = await exchange(total.port, [`GET /healthz HTTP/1.1\r\n${host}\r\n`]);
    expect(second.answers).toEqual([]);
    one.destroy();
  });

  test('idle ones are closed after their time, busy ones are not', async () => {
    let release: (() => void) | undefined;
    const at = await open({
      store: (real) =>
        withReserve(real, async (...args) => {
          await new Promise<void>((resolve) => (release = resolve));
          return real.reserve(...args);
        }),
    });
    const idle = await openSocket(at.port);
    idle.write(`GET /healthz HTTP/1.1\r\n${host}\r\n`);
    await new Promise((resolve) => idle.once('data', resolve));
    const busy = await openSocket(at.port);
    busy.write(submitBytes(at));
    await expect.poll(() => release).toBeDefined();
    const closed = new Promise((resolve) => idle.once('close', resolve));
    // The call's own time is over long before; its requests have their answer, the socket its peace.
    await at.world.advance(1_000);
    expect(busy.destroyed).toBe(false);
    await at.world.advance(85_000);
    await closed;
    release?.();
    busy.destroy();
  });

  test('slow bodies are cut off with 408, and nothing of them stays', async () => {
    const at = await open({ settings: { headersTimeoutMs: 500, requestTimeoutMs: 1_000 } });
    for (const bytes of [
      submitBytes(at),
      `POST /v1/session HTTP/1.1\r\n${host}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{         `,
    ]) {
      const { answers, closed } = await exchange(at.port, [bytes.slice(0, -10)], { close: true });
      problem(answers, 'REQUEST_TIMEOUT');
      expect(closed).toBe(true);
      await expect.poll(() => at.gateway.inSystem).toBe(0);
    }
  });

  test('a body that is no HTTP is told 400, and nothing of it stays', async () => {
    const at = await open();
    const submit = submitBytes(at);
    for (const head of [
      submit.slice(0, submit.indexOf('Content-Length')),
      `POST /v1/session HTTP/1.1\r\n${host}Content-Type: application/json\r\n`,
    ]) {
      const bytes = `${head}Transfer-Encoding: chunked\r\n\r\nno size\r\n{}\r\n0\r\n\r\n`;
      const { answers, closed } = await exchange(at.port, [bytes], { close: true });
      problem(answers, 'INVALID_ARGUMENT');
      expect(closed).toBe(true);
      await expect.poll(() => at.gateway.inSystem).toBe(0);
    }
  });

  test('slow heads are cut off with 408', async () => {
    const at = await open({ settings: { headersTimeoutMs: 500, requestTimeoutMs: 1_000 } });
    const { answers, closed } = await exchange(at.port, ['GET /healthz HTTP/1.1\r\nHo'], {
      close: true,
    });
    problem(answers, 'REQUEST_TIMEOUT');
    expect(closed).toBe(true);
  });
});

describe('closing', () => {
  test('finishes what is in progress, answers it, and takes nothing new', async () => {
    let release: (() => void) | undefined;
    const at = await open({
      store: (real) =>
        withReserve(real, async (...args) => {
          await new Promise<void>((resolve) => (release = resolve));
          return real.reserve(...args);
        }),
    });
    const running = exchange(at.port, [submitBytes(at)]);
    await expect.poll(() => release).toBeDefined();
    const closing = at.gateway.close({ drainMs: 5_000 });
    await expect(openSocket(at.port)).rejects.toThrow('ECONNREFUSED');
    release?.();
    const { answers } = await running;
    expect(answers[0]).toMatchObject({ status: 202, headers: { connection: 'close' } });
    await closing;
  });

  test('ends within its bound when something never finishes', async () => {
    const at = await open({
      store: (real) => withReserve(real, () => new Promise(() => undefined)),
    });
    const running = exchange(at.port, [submitBytes(at)]);
    await expect.poll(() => at.gateway.inSystem).toBe(1);
    const closing = at.gateway.close({ drainMs: 1_000 });
    await at.world.advance(1_000);
    await closing;
    expect((await running).answers).toEqual([]);
    // The call is given up by its own time limit, and the ledger closes.
    await at.world.advance(2_000);
  });
});
