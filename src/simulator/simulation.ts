import { Buyer } from './buyer.ts';
import { checkEnding, isSettled, needsLeader } from './ending.ts';
import { Operator } from './operator.ts';
import { Violation } from './oracle.ts';
import type { FaultItem, Plan } from './plan.ts';
import type { SimProcess } from './process.ts';
import type { Trace } from './trace.ts';
import { setTraps } from './traps.ts';
import { World, paymentGraceMs } from './world.ts';

/**
 * One history, from a plan.
 *
 *     safety    people come, faults happen, the operator acts; every event is looked at
 *     heal      nothing fails any more; what was closed is opened; who is down comes up
 *     liveness  the sale ends, and everything that was promised comes to its end
 *     ending    every person has an outcome, stores agree, the ledger closes, the draw is recomputed
 *
 * A plan has one history: the same events at the same instants, in this process or another.
 */
export interface History {
  readonly seed: number;
  /** Equal for equal histories. */
  readonly digest: string;
  readonly events: number;
  /** Virtual time that passed, ms. */
  readonly simulatedMs: number;
  /** Items of the plan: people, faults, operator's acts. */
  readonly items: number;
  readonly failure: Failure | undefined;
  /** Faults, and how often each hit. */
  readonly reached: ReadonlyMap<string, number>;
  readonly edges: ReadonlyMap<string, number>;
  readonly states: ReadonlySet<number>;
}

export interface Failure {
  readonly invariant: string;
  readonly detail: string;
  /** When, ms of virtual time. */
  readonly atMs: number;
}

/** The doors stay open so long after the sale, at most, until every process is well again, ms. */
const recoveryMs = 240_000;
/** Reservations that became no order, and what reconciliation does about them, ms. */
const reservationsMs = 60_000 + 30_000 + 130_000;
/** A leap of a wall clock is not believed for so long, ms. */
const leapMs = 600_000;

/** Runs the plan. Never rejects: what goes wrong is the history's failure. */
export async function simulate(plan: Plan, trace?: Trace): Promise<History> {
  const world = new World(plan, trace);
  const release = setTraps();
  let failure: Failure | undefined;
  try {
    await live(world);
  } catch (error) {
    failure = {
      invariant: error instanceof Violation ? error.invariant : 'no surprise',
      detail: error instanceof Violation ? error.message : stackOf(error),
      atMs: world.nowMs,
    };
    world.note('failure', failure.detail);
  } finally {
    release();
  }
  return {
    seed: plan.seed,
    digest: world.digest.hex,
    events: world.time.events,
    simulatedMs: world.nowMs,
    items: plan.items.length,
    failure,
    reached: world.faults.reached,
    edges: world.oracle.edges,
    states: world.oracle.states,
  };
}

function stackOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}

async function live(world: World): Promise<void> {
  const { plan, time, processes } = world;
  const { shape } = plan;
  const buyers: Buyer[] = [];
  const broken: unknown[] = [];
  const say = (promise: Promise<unknown>): void => {
    promise.catch((error: unknown) => {
      broken.push(error);
      world.oracle.trouble('simulation', 'story', error);
    });
  };
  const operator = new Operator(world);
  for (const process of processes) {
    time.after(world.chance.below(50_000), `start ${process.name}`, () => say(process.start()));
  }
  for (const item of plan.items) {
    const begin = (): void => {
      switch (item.kind) {
        case 'buyer': {
          const buyer = new Buyer(world, item);
          buyers.push(buyer);
          say(buyer.live());
          return;
        }
        case 'act':
          say(operator.act(item));
          return;
        case 'fault':
          strike(world, item);
      }
    };
    time.after(item.atMs * 1_000, item.kind, begin);
  }
  await time.runUntil(shape.healAtMs * 1_000);

  world.note('heal', '');
  world.faults.heal();
  for (const process of processes) process.pausedUntilUs = 0;
  say(operator.openAll());
  const closesMs = shape.lobbyMs + shape.openForMs;
  await time.runUntil((closesMs + 2_000) * 1_000);
  // Until everybody has come to an end, and every door is as it was.
  const wellUs = (closesMs + recoveryMs) * 1_000;
  await time.runUntil(
    wellUs,
    () =>
      operator.idle &&
      buyers.every(({ ending }) => ending !== undefined) &&
      processes.every(isWell),
  );
  for (const process of processes) {
    world.oracle.check(
      isWell(process),
      'recovery',
      () => `${process.name} is ${conditionOf(process)} ${recoveryMs} ms after the end`,
    );
  }
  for (const [at, buyer] of buyers.entries()) {
    world.oracle.check(
      buyer.ending !== undefined,
      '12',
      () => `${buyer.userId} (${at}) still waits for something`,
    );
  }
  if (!isSettled(world)) await night(world, say);
  // In the morning the doors open once more, for whoever wants to know.
  for (const process of processes) {
    process.retired = false;
    if (process.running === undefined) say(process.start());
  }
  await time.runUntil(time.nowUs + 2_500_000);
  let ended = false;
  say(
    checkEnding(world).finally(() => {
      ended = true;
    }),
  );
  await time.runUntil(time.nowUs + 600_000_000, () => ended);
  if (broken.length > 0) throw broken[0];
  world.oracle.check(ended, '12', () => 'the last questions were never answered');
  world.oracle.look();
}

/** What was promised at the sale's end comes to its own: orders are paid or expire, money goes back. */
async function night(world: World, say: (promise: Promise<unknown>) => void): Promise<void> {
  const { plan, time, processes } = world;
  const { shape } = plan;
  const deadlinesMs = shape.paymentDeadlineMs + paymentGraceMs;
  // One process for each task is enough, or none.
  const kept = (process: SimProcess): boolean =>
    !shape.nightOff &&
    (process === processes.find((one) => one.has('worker')) ||
      process === processes.find((one) => one.has('control')));
  const stopping = processes.filter((process) => !kept(process));
  for (const process of stopping) say(process.stop());
  await time.runUntil(time.nowUs + 5_000_000, () =>
    stopping.every(({ running }) => running === undefined),
  );
  if (shape.nightOff) {
    await time.runUntil(time.nowUs + deadlinesMs * 1_000);
    const worker = processes.find((process) => process.has('worker'));
    const control = needsLeader(world)
      ? processes.find((process) => process.has('control') && process !== worker)
      : undefined;
    for (const process of [worker, control]) {
      if (process === undefined) continue;
      process.retired = false;
      say(process.start());
    }
  }
  const leapt = plan.items.some((item) => item.kind === 'fault' && item.fault === 'leap');
  const untilUs =
    time.nowUs +
    ((shape.nightOff ? 0 : deadlinesMs + (leapt ? leapMs : 0)) + reservationsMs) * 1_000;
  let lookedUs = 0;
  await time.runUntil(untilUs, () => {
    if (time.nowUs - lookedUs < 1_000_000) return false;
    lookedUs = time.nowUs;
    return isSettled(world);
  });
}

/** Serving, in full and in ordinary mode. */
function isWell(process: SimProcess): boolean {
  const { running } = process;
  if (running === undefined) return false;
  const { overload, sale } = running;
  const led = !process.has('gateway') || sale.rooms.unready().length === 0;
  return led && overload.mode === 'NORMAL' && overload.state.stage === 'steady';
}

function conditionOf(process: SimProcess): string {
  const { running } = process;
  if (running === undefined) return 'down';
  const { overload, sale } = running;
  const unready = process.has('gateway') ? sale.rooms.unready() : [];
  if (unready.length > 0) return unready.join(', ');
  return `${overload.mode}, ${overload.state.stage} by ${JSON.stringify(overload.worst)}`;
}

/** Faults that hit a process, a machine or a server at once; the others hit calls while they last. */
function strike(world: World, item: FaultItem): void {
  world.faults.begin(item);
  const { processes, faults, time } = world;
  const at = item.process ?? item.size;
  const process = processes[at % processes.length];
  if (process === undefined) return;
  switch (item.fault) {
    case 'crash':
      if (process.running !== undefined) {
        faults.note('crash');
        world.crash(process);
      }
      return;
    case 'pause': {
      const ms = Math.min(item.forMs, 20 + item.size * 8);
      faults.note('pause');
      world.note('pause', `${process.name} for ${ms} ms`);
      process.pausedUntilUs = time.nowUs + ms * 1_000;
      process.running?.probe.stalled(ms);
      return;
    }
    case 'leap': {
      // Whoever starts with a wrong clock cannot know it: only a clock that was right before can leap.
      if (process.running === undefined) return;
      faults.note('leap');
      const ms = (item.size % 2 === 0 ? 1 : -1) * (1_000 + item.size * 4_000);
      world.note('leap', `${process.name} by ${ms} ms`);
      process.clock.set(process.clock.skewMs + ms);
      time.after(item.forMs * 1_000, 'clock set right', () => process.setClockRight());
      return;
    }
    case 'failover':
      world.failover(1 + (item.size % 12));
      return;
    case 'forget_budgets':
      faults.note('forget_budgets');
      world.note('budgets forgotten', '');
      world.servers.forgetBudgets();
      world.oracle.budgets.forgot();
      return;
    default:
      return;
  }
}
