import { createHash } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { Phone, type Script, type Seen, standing } from '../../test/support/phone.ts';
import { leadingZeroBits } from '../core/pass/challenge.ts';
import { createClient } from './client.ts';

describe('joining behind a challenge', () => {
  const challenge = (kind: string, more: object = {}) => ({
    status: 403,
    body: {
      code: 'CHALLENGE_REQUIRED',
      server_time: '2026-01-01T00:00:00.000Z',
      challenge: {
        kind,
        token: 'the.token',
        bits: 6,
        url: null,
        expires_at: '2026-01-01T00:03:00.000Z',
        ...more,
      },
    },
  });
  const joined = { status: 201, body: standing({}) };
  const answerOf = (seen: Seen): string | undefined =>
    (JSON.parse(String(seen.init.body)) as { challenge?: string }).challenge;

  async function join(script: Script) {
    const phone = new Phone();
    phone.script = script;
    const client = createClient({ env: phone.env(), userToken: () => 'user' });
    const joining = client.join('a', ['front']);
    await phone.world.advance(10_000);
    return { result: await joining, phone };
  }

  it('does the work by itself, and joins with it', async () => {
    const { result, phone } = await join((seen) =>
      answerOf(seen) === undefined ? challenge('proof_of_work') : joined,
    );
    expect(result).toMatchObject({ ok: true, status: 201 });
    const [, second] = phone.seen;
    expect(answerOf(second!)).toMatch(/^the\.token~/);
    const hash = createHash('sha256').update(answerOf(second!)!).digest();
    expect(leadingZeroBits(hash)).toBeGreaterThanOrEqual(6);
    expect(JSON.parse(String(second!.init.body))).toMatchObject({ sku_ids: ['front'] });
  });

  it('ends where answers are not taken', async () => {
    const { result, phone } = await join(() => challenge('proof_of_work'));
    expect(result).toMatchObject({ ok: false, code: 'CHALLENGE_REQUIRED' });
    expect(phone.seen).toHaveLength(3);
  });

  it('leaves to its caller what it cannot do, and passes on what came of it', async () => {
    const { result, phone } = await join(() =>
      challenge('callback', { url: 'https://vouch.example/' }),
    );
    expect(result).toMatchObject({
      ok: false,
      problem: { challenge: { url: 'https://vouch.example/' } },
    });
    expect(phone.seen).toHaveLength(1);
    phone.script = () => joined;
    const client = createClient({ env: phone.env() });
    await client.join('a', undefined, { challenge: 'the.token~sig' });
    expect(answerOf(phone.seen.at(-1)!)).toBe('the.token~sig');
  });
});
