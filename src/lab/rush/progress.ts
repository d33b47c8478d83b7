import type { Crowd } from './crowd.ts';
import { outcomeNames, stage } from './population.ts';

/** One line that says where the crowd stands. O(people), once a second or two. */
export function progressLine(crowd: Crowd, elapsedMs: number): string {
  const { people, series } = crowd;
  const at = Math.max(0, Math.floor(elapsedMs / 1000) - 1);
  let waiting = 0;
  let buying = 0;
  for (let person = 0; person < people.size; person += 1) {
    const where = people.stage[person] ?? 0;
    if (where === stage.waiting) waiting += 1;
    else if (where > stage.waiting && where < stage.done) buying += 1;
  }
  const counts = people.outcomes();
  const done = outcomeNames
    .filter((name) => counts[name] > 0)
    .map((name) => `${name} ${format(counts[name])}`);
  return [
    `${Math.round(elapsedMs / 1000)}s`.padStart(5),
    `${format(crowd.arrived)} came`,
    `${format(waiting)} wait`,
    `${format(buying)} buy`,
    ...done,
    `${format(series.column('requests')[at] ?? 0)} req/s`,
    `${format(crowd.inFlight)} in flight`,
  ].join(' · ');
}

export function format(value: number): string {
  return value.toLocaleString('en-US');
}

/** Shows progress: rewrites one line on a terminal, prints plain lines into anything else. */
export class Progress {
  readonly #write: (text: string) => void;
  readonly #isTty: boolean;
  #open = false;
  #lines = 0;

  constructor(write: (text: string) => void, isTty: boolean) {
    this.#write = write;
    this.#isTty = isTty;
  }

  /** A remark that stays. */
  say(text: string): void {
    this.#write(`${this.#open ? '\r\u001B[K' : ''}${text}\n`);
    this.#open = false;
  }

  /** The state of things; on a terminal it replaces the one before. Called once a second. */
  show(text: string): void {
    this.#lines += 1;
    if (this.#isTty) {
      this.#write(`\r\u001B[K${text.slice(0, 158)}`);
      this.#open = true;
    } else if (this.#lines % 2 === 1) this.#write(`${text}\n`);
  }

  end(): void {
    if (this.#open) this.#write('\n');
    this.#open = false;
  }
}
