import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';

/**
 * Virtual time: everything that happens in a simulated world is an event of this heap.
 *
 * The trouble with simulating code that awaits is knowing when it has come to rest. Between two events
 * every continuation that can run must have run, or else the order of things would depend on how deep
 * somebody's promises are chained. A turn of the real event loop after each event would do, and costs
 * more than the event. So the loop here rides on Node's own order: a task of `process.nextTick` that was
 * asked for by a microtask runs once the microtask queue is empty, and before anything else.
 *
 *     event ──▶ microtasks … ──▶ (all at rest) ──▶ look at the world ──▶ next event
 *
 * No socket, timer or other process is served meanwhile: the world has this process for itself until
 * it ends, which is also what makes the history the same every time.
 *
 * Events of one instant run in an order drawn by the seed. Events belong to an owner (a process of the
 * simulated deployment) or to nobody: the owner's events are dropped when it has died, and wait while it
 * stands still.
 */
export interface Owner {
  /** Changes whenever it dies: what was meant for an earlier life is dropped. */
  readonly life: number;
  /** It stands still until then, µs of true time. */
  readonly pausedUntilUs: number;
}

/** One thing that is going to happen: its own handle, because most worlds hold millions of them. */
class Event implements TimerHandle {
  dueUs: number;
  readonly tie: number;
  readonly order: number;
  readonly owner: Owner | undefined;
  readonly life: number;
  readonly label: string;
  run: (() => void) | undefined;

  constructor(
    dueUs: number,
    tie: number,
    order: number,
    owner: Owner | undefined,
    label: string,
    run: () => void,
  ) {
    this.dueUs = dueUs;
    this.tie = tie;
    this.order = order;
    this.owner = owner;
    this.life = owner?.life ?? 0;
    this.label = label;
    this.run = run;
  }

  cancel(): void {
    this.run = undefined;
  }
}

export interface VirtualTimeOptions {
  /** Uniform in [0, 1): the order of what happens at one instant. */
  readonly draw: () => number;
  /** Once everything has come to rest after an event. What it throws ends the run. */
  readonly afterEach: () => void;
  /** Before each event that happens. */
  readonly onEvent?: (label: string, nowUs: number) => void;
}

/** Events at one instant past which somebody works without end. */
const stillMax = 20_000;

export class VirtualTime {
  readonly #options: VirtualTimeOptions;
  readonly #heap: Event[] = [];
  #nowUs = 0;
  #order = 0;
  #events = 0;
  /** Events since time last moved. */
  #still = 0;
  #actor: Owner | undefined;

  constructor(options: VirtualTimeOptions) {
    this.#options = options;
  }

  /** True time since the world began, µs. */
  get nowUs(): number {
    return this.#nowUs;
  }

  /** To whom the last event happened; undefined: to nobody, or to several. */
  get actor(): Owner | undefined {
    return this.#actor;
  }

  /** Events so far. */
  get events(): number {
    return this.#events;
  }

  /** Runs `run` so many µs from now, as something that happens to `owner` (nobody: undefined). */
  after(delayUs: number, label: string, run: () => void, owner?: Owner): TimerHandle {
    const dueUs = this.#nowUs + Math.max(0, Math.ceil(delayUs));
    const event = new Event(dueUs, this.#options.draw(), (this.#order += 1), owner, label, run);
    this.#push(event);
    return event;
  }

  /** Lets the world run up to that instant, or until `done`. Rejects with what an event or look threw. */
  runUntil(untilUs: number, done: () => boolean = () => false): Promise<void> {
    return new Promise((resolve, reject) => {
      // Once no microtask is left. A reaction of a settled promise costs less than `queueMicrotask`.
      const soon = (): void => process.nextTick(step);
      const step = (): void => {
        try {
          this.#options.afterEach();
          if (done()) return resolve();
          const event = this.#next(untilUs);
          if (event === undefined) {
            this.#nowUs = Math.max(this.#nowUs, untilUs);
            return resolve();
          }
          this.#still = event.dueUs === this.#nowUs ? this.#still + 1 : 0;
          if (this.#still > stillMax) {
            throw new Error(`${stillMax} events at one instant, the last "${event.label}"`);
          }
          this.#nowUs = event.dueUs;
          this.#actor = event.owner;
          this.#events += 1;
          this.#options.onEvent?.(event.label, event.dueUs);
          event.run?.();
        } catch (error) {
          return reject(error instanceof Error ? error : new Error(String(error)));
        }
        void settled.then(soon);
      };
      void settled.then(soon);
    });
  }

  /** The next event that is still to happen, taken off the heap. */
  #next(untilUs: number): Event | undefined {
    for (;;) {
      const [first] = this.#heap;
      if (first === undefined || first.dueUs > untilUs) return undefined;
      this.#pop();
      const { owner } = first;
      if (first.run === undefined || (owner !== undefined && owner.life !== first.life)) continue;
      if (owner !== undefined && owner.pausedUntilUs > this.#nowUs) {
        const wakesUs = owner.pausedUntilUs;
        if (wakesUs > first.dueUs) {
          first.dueUs = wakesUs;
          this.#push(first);
          continue;
        }
      }
      return first;
    }
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || !isBefore(event, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      let below = heap[child];
      if (below === undefined) break;
      const right = heap[child + 1];
      if (right !== undefined && isBefore(right, below)) {
        child += 1;
        below = right;
      }
      if (!isBefore(below, last)) break;
      heap[at] = below;
      at = child;
    }
    heap[at] = last;
  }
}

function isBefore(a: Event, b: Event): boolean {
  if (a.dueUs !== b.dueUs) return a.dueUs < b.dueUs;
  return a.tie !== b.tie ? a.tie < b.tie : a.order < b.order;
}

const settled = Promise.resolve();

/**
 * The clocks of one machine: a wall clock that is off and may be set, and a monotonic one that runs a
 * little fast or slow. Timers follow the monotonic one.
 */
export class MachineClock implements Clock {
  readonly #time: VirtualTime;
  readonly #epochMs: number;
  /** Parts by which it runs fast (above 1) or slow. */
  readonly rate: number;
  #skewMs: number;

  constructor(time: VirtualTime, epochMs: number, rate = 1, skewMs = 0) {
    this.#time = time;
    this.#epochMs = epochMs;
    this.rate = rate;
    this.#skewMs = skewMs;
  }

  wallMs(): number {
    return this.#epochMs + Math.floor(this.#time.nowUs / 1_000) + this.#skewMs;
  }

  monoUs(): number {
    return Math.floor(this.#time.nowUs * this.rate);
  }

  get skewMs(): number {
    return this.#skewMs;
  }

  /** Somebody sets the wall clock. */
  set(skewMs: number): void {
    this.#skewMs = skewMs;
  }
}

/** Timers of one owner: they end with its life, and wait while it stands still. */
export class OwnedTimers implements Timers {
  readonly #time: VirtualTime;
  readonly #rate: number;
  readonly #owner: Owner | undefined;
  readonly #label: string;

  constructor(time: VirtualTime, rate: number, label: string, owner?: Owner) {
    this.#time = time;
    this.#rate = rate;
    this.#owner = owner;
    this.#label = label;
  }

  after(delayMs: number, run: () => void): TimerHandle {
    const us = (Math.max(0, delayMs) * 1_000) / this.#rate;
    return this.#time.after(us, this.#label, run, this.#owner);
  }

  every(periodMs: number, run: () => void): TimerHandle {
    let handle: TimerHandle;
    let stopped = false;
    const again = (): void => {
      // The next is due before this one runs: what it throws must not end the ticking unseen.
      if (!stopped) handle = this.after(periodMs, again);
      run();
    };
    handle = this.after(periodMs, again);
    return {
      cancel: () => {
        stopped = true;
        handle.cancel();
      },
    };
  }
}
