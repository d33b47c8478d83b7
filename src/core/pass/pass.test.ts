import { generateKeyPairSync } from 'node:crypto';
import { fc } from '../../../test/support/property.ts';
import { CompactSign, SignJWT, base64url, jwtVerify } from 'jose';
import { describe, expect, test } from 'vitest';
import { ed25519Key, hs256Key, nodeTextCodec } from '../../pipeline/keys.ts';
import { passSkewMs, tokenMaxBytes } from '../bounds.ts';
import { KeyRing } from './key-ring.ts';
import type { TokenKey } from './key-ring.ts';
import { signPass, verifyPass } from './pass.ts';
import type { PassClaims, PassExpectations, PassRefusal } from './pass.ts';
import { openToken, peekClaims, sealToken } from './token.ts';
import type { TokenType } from './token.ts';

const nowMs = 1_800_000_000_000;
const secret = new Uint8Array(32).fill(7);
const pair = generateKeyPairSync('ed25519');

const claims: PassClaims = {
  issuer: 'sluice',
  audience: 'sluice-submit',
  activityId: 'concert',
  skuId: 'front-row',
  userId: 'user-1',
  activityVersion: 3,
  pathId: 'AbCdEfGhIjKlMnOp',
  maxQuantity: 2,
  wave: 5,
  nonce: 'nonce-nonce-nonce-nonc',
  notBeforeMs: nowMs,
  expiresAtMs: nowMs + 30_000,
  issuedAtMs: nowMs,
  deviceHash: 'd'.repeat(64),
  region: 'eu',
};

const expected: PassExpectations = {
  issuer: 'sluice',
  audience: 'sluice-submit',
  activityId: 'concert',
  skuId: 'front-row',
  userId: 'user-1',
  activityVersion: 3,
  pathId: 'AbCdEfGhIjKlMnOp',
  isWaveRevoked: (wave) => wave === 4,
};

function ringOf(key: TokenKey, type: TokenType = 'pass'): KeyRing {
  const ring = new KeyRing(type, nodeTextCodec);
  ring.add(key);
  if (key.sign !== undefined) ring.signWith(key.kid);
  return ring;
}

const algorithms = [
  { name: 'HS256', key: hs256Key('pass-1', secret), joseKey: secret },
  { name: 'EdDSA', key: ed25519Key('pass-1', pair.privateKey), joseKey: pair.privateKey },
] as const;

function reasonOf(
  raw: string,
  ring: KeyRing,
  over: Partial<PassExpectations> = {},
  atMs = nowMs,
): PassRefusal | 'valid' | 'expired' {
  const verdict = verifyPass(ring, raw, { ...expected, ...over }, atMs);
  return verdict.kind === 'refused' ? verdict.reason : verdict.kind;
}

/** A token whose every part is chosen by the test and whose signature holds under `key`. */
function forge(key: TokenKey, header: object | string, payload: object | string): string {
  const text = (part: object | string): string =>
    nodeTextCodec.encode(typeof part === 'string' ? part : JSON.stringify(part));
  const input = `${text(header)}.${text(payload)}`;
  return `${input}.${key.sign?.(input) ?? ''}`;
}

const wireClaims = (raw: string): Record<string, unknown> => ({
  ...peekClaims(nodeTextCodec, raw),
});

describe.each(algorithms)('a pass under $name', ({ name, key, joseKey }) => {
  const ring = ringOf(key);
  const pass = signPass(ring, claims);
  const header = { alg: name, kid: 'pass-1', typ: 'sluice-pass+jwt' };

  test('says what was signed', () => {
    expect(verifyPass(ring, pass, expected, nowMs)).toEqual({
      kind: 'valid',
      claims,
      keyId: 'pass-1',
    });
  });

  test('any changed character, and any changed bit, is refused', () => {
    for (let at = 0; at < pass.length; at += 1) {
      for (let bit = 0; bit < 7; bit += 1) {
        const changed = String.fromCharCode(pass.charCodeAt(at) ^ (1 << bit));
        const forged = pass.slice(0, at) + changed + pass.slice(at + 1);
        expect(reasonOf(forged, ring), `character ${at}, bit ${bit}`).toMatch(
          /^(structure|type|key|algorithm|signature)$/,
        );
      }
    }
  });

  test('no cutting, doubling or splicing of bytes is accepted', () => {
    fc.assert(
      fc.property(
        fc.nat(pass.length),
        fc.nat(12),
        fc.string({ maxLength: 12, unit: 'binary' }),
        (at, cut, put) => {
          const spliced = pass.slice(0, at) + put + pass.slice(at + cut);
          if (spliced !== pass) expect(reasonOf(spliced, ring)).not.toBe('valid');
        },
      ),
      { numRuns: 2000 },
    );
  });

  test('jose verifies ours, and we verify what jose signs', async () => {
    const verifyKey = name === 'HS256' ? secret : pair.publicKey;
    const seen = await jwtVerify(pass, verifyKey, {
      issuer: 'sluice',
      audience: 'sluice-submit',
      typ: 'sluice-pass+jwt',
      algorithms: [name],
      currentDate: new Date(nowMs),
    });
    expect(seen.payload).toEqual(wireClaims(pass));

    const theirs = await new SignJWT(wireClaims(pass)).setProtectedHeader(header).sign(joseKey);
    expect(reasonOf(theirs, ring)).toBe('valid');
    const reordered = await new SignJWT(wireClaims(pass))
      .setProtectedHeader({ typ: header.typ, kid: header.kid, alg: name })
      .sign(joseKey);
    expect(reasonOf(reordered, ring)).toBe('valid');
    expect(reasonOf(reordered, ring), 'again, from the remembered header').toBe('valid');
  });

  test('each binding has its reason, and is let through by nothing else', () => {
    const cases: [PassRefusal, Partial<PassExpectations>][] = [
      ['issuer', { issuer: 'other' }],
      ['audience', { audience: 'other' }],
      ['activity', { activityId: 'other' }],
      ['sku', { skuId: 'other' }],
      ['user', { userId: 'other' }],
      ['activity_version', { activityVersion: 4 }],
      ['path', { pathId: 'other' }],
      ['wave_revoked', { isWaveRevoked: (wave) => wave === 5 }],
      ['device', { bindDevice: true }],
      ['device', { bindDevice: true, deviceHash: 'e'.repeat(64) }],
    ];
    for (const [reason, over] of cases) expect(reasonOf(pass, ring, over)).toBe(reason);
    expect(reasonOf(pass, ring, { bindDevice: true, deviceHash: 'd'.repeat(64) })).toBe('valid');
    const short = signPass(ring, { ...claims, nonce: 'short' });
    expect(reasonOf(short, ring)).toBe('nonce');
  });

  test('reasons come in the order of the checks', () => {
    // Each later fault is joined by one more earlier fault: the earlier one is told.
    const over: Partial<PassExpectations> = {};
    const steps: [PassRefusal, Partial<PassExpectations>][] = [
      ['wave_revoked', { isWaveRevoked: () => true }],
      ['path', { pathId: 'x' }],
      ['activity_version', { activityVersion: 9 }],
      ['user', { userId: 'x' }],
      ['sku', { skuId: 'x' }],
      ['activity', { activityId: 'x' }],
      ['audience', { audience: 'x' }],
      ['issuer', { issuer: 'x' }],
    ];
    for (const [reason, more] of steps) {
      Object.assign(over, more);
      expect(reasonOf(pass, ring, over)).toBe(reason);
    }
    expect(reasonOf(`${pass.slice(0, -1)}!`, ring, over)).toBe('signature');
  });

  test('times hold to the millisecond, with the skew on both ends', () => {
    const { notBeforeMs, expiresAtMs } = claims;
    expect(reasonOf(pass, ring, {}, notBeforeMs - passSkewMs)).toBe('valid');
    expect(reasonOf(pass, ring, {}, notBeforeMs - passSkewMs - 1)).toBe('not_yet');
    expect(reasonOf(pass, ring, {}, expiresAtMs + passSkewMs - 1)).toBe('valid');
    expect(reasonOf(pass, ring, {}, expiresAtMs + passSkewMs)).toBe('expired');
    expect(reasonOf(pass, ring, { skewMs: 0 }, expiresAtMs)).toBe('expired');
    expect(reasonOf(pass, ring, { skewMs: 0 }, expiresAtMs - 1)).toBe('valid');
    const fromTheFuture = signPass(ring, { ...claims, issuedAtMs: nowMs + 60_000 });
    expect(reasonOf(fromTheFuture, ring)).toBe('not_yet');
  });

  test('an expired pass may ask for its own request only', () => {
    const late = claims.expiresAtMs + 60_000;
    expect(verifyPass(ring, pass, expected, late).kind).toBe('expired');
    for (const over of [{ userId: 'x' }, { activityVersion: 1 }, { isWaveRevoked: () => true }]) {
      expect(verifyPass(ring, pass, { ...expected, ...over }, late)).toEqual({
        kind: 'refused',
        reason: 'expired',
      });
    }
  });

  test('headers that ask for more, less or another thing are refused', () => {
    const payload = wireClaims(pass);
    const cases: [PassRefusal, object | string][] = [
      ['structure', 'not json'],
      ['structure', '[]'],
      ['structure', 'null'],
      ['structure', { alg: name, kid: 'pass-1' }],
      ['structure', { ...header, crit: ['b64'] }],
      ['structure', { ...header, jwk: {} }],
      ['structure', { alg: name, typ: header.typ, crit: [] }],
      ['structure', { ...header, kid: 1 }],
      ['type', { ...header, typ: 'JWT' }],
      ['type', { ...header, typ: 'sluice-entry+jwt' }],
      ['type', { ...header, typ: 'SLUICE-PASS+JWT' }],
      ['key', { ...header, kid: 'pass-2' }],
      ['key', { ...header, kid: '__proto__' }],
      ['algorithm', { ...header, alg: 'none' }],
      ['algorithm', { ...header, alg: 'None' }],
      ['algorithm', { ...header, alg: name === 'HS256' ? 'EdDSA' : 'HS256' }],
      ['algorithm', { ...header, alg: 'HS512' }],
    ];
    for (const [reason, bad] of cases) {
      expect(reasonOf(forge(key, bad, payload), ring), JSON.stringify(bad)).toBe(reason);
    }
    expect(reasonOf(forge(key, header, payload), ring), 'control').toBe('valid');
  });

  test('authentic payloads that make no sense are refused as such', () => {
    const good = wireClaims(pass);
    const bad: (object | string)[] = [
      'text',
      '[]',
      'null',
      { ...good, v: 2 },
      { ...good, exp: 'soon' },
      { ...good, exp: good.nbf },
      { ...good, exp: 1e12 },
      { ...good, nbf: -1 },
      { ...good, qty: 0 },
      { ...good, qty: 1.5 },
      { ...good, wave: -1 },
      { ...good, sub: 7 },
      { ...good, aud: ['sluice-submit'] },
      { ...good, dev: 1 },
    ];
    for (const payload of bad) {
      expect(reasonOf(forge(key, header, payload), ring), JSON.stringify(payload)).toBe('payload');
    }
    for (const claim of [
      'iss',
      'aud',
      'v',
      'act',
      'sku',
      'sub',
      'av',
      'pid',
      'qty',
      'wave',
      'jti',
    ]) {
      const { [claim]: gone, ...rest } = good;
      expect(gone).toBeDefined();
      expect(reasonOf(forge(key, header, rest), ring), claim).toBe('payload');
    }
  });
});

test('nothing is believed, or even parsed, before the signature holds', () => {
  // A codec that counts what it decodes: a bad signature must not cost a payload parse.
  const decoded: string[] = [];
  const ring = new KeyRing('pass', {
    encode: nodeTextCodec.encode,
    decode(segment) {
      decoded.push(segment);
      return nodeTextCodec.decode(segment);
    },
  });
  ring.add(hs256Key('pass-1', secret));
  ring.signWith('pass-1');
  const pass = signPass(ring, claims);
  expect(openToken(ring, `${pass.slice(0, -2)}AA`, nowMs)).toEqual({
    ok: false,
    reason: 'signature',
  });
  expect(decoded).toEqual([pass.split('.')[0]]);
  decoded.length = 0;
  expect(openToken(ring, 'x'.repeat(tokenMaxBytes + 1), nowMs)).toMatchObject({
    reason: 'too_long',
  });
  expect(decoded).toEqual([]);
});

test('the public key of EdDSA is no secret of HS256', async () => {
  const ring = ringOf(ed25519Key('pass-1', pair.publicKey));
  for (const format of ['der', 'pem'] as const) {
    const material = Buffer.from(pair.publicKey.export({ format, type: 'spki' } as never));
    const confused = await new CompactSign(Buffer.from(JSON.stringify({ sub: 'thief' })))
      .setProtectedHeader({ alg: 'HS256', kid: 'pass-1', typ: 'sluice-pass+jwt' })
      .sign(material);
    expect(reasonOf(confused, ring)).toBe('algorithm');
  }
  const unsigned = `${base64url.encode('{"alg":"none","kid":"pass-1","typ":"sluice-pass+jwt"}')}.${base64url.encode('{}')}.`;
  expect(reasonOf(unsigned, ring)).toBe('structure');
});

test('tokens of one type are worth nothing as another, even with the same key', () => {
  const key = hs256Key('shared-by-mistake', secret);
  const rings = (['user', 'entry', 'pass', 'decision'] as const).map((type) => ringOf(key, type));
  for (const from of rings) {
    const token = sealToken(from, { sub: 'x' });
    for (const to of rings) {
      const opened = openToken(to, token, nowMs);
      expect(opened.ok ? 'ok' : opened.reason).toBe(from === to ? 'ok' : 'type');
    }
  }
});

test('structure: anything but three non-empty parts', () => {
  const ring = ringOf(hs256Key('pass-1', secret));
  for (const raw of ['', '.', '..', 'a.b', 'a..c', '.b.c', 'a.b.', 'a.b.c.d', 'abc']) {
    expect(reasonOf(raw, ring), raw).toBe('structure');
  }
  expect(reasonOf('a'.repeat(tokenMaxBytes), ring)).toBe('structure');
  expect(reasonOf('a'.repeat(tokenMaxBytes + 1), ring)).toBe('too_long');
});

test('arbitrary input never throws and never passes', () => {
  const ring = ringOf(hs256Key('pass-1', secret));
  fc.assert(
    fc.property(fc.string({ maxLength: 300, unit: 'binary' }), (raw) => {
      expect(reasonOf(raw, ring)).toMatch(/^(structure|type|key|algorithm|signature)$/);
      expect(() => peekClaims(nodeTextCodec, raw)).not.toThrow();
    }),
    { numRuns: 2000 },
  );
});

describe('rotation', () => {
  test('has no pause: old and new verify, then only the new', () => {
    const ring = ringOf(hs256Key('k1', secret));
    const old = signPass(ring, claims);
    ring.add(hs256Key('k2', new Uint8Array(32).fill(8)));
    expect(reasonOf(old, ring)).toBe('valid');
    ring.signWith('k2');
    const fresh = signPass(ring, claims);
    expect([reasonOf(old, ring), reasonOf(fresh, ring)]).toEqual(['valid', 'valid']);
    ring.retire('k1', nowMs + 10);
    expect(reasonOf(old, ring, {}, nowMs + 9)).toBe('valid');
    expect(reasonOf(old, ring, {}, nowMs + 10)).toBe('key');
    expect(reasonOf(fresh, ring, {}, nowMs + 10)).toBe('valid');
  });

  test('a revoked key is refused at once, remembered header or not', () => {
    const ring = ringOf(hs256Key('k1', secret));
    const pass = signPass(ring, claims);
    expect(reasonOf(pass, ring)).toBe('valid');
    ring.setRevoked(['k1']);
    expect(reasonOf(pass, ring)).toBe('key');
    ring.setRevoked([]);
    expect(reasonOf(pass, ring)).toBe('valid');
  });

  test('a reload drops keys that are gone', () => {
    const ring = ringOf(hs256Key('k1', secret));
    const pass = signPass(ring, claims);
    expect(reasonOf(pass, ring)).toBe('valid');
    ring.replace([{ key: hs256Key('k2', secret) }], 'k2');
    expect(reasonOf(pass, ring)).toBe('key');
    ring.replace([{ key: hs256Key('k1', new Uint8Array(32).fill(1)) }], 'k1');
    expect(reasonOf(pass, ring), 'the same id with another secret').toBe('signature');
  });

  test('misuse is told plainly', () => {
    const ring = ringOf(hs256Key('k1', secret));
    expect(() => ring.retire('k1', nowMs)).toThrow(/signing; rotate/);
    expect(() => ring.retire('k9', nowMs)).toThrow(/"k9"/);
    expect(() => ring.signWith('k9')).toThrow(/k1/);
    expect(() => ring.add(hs256Key('k1', secret))).toThrow(/already/);
    expect(() => ring.add(hs256Key('bad kid', secret))).toThrow(/bad kid/);
    expect(() => new KeyRing('pass', nodeTextCodec).signer()).toThrow(/no pass key signs/);
    expect(() => hs256Key('k', new Uint8Array(31))).toThrow(/31 bytes/);
    const publicOnly = ringOf(ed25519Key('k1', pair.publicKey));
    expect(() => publicOnly.signWith('k1')).toThrow(/cannot sign/);
  });

  test('strangers cannot fill the memory of headers', () => {
    const key = hs256Key('k1', secret);
    const ring = ringOf(key);
    let decodes = 0;
    const counting = new KeyRing('pass', {
      encode: nodeTextCodec.encode,
      decode(segment) {
        decodes += 1;
        return nodeTextCodec.decode(segment);
      },
    });
    counting.add(key);
    const payload = wireClaims(signPass(ring, claims));
    for (let spaces = 0; spaces < 200; spaces += 1) {
      const header = `{"alg":"HS256",${' '.repeat(spaces)}"kid":"k1","typ":"sluice-pass+jwt"}`;
      expect(reasonOf(forge(key, header, payload), counting)).toBe('valid');
    }
    decodes = 0;
    const last = `{"alg":"HS256",${' '.repeat(199)}"kid":"k1","typ":"sluice-pass+jwt"}`;
    expect(reasonOf(forge(key, last, payload), counting)).toBe('valid');
    expect(decodes, 'past the bound a header is parsed each time').toBe(2);
  });
});

test('a header that begins like another is another', () => {
  const ring = ringOf(hs256Key('k1', secret));
  const pass = signPass(ring, claims);
  expect(reasonOf(pass, ring)).toBe('valid');
  const [header = '', ...rest] = pass.split('.');
  expect(reasonOf([`${header}A`, ...rest].join('.'), ring)).not.toBe('valid');
  expect(reasonOf(pass, ring)).toBe('valid');
  ring.setRevoked(['k1']);
  expect(reasonOf(pass, ring), 'the quick way knows of revocations').toBe('key');
});

test('a token longer than a verifier reads is not made', () => {
  const ring = ringOf(hs256Key('k1', secret));
  expect(() => sealToken(ring, { sub: 'x'.repeat(2000) })).toThrow(/at most 2048/);
});
