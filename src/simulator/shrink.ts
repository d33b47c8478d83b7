import { type Plan, type Shape, withItems } from './plan.ts';
import { type Failure, simulate } from './simulation.ts';

/**
 * Makes a failing history small: fewer people, faults and acts, then a plainer shape and a shorter
 * horizon, as long as the same invariant breaks. What is left is what it takes.
 *
 * Items go in halves, quarters, eighths …, then one by one, until none can be spared (ddmin, Zeller and
 * Hildebrandt 2002).
 */
export interface Shrunk {
  readonly plan: Plan;
  readonly failure: Failure;
  /** Histories that it took. */
  readonly runs: number;
}

export interface ShrinkOptions {
  readonly runsMax: number;
  /** Leaves out items only: what is left is told by the seed and their numbers. */
  readonly keepShape?: boolean;
  readonly onRun?: (runs: number, items: number) => void;
}

export async function shrink(
  plan: Plan,
  failure: Failure,
  { runsMax, keepShape, onRun }: ShrinkOptions,
): Promise<Shrunk> {
  let best: Shrunk = { plan, failure, runs: 0 };
  let runs = 0;
  const fails = async (candidate: Plan): Promise<boolean> => {
    if (runs >= runsMax) return false;
    runs += 1;
    onRun?.(runs, best.plan.items.length);
    const history = await simulate(candidate);
    if (history.failure?.invariant !== failure.invariant) return false;
    best = { plan: candidate, failure: history.failure, runs };
    return true;
  };
  await fewerItems(() => best.plan, fails);
  if (keepShape !== true) {
    await plainerShape(() => best.plan, fails);
    await fewerItems(() => best.plan, fails);
  }
  return { ...best, runs };
}

async function fewerItems(
  best: () => Plan,
  fails: (candidate: Plan) => Promise<boolean>,
): Promise<void> {
  let size = Math.ceil(best().items.length / 2);
  while (size >= 1) {
    let removed = false;
    for (let at = 0; at < best().items.length; ) {
      const { items } = best();
      const kept = new Set([...items.slice(0, at), ...items.slice(at + size)].map(({ id }) => id));
      if (await fails(withItems(best(), kept))) removed = true;
      else at += size;
    }
    if (size === 1 && !removed) return;
    size = removed ? Math.min(size, Math.ceil(best().items.length / 2)) : Math.floor(size / 2);
    if (best().items.length === 0) return;
  }
}

/** Each makes the world plainer in one way; those that do not matter to the failure stay. */
const plainer: readonly ((shape: Shape) => Partial<Shape>)[] = [
  () => ({ limits: { scope: 'none', perSecond: 20, burst: 10, fail: 'closed' } }),
  () => ({ workers: 1 }),
  () => ({ controls: 1 }),
  () => ({ gateways: 1 }),
  () => ({ skewMs: 0, drift: 0 }),
  ({ skus }) => ({ skus: skus.slice(0, 1) }),
  ({ skus }) => ({ skus: skus.map((sku) => ({ ...sku, seats: false })) }),
  () => ({ maxPerPerson: 1 }),
  () => ({ storeUs: [200, 900], databaseUs: [800, 4_000], networkUs: [2_000, 20_000] }),
  () => ({ paymentDeadlineMs: 6_000 }),
  ({ room }) => ({ room: { ...room, mode: 'fifo' } }),
  ({ openForMs }) => ({ openForMs: Math.ceil(openForMs / 2) }),
];

async function plainerShape(
  best: () => Plan,
  fails: (candidate: Plan) => Promise<boolean>,
): Promise<void> {
  for (const change of plainer) {
    const { shape } = best();
    const after = { ...shape, ...change(shape) };
    if (JSON.stringify(after) !== JSON.stringify(shape)) await fails({ ...best(), shape: after });
  }
}
