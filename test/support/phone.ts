import type { ClientEnvironment, EventStream, FetchInit } from '../../src/sdk/environment.ts';
import type { Standing } from '../../src/wire/standing.ts';
import { SeededRandom, World } from './world.ts';

export interface Seen {
  readonly atMs: number;
  readonly method: string;
  readonly path: string;
  readonly init: FetchInit;
}

export type Script = (
  seen: Seen,
) => { status: number; body?: unknown; headers?: Record<string, string> } | 'lost' | 'hang';

/** A phone with a clock, a store and a line to a scripted server. */
export class Phone {
  readonly world = new World();
  readonly kept = new Map<string, string>();
  readonly seen: Seen[] = [];
  script: Script = () => 'lost';
  hidden = false;
  #visibility = new Set<() => void>();
  streams: FakeStream[] | undefined;
  readonly #random = new SeededRandom('phone');
  #ids = 0;

  env(): ClientEnvironment {
    return {
      fetch: async (url, init) => {
        const seen = { atMs: this.world.wallMs(), method: init.method, path: url, init };
        this.seen.push(seen);
        const reply = this.script(seen);
        if (reply === 'lost') throw new TypeError('network');
        if (reply === 'hang')
          return new Promise((_resolve, reject) =>
            init.signal?.addEventListener('abort', () => reject(new Error('aborted'))),
          );
        return {
          status: reply.status,
          header: (name) => reply.headers?.[name] ?? null,
          json: async () => reply.body ?? {},
        };
      },
      ...(this.streams === undefined
        ? {}
        : {
            events: (url: string) => {
              const stream = new FakeStream(url);
              this.streams?.push(stream);
              return stream;
            },
          }),
      after: (delayMs, run) => {
        const timer = this.world.after(delayMs, run);
        return () => timer.cancel();
      },
      nowMs: () => this.world.wallMs(),
      random: () => this.#random.float(),
      token: () => `t${(this.#ids += 1)}`,
      store: {
        get: (key) => this.kept.get(key),
        set: (key, value) => void this.kept.set(key, value),
        remove: (key) => void this.kept.delete(key),
      },
      hidden: () => this.hidden,
      onVisibility: (run) => {
        this.#visibility.add(run);
        return () => this.#visibility.delete(run);
      },
    };
  }

  show(visible: boolean): void {
    this.hidden = !visible;
    for (const run of this.#visibility) run();
  }

  requests(part: string): Seen[] {
    return this.seen.filter(({ path }) => path.includes(part));
  }
}

export class FakeStream implements EventStream {
  readonly url: string;
  open = true;
  gaveUp = false;
  #event: (data: string) => void = () => undefined;
  #error: () => void = () => undefined;

  constructor(url: string) {
    this.url = url;
  }
  closed(): boolean {
    return this.gaveUp;
  }
  onEvent(_name: string, run: (data: string) => void): void {
    this.#event = run;
  }
  onError(run: () => void): void {
    this.#error = run;
  }
  close(): void {
    this.open = false;
  }
  send(standing: object): void {
    this.#event(JSON.stringify(standing));
  }
  fail(forGood: boolean): void {
    this.gaveUp = forGood;
    this.#error();
  }
}

export const standing = (more: Partial<Standing> = {}): Standing => ({
  state: 'waiting',
  cohort: 'lobby',
  position: 5,
  ahead: 4,
  eta: null,
  sell_through: 'likely',
  claim_before: null,
  order_rule: 'draw',
  next_poll_after_ms: 2_000,
  server_time: '',
  ...more,
});
