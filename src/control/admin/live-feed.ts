import type { ServerResponse } from 'node:http';
import type { TimerHandle } from '../../ports/clock.ts';
import type { AdminDeps } from './deps.ts';
import { History, limitedShare } from './history.ts';
import type { Overview } from './source.ts';
import { toWire } from './wire.ts';

/** Open streams at a time: an operator's room full of screens. */
export const streamsMax = 32;

/** Bytes that a slow screen may leave unread before its stream is cut; it comes back by itself. */
const unreadMax = 1024 * 1024;

/** The 429 share is told over so many seconds. */
const shareSeconds = 60;

const tickMs = 1_000;

interface Stream {
  readonly out: ServerResponse;
  readonly stillAllowed: () => boolean;
}

/**
 * One overview a second, taken once however many screens watch, kept as history, written to all.
 * A source that fails costs a second, not the feed.
 */
export class LiveFeed {
  readonly history = new History();
  readonly #deps: Pick<AdminDeps, 'source' | 'timers' | 'log'>;
  readonly #streams = new Set<Stream>();
  #timer: TimerHandle | undefined;
  #last: Overview | undefined;
  #troubled = false;

  constructor(deps: Pick<AdminDeps, 'source' | 'timers' | 'log'>) {
    this.#deps = deps;
  }

  start(): void {
    this.tick();
    this.#timer ??= this.#deps.timers.every(tickMs, () => this.tick());
  }

  /** The last overview as the wire has it, with what is made of the history. */
  current(): unknown {
    if (this.#last === undefined) return undefined;
    return {
      ...(toWire(this.#last) as object),
      limited_share: limitedShare(this.history.points, shareSeconds),
    };
  }

  get streams(): number {
    return this.#streams.size;
  }

  tick(): void {
    let overview: Overview;
    try {
      overview = this.#deps.source.overview();
    } catch (error) {
      if (!this.#troubled)
        this.#deps.log.error('admin_overview_failed', {
          error: error instanceof Error ? error.message : String(error),
        });
      this.#troubled = true;
      return;
    }
    this.#troubled = false;
    this.#last = overview;
    const point = this.history.add(overview);
    if (this.#streams.size === 0) return;
    const data = JSON.stringify({
      overview: this.current(),
      point: point === undefined ? null : toWire(point),
      reasons: this.history.reasons,
    });
    for (const stream of this.#streams) {
      if (!stream.stillAllowed() || stream.out.writableLength > unreadMax) this.#cut(stream);
      else stream.out.write(`event: overview\ndata: ${data}\n\n`);
    }
  }

  /** False when there are too many already. */
  add(out: ServerResponse, stillAllowed: () => boolean): boolean {
    if (this.#streams.size >= streamsMax) return false;
    const stream = { out, stillAllowed };
    this.#streams.add(stream);
    out.on('close', () => this.#streams.delete(stream));
    out.write('retry: 2000\n\n');
    return true;
  }

  close(): void {
    this.#timer?.cancel();
    for (const stream of this.#streams) this.#cut(stream);
  }

  #cut(stream: Stream): void {
    this.#streams.delete(stream);
    stream.out.destroy();
  }
}
