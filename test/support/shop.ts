import { randomBytes } from 'node:crypto';
import type { Activity } from '../../src/core/activity.ts';
import { Ledger } from '../../src/core/ledger/ledger.ts';
import { InflightSlots } from '../../src/core/overload/inflight.ts';
import { KeyRing } from '../../src/core/pass/key-ring.ts';
import { signEntryToken, verifyEntryToken } from '../../src/core/pass/entry-token.ts';
import { signPass } from '../../src/core/pass/pass.ts';
import { nonceOf } from '../../src/core/pass/path-id.ts';
import type { TokenType } from '../../src/core/pass/token.ts';
import { createGateway, type Gateway } from '../../src/gateway/gateway.ts';
import { type GatewayDeps, gatewayDefaults, type PaymentDesk } from '../../src/gateway/deps.ts';
import { demoIdentity, demoSessions } from '../../src/gateway/identity/demo.ts';
import type { Door, Person } from '../../src/pipeline/door.ts';
import type { Health, Resource } from '../../src/pipeline/health.ts';
import { hs256Key, macOf, nodeTextCodec } from '../../src/pipeline/keys.ts';
import { noLimits, type PathLimits } from '../../src/pipeline/limits.ts';
import type { PassVerifier } from '../../src/pipeline/stages/06-identify.ts';
import { passVerifier } from '../../src/pipeline/pass-verifier.ts';
import { ActivityPaths } from '../../src/pipeline/path-index.ts';
import { RequestStatus } from '../../src/pipeline/request-status.ts';
import { ReserveBatcher } from '../../src/pipeline/reserve-batcher.ts';
import { SoldOutFlags } from '../../src/pipeline/sold-out-flags.ts';
import type { InventoryStore } from '../../src/ports/inventory-store.ts';
import { InventoryEngine } from '../../src/stores/memory/inventory-engine.ts';
import { MemoryInventoryStore } from '../../src/stores/memory/inventory-store.ts';
import type { Standing } from '../../src/wire/standing.ts';
import { OrderBook } from './order-book.ts';
import { SeededRandom, World } from './world.ts';

/**
 * A gateway on a real port over real parts in memory, with virtual time. The room is a door that lets
 * everybody in; the room's own tests are elsewhere.
 */

export const sku = { activityId: 'act', skuId: 'sku' } as const;
const issuer = 'https://shop.test';
const audience = 'sluice-submit';

export interface ShopOptions {
  readonly stock?: number;
  readonly maxPerPerson?: number;
  readonly limits?: PathLimits;
  readonly health?: Partial<Omit<Health, 'slots'>>;
  readonly slots?: Partial<Record<Resource, number>>;
  readonly deps?: Partial<GatewayDeps>;
  readonly door?: Partial<Door>;
  readonly withoutSessions?: boolean;
  readonly settings?: Partial<GatewayDeps['settings']>;
  /** Wraps the store, to make it slow, failing or counted. */
  readonly store?: (real: InventoryStore) => InventoryStore;
  readonly backlog?: () => number | undefined;
}

export interface Shop {
  readonly world: World;
  readonly gateway: Gateway;
  readonly url: string;
  readonly port: number;
  readonly store: InventoryStore;
  readonly orders: OrderBook;
  readonly flags: SoldOutFlags;
  readonly ledger: Ledger;
  readonly batcher: ReserveBatcher;
  readonly rings: Readonly<Record<'user' | 'entry' | 'pass', KeyRing>>;
  readonly activity: Activity;
  readonly path: string;
  /** Parts that a test may exchange while the shop runs. */
  readonly parts: { passes: PassVerifier };
  readonly logged: { event: string; fields: Readonly<Record<string, unknown>> }[];
  /** What everybody's standing says from now on. */
  setStanding(state: Standing['state']): void;
  /** A signed-in person with a pass. */
  buyer(name: string, attempt?: number): Buyer;
  close(): Promise<void>;
}

export interface Buyer {
  readonly userId: string;
  readonly userToken: string;
  readonly pass: string;
  readonly nonce: string;
  readonly headers: Readonly<Record<string, string>>;
}

export function newRing(type: TokenType): KeyRing {
  const ring = new KeyRing(type, nodeTextCodec);
  ring.add(hs256Key(`${type}-1`, randomBytes(32)));
  ring.signWith(`${type}-1`);
  return ring;
}

export function openHealth(
  change: Partial<Omit<Health, 'slots'>> = {},
  ceilings: Partial<Record<Resource, number>> = {},
): Health {
  const slots = (resource: Resource): InflightSlots =>
    new InflightSlots({
      adaptive: 'off',
      ceiling: ceilings[resource] ?? 1000,
      floor: 1,
      setpointMs: 20,
    });
  return {
    mode: 'NORMAL',
    admit: () => true,
    ...change,
    slots: {
      submit: slots('submit'),
      status: slots('status'),
      payment: slots('payment'),
      admin: slots('admin'),
    },
  };
}

export function saleAt(nowMs: number, maxPerPerson = 1): Activity {
  return {
    activityId: sku.activityId,
    name: 'Concert',
    revision: 1,
    activityVersion: 1,
    lobbyOpensAtMs: nowMs - 60_000,
    opensAtMs: nowMs - 1_000,
    closesAtMs: nowMs + 3_600_000,
    timeZone: 'Europe/Berlin',
    skus: [
      {
        skuId: sku.skuId,
        name: 'Ticket',
        price: { amountMinor: 4500, currency: 'EUR' },
        stock: 10,
        maxPerPerson,
      },
    ],
    room: {
      mode: 'draw',
      passLifeMs: 30_000,
      claimWindowMs: 60_000,
      maxAdmissionsPerSecond: 1000,
      maxActive: 10_000,
    },
    paymentDeadlineMs: 900_000,
  };
}

export async function openShop(options: ShopOptions = {}): Promise<Shop> {
  const world = new World();
  const random = new SeededRandom('shop');
  const activity = saleAt(world.wallMs(), options.maxPerPerson);
  const real: InventoryStore = new MemoryInventoryStore(InventoryEngine.over());
  await real.preload(sku, { total: options.stock ?? 10, generation: 1, stockEpoch: 0 });
  const store = options.store?.(real) ?? real;
  const orders = new OrderBook(world);
  const rings = { user: newRing('user'), entry: newRing('entry'), pass: newRing('pass') };
  const pathMac = macOf(Buffer.alloc(32, 7));
  const paths = new ActivityPaths(pathMac, [activity]);
  const monoUs = (): number => world.monoUs();
  const wallMs = (): number => world.wallMs();
  const flags = new SoldOutFlags({ store, monoUs });
  const batcher = new ReserveBatcher({
    store,
    wallMs,
    monoUs,
    timers: world,
    defer: (task) => void setImmediate(task),
    onMark: (of, mark) => flags.observe(of, mark),
  });
  const status = new RequestStatus({ inventory: store, orders, monoUs, wallMs });
  const logged: Shop['logged'] = [];
  const log = (event: string, fields: Readonly<Record<string, unknown>>): void => {
    logged.push({ event, fields });
  };
  let gateway: Gateway | undefined;
  const ledger = new Ledger(() => gateway?.inSystem ?? 0);
  const path = [...pathsOf(activity, pathMac)][0] ?? '';
  const passOf = (userId: string, nonce: string): string =>
    signPass(rings.pass, {
      issuer,
      audience,
      ...sku,
      userId,
      activityVersion: 1,
      pathId: path,
      maxQuantity: activity.skus[0]?.maxPerPerson ?? 1,
      wave: 1,
      nonce,
      notBeforeMs: world.wallMs(),
      expiresAtMs: world.wallMs() + 30_000,
      issuedAtMs: world.wallMs(),
    });
  const nonceFor = (userId: string, attempt: number): string =>
    nonceOf(macOf(Buffer.alloc(32, 9)), sku.activityId, userId, sku.skuId, attempt);

  let state: Standing['state'] = 'admitted';
  const parts = {
    passes: passVerifier({
      ring: rings.pass,
      issuer,
      audience,
      isWaveRevoked: (_activity, wave) => wave === 666,
    }),
  };
  const deps: GatewayDeps = {
    settings: { ...gatewayDefaults, port: 0, ...options.settings },
    clock: world,
    timers: world,
    random,
    log: { warn: log, error: log },
    activities: {
      list: () => [activity],
      get: (id) => (id === activity.activityId ? activity : undefined),
    },
    identity: demoIdentity(rings.user, issuer),
    ...(options.withoutSessions === true
      ? {}
      : {
          sessions: demoSessions({
            ring: rings.user,
            issuer,
            clock: world,
            random,
            anywhere: false,
          }),
        }),
    door: {
      ...openDoor(
        world,
        rings.entry,
        () => state,
        (person) => ({
          pass: passOf(person.userId, nonceFor(person.userId, 1)),
          nonce: nonceFor(person.userId, 1),
          pathId: path,
        }),
      ),
      ...options.door,
    },
    health: openHealth(options.health, options.slots),
    limits: options.limits ?? noLimits,
    flags,
    status,
    inventory: store,
    orders,
    payments: demoDesk(orders),
    backlog: options.backlog ?? (() => 0),
    submit: {
      paths,
      passes: { verify: (...asked) => parts.passes.verify(...asked) },
      batcher,
      orders,
    },
    ledger,
    readiness: () => ({ ready: true, reasons: [] }),
    ...options.deps,
  };
  gateway = await createGateway(deps);
  const { url, port } = await gateway.listen();
  const running = gateway;
  return {
    world,
    gateway,
    url,
    port,
    store,
    orders,
    flags,
    ledger,
    batcher,
    rings,
    activity,
    path,
    parts,
    logged,
    setStanding(next) {
      state = next;
    },
    buyer(name, attempt = 1) {
      const userToken = userTokenOf(rings.user, name, world.wallMs());
      const nonce = nonceFor(name, attempt);
      const pass = passOf(name, nonce);
      const headers = { authorization: `Bearer ${userToken}`, 'sluice-pass': pass };
      return { userId: name, userToken, pass, nonce, headers };
    },
    close: async () => {
      const closing = running.close({ drainMs: 1000 });
      await world.advance(1000);
      await closing;
    },
  };
}

function* pathsOf(activity: Activity, mac: (text: string) => string): Generator<string> {
  for (const { skuId } of activity.skus) {
    yield mac(`path\0${activity.activityId}\0${activity.activityVersion}\0${skuId}`).slice(0, 16);
  }
}

export function userTokenOf(ring: KeyRing, userId: string, nowMs: number): string {
  const signer = ring.signer();
  const seconds = Math.floor(nowMs / 1000);
  const claims = { sub: userId, iss: issuer, aud: 'sluice', iat: seconds, exp: seconds + 3600 };
  const input = `${signer.header}.${nodeTextCodec.encode(JSON.stringify(claims))}`;
  return `${input}.${signer.sign(input)}`;
}

/** Everybody is admitted at once. */
function openDoor(
  world: World,
  ring: KeyRing,
  stateNow: () => Standing['state'],
  passOf: (person: Person) => { pass: string; nonce: string; pathId: string },
): Door {
  const entries = new Map<string, number>();
  const standing = (): Standing => ({
    state: stateNow(),
    cohort: 'lobby',
    position: 1,
    ahead: 0,
    eta: null,
    sell_through: 'likely',
    claim_before: null,
    order_rule: 'draw',
    next_poll_after_ms: 1000,
    server_time: new Date(world.wallMs()).toISOString(),
  });
  const known = (activityId: string): boolean => activityId === sku.activityId;
  return {
    join(activityId, person) {
      if (!known(activityId)) return Promise.resolve({ kind: 'unknown_activity' });
      const created = !entries.has(person.personId);
      const sequence = entries.get(person.personId) ?? entries.size;
      entries.set(person.personId, sequence);
      const entryId = `e_${person.personId}`;
      const entryToken = signEntryToken(ring, {
        issuer,
        activityId,
        entryId,
        cohort: 'lobby',
        sequence,
        joinedAtMs: world.wallMs(),
        lane: '',
        weight: 1,
        expiresAtMs: world.wallMs() + 3_600_000,
      });
      return Promise.resolve({
        kind: 'joined',
        created,
        entryId,
        entryToken,
        standing: standing(),
      });
    },
    standingByToken(activityId, token) {
      if (!known(activityId)) return { kind: 'unknown_activity' };
      const verdict = verifyEntryToken(ring, token, { issuer, activityId }, world.wallMs());
      if (verdict.kind === 'refused') return { kind: 'bad_token', reason: verdict.reason };
      const { entryId } = verdict.claims;
      return { kind: 'standing', entryId, standing: standing() };
    },
    standingByPerson(activityId, person) {
      if (!known(activityId)) return Promise.resolve({ kind: 'unknown_activity' });
      if (!entries.has(person.personId)) return Promise.resolve({ kind: 'unknown_entry' });
      return Promise.resolve({
        kind: 'standing',
        entryId: `e_${person.personId}`,
        standing: standing(),
      });
    },
    leave: (_activityId, person) => Promise.resolve(entries.delete(person.personId)),
    takePass(activityId, person, skuId) {
      if (!known(activityId)) return Promise.resolve({ kind: 'unknown_activity' });
      if (skuId !== sku.skuId) {
        return Promise.resolve({ kind: 'unknown_sku', skuId, allowed: [sku.skuId] });
      }
      if (!entries.has(person.personId)) return Promise.resolve({ kind: 'unknown_entry' });
      return Promise.resolve({
        kind: 'pass',
        ...passOf(person),
        notBeforeMs: world.wallMs(),
        expiresAtMs: world.wallMs() + 30_000,
        maxQuantity: 1,
      });
    },
  };
}

function demoDesk(orders: OrderBook): PaymentDesk {
  return {
    demo: true,
    pay: (order) => Promise.resolve(orders.move(order.orderId, ['PENDING_PAYMENT'], 'PAID')),
    cancel: (order) =>
      Promise.resolve(orders.move(order.orderId, ['PENDING_PAYMENT'], 'CANCELLED')),
    callback: (provider, _body, headers) => {
      if (provider !== 'demo') return Promise.resolve({ kind: 'unknown_provider' });
      return Promise.resolve(
        headers['x-signature'] === 'good'
          ? { kind: 'accepted', duplicate: false }
          : { kind: 'bad_signature' },
      );
    },
  };
}

/** The same store with another `reserve`. */
export function withReserve(
  real: InventoryStore,
  reserve: InventoryStore['reserve'],
): InventoryStore {
  return {
    reserve,
    preload: real.preload.bind(real),
    find: real.find.bind(real),
    settle: real.settle.bind(real),
    adjust: real.adjust.bind(real),
    setPaused: real.setPaused.bind(real),
    mark: real.mark.bind(real),
    holders: real.holders.bind(real),
    live: real.live.bind(real),
    rebuild: real.rebuild.bind(real),
    forget: real.forget.bind(real),
    close: real.close.bind(real),
  };
}
