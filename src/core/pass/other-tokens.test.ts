import { fc } from '../../../test/support/property.ts';
import { expect, test } from 'vitest';
import { hs256Key, nodeTextCodec } from '../../pipeline/keys.ts';
import { signDecision, verifyDecision } from './decision-token.ts';
import { signEntryToken, verifyEntryToken } from './entry-token.ts';
import { KeyRing } from './key-ring.ts';
import type { TokenKey } from './key-ring.ts';
import { peekClaims, sealToken } from './token.ts';
import type { TokenType } from './token.ts';
import { isUserId, signUserToken, verifyUserToken } from './user-token.ts';

/** Entry, user and decision tokens; what all types share is tested with the pass. */
const nowMs = 1_800_000_000_000;
const secret = new Uint8Array(32).fill(7);

function ringOf(key: TokenKey, type: TokenType): KeyRing {
  const ring = new KeyRing(type, nodeTextCodec);
  ring.add(key);
  ring.signWith(key.kid);
  return ring;
}

/** A token whose every part is chosen by the test and whose signature holds under `key`. */
function forge(key: TokenKey, header: object, payload: string): string {
  const input = `${nodeTextCodec.encode(JSON.stringify(header))}.${nodeTextCodec.encode(payload)}`;
  return `${input}.${key.sign?.(input) ?? ''}`;
}

test('an entry token reads the same by position and by parsing', () => {
  const key = hs256Key('k1', secret);
  const ring = ringOf(key, 'entry');
  const at = { issuer: 'sluice', activityId: 'concert' };
  const header = { alg: 'HS256', kid: 'k1', typ: 'sluice-entry+jwt' };
  const good = {
    iss: 'sluice',
    act: 'concert',
    eid: 'A'.repeat(22),
    c: 1,
    s: 12,
    j: nowMs,
    exp: nowMs / 1000 + 60,
  };
  const claimsOf = (payload: string): unknown => {
    const verdict = verifyEntryToken(ring, forge(key, header, payload), at, nowMs);
    return verdict.kind === 'valid' ? verdict.claims : verdict.reason;
  };
  const text = JSON.stringify(good);
  // A space after the brace makes the same object and another text, so it is parsed.
  const parsed = (payload: string): unknown => claimsOf(payload.replace('{', '{ '));
  expect(claimsOf(text)).toMatchObject({ entryId: good.eid, sequence: 12, cohort: 'late' });
  expect(claimsOf(text)).toEqual(parsed(text));
  fc.assert(
    fc.property(
      fc.nat(text.length - 1),
      fc.constantFrom('0', '1', '9', '"', '\\', '}', ',', ':', '-', '.', 'e', ' ', 'x'),
      fc.boolean(),
      (place, put, replace) => {
        const changed = text.slice(0, place) + put + text.slice(place + (replace ? 1 : 0));
        if (!changed.startsWith('{')) return;
        expect(claimsOf(changed), changed).toEqual(parsed(changed));
      },
    ),
    { numRuns: 3_000 },
  );
  for (const [name, value] of [
    ['s', '007'],
    ['s', '1234567890123456'],
    ['j', '0'],
    ['exp', '99999999999'],
    ['exp', '1800000060.5'],
    ['c', '2'],
    ['s', '-1'],
  ] as const) {
    const changed = text.replace(new RegExp(`"${name}":[0-9]+`), `"${name}":${value}`);
    expect(claimsOf(changed), changed).toEqual(parsed(changed));
  }
});

test('entry, user and decision tokens go round, and mind their bindings', () => {
  const key = hs256Key('k1', secret);
  const entry = {
    issuer: 'sluice',
    activityId: 'concert',
    entryId: 'A'.repeat(22),
    cohort: 'late' as const,
    sequence: 12,
    joinedAtMs: nowMs - 5,
    lane: 'a,b',
    weight: 2.5,
    expiresAtMs: nowMs + 60_000,
  };
  const entryRing = ringOf(key, 'entry');
  for (const wanted of [entry, { ...entry, lane: '', weight: 1, cohort: 'lobby' as const }]) {
    const token = signEntryToken(entryRing, wanted);
    const at = { issuer: 'sluice', activityId: 'concert' };
    expect(verifyEntryToken(entryRing, token, at, nowMs)).toMatchObject({ claims: wanted });
    const reason = (over: object, when = nowMs): unknown =>
      (verifyEntryToken(entryRing, token, { ...at, ...over }, when) as { reason?: unknown }).reason;
    expect(reason({ issuer: 'x' })).toBe('issuer');
    expect(reason({ activityId: 'x' })).toBe('activity');
    expect(reason({}, nowMs + 62_000)).toBe('expired');
    expect(reason({}, nowMs + 61_999)).toBeUndefined();
  }
  const wrong = sealToken(entryRing, { iss: 'sluice', act: 'concert', eid: 'x', c: 2 });
  expect(
    verifyEntryToken(entryRing, wrong, { issuer: 'sluice', activityId: 'concert' }, nowMs),
  ).toMatchObject({ reason: 'payload' });

  const userRing = ringOf(key, 'user');
  const user = {
    issuer: 'sluice',
    userId: 'Zoë 王',
    issuedAtMs: nowMs,
    expiresAtMs: nowMs + 60_000,
  };
  const userToken = signUserToken(userRing, user);
  expect(verifyUserToken(userRing, userToken, { issuer: 'sluice' }, nowMs)).toMatchObject({
    claims: user,
  });
  expect(peekClaims(nodeTextCodec, userToken)?.sub).toBe('Zoë 王');
  expect(verifyUserToken(userRing, userToken, { issuer: 'x' }, nowMs)).toMatchObject({
    reason: 'issuer',
  });
  expect(verifyUserToken(userRing, userToken, { issuer: 'sluice' }, nowMs + 62_000)).toMatchObject({
    reason: 'expired',
  });
  expect(isUserId('')).toBe(false);
  expect(isUserId('é'.repeat(127))).toBe(true);
  expect(isUserId('é'.repeat(128))).toBe(false);
  expect(isUserId('lone \ud800 surrogate')).toBe(false);
  expect(isUserId('pair \u{1f39f}')).toBe(true);

  const decisionRing = ringOf(key, 'decision');
  const decision = {
    issuer: 'sluice',
    audience: 'shop',
    userId: 'user-1',
    decision: 'admit' as const,
    method: 'POST',
    target: '/buy?x=1',
    ruleId: 'r1',
    decisionId: 'd-1',
    issuedAtMs: nowMs,
    expiresAtMs: nowMs + 5_000,
  };
  const signed = signDecision(decisionRing, decision);
  const shop = { issuer: 'sluice', audience: 'shop' };
  expect(verifyDecision(decisionRing, signed, shop, nowMs)).toMatchObject({ claims: decision });
  expect(verifyDecision(decisionRing, signed, { ...shop, audience: 'x' }, nowMs)).toMatchObject({
    reason: 'audience',
  });
});
