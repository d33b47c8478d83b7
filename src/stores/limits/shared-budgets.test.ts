import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SeededRandom, World } from '../../../test/support/world.ts';
import type { RequestFacts } from '../../core/rules/facts.ts';
import { RuleEngine } from '../../core/rules/engine.ts';
import type { RuleRefusal } from '../../core/rules/live.ts';
import { readRules } from '../../core/rules/read.ts';
import type { BudgetStore } from '../../ports/budget-store.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import { EmergencyFile } from './emergency-file.ts';
import { MemoryBudgetStore } from './memory-budget-store.ts';
import { SharedBudgets } from './shared-budgets.ts';

/** A store that can be cut off: calls then fail as a lost connection or a timeout would. */
class CutStore implements BudgetStore {
  cut: 'no' | 'unavailable' | 'unknown' = 'no';
  calls = 0;
  readonly inner: BudgetStore;

  constructor(inner: BudgetStore) {
    this.inner = inner;
  }

  async #through<Result>(call: () => Promise<Result>): Promise<Result> {
    this.calls += 1;
    if (this.cut === 'unavailable') throw new UnavailableError('cut');
    const result = await call();
    if (this.cut === 'unknown') throw new OutcomeUnknownError('cut');
    return result;
  }

  renew: BudgetStore['renew'] = (...args) => this.#through(() => this.inner.renew(...args));
  raiseEpoch: BudgetStore['raiseEpoch'] = (...args) =>
    this.#through(() => this.inner.raiseEpoch(...args));
  take: BudgetStore['take'] = (...args) => this.#through(() => this.inner.take(...args));
  giveBack: BudgetStore['giveBack'] = (...args) =>
    this.#through(() => this.inner.giveBack(...args));
  close = (): Promise<void> => this.inner.close();
}

const facts = (over: Partial<RequestFacts> = {}): RequestFacts => ({
  route: 'submit',
  method: 'POST',
  address: '192.0.2.7',
  user: 'u1',
  activity: 'drop',
  risk: 'low',
  fromTrustedProxy: false,
  header: () => undefined,
  claim: () => undefined,
  ...over,
});

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-shared-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function setUp(rules: unknown, emergencyTokens = 50) {
  const world = new World();
  const seed = [1, 2];
  const store = new CutStore(
    new MemoryBudgetStore({ clock: world, timers: world, hashSeed: seed }),
  );
  const troubles: unknown[] = [];
  const pending: Promise<unknown>[] = [];
  /** Files do not live in virtual time: what was asked of them is waited for. */
  const tracked = <Result>(work: Promise<Result>): Promise<Result> => {
    pending.push(work.catch(() => undefined));
    return work;
  };
  const start = () => {
    const file = new EmergencyFile(folder);
    const shared = new SharedBudgets({
      store,
      clock: world,
      timers: world,
      random: new SeededRandom('shared'),
      ledger: {
        arm: (budget, epoch) => tracked(file.arm(budget, epoch)),
        spend: (budget) => tracked(file.spend(budget)),
        rearm: (budget) => tracked(file.rearm(budget)),
      },
      emergencyTokens,
      onTrouble: (error) => troubles.push(error),
    });
    const engine = new RuleEngine({ hashSeed: seed, shared }, world.monoUs());
    const { set, problems } = readRules(rules);
    expect(problems).toEqual([]);
    engine.apply(set, world.monoUs());
    const ask = (request = facts()): RuleRefusal | undefined =>
      engine.decide('budget', request, world.monoUs(), world.wallMs());
    const askExact = (request = facts()): Promise<RuleRefusal | undefined> =>
      engine.decideShared('budget', request, () => ({ us: world.monoUs(), ms: world.wallMs() }));
    return { shared, engine, ask, askExact };
  };
  /** Offers a request each millisecond; answers how many were admitted. */
  const offer = async (ask: () => RuleRefusal | undefined, forMs: number): Promise<number> => {
    let admitted = 0;
    for (let ms = 0; ms < forMs; ms += 1) {
      if (ask() === undefined) admitted += 1;
      await world.advance(1);
    }
    return admitted;
  };
  /** Lets everything that has been asked of the disk come to its end. */
  const settle = async (): Promise<void> => {
    for (let n = 0; n < 10; n += 1) {
      await Promise.all(pending.splice(0));
      await world.advance(25);
    }
  };
  return { world, store, start, offer, settle, troubles };
}

const leased = (fail: string, rate = '2000/s') => [
  { id: 'budget', key: ['activity'], scope: 'lease', fail, limit: { rate, burst: 2000 } },
];

describe('leases', () => {
  test('requests are decided without the store, which is asked from a timer', async () => {
    const { start, offer, store } = setUp(leased('closed'));
    const { ask } = start();
    await offer(ask, 500);
    const before = store.calls;
    const admitted = await offer(ask, 3_000);
    expect(admitted).toBe(3_000);
    expect(store.calls - before).toBeLessThan(15);
  });

  test('the first request of a budget is refused with a hint, and soon after there is a lease', async () => {
    const { start, world } = setUp(leased('closed'));
    const { ask } = start();
    expect(ask()).toMatchObject({ ruleId: 'budget', reason: 'limit', own: false });
    await world.advance(100);
    expect(ask()).toBeUndefined();
  });

  test('two instances never admit more than the budget, whatever each is offered', async () => {
    const { start, world } = setUp(leased('closed'));
    const [one, two] = [start(), start()];
    let admitted = 0;
    for (let ms = 0; ms < 5_000; ms += 1) {
      for (let n = 0; n < 3; n += 1) if (one.ask() === undefined) admitted += 1;
      for (let n = 0; n < 2; n += 1) if (two.ask() === undefined) admitted += 1;
      await world.advance(1);
    }
    expect(admitted).toBeLessThanOrEqual(2_000 + 2_000 * 5);
    expect(admitted).toBeGreaterThan(9_000);
  });

  test('a graceful stop hands the lease back', async () => {
    const { start, offer, world } = setUp(leased('closed'));
    const one = start();
    await offer(one.ask, 1_000);
    await one.shared.close();
    const two = start();
    two.ask();
    await world.advance(100);
    expect(two.shared.totals().remainingMilli).toBeGreaterThan(0);
    expect(one.shared.totals().leases).toBe(0);
  });

  test('a lease that nobody uses is handed back, and comes again when it is asked for', async () => {
    const { start, world, offer } = setUp(leased('closed'));
    const { ask, shared } = start();
    await offer(ask, 500);
    await world.advance(61_000);
    expect(shared.totals().leases).toBe(0);
    ask();
    await world.advance(200);
    expect(ask()).toBeUndefined();
  });

  test('an edited rule keeps what is held and goes on under the new rate', async () => {
    const { start, offer, world } = setUp(leased('closed'));
    const { ask, engine } = start();
    await offer(ask, 2_000);
    engine.apply(readRules(leased('closed', '4000/s')).set, world.monoUs());
    expect(ask()).toBeUndefined();
    expect(await offer(ask, 1_000)).toBe(1_000);
  });
});

describe('store away', () => {
  const outage = async (fail: string, cut: 'unavailable' | 'unknown' = 'unavailable') => {
    const all = setUp(leased(fail));
    const one = all.start();
    await all.offer(one.ask, 2_000);
    all.store.cut = cut;
    // What is left of the lease goes on for at most its length.
    const afterwards = await all.offer(one.ask, 6_000);
    await all.settle();
    return { ...all, ...one, afterwards };
  };

  test.each(['unavailable', 'unknown'] as const)(
    'closed (%s): the lease is spent, then refused',
    async (cut) => {
      const { ask, afterwards, engine } = await outage('closed', cut);
      expect(afterwards).toBeGreaterThan(0);
      expect(afterwards).toBeLessThan(2_500);
      expect(ask()).toMatchObject({ reason: 'store_away', own: false });
      expect(engine.stats()[0]?.failAdmitted).toBe(0);
    },
  );

  test.each(['instance', 'open'])('%s: goes on, and counts what it let through', async (fail) => {
    const { ask, engine, afterwards } = await outage(fail);
    expect(afterwards).toBe(6_000);
    expect(ask()).toBeUndefined();
    expect(engine.stats()[0]?.failAdmitted).toBeGreaterThan(3_000);
  });

  test('local: one emergency budget, once per outage, whatever restarts and reloads', async () => {
    const { ask, shared, start, engine, world, settle, store, offer } = await outage('local');
    // Asked on the way: the file may have answered while the lease was still being spent.
    await offer(ask, 2_000);
    expect(shared.emergencyTotalMilli).toBe(50_000);
    expect(ask()).toMatchObject({ reason: 'store_away' });
    // A reload, a restart, and a second restart find it spent.
    engine.apply(readRules(leased('local', '4000/s')).set, world.monoUs());
    await settle();
    expect(ask()).toMatchObject({ reason: 'store_away' });
    for (let n = 0; n < 2; n += 1) {
      const again = start();
      again.ask();
      await world.advance(3_000);
      await settle();
      expect(await offer(again.ask, 200)).toBe(0);
      expect(again.shared.emergencyTotalMilli).toBe(0);
      await again.shared.close();
    }
    // The store comes back under the same epoch, and goes again: still spent.
    store.cut = 'no';
    await world.advance(5_000);
    expect(await offer(ask, 500)).toBeGreaterThan(400);
    await settle();
    store.cut = 'unavailable';
    await offer(ask, 6_000);
    await settle();
    expect(await offer(ask, 500)).toBe(0);
    // A higher epoch gives it back.
    store.cut = 'no';
    await store.inner.raiseEpoch({
      name: '6:budget4:drop',
      rate: { tokensMilli: 2_000_000, periodUs: 1_000_000 },
      burstMilli: 2_000_000,
    });
    await world.advance(5_000);
    await offer(ask, 500);
    await settle();
    store.cut = 'unavailable';
    await offer(ask, 6_000);
    await settle();
    await offer(ask, 2_000);
    expect(shared.emergencyTotalMilli).toBe(100_000);
  });

  test('negative control: a ledger that forgets would let it be spent again', async () => {
    const { start, world, settle, offer } = await outage('local');
    rmSync(join(folder, 'emergency-budgets.json'));
    writeFileSync(
      join(folder, 'emergency-budgets.json'),
      JSON.stringify({ '6:budget4:drop': { epoch: 1, unspent: true } }),
    );
    const again = start();
    again.ask();
    await world.advance(3_000);
    await settle();
    expect(await offer(again.ask, 200)).toBe(50);
  });
});

describe('the emergency ledger', () => {
  test('a marker is found once, by one, and never again for its epoch', async () => {
    const ledger = new EmergencyFile(folder);
    expect(await ledger.spend('b')).toBe(false);
    await ledger.arm('b', 1);
    expect(await Promise.all([ledger.spend('b'), ledger.spend('b')])).toEqual([true, false]);
    await ledger.arm('b', 1);
    expect(await ledger.spend('b')).toBe(false);
    expect(await new EmergencyFile(folder).spend('b')).toBe(false);
    await ledger.arm('b', 2);
    expect(await new EmergencyFile(folder).spend('b')).toBe(true);
    await ledger.rearm('b');
    expect(await ledger.spend('b')).toBe(true);
  });

  test('the marker is gone from the disk before anybody is told that it was there', async () => {
    const ledger = new EmergencyFile(folder);
    await ledger.arm('b', 1);
    await ledger.spend('b');
    const record = JSON.parse(
      readFileSync(join(folder, 'emergency-budgets.json'), 'utf8'),
    ) as unknown;
    expect(record).toEqual({ b: { epoch: 1, unspent: false } });
  });

  test('a file that is not a ledger is an error, not an unspent budget', async () => {
    writeFileSync(join(folder, 'emergency-budgets.json'), '{"b":true}');
    await expect(new EmergencyFile(folder).spend('b')).rejects.toThrow(
      'allowed is {epoch, unspent}',
    );
  });
});

describe('exact limits', () => {
  const exact = (over: object = {}) => [
    {
      id: 'code',
      key: ['user', 'activity'],
      scope: 'exact',
      limit: { algorithm: 'sliding_log', limit: 3, window: '60s' },
      max_keys: 100,
      ...over,
    },
  ];

  test('two instances share one counter, exactly', async () => {
    const { start } = setUp(exact());
    const [one, two] = [start(), start()];
    const answers = await Promise.all([one, two, one, two, one, two].map((who) => who.askExact()));
    expect(answers.filter((answer) => answer === undefined)).toHaveLength(3);
    expect(answers.find((answer) => answer !== undefined)).toMatchObject({
      ruleId: 'code',
      own: true,
      waitUs: 60_000_000,
    });
    expect(await one.askExact(facts({ user: 'u2' }))).toBeUndefined();
  });

  test('what this process refuses by itself does not reach the store, and charges nothing there', async () => {
    const { start, store } = setUp([
      ...exact(),
      { id: 'local', key: ['activity'], limit: { rate: '1/h', burst: 1 } },
    ]);
    const { askExact, engine } = start();
    expect(engine.needsStore('budget', facts())).toBe(true);
    expect(await askExact()).toBeUndefined();
    const before = store.calls;
    expect(await askExact()).toMatchObject({ ruleId: 'local' });
    expect(store.calls).toBe(before);
  });

  test('what others used up while the store was asked is refused, and the store gets its charge back', async () => {
    const { start, store } = setUp([
      ...exact(),
      { id: 'local', key: ['activity'], limit: { rate: '1/h', burst: 2 } },
    ]);
    const { askExact } = start();
    // All look at the local limit before any has charged it.
    const answers = await Promise.all(Array.from({ length: 3 }, () => askExact()));
    expect(answers.filter((answer) => answer === undefined)).toHaveLength(2);
    const { leftMilli } = await store.inner.take([
      {
        ruleId: 'code',
        parts: ['u1', 'drop'],
        limit: { algorithm: 'sliding_log', limitMilli: 3_000, windowUs: 60_000_000 },
        costMilli: 1000,
        keepMilli: 0,
        slot: 's',
      },
    ]);
    expect(leftMilli).toEqual([0]);
  });

  test.each([
    ['closed', 'store_away'],
    ['instance', undefined],
  ])('store away, %s', async (fail, reason) => {
    const { start, store } = setUp(exact({ fail }));
    const { askExact, engine } = start();
    store.cut = 'unknown';
    expect((await askExact())?.reason).toBe(reason);
    expect(engine.stats()[0]?.failAdmitted).toBe(fail === 'closed' ? 0 : 1);
  });

  test('an error of the program is no failure of the store: no policy lets it through', async () => {
    const { start, store } = setUp(exact({ fail: 'instance' }));
    const { askExact } = start();
    store.take = () => Promise.reject(new TypeError('a bug'));
    await expect(askExact()).rejects.toThrow('a bug');
  });

  test('a shadow rule counts on its own counter and refuses nobody', async () => {
    const { start } = setUp([...exact({ mode: 'shadow' })]);
    const { askExact, engine } = start();
    for (let n = 0; n < 5; n += 1) expect(await askExact()).toBeUndefined();
    expect(engine.stats()[0]).toMatchObject({ wouldRefuse: 2, refused: 0 });
  });

  test('limits of one caller, and of one activity, lie in one slot: one script charges them together', async () => {
    const log = { algorithm: 'fixed_window', limit: 3, window: '60s' };
    const { start, store } = setUp([
      { id: 'hour', key: ['user'], scope: 'exact', limit: log },
      { id: 'by-device', key: ['user', 'device'], scope: 'exact', limit: log },
      { id: 'sale', key: ['activity'], scope: 'exact', limit: log },
      { id: 'sku', key: ['activity', 'sku'], scope: 'exact', limit: log },
    ]);
    const slots: string[] = [];
    const take = store.take;
    store.take = (checks) => {
      slots.push(...checks.map(({ ruleId, slot }) => `${ruleId} ${slot}`));
      return take(checks);
    };
    await start().askExact(facts({ sku: 'shoe', device: 'd' }));
    expect(slots).toEqual([
      'sale 8:activity4:drop',
      'sku 8:activity4:drop',
      'hour 4:user2:u1',
      'by-device 4:user2:u1',
    ]);
  });
});
