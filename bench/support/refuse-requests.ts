import { createHash } from 'node:crypto';
import { KeyRing } from '../../src/core/pass/key-ring.ts';
import { nonceOf, pathIdOf } from '../../src/core/pass/path-id.ts';
import { signPass } from '../../src/core/pass/pass.ts';
import { signUserToken } from '../../src/core/pass/user-token.ts';
import { hs256Key, macOf, nodeTextCodec } from '../../src/pipeline/keys.ts';

/** Submits as bytes, each with a user token and a pass of its own. */

export type RefusalKind = 'none' | 'mode' | 'instance' | 'source' | 'sold_out' | 'after_identity';
export const earlyKinds: readonly RefusalKind[] = ['mode', 'instance', 'source', 'sold_out'];

export const benchSku = { activityId: 'bench', skuId: 'one' } as const;

/** The same in every process of a run; secrets of nothing. */
export function secretOf(use: string): Buffer {
  return createHash('sha256').update(`bench ${use}`).digest();
}

export function submitRequests(count: number, nowMs: number): readonly Buffer[] {
  const users = new KeyRing('user', nodeTextCodec);
  users.add(hs256Key('user-1', secretOf('user')));
  users.signWith('user-1');
  const passes = new KeyRing('pass', nodeTextCodec);
  passes.add(hs256Key('pass-1', secretOf('pass')));
  passes.signWith('pass-1');
  const mac = macOf(secretOf('path'));
  const pathId = pathIdOf(mac, benchSku, 1);
  return Array.from({ length: count }, (_, n) => {
    const userId = `u_${n}`;
    const token = signUserToken(users, {
      issuer: 'bench',
      userId,
      issuedAtMs: nowMs,
      expiresAtMs: nowMs + 3_600_000,
    });
    const pass = signPass(passes, {
      issuer: 'bench',
      audience: 'bench',
      ...benchSku,
      userId,
      activityVersion: 1,
      pathId,
      maxQuantity: 1,
      wave: 1,
      nonce: nonceOf(mac, benchSku.activityId, userId, benchSku.skuId, 1),
      notBeforeMs: nowMs,
      expiresAtMs: nowMs + 3_600_000,
      issuedAtMs: nowMs,
    });
    const body = JSON.stringify({
      request_id: `req_${n}`,
      activity_id: benchSku.activityId,
      sku_id: benchSku.skuId,
      quantity: 1,
    });
    const lines = [
      `POST /v1/seckill/${pathId}/submit HTTP/1.1`,
      'Host: shop.example',
      'User-Agent: Mozilla/5.0 (Linux; Android 14) AppleWebKit/537.36 Chrome/126.0 Mobile Safari/537.36',
      'Accept: application/json',
      'Accept-Language: en-GB,en;q=0.9',
      'Accept-Encoding: gzip, deflate, br',
      `Authorization: Bearer ${token}`,
      `Sluice-Pass: ${pass}`,
      'Content-Type: application/json',
      `Content-Length: ${body.length}`,
      '',
      body,
    ];
    return Buffer.from(lines.join('\r\n'), 'latin1');
  });
}

/** What must always work: how a held request stands, and now and then a provider's callback. */
export function vitalRequests(count: number, nowMs: number): readonly Buffer[] {
  const users = new KeyRing('user', nodeTextCodec);
  users.add(hs256Key('user-1', secretOf('user')));
  users.signWith('user-1');
  return Array.from({ length: count }, (_, n) => {
    const userId = `u_${n}`;
    const token = signUserToken(users, {
      issuer: 'bench',
      userId,
      issuedAtMs: nowMs,
      expiresAtMs: nowMs + 3_600_000,
    });
    const { activityId, skuId } = benchSku;
    const lines =
      n % 5 === 0
        ? [
            'POST /v1/payments/demo/callback HTTP/1.1',
            'Host: shop.example',
            'Content-Type: application/json',
            'Content-Length: 2',
            '',
            '{}',
          ]
        : [
            `GET /v1/requests/req_${n}?activity_id=${activityId}&sku_id=${skuId} HTTP/1.1`,
            'Host: shop.example',
            'Accept: application/json',
            `Authorization: Bearer ${token}`,
            '',
            '',
          ];
    return Buffer.from(lines.join('\r\n'), 'latin1');
  });
}
