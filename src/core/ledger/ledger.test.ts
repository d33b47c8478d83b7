import { fc } from '../../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import {
  Ledger,
  exits,
  ledgerReasonsMax,
  ledgerStagesMax,
  queueAccount,
  queueResidual,
  residualOf,
} from './ledger.ts';
import type { Exit } from './ledger.ts';

const path = ['receive', 'shed', 'instance', 'reserve'] as const;

/** A layer that keeps its own books of what it holds, as a server does with its open responses. */
class Layer {
  readonly held = new Set<number>();
  readonly ledger = new Ledger(() => this.held.size, path);
  #next = 0;

  arrive(): number {
    const id = this.#next++;
    this.held.add(id);
    this.ledger.arrived();
    return id;
  }

  leave(id: number, at: number, decision: Exit, reason: string): void {
    this.held.delete(id);
    this.ledger.left(path[at] ?? 'receive', decision, reason);
  }
}

const step = fc.oneof(
  fc.constant({ kind: 'arrive' as const }),
  fc.record({
    kind: fc.constant('leave' as const),
    which: fc.nat(),
    at: fc.nat(path.length - 1),
    decision: fc.constantFrom(...exits),
    reason: fc.string({ maxLength: 3 }),
  }),
);

describe('Ledger', () => {
  test('closes to zero over every window of every history', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 200 }), fc.nat(200), (steps, cut) => {
        const layer = new Layer();
        let start = layer.ledger.snapshot();
        for (const [at, one] of steps.entries()) {
          if (at === cut) start = layer.ledger.snapshot();
          if (one.kind === 'arrive') layer.arrive();
          else {
            const open = [...layer.held];
            const id = open[one.which % Math.max(1, open.length)];
            if (id !== undefined) layer.leave(id, one.at, one.decision, one.reason);
          }
          expect(layer.ledger.residual()).toBe(0);
          expect(residualOf(layer.ledger.snapshot(), start)).toBe(0);
        }
        for (const id of layer.held) layer.leave(id, 0, 'fail', 'closing');
        const end = layer.ledger.snapshot();
        expect(end.inSystem).toBe(0);
        expect(end.rows.reduce((sum, row) => sum + row.count, 0)).toBe(end.arrivals);
        for (const [at, stage] of path.entries()) {
          const beyond = end.rows.filter((row) => path.slice(at).some((one) => one === row.stage));
          const row = end.stages.find((one) => one.stage === stage);
          expect(row?.entered).toBe(beyond.reduce((sum, { count }) => sum + count, 0));
        }
      }),
    );
  });

  test('a request answered without an exit is missed', () => {
    const layer = new Layer();
    const id = layer.arrive();
    layer.held.delete(id);
    expect(layer.ledger.residual()).toBe(1);
  });

  test('an exit counted twice is seen', () => {
    const layer = new Layer();
    const id = layer.arrive();
    layer.leave(id, 0, 'reject', 'method');
    layer.ledger.left('receive', 'reject', 'method');
    expect(layer.ledger.residual()).toBe(-1);
  });

  test('invented reasons and stages do not grow it without bound, and nothing is lost', () => {
    let held = 0;
    const ledger = new Ledger(() => held);
    for (let n = 0; n < 10_000; n += 1) {
      ledger.arrived();
      held += 1;
      ledger.left(`stage-${n % 500}`, 'reject', `reason-${n}`);
      held -= 1;
    }
    const snapshot = ledger.snapshot();
    const seen = new Set(snapshot.rows.map((row) => row.stage));
    expect(seen.size).toBe(ledgerStagesMax);
    expect(snapshot.rows.length).toBeLessThanOrEqual(ledgerStagesMax * ledgerReasonsMax);
    const widest = snapshot.rows.filter((row) => row.stage === 'other');
    expect(widest.length).toBe(ledgerReasonsMax);
    expect(widest.at(-1)).toMatchObject({ reason: 'other' });
    expect(ledger.residual()).toBe(0);
  });

  test('rows say stage, decision, reason and count', () => {
    const ledger = new Ledger(() => 0);
    ledger.arrived();
    ledger.arrived();
    ledger.left('shed', 'reject', 'mode');
    ledger.left('shed', 'reject', 'mode');
    const snapshot = ledger.snapshot();
    expect(snapshot.rows).toEqual([
      { stage: 'shed', decision: 'reject', reason: 'mode', count: 2 },
    ]);
    expect(snapshot.totals).toEqual({ handle: 0, forward: 0, reject: 2, fail: 0 });
    expect(snapshot.stages.slice(0, 3)).toEqual([
      { stage: 'receive', entered: 2, left: 0 },
      { stage: 'shed', entered: 2, left: 2 },
      { stage: 'instance', entered: 0, left: 0 },
    ]);
  });
});

describe('queue balance', () => {
  test('closes to zero for every history of a queue', () => {
    const move = fc.constantFrom('produce', 'consume', 'expire', 'bury');
    fc.assert(
      fc.property(fc.array(move, { maxLength: 100 }), fc.nat(100), (moves, cut) => {
        const waiting: number[] = [];
        const counts = { produce: 0, consume: 0, expire: 0, bury: 0 };
        const moment = () => ({
          producedTotal: counts.produce,
          consumedTotal: counts.consume,
          expiredTotal: counts.expire,
          deadTotal: counts.bury,
          backlog: waiting.length,
        });
        let start = moment();
        for (const [at, one] of moves.entries()) {
          if (at === cut) start = moment();
          if (one === 'produce') waiting.push(at);
          else if (waiting.shift() === undefined) continue;
          counts[one as keyof typeof counts] += 1;
        }
        expect(queueResidual(queueAccount(start, moment()))).toBe(0);
      }),
    );
  });

  test('a message that vanished is counted as lost', () => {
    expect(
      queueResidual({
        produced: 5,
        backlogStart: 1,
        consumed: 3,
        expired: 1,
        dead: 0,
        backlogEnd: 1,
      }),
    ).toBe(1);
  });
});
