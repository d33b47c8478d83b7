import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose';
import { afterEach, describe, expect, test } from 'vitest';
import { newRing } from '../../../test/support/shop.ts';
import { SeededRandom, World } from '../../../test/support/world.ts';
import { systemTimers } from '../../app/system.ts';
import { addressSet } from '../../core/limit/address.ts';
import { signUserToken } from '../../core/pass/user-token.ts';
import { UnavailableError } from '../../ports/errors.ts';
import { getJson } from '../outbound.ts';
import { claimedPersonReader } from './claims.ts';
import { demoIdentity, demoSessions } from './demo.ts';
import {
  firstFetchCooldownMs,
  JwksIdentity,
  keysFreshMs,
  keysLifeMs,
  refreshCooldownMs,
} from './jwks.ts';
import { secretIdentity } from './secret.ts';

const subject = { userClaim: 'sub', personClaim: 'sub' } as const;
const nowMs = 1_800_000_000_000;
const nowSeconds = nowMs / 1000;

function unsigned(header: object, claims: object, signature = 'AAAA'): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${part(header)}.${part(claims)}.${signature}`;
}

describe('demo people', () => {
  test('are issued on this machine, verify, and are the person that their token claims', () => {
    const ring = newRing('user');
    const world = new World(nowMs);
    const parts = { ring, issuer: 'i', clock: world, random: new SeededRandom('s') };
    const sessions = demoSessions({ ...parts, anywhere: false });
    const identity = demoIdentity(ring, 'i');
    expect(sessions.issue({ address: '203.0.113.9', loopback: false })).toBeUndefined();
    const open = demoSessions({ ...parts, anywhere: true });
    expect(open.issue({ address: '203.0.113.9', loopback: false })).toBeDefined();
    const session = sessions.issue({ address: '127.0.0.1', loopback: true });
    const token = session?.token ?? '';
    expect(identity.verify(token, nowMs)).toEqual({
      kind: 'person',
      userId: session?.userId,
      personId: session?.userId,
    });
    expect(identity.claimedPerson(token)).toBe(session?.userId);
    expect(identity.verify(token, (session?.expiresAtMs ?? 0) + 3_000)).toMatchObject({
      kind: 'refused',
      reason: 'expired',
    });
    const foreign = signUserToken(newRing('user'), {
      issuer: 'i',
      userId: 'eve',
      issuedAtMs: nowMs,
      expiresAtMs: nowMs + 1000,
    });
    expect(identity.verify(foreign, nowMs)).toMatchObject({ kind: 'refused' });
  });
});

describe('a shared secret', () => {
  const secret = 's'.repeat(40);
  const key = new TextEncoder().encode(secret);
  const identity = secretIdentity(secret, {
    userClaim: 'uid',
    personClaim: 'id_digest',
    issuer: 'https://shop.test',
    audience: 'sale',
  });

  const signed = (
    claims: Record<string, unknown> = {},
    header: Record<string, unknown> = {},
    with_: Uint8Array = key,
  ): Promise<string> =>
    new SignJWT({
      uid: 'ann',
      id_digest: 'd1',
      iss: 'https://shop.test',
      aud: ['other', 'sale'],
      exp: nowSeconds + 60,
      ...claims,
    })
      .setProtectedHeader({ alg: 'HS256', typ: 'JWT', ...header })
      .sign(with_);

  test('what a JWT library signs, verifies here, with the configured claims', async () => {
    expect(identity.verify(await signed(), nowMs)).toMatchObject({
      kind: 'person',
      userId: 'ann',
      personId: 'd1',
    });
    // A header seen before takes the short way, and is checked no less.
    expect(identity.verify(await signed({ uid: 'bob' }), nowMs)).toMatchObject({ userId: 'bob' });
    expect(identity.claimedPerson(await signed())).toBe('d1');
  });

  test('everything else is refused, each for its reason', async () => {
    const good = await signed();
    const [header = '', payload = '', signature = ''] = good.split('.');
    const cases: [string, string][] = [
      [await signed({}, {}, new TextEncoder().encode('x'.repeat(40))), 'signature'],
      [`${header}.${payload}.${signature.slice(0, -1)}`, 'signature'],
      [`${header}.${Buffer.from('{"uid":"eve"}').toString('base64url')}.${signature}`, 'signature'],
      [unsigned({ alg: 'none' }, { uid: 'ann' }), 'algorithm'],
      [unsigned({ alg: 'RS256' }, { uid: 'ann' }), 'algorithm'],
      [unsigned({ alg: 'HS256', crit: ['b64'] }, { uid: 'ann' }), 'algorithm'],
      [unsigned({ alg: 'HS256', typ: 'sluice-pass+jwt' }, { uid: 'ann' }), 'algorithm'],
      [`${header}.${payload}`, 'structure'],
      [`${good}.x`, 'structure'],
      ['', 'structure'],
      ['x'.repeat(3_000), 'too_long'],
      [await signed({ iss: 'https://evil.test' }), 'issuer'],
      [await signed({ aud: 'other' }), 'audience'],
      [await signed({ exp: nowSeconds - 3 }), 'expired'],
      [await signed({ exp: undefined }), 'expired'],
      [await signed({ nbf: nowSeconds + 3 }), 'not_yet'],
      [await signed({ uid: undefined }), 'user'],
      [await signed({ uid: 7 }), 'user'],
      [await signed({ uid: 'x'.repeat(256) }), 'user'],
      [await signed({ id_digest: '' }), 'person'],
    ];
    for (const [token, reason] of cases) {
      expect(identity.verify(token, nowMs), token).toEqual({ kind: 'refused', reason });
    }
    // Within the tolerated clock difference.
    expect(identity.verify(await signed({ exp: nowSeconds - 1 }), nowMs)).toMatchObject({
      kind: 'person',
    });
  });

  test('a secret shorter than the hash is refused at once', () => {
    expect(() => secretIdentity('short', subject)).toThrow('5 bytes');
  });
});

describe('the claimed person', () => {
  const claimed = claimedPersonReader(subject);

  test('is what parsing would say, for every shape of payload', () => {
    const payloads: [object | string, string | undefined][] = [
      [{ sub: 'ann' }, 'ann'],
      [{ iss: 'x', sub: 'ann', exp: 1 }, 'ann'],
      [{ sub: 'a"b' }, 'a"b'],
      [{ sub: 'ünï' }, 'ünï'],
      [{ act: { sub: 'eve' }, sub: 'ann' }, 'ann'],
      [{ sub: 'ann', act: { sub: 'eve' } }, 'ann'],
      [{ act: { sub: 'eve' } }, undefined],
      [{ sub: 7 }, undefined],
      [{ list: ['sub', 'x'], sub: 'ann' }, 'ann'],
      ['{"sub":"first","sub":"last"}', 'last'],
      ['{ "sub" : "spaced" }', 'spaced'],
      ['{"s\\u0075b":"escaped"}', 'escaped'],
      ['not json', undefined],
      [{}, undefined],
    ];
    for (const [payload, expected] of payloads) {
      const text = typeof payload === 'string' ? payload : JSON.stringify(payload);
      const token = `h.${Buffer.from(text).toString('base64url')}.s`;
      expect(claimed(token), text).toBe(expected);
    }
    for (const token of ['', 'a', 'a.', '.', 'a.b', 'x'.repeat(3_000)]) {
      expect(claimed(token)).toBeUndefined();
    }
  });
});

describe('keys under a URL', () => {
  async function keyPair(kid: string): Promise<{
    jwk: JWK;
    sign: (claims?: Record<string, unknown>, header?: Record<string, unknown>) => Promise<string>;
  }> {
    const { publicKey, privateKey } = await generateKeyPair('ES256');
    const jwk = { ...(await exportJWK(publicKey)), kid, alg: 'ES256', use: 'sig' };
    return {
      jwk,
      sign: (claims = {}, header = {}) =>
        new SignJWT({ sub: 'ann', iss: 'i', exp: nowSeconds + 7 * 86_400, ...claims })
          .setProtectedHeader({ alg: 'ES256', kid, ...header })
          .sign(privateKey),
    };
  }

  function setUp(keys: () => Promise<unknown>): { world: World; identity: JwksIdentity } {
    const world = new World(nowMs);
    const identity = new JwksIdentity(
      { fetchKeys: keys, clock: world },
      { ...subject, issuer: 'i' },
    );
    return { world, identity };
  }

  test('are fetched once, for everybody; a token seen before is known at once', async () => {
    const one = await keyPair('k1');
    const { identity } = setUp(() => Promise.resolve({ keys: [one.jwk] }));
    const tokens = await Promise.all(['a', 'b', 'c', 'd'].map((sub) => one.sign({ sub })));
    const results = await Promise.all(tokens.map(async (token) => identity.verify(token, nowMs)));
    expect(results.map((result) => result.kind)).toEqual(['person', 'person', 'person', 'person']);
    expect(identity.fetches).toBe(1);
    expect(identity.verify(tokens[0] ?? '', nowMs)).toMatchObject({ userId: 'a' });
  });

  test('an unknown key id costs one refresh per cool-down, however many come', async () => {
    const one = await keyPair('k1');
    const two = await keyPair('k2');
    let keys = [one.jwk];
    const { world, identity } = setUp(() => Promise.resolve({ keys }));
    await identity.verify(await one.sign(), nowMs);
    for (let n = 0; n < 20; n += 1) {
      const noise = await two.sign({}, { kid: `noise${n}` });
      expect(await identity.verify(noise, nowMs)).toMatchObject({ kind: 'refused', reason: 'key' });
    }
    expect(identity.fetches).toBe(1);
    keys = [one.jwk, two.jwk];
    await world.advance(refreshCooldownMs);
    const rotated = await Promise.all([
      identity.verify(await two.sign(), world.wallMs()),
      identity.verify(await two.sign({ sub: 'bob' }), world.wallMs()),
    ]);
    expect(rotated.map(({ kind }) => kind)).toEqual(['person', 'person']);
    expect(identity.fetches).toBe(2);
  });

  test('what the token says about its algorithm never wins', async () => {
    const one = await keyPair('k1');
    const { identity } = setUp(() => Promise.resolve({ keys: [one.jwk] }));
    const pem = JSON.stringify(one.jwk);
    const confused = await new SignJWT({ sub: 'eve', iss: 'i', exp: nowSeconds + 60 })
      .setProtectedHeader({ alg: 'HS256', kid: 'k1' })
      .sign(new TextEncoder().encode(pem));
    for (const token of [confused, unsigned({ alg: 'none', kid: 'k1' }, { sub: 'eve' })]) {
      expect(await identity.verify(token, nowMs)).toMatchObject({ kind: 'refused' });
    }
    expect(await identity.verify(await one.sign({ iss: 'other' }), nowMs)).toMatchObject({
      reason: 'claim',
    });
    expect(await identity.verify(await one.sign({ exp: nowSeconds - 10 }), nowMs)).toMatchObject({
      reason: 'expired',
    });
  });

  test('a provider that is away: nobody is let in, and nobody is called a liar', async () => {
    const one = await keyPair('k1');
    let away = true;
    const { world, identity } = setUp(() =>
      away ? Promise.reject(new Error('away')) : Promise.resolve({ keys: [one.jwk] }),
    );
    const token = await one.sign();
    expect(await identity.verify(token, nowMs)).toEqual({ kind: 'unavailable' });
    away = false;
    expect(await identity.verify(token, nowMs)).toEqual({ kind: 'unavailable' });
    await world.advance(firstFetchCooldownMs);
    expect(await identity.verify(token, world.wallMs())).toMatchObject({ kind: 'person' });

    // Keys that are known go on for their life, and no longer.
    away = true;
    await world.advance(keysFreshMs);
    expect(await identity.verify(token, world.wallMs())).toMatchObject({ kind: 'person' });
    await world.advance(keysLifeMs);
    expect(await identity.verify(token, world.wallMs())).toEqual({ kind: 'unavailable' });
  });

  test('a withdrawn key stops working once the keys are fetched again', async () => {
    const one = await keyPair('k1');
    const two = await keyPair('k2');
    let keys = [one.jwk];
    const { world, identity } = setUp(() => Promise.resolve({ keys }));
    const token = await one.sign();
    await identity.verify(token, nowMs);
    keys = [two.jwk];
    await world.advance(keysFreshMs);
    await identity.verify(await one.sign({ sub: 'other' }), world.wallMs());
    await world.advance(0);
    expect(await identity.verify(token, world.wallMs())).toMatchObject({
      kind: 'refused',
      reason: 'key',
    });
  });

  test('what is no key set is as good as no answer', async () => {
    const one = await keyPair('k1');
    const { identity } = setUp(() => Promise.resolve({ hello: 'world' }));
    expect(await identity.verify(await one.sign(), nowMs)).toEqual({ kind: 'unavailable' });
  });
});

describe('reading over the network', () => {
  let server: Server | undefined;
  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
  });

  async function serving(
    answer: (path: string) => { status?: number; headers?: Record<string, string>; body: string },
  ): Promise<number> {
    server = createServer((request, response) => {
      const { status = 200, headers = {}, body } = answer(request.url ?? '');
      if (body === 'silence') return;
      response.writeHead(status, headers);
      response.end(body);
    });
    const listening = server;
    await new Promise<void>((resolve) => listening.listen(0, '127.0.0.1', resolve));
    return (listening.address() as AddressInfo).port;
  }

  const options = (allowed: readonly string[] = []) => ({
    timers: systemTimers,
    allowsPrivate: addressSet(allowed),
    timeoutMs: 300,
    maxBytes: 1_000,
  });

  test('private addresses are refused unless listed, by literal and by name', async () => {
    const port = await serving(() => ({ body: '{"keys":[]}' }));
    const urls = [`http://127.0.0.1:${port}/`, `http://localhost:${port}/`];
    for (const url of urls) {
      await expect(getJson(url, options())).rejects.toThrow(UnavailableError);
      expect(await getJson(url, options(['127.0.0.1/32', '::1/128']))).toEqual({ keys: [] });
    }
    for (const url of [
      'http://10.0.0.1/',
      'http://169.254.169.254/',
      'http://[::1]/',
      'http://[fd00::1]/',
      'http://0.0.0.0/',
      'http://[::ffff:10.0.0.1]/',
    ]) {
      await expect(getJson(url, options()), url).rejects.toThrow('not public');
    }
    await expect(getJson('file:///etc/passwd', options())).rejects.toThrow('file:');
  });

  test('redirects are not followed, sizes and times are bounded, junk is no answer', async () => {
    const port = await serving((path) => {
      if (path === '/redirect') {
        return { status: 302, headers: { location: '/ok' }, body: '' };
      }
      if (path === '/big') return { body: `"${'x'.repeat(2_000)}"` };
      if (path === '/junk') return { body: '<html>' };
      return { body: 'silence' };
    });
    const get = (path: string): Promise<unknown> =>
      getJson(`http://127.0.0.1:${port}${path}`, options(['127.0.0.1/32']));
    await expect(get('/redirect')).rejects.toThrow('302');
    await expect(get('/big')).rejects.toThrow('1000 bytes');
    await expect(get('/junk')).rejects.toThrow(UnavailableError);
    await expect(get('/silent')).rejects.toThrow('300 ms');
  });
});
