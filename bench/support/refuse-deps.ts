import { systemClock, systemRandom, systemTimers } from '../../src/app/system.ts';
import { OverloadLoop, overloadDefaults } from '../../src/control/overload-loop.ts';
import { Ledger } from '../../src/core/ledger/ledger.ts';
import { parseRate } from '../../src/core/limit/rate.ts';
import { KeyRing } from '../../src/core/pass/key-ring.ts';
import type { GatewayDeps } from '../../src/gateway/deps.ts';
import { gatewayDefaults } from '../../src/gateway/deps.ts';
import { demoIdentity } from '../../src/gateway/identity/demo.ts';
import { hs256Key, macOf, nodeTextCodec } from '../../src/pipeline/keys.ts';
import { passVerifier } from '../../src/pipeline/pass-verifier.ts';
import { ActivityPaths } from '../../src/pipeline/path-index.ts';
import { defaultRuleSet } from '../../src/core/rules/default-set.ts';
import { RuleEngine } from '../../src/core/rules/engine.ts';
import { RuleLimits } from '../../src/pipeline/rule-limits.ts';
import { RequestStatus } from '../../src/pipeline/request-status.ts';
import { ReserveBatcher } from '../../src/pipeline/reserve-batcher.ts';
import { SoldOutFlags } from '../../src/pipeline/sold-out-flags.ts';
import { InventoryEngine } from '../../src/stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../../src/stores/memory/inventory-store.ts';
import { benchSku, type RefusalKind, secretOf } from './refuse-requests.ts';

function ringOf(type: 'user' | 'pass'): KeyRing {
  const ring = new KeyRing(type, nodeTextCodec);
  ring.add(hs256Key(`${type}-1`, secretOf(type)));
  ring.signWith(`${type}-1`);
  return ring;
}

/** The gateway's parts for one kind of refusal; `limits` and `health` do the refusing. */
export async function refusingDeps(kind: RefusalKind): Promise<GatewayDeps> {
  const clock = systemClock;
  const nowMs = clock.wallMs();
  const { activityId, skuId } = benchSku;
  const activity = {
    activityId,
    name: 'Bench',
    revision: 1,
    activityVersion: 1,
    lobbyOpensAtMs: nowMs - 2,
    opensAtMs: nowMs - 1,
    closesAtMs: nowMs + 86_400_000,
    timeZone: 'UTC',
    skus: [
      {
        skuId,
        name: 'One',
        price: { amountMinor: 1, currency: 'EUR' },
        stock: 1,
        maxPerPerson: 1,
      },
    ],
    room: {
      mode: 'draw',
      passLifeMs: 30_000,
      claimWindowMs: 60_000,
      maxAdmissionsPerSecond: 1,
      maxActive: 1,
    },
    paymentDeadlineMs: 1,
    paymentGraceMs: 1,
  } as const;
  const loop = new OverloadLoop({
    clock,
    probe: { read: () => ({ queueWaitMs: 1 }) },
    settings: { ...overloadDefaults, admitPerSecond: 10_000_000 },
  });
  loop.start(systemTimers);
  if (kind === 'mode')
    loop.pin({ mode: 'CLOSED', reason: 'bench', who: 'bench', forMs: 3_600_000 });
  const store = new MemoryInventoryStore(InventoryEngine.over());
  await store.preload(benchSku, { total: 0, generation: 1, stockEpoch: 1 });
  const monoUs = (): number => clock.monoUs();
  const wallMs = (): number => clock.wallMs();
  const flags = new SoldOutFlags({ store, monoUs });
  if (kind === 'sold_out') {
    flags.observe(benchSku, { generation: 1, stockEpoch: 1 });
    flags.ask(benchSku, undefined);
    setInterval(() => flags.observe(benchSku, { generation: 1, stockEpoch: 1 }), 500).unref();
  }
  const none = (): Promise<undefined> => Promise.resolve(undefined);
  const orders = {
    orderById: none,
    orderByReservation: none,
    fateOfRequest: none,
    stock: none,
    liveOfPerson: () => Promise.resolve([]),
  };
  const generous = parseRate('10000000/s');
  const ceiling = kind === 'instance' ? parseRate('1/s') : generous;
  const engine = new RuleEngine(
    {
      hashSeed: [...systemRandom.bytes(2)].map((byte) => byte * 0x1010101),
      ceiling: { rate: ceiling, burstMilli: kind === 'instance' ? 1000 : 5_000_000_000 },
    },
    clock.monoUs(),
  );
  engine.apply(defaultRuleSet({ submit: generous }), clock.monoUs());
  const limits = new RuleLimits({ engine, clock, random: systemRandom });
  const refusedBy = (scope: 'instance' | 'source' | 'user') =>
    ({
      scope,
      ruleId: 'bench',
      retryAfterMs: 1000,
      // As any limit that refuses says it.
      headers: [
        ['RateLimit-Policy', '"bench";q=1;w=1'],
        ['RateLimit', '"bench";r=0;t=1'],
      ],
    }) as const;
  const byInstance = refusedBy('instance');
  const bySource = refusedBy('source');
  const byUser = refusedBy('user');
  const never = (): Promise<never> => Promise.reject(new Error('not in this benchmark'));
  return {
    settings: { ...gatewayDefaults, port: 0 },
    clock,
    timers: systemTimers,
    random: systemRandom,
    log: { warn: console.error, error: console.error },
    activities: { list: () => [activity], get: () => activity },
    identity: demoIdentity(ringOf('user'), 'bench'),
    door: {
      join: never,
      standingByToken: () => ({ kind: 'unknown_entry' }),
      standingByPerson: never,
      leave: never,
      takePass: never,
    },
    health: loop,
    limits: {
      // The one in a second that the limit lets through is refused all the same.
      instance: (request) =>
        limits.instance(request) ?? (kind === 'instance' ? byInstance : undefined),
      // One generator is one address: only the run that asks for it meets its limit.
      source: (request) => (kind === 'source' ? (limits.source(request) ?? bySource) : undefined),
      // The limits are asked, as in a sale; each request is another person's, so the no must be ours.
      person: (request) => {
        const said = limits.person(request);
        return kind === 'after_identity' ? (said ?? byUser) : said;
      },
      budget: (request) => limits.budget(request),
      end: (request) => limits.end(request),
      headers: (request) => limits.headers(request),
      risk: (caller) => limits.risk(caller),
      forged: (address) => limits.forged(address),
    },
    flags,
    status: new RequestStatus({ inventory: store, orders, monoUs, wallMs }),
    inventory: store,
    orders,
    payments: { demo: false, pay: never, cancel: never, callback: never },
    backlog: () => 0,
    submit: {
      paths: new ActivityPaths(macOf(secretOf('path')), [activity]),
      passes: passVerifier({
        ring: ringOf('pass'),
        issuer: 'bench',
        audience: 'bench',
        isWaveRevoked: () => false,
      }),
      batcher: new ReserveBatcher({
        store,
        wallMs,
        monoUs,
        timers: systemTimers,
        defer: (task) => void setImmediate(task),
      }),
      orders,
    },
    ledger: new Ledger(() => 0),
    readiness: () => ({ ready: true, reasons: [] }),
  };
}
