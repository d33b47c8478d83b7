import { OutcomeUnknownError, UnavailableError } from '../ports/errors.ts';
import type { PortName } from './faults.ts';
import type { SimProcess } from './process.ts';
import type { World } from './world.ts';

/**
 * A call from a process to what stands behind a port: the way there, the work, the way back, and what
 * goes wrong with each. A process that has died hears nothing any more, and whatever it still says
 * goes nowhere.
 */

/** After this a caller gives up, µs: stores that are fast, and the database. */
const patienceUs: Readonly<Record<PortName, number>> = {
  inventory: 1_000_000,
  queue: 1_000_000,
  admission: 1_000_000,
  budgets: 400_000,
  broadcast: 1_000_000,
  orders: 3_000_000,
  payments: 3_000_000,
  lease: 1_500_000,
};
/** A slow call takes up to so much, µs: some of them longer than their caller waits. */
const slowUs = [50_000, 2_500_000] as const;
/** A late call arrives so long after it was given up, µs. */
const lateUs = [1_000, 3_000_000] as const;
/** One in four so many times as late. */
const muchLater = 5;

/** A repeated call comes again after so long, µs. */
const againUs = [20_000, 12_000_000] as const;

/** Which of a port's methods change something: the outcome of others is never in doubt. */
export interface PortMethods {
  readonly writes: readonly string[];
  readonly reads: readonly string[];
}

export const methodsOf: Readonly<Record<PortName | 'audit', PortMethods>> = {
  inventory: {
    writes: ['preload', 'reserve', 'settle', 'adjust', 'setPaused', 'rebuild', 'forget'],
    reads: ['find', 'mark', 'holders', 'live'],
  },
  queue: {
    writes: ['receive', 'acknowledge', 'bury', 'giveBack'],
    reads: ['backlog', 'buried'],
  },
  orders: {
    writes: [
      'declareSku',
      'commitBatch',
      'releaseUnordered',
      'transition',
      'transitionMany',
      'restocksDone',
      'adjustTotal',
      'raiseGeneration',
      'setStopped',
    ],
    reads: [
      'fatesOf',
      'orderById',
      'orderByReservation',
      'fateOfRequest',
      'liveOfPerson',
      'dueForExpiry',
      'restocksDue',
      'liveOrders',
      'tally',
      'stock',
      'counts',
      'search',
    ],
  },
  payments: {
    writes: ['begin', 'setIntent', 'noteAttempt', 'setState', 'applyEvent', 'accept'],
    reads: ['inState', 'startedBefore', 'ofOrder', 'byId', 'misplaced', 'unmatched'],
  },
  audit: { writes: ['append'], reads: ['list'] },
  admission: {
    writes: ['join', 'leave', 'closeLobby', 'takePass', 'endAttempt', 'finish', 'saveState'],
    reads: ['findEntry', 'lobbyMarker', 'participants', 'changes', 'counts', 'loadState'],
  },
  budgets: { writes: ['renew', 'raiseEpoch', 'take', 'giveBack'], reads: [] },
  lease: { writes: ['renew', 'release'], reads: [] },
  broadcast: { writes: ['say'], reads: ['last'] },
};

const never = new Promise<never>(() => undefined);

export interface CallOptions {
  readonly world: World;
  readonly process: SimProcess;
  readonly port: PortName;
  /** In the same process: no way there and back. */
  readonly local: boolean;
}

type Method = (...given: readonly unknown[]) => Promise<unknown>;

/** The port as this life of a process sees it. `real` is asked at each call: a server may have a new life. */
export function throughPort<Port extends object>(
  options: CallOptions,
  methods: PortMethods,
  real: () => Port,
): Port {
  const seen: Record<string, Method> = {};
  const caller = new Caller(options);
  const { process, local, world } = options;
  const { life } = process;
  for (const [names, changes] of [
    [methods.writes, true],
    [methods.reads, false],
  ] as const) {
    for (const name of names) {
      const labels = labelsOf(options.port, name);
      const observed = `${options.port}.${name}`;
      seen[name] = (...given) =>
        caller.call(labels, changes, async () => {
          const there = real() as Record<string, Method>;
          const method = there[name];
          if (method === undefined) throw new TypeError(`the port has no ${name}`);
          const value = await method.apply(there, given as unknown[]);
          // What a process has told only itself, and not yet kept, dies with it.
          if (!local || process.life === life)
            world.oracle.observe(observed, given, value, process);
          return value;
        });
    }
  }
  seen['close'] = () => Promise.resolve();
  return seen as Port;
}

/** Made once for each method: a label is needed for every event. */
interface Labels {
  readonly there: string;
  readonly back: string;
  readonly late: string;
}

const allLabels = new Map<string, Labels>();

function labelsOf(port: PortName, method: string): Labels {
  const there = `${port}.${method}`;
  let labels = allLabels.get(there);
  if (labels === undefined) {
    labels = { there, back: `${there} back`, late: `${there} late` };
    allLabels.set(there, labels);
  }
  return labels;
}

class Caller {
  readonly #options: CallOptions;
  readonly #life: number;

  constructor(options: CallOptions) {
    this.#options = options;
    this.#life = options.process.life;
  }

  call(labels: Labels, changes: boolean, work: () => Promise<unknown>): Promise<unknown> {
    const { world, process, port, local } = this.#options;
    if (process.life !== this.#life) return never;
    const fault = world.faults.ofCall(port, process.index, world.nowMs, changes);
    if (fault !== undefined) {
      world.note(fault, `${process.name} ${labels.there}`);
    }
    switch (fault) {
      case undefined:
        return local ? work() : this.#remote(work, labels, world.latency(port), 0);
      case 'slow': {
        const us = slowUs[0] + world.chance.below(slowUs[1] - slowUs[0]);
        if (local) return this.#after(us, work);
        const patience = patienceUs[port];
        if (us < patience) return this.#remote(work, labels, us / 2, us / 2);
        // It is done in time or after; its caller has gone either way.
        world.time.after(us / 2, labels.there, () => this.#forget(work));
        return this.#giveUp(patience, labels, changes);
      }
      case 'refused':
        return this.#fail(world.latency(port), new UnavailableError(`${labels.there}: refused`));
      case 'lost_request':
        return this.#giveUp(patienceUs[port], labels, changes);
      case 'lost_reply':
        world.time.after(world.latency(port), labels.there, () => this.#forget(work));
        return this.#giveUp(patienceUs[port], labels, changes);
      case 'late': {
        const by = world.chance.below(lateUs[1] - lateUs[0]);
        const us = patienceUs[port] + lateUs[0] + (by % 4 === 0 ? by * muchLater : by);
        world.time.after(us, labels.late, () => this.#forget(work));
        return this.#giveUp(patienceUs[port], labels, changes);
      }
      case 'repeated':
        world.time.after(againUs[0] + world.chance.below(againUs[1]), labels.late, () =>
          this.#forget(work),
        );
        return this.#remote(work, labels, world.latency(port), 0);
      case 'crash_before':
        world.crash(process);
        return never;
      case 'crash_after':
        this.#forget(work);
        world.crash(process);
        return never;
    }
  }

  /** There, work, and back to whoever still lives. */
  #remote(
    work: () => Promise<unknown>,
    labels: Labels,
    thereUs: number,
    backUs: number,
  ): Promise<unknown> {
    const { world, process, port } = this.#options;
    return new Promise((resolve, reject) => {
      const back = (answer: () => void): void => {
        if (process.life !== this.#life) return;
        world.time.after(backUs || world.latency(port), labels.back, answer, process);
      };
      world.time.after(thereUs, labels.there, () => {
        work().then(
          (value) => back(() => resolve(value)),
          (error: unknown) => back(() => reject(asError(error))),
        );
      });
    });
  }

  #after(us: number, work: () => Promise<unknown>): Promise<unknown> {
    const { world, process } = this.#options;
    return new Promise((resolve, reject) => {
      world.time.after(us, 'slow', () => void work().then(resolve, reject), process);
    });
  }

  /** Done, and nobody hears how it ended. */
  #forget(work: () => Promise<unknown>): void {
    work().catch((error: unknown) => this.#options.world.unheard(error));
  }

  #giveUp(us: number, labels: Labels, changes: boolean): Promise<never> {
    const what = `${labels.there}: no answer within ${us / 1_000} ms`;
    return this.#fail(us, changes ? new OutcomeUnknownError(what) : new UnavailableError(what));
  }

  #fail(us: number, error: Error): Promise<never> {
    const { world, process } = this.#options;
    return new Promise((_, reject) => {
      world.time.after(us, 'failure', () => reject(error), process);
    });
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
