/** Results first, decoration last. */
export type Priority = 0 | 1 | 2 | 3;

interface Waiting {
  readonly priority: Priority;
  readonly order: number;
  readonly start: () => void;
}

interface Flight<Result> {
  readonly promise: Promise<Result>;
  readonly abort: AbortController;
}

/**
 * Reads of one client: equal ones share one flight, a newer one may abort the older, and only so many
 * are under way at a time, the most wanted first. A browser opens six connections to a host; one is
 * left for the event stream and one for what the buyer does.
 */
export class Reads {
  readonly #max: number;
  readonly #flights = new Map<string, Flight<unknown>>();
  readonly #waiting: Waiting[] = [];
  #running = 0;
  #order = 0;
  merged = 0;
  cancelled = 0;

  constructor(max = 4) {
    this.#max = max;
  }

  /** `newest`: an equal read under way is aborted, and its caller gets this one's answer too late. */
  get<Result>(
    key: string,
    priority: Priority,
    run: (signal: AbortSignal) => Promise<Result>,
    newest = false,
  ): Promise<Result> {
    const known = this.#flights.get(key) as Flight<Result> | undefined;
    if (known !== undefined) {
      if (!newest) {
        this.merged += 1;
        return known.promise;
      }
      this.cancelled += 1;
      known.abort.abort();
    }
    const abort = new AbortController();
    const promise = this.#slot(priority, abort.signal, () => run(abort.signal)).finally(() => {
      if (this.#flights.get(key)?.abort === abort) this.#flights.delete(key);
    });
    this.#flights.set(key, { promise, abort });
    return promise;
  }

  #slot<Result>(
    priority: Priority,
    signal: AbortSignal,
    run: () => Promise<Result>,
  ): Promise<Result> {
    return new Promise((resolve, reject) => {
      const start = (): void => {
        if (signal.aborted) {
          reject(signal.reason);
          this.#next();
          return;
        }
        this.#running += 1;
        run()
          .then(resolve, reject)
          .finally(() => {
            this.#running -= 1;
            this.#next();
          });
      };
      this.#waiting.push({ priority, order: (this.#order += 1), start });
      this.#next();
    });
  }

  #next(): void {
    if (this.#running >= this.#max) return;
    this.#waiting.sort((a, b) => a.priority - b.priority || a.order - b.order);
    this.#waiting.shift()?.start();
  }
}
