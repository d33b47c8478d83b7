import type { RoomMode } from '../core/activity.ts';
import { SeededRandom } from './chance.ts';
import { callFaults, mayHappen, portNames, type FaultKind, type PortName } from './faults.ts';

/**
 * What is going to happen to a simulated sale, as data: its shape, and a list of people, faults and
 * operator's acts. A plan follows from its seed alone, and a history from its plan alone.
 *
 * Swarm: a plan that always holds a little of every fault finds little, because faults hide each
 * other. So each seed picks a few kinds and leaves the others out, and picks its own sizes.
 *
 * Every item draws its own chance from its own name, so that leaving one out changes nothing in the
 * others: that is what lets a failing history be cut down to the few items that it needs.
 */
export interface Plan {
  readonly schemaVersion: 1;
  readonly seed: number;
  readonly shape: Shape;
  readonly items: readonly Item[];
}

export interface Shape {
  /** One process over its own journals, or many over servers that outlive them. */
  readonly deployment: 'embedded' | 'many';
  readonly gateways: number;
  readonly workers: number;
  readonly controls: number;
  readonly skus: readonly {
    readonly skuId: string;
    readonly stock: number;
    readonly seats: boolean;
  }[];
  readonly maxPerPerson: number;
  readonly room: {
    readonly mode: RoomMode;
    readonly passLifeMs: number;
    readonly claimWindowMs: number;
    readonly maxAdmissionsPerSecond: number;
    readonly maxActive: number;
  };
  readonly lobbyMs: number;
  readonly openForMs: number;
  readonly paymentDeadlineMs: number;
  readonly limits: LimitShape;
  /** Round trips, µs: from, to. */
  readonly storeUs: readonly [number, number];
  readonly databaseUs: readonly [number, number];
  readonly networkUs: readonly [number, number];
  /** One flush of an embedded journal, µs: from, to. */
  readonly flushUs: readonly [number, number];
  /** Machines whose clocks are off by up to so much, ms, and run fast or slow by up to so many parts. */
  readonly skewMs: number;
  readonly drift: number;
  /** From here on nothing fails any more, ms from the beginning. */
  readonly healAtMs: number;
  /** Every process is stopped once the sale is over, and started again when all deadlines have passed. */
  readonly nightOff: boolean;
}

export interface LimitShape {
  readonly scope: 'none' | 'lease' | 'exact';
  readonly perSecond: number;
  readonly burst: number;
  readonly fail: 'closed' | 'local' | 'instance';
}

export type Item = BuyerItem | FaultItem | ActItem;

export const personas = [
  'honest',
  'impatient',
  'double_click',
  'two_devices',
  'replayer',
  'abandoner',
  'canceller',
  'leaver',
  'forger',
  'sleeper',
  'collector',
  'persistent',
  'late_payer',
] as const;
/** A hammer is no customer: it is there where something limits how much is let through. */
export type Persona = (typeof personas)[number] | 'hammer';

export interface BuyerItem {
  readonly kind: 'buyer';
  readonly id: number;
  readonly atMs: number;
  readonly persona: Persona;
}

export interface FaultItem {
  readonly kind: 'fault';
  readonly id: number;
  readonly atMs: number;
  readonly forMs: number;
  readonly fault: FaultKind;
  /** Where calls are hit; every port of a kind that hits no calls. */
  readonly port: PortName;
  /** Which process is hit, counted round; undefined: all of them. */
  readonly process?: number;
  /** Share of the calls that are hit. */
  readonly share: number;
  /** Size, in the unit of its kind: ms of a leap, writes forgotten … */
  readonly size: number;
}

export const acts = [
  'restock',
  'shrink',
  'stop_and_reopen',
  'hold_and_resume',
  'pause_and_resume',
  'cancel_order',
  'refund_order',
  'revoke_wave',
  'reconcile',
  'rebuild',
  'bypass',
  'pin_mode',
] as const;
export type Act = (typeof acts)[number];

export interface ActItem {
  readonly kind: 'act';
  readonly id: number;
  readonly atMs: number;
  readonly act: Act;
  readonly size: number;
}

const oneOf = <Value>(random: SeededRandom, values: readonly Value[]): Value => {
  const value = values[random.below(values.length)];
  if (value === undefined) throw new RangeError('nothing to choose from');
  return value;
};

/** Between two numbers, whole, both included. */
const between = (random: SeededRandom, from: number, to: number): number =>
  from + random.below(to - from + 1);

const chance = (random: SeededRandom, share: number): boolean => random.float() < share;

/** The plan of a seed. */
export function planOf(seed: number): Plan {
  const random = new SeededRandom(`plan/${seed}`);
  const shape = shapeOf(random);
  let id = 0;
  const next = (): number => (id += 1);
  const items: Item[] = [
    ...buyersOf(random, shape, next),
    ...hammersOf(random, shape, next),
    ...faultsOf(random, shape, next),
    ...actsOf(random, shape, next),
  ];
  return { schemaVersion: 1, seed, shape, items: items.toSorted((a, b) => a.atMs - b.atMs) };
}

/** The same plan with some of its items only. */
export function withItems(plan: Plan, ids: ReadonlySet<number>): Plan {
  return { ...plan, items: plan.items.filter((item) => ids.has(item.id)) };
}

function shapeOf(random: SeededRandom): Shape {
  const deployment = chance(random, 0.3) ? 'embedded' : 'many';
  const alone = deployment === 'embedded';
  const seats = chance(random, 0.1);
  const skus = Array.from({ length: chance(random, 0.2) ? 2 : 1 }, (_, at) => ({
    skuId: `sku${at + 1}`,
    stock: between(random, 1, 7),
    seats: seats && at === 0,
  }));
  const mode = oneOf<RoomMode>(random, ['draw', 'draw', 'fifo', 'fifo', 'passthrough', 'weighted']);
  const lobbyMs = between(random, 15, 40) * 100;
  const openForMs = between(random, 9, 20) * 1_000;
  const paymentDeadlineMs = oneOf(random, [3_000, 6_000, 15_000, 60_000, 900_000]);
  return {
    deployment,
    gateways: alone || chance(random, 0.5) ? 1 : 2,
    workers: alone || chance(random, 0.6) ? 1 : 2,
    controls: alone || chance(random, 0.5) ? 1 : 2,
    skus,
    maxPerPerson: oneOf(random, [1, 1, 2, 2, 3]),
    room: {
      mode,
      passLifeMs: oneOf(random, [5_000, 10_000, 30_000]),
      claimWindowMs: oneOf(random, [4_000, 8_000, 15_000]),
      maxAdmissionsPerSecond: oneOf(random, [2, 5, 20]),
      maxActive: oneOf(random, [3, 6, 20]),
    },
    lobbyMs,
    openForMs,
    paymentDeadlineMs,
    limits: {
      scope: oneOf(random, ['none', 'none', 'lease', 'lease', 'exact']),
      perSecond: oneOf(random, [2, 5, 20]),
      burst: oneOf(random, [2, 5, 10]),
      fail: oneOf(random, ['closed', 'closed', 'local', 'local', 'instance']),
    },
    storeUs: oneOf(random, [
      [200, 900],
      [500, 4_000],
      [2_000, 15_000],
    ] as const),
    databaseUs: oneOf(random, [
      [800, 4_000],
      [3_000, 20_000],
    ] as const),
    networkUs: oneOf(random, [
      [2_000, 20_000],
      [20_000, 150_000],
    ] as const),
    // Some disks stall.
    flushUs: oneOf(random, [
      [300, 3_000],
      [50_000, 1_500_000],
    ] as const),
    skewMs: oneOf(random, [0, 0, 300, 1_500]),
    drift: oneOf(random, [0, 0, 0.0002, 0.002]),
    healAtMs: lobbyMs + Math.floor(openForMs * 0.6),
    nightOff: paymentDeadlineMs > 60_000 || chance(random, 0.8),
  };
}

function buyersOf(random: SeededRandom, shape: Shape, next: () => number): BuyerItem[] {
  const crowd = between(random, 3, 18);
  // Whoever may buy more mostly wants to.
  const own = personas.filter((persona) =>
    chance(random, persona === 'collector' && shape.maxPerPerson > 1 ? 0.8 : 0.4),
  );
  const odd = own.length === 0 ? (['honest'] as const) : own;
  return Array.from({ length: crowd }, () => ({
    kind: 'buyer',
    id: next(),
    atMs: chance(random, 0.6)
      ? between(random, 0, shape.lobbyMs - 100)
      : between(random, shape.lobbyMs, shape.lobbyMs + Math.floor(shape.openForMs * 0.85)),
    persona: chance(random, 0.4) ? 'honest' : oneOf<Persona>(random, odd),
  }));
}

/** Whoever knocks without pause and without a right to anything, where something counts the knocks. */
function hammersOf(random: SeededRandom, shape: Shape, next: () => number): BuyerItem[] {
  if (shape.limits.scope === 'none' || chance(random, 0.3)) return [];
  return Array.from({ length: between(random, 1, 2) }, () => ({
    kind: 'buyer',
    id: next(),
    atMs: between(random, shape.lobbyMs, Math.max(shape.lobbyMs, shape.healAtMs - 3_000)),
    persona: 'hammer',
  }));
}

/** Where most depends on it, twice. */
const busyPorts: readonly PortName[] = [
  ...portNames,
  'inventory',
  'queue',
  'orders',
  'payments',
  'payments',
];

function faultsOf(random: SeededRandom, shape: Shape, next: () => number): FaultItem[] {
  // A share of seeds has no faults at all: what breaks there needs none.
  if (chance(random, 0.1)) return [];
  const allowed = callFaults.filter((fault) => mayHappen(fault, shape.deployment));
  const kinds = (
    [
      ...allowed,
      'crash',
      'pause',
      'leap',
      'duplicate',
      'poison',
      'net_loss',
      'net_twice',
      'net_slow',
      'crash_answered',
      ...(shape.deployment === 'embedded' ? (['crash_answered', 'crash_answered'] as const) : []),
      ...(shape.deployment === 'many'
        ? (['failover', 'drop_words', 'forget_budgets', 'cut_off'] as const)
        : []),
    ] as const
  ).filter(() => chance(random, 0.35));
  const away = awayOf(random, shape, next);
  if (kinds.length === 0) return away;
  const count = between(random, 1, 8);
  // Budgets are asked where something is limited by them, and then much depends on it.
  const asked: readonly PortName[] =
    shape.limits.scope === 'none'
      ? busyPorts.filter((port) => port !== 'budgets')
      : [...busyPorts, 'budgets', 'budgets', 'budgets'];
  const ports = asked.filter(() => chance(random, 0.5));
  const own = Array.from({ length: count }, (): FaultItem => {
    const fault = oneOf<FaultKind>(random, kinds);
    const atMs = between(random, 300, shape.healAtMs - 300);
    const cut = fault === 'cut_off';
    const whole = cut || fault === 'crash_answered' || chance(random, 0.25);
    const lengths = cut ? [2_000, 5_000, 8_000, 12_000] : [300, 1_500, 4_000, 10_000];
    return {
      kind: 'fault',
      id: next(),
      atMs,
      forMs: Math.min(shape.healAtMs - atMs, oneOf(random, lengths)),
      fault,
      port: ports.length === 0 ? oneOf(random, asked) : oneOf(random, ports),
      ...(cut || chance(random, 0.5) ? { process: random.below(8) } : {}),
      share: whole ? 1 : oneOf(random, [0.05, 0.2, 0.5]),
      size: random.below(1_000),
    };
  });
  return [...own, ...away];
}

/** Where something is limited by shared budgets, their store is away now and then, for all. */
function awayOf(random: SeededRandom, shape: Shape, next: () => number): FaultItem[] {
  if (shape.limits.scope === 'none' || chance(random, 0.4)) return [];
  return Array.from({ length: between(random, 1, 3) }, (): FaultItem => {
    const atMs = between(random, shape.lobbyMs, shape.healAtMs - 300);
    return {
      kind: 'fault',
      id: next(),
      atMs,
      forMs: Math.min(shape.healAtMs - atMs, between(random, 15, 60) * 100),
      fault: 'refused',
      port: 'budgets',
      share: 1,
      size: 0,
    };
  });
}

function actsOf(random: SeededRandom, shape: Shape, next: () => number): ActItem[] {
  if (chance(random, 0.5)) return [];
  const own = acts.filter(() => chance(random, 0.35));
  if (own.length === 0) return [];
  return Array.from({ length: between(random, 1, 4) }, () => ({
    kind: 'act',
    id: next(),
    atMs: between(random, shape.lobbyMs, shape.lobbyMs + Math.floor(shape.openForMs * 0.8)),
    act: oneOf<Act>(random, own),
    size: random.below(1_000),
  }));
}
