import { describe, expect, test } from 'vitest';
import { addRequest, newDossier } from './dossier.ts';
import type { Dossier, RequestTrace } from './dossier.ts';
import type { Told } from './scene.ts';
import { Series } from './series.ts';
import { Witness } from './witness.ts';

/** What a body says that names this state and, for a live one, its reservation. */
function saying(state: Told['state'], reservationId?: string): Told {
  return {
    state,
    code: state,
    reservationId,
    orderId: undefined,
    payBefore: undefined,
    nextPollAfterMs: undefined,
  };
}

/** Everything told at the millisecond at which it was asked. */
function crowdOfOne(limit = 1): {
  readonly witness: Witness;
  readonly dossier: Dossier;
  readonly sent: (nonce: string) => RequestTrace;
  readonly queued: (request: RequestTrace, reservationId: string, atMs: number) => void;
} {
  const witness = new Witness(new Series(0), () => limit);
  const dossier = newDossier(7, 'a');
  return {
    witness,
    dossier,
    sent(nonce) {
      const request = addRequest(dossier, 1, 1, 0);
      request.nonce = nonce;
      return request;
    },
    queued(request, reservationId, atMs) {
      witness.told(dossier, request, saying('QUEUED', reservationId), atMs, atMs);
    },
  };
}

describe('one nonce, two reservations', () => {
  test('is a breach', () => {
    const { witness, sent, queued } = crowdOfOne(2);
    queued(sent('n'), 'r1', 1);
    queued(sent('n'), 'r2', 2);
    expect(witness.breaches(3).described).toEqual([
      'nonce n reserved for rush-1-7-0 and for rush-1-7-1',
    ]);
  });

  test('is none where the first was sent with a second pass too: it had reserved under the other', () => {
    const { witness, sent, queued } = crowdOfOne(2);
    const first = sent('n');
    first.nonceUnsure = true;
    queued(first, 'r1', 1);
    queued(sent('n'), 'r2', 2);
    expect(witness.anyBreach).toBe(false);
  });
});

test('two units alive at the same moment are a breach, one after the other are not', () => {
  const together = crowdOfOne();
  const one = together.sent('n1');
  const two = together.sent('n2');
  together.queued(one, 'r1', 1);
  together.queued(two, 'r2', 2);
  expect(together.witness.anyBreach).toBe(false);
  together.queued(one, 'r1', 3);
  expect(together.witness.breaches(2).count).toBe(1);

  const apart = crowdOfOne();
  const early = apart.sent('n1');
  apart.queued(early, 'r1', 1);
  apart.witness.told(apart.dossier, early, saying('CANCELLED'), 2, 2);
  const late = apart.sent('n2');
  apart.queued(late, 'r2', 3);
  apart.queued(late, 'r2', 4);
  expect(apart.witness.anyBreach).toBe(false);
});

test('what was paid and is told to have expired is a breach; what was refunded is none', () => {
  const { witness, dossier, sent } = crowdOfOne();
  const request = sent('n');
  const tell = (state: 'PAID' | 'REFUNDED' | 'EXPIRED', atMs: number): void =>
    witness.told(dossier, request, saying(state), atMs, atMs);
  tell('PAID', 1);
  tell('REFUNDED', 2);
  expect(witness.anyBreach).toBe(false);
  tell('PAID', 3);
  tell('EXPIRED', 4);
  expect(witness.breaches(12).count).toBe(1);
});

test('a live request that the durable side refuses was reserved without right', () => {
  const { witness, sent, queued } = crowdOfOne();
  const request = sent('n');
  queued(request, 'r1', 1);
  witness.denied(request, 'REJECTED', 2, 2);
  expect(witness.breaches(1).count).toBe(1);
});
