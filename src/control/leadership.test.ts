import { beforeEach, describe, expect, test } from 'vitest';
import type { LeaderLease, LeaseReply } from '../ports/leader-lease.ts';
import { World } from '../../test/support/world.ts';
import { Leadership } from './leadership.ts';

/** One lease on the world's clock, which runs on while a process is stopped. */
class OneLease implements LeaderLease {
  readonly #world: World;
  #holder = '';
  #epoch = 0;
  #endsUs = 0;
  away = false;

  constructor(world: World) {
    this.#world = world;
  }

  async renew(holder: string, leaseMs: number): Promise<LeaseReply> {
    if (this.away) throw new Error('the database does not answer');
    const nowUs = this.#world.monoUs();
    const free = nowUs >= this.#endsUs;
    if (this.#holder !== holder && !free) return { kind: 'taken', by: this.#holder };
    if (this.#holder !== holder || free) this.#epoch += 1;
    this.#holder = holder;
    this.#endsUs = nowUs + leaseMs * 1_000;
    return { kind: 'held', epoch: this.#epoch };
  }

  async release(holder: string): Promise<void> {
    if (this.#holder === holder) this.#endsUs = 0;
  }
}

describe('leadership', () => {
  let world: World;
  let lease: OneLease;
  const told: string[] = [];
  const errors: unknown[] = [];
  beforeEach(() => {
    world = new World();
    lease = new OneLease(world);
    told.length = 0;
    errors.length = 0;
  });
  const control = (holder: string, stopped = (): boolean => false): Leadership =>
    new Leadership({
      lease,
      holder,
      clock: world,
      timers: {
        after: (delayMs, run) => world.after(delayMs, run),
        every: (periodMs, run) =>
          world.every(periodMs, () => {
            if (!stopped()) run();
          }),
      },
      onGained: async (epoch) => void told.push(`${holder} leads ${epoch}`),
      onLost: async () => void told.push(`${holder} lost`),
      onError: (error) => errors.push(error),
    });

  test('one leads, the other stands by and takes over where the lease is given back', async () => {
    const [one, two] = [control('one'), control('two')];
    await one.start();
    await two.start();
    await world.advance(30_000);
    expect([one.leads, two.leads, two.leader]).toEqual([true, false, 'one']);
    await one.stop();
    await world.advance(1_000);
    expect([one.leads, two.leads]).toEqual([false, true]);
    expect(told).toEqual(['one leads 1', 'one lost', 'two leads 2']);
    await two.stop();
  });

  test('a leader that was stopped knows on waking, before it asks anybody', async () => {
    let asleep = false;
    const [one, two] = [control('one', () => asleep), control('two')];
    await one.start();
    await two.start();
    asleep = true;
    await world.advance(3_599);
    expect([one.leads, two.leads]).toEqual([true, false]);
    await world.advance(2_000);
    expect([one.leads, two.leads]).toEqual([false, true]);
    asleep = false;
    await world.advance(1_000);
    expect(told).toEqual(['one leads 1', 'two leads 2', 'one lost']);
    expect(one.leader).toBe('two');
    await one.stop();
    await two.stop();
  });

  test('at no instant do two believe that they lead, whoever sleeps and whenever', async () => {
    const asleep = new Set<number>();
    const all = [0, 1, 2].map((at) => control(`c${at}`, () => asleep.has(at)));
    for (const each of all) await each.start();
    for (let step = 0; step < 400; step += 1) {
      if (step % 7 === 0) {
        asleep.clear();
        asleep.add((step / 7) % 3).add(((step / 21) % 3) | 0);
      }
      await world.advance(333);
      expect(all.filter((each) => each.leads).length).toBeLessThanOrEqual(1);
    }
    expect(told.length).toBeGreaterThan(10);
    for (const each of all) await each.stop();
  });

  test('without an answer the belief runs out, and comes back with a higher epoch', async () => {
    const one = control('one');
    await one.start();
    lease.away = true;
    await world.advance(3_000);
    expect(one.leads).toBe(true);
    await world.advance(2_000);
    expect(one.leads).toBe(false);
    expect(errors.length).toBeGreaterThan(0);
    lease.away = false;
    await world.advance(1_000);
    expect(told).toEqual(['one leads 1', 'one lost', 'one leads 2']);
    await one.stop();
  });
});
