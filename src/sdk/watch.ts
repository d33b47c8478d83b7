import type { Standing } from '../wire/standing.ts';
import type { ClientEnvironment, EventStream } from './environment.ts';
import { retryHintMs } from './transport.ts';

/**
 * Follows one person's standing at the pace that the server gives.
 *
 * Events where they work, polls where they do not. A hidden tab keeps no stream and asks rarely;
 * coming back, it asks soon but not at once, so that a million phones unlocked by the same push
 * message do not all ask in the same second. A refusal's hint is obeyed, a failure backs off with
 * full jitter, and a final state ends it.
 */
export interface WatchOptions {
  /** `…/entries/me`; the event stream is at the same address with `/events`. */
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  onStanding(standing: Standing): void;
  /** The link is lost (`false`) or works again (`true`). */
  onLink?(alive: boolean): void;
  /** There is no such entry, or the person is not known here any more. */
  onGone?(): void;
}

export interface Watch {
  stop(): void;
}

/** Errors in a row after which the stream is given up for polls. */
const streamErrorsMax = 3;
/** Polls after which a given-up stream is tried again. */
const pollsBeforeStream = 20;
/** A hidden tab asks this many times more rarely, and never more often than this, ms. */
const hiddenFactor = 4;
const hiddenFloorMs = 15_000;
/** Asking again on return is spread over this, ms. */
const returnSpreadMs = 1_500;
/** Backoff after failures, ms. */
const backoffBaseMs = 1_000;
const backoffCapMs = 30_000;
/** Added to a pace given by the server, as a share of it. */
const paceJitter = 0.2;
/** The server's pace is kept inside this, ms. */
const paceMinMs = 250;
const paceMaxMs = 10 * 60_000;

const finalStates: readonly Standing['state'][] = ['left', 'closed', 'not_drawn'];

export function watchStanding(env: ClientEnvironment, options: WatchOptions): Watch {
  let stopped = false;
  let stream: EventStream | undefined;
  let cancelTimer: (() => void) | undefined;
  let streamErrors = 0;
  let pollsLeft = 0;
  let failures = 0;
  let flight: AbortController | undefined;

  const later = (delayMs: number, run: () => void): void => {
    cancelTimer?.();
    cancelTimer = env.after(delayMs, run);
  };
  const closeStream = (): void => {
    stream?.close();
    stream = undefined;
  };
  const finish = (): void => {
    stopped = true;
    cancelTimer?.();
    flight?.abort();
    closeStream();
    stopVisibility();
  };
  const take = (standing: Standing): void => {
    failures = 0;
    options.onLink?.(true);
    options.onStanding(standing);
    if (finalStates.includes(standing.state)) finish();
  };

  const paceOf = (standing: Standing): number => {
    const given = Math.min(paceMaxMs, Math.max(paceMinMs, standing.next_poll_after_ms));
    const spread = given * (1 + paceJitter * env.random());
    return env.hidden() ? Math.max(hiddenFloorMs, spread * hiddenFactor) : spread;
  };

  const openStream = (): void => {
    if (env.events === undefined) return poll();
    const opened = env.events(`${options.url}/events`);
    stream = opened;
    opened.onEvent('standing', (data) => {
      if (stopped || stream !== opened) return;
      streamErrors = 0;
      const standing = parse(data);
      if (standing !== undefined) take(standing);
    });
    opened.onError(() => {
      if (stopped || stream !== opened) return;
      streamErrors += 1;
      options.onLink?.(false);
      if (!opened.closed() && streamErrors < streamErrorsMax) return;
      closeStream();
      pollsLeft = pollsBeforeStream;
      later(backoff(), poll);
    });
  };

  /** Full jitter over a doubling bound, and never at once. */
  const backoff = (): number => {
    const bound = Math.min(backoffCapMs, backoffBaseMs * 2 ** Math.min(failures, 10));
    failures += 1;
    return backoffBaseMs / 4 + env.random() * bound;
  };

  const proceed = (): void => {
    if (stopped) return;
    if (!env.hidden() && env.events !== undefined && pollsLeft <= 0) {
      streamErrors = 0;
      openStream();
    } else poll();
  };

  const poll = (): void => {
    flight?.abort();
    const mine = new AbortController();
    flight = mine;
    pollsLeft -= 1;
    ask(mine).then(
      (delayMs) => {
        if (!stopped && flight === mine && delayMs !== undefined) later(delayMs, proceed);
      },
      () => {
        if (stopped || flight !== mine) return;
        options.onLink?.(false);
        later(backoff(), proceed);
      },
    );
  };

  /** One poll; answers when to ask again, or undefined when it is over. */
  const ask = async (mine: AbortController): Promise<number | undefined> => {
    const reply = await env.fetch(options.url, {
      method: 'GET',
      headers: { accept: 'application/json', ...options.headers },
      signal: mine.signal,
    });
    const body = await reply.json();
    if (stopped || flight !== mine) return undefined;
    if (reply.status === 404 || reply.status === 401) {
      finish();
      options.onGone?.();
      return undefined;
    }
    const standing = reply.status === 200 ? asStanding(body) : undefined;
    if (standing === undefined) {
      options.onLink?.(false);
      return retryHintMs(reply, body) + backoff();
    }
    take(standing);
    return paceOf(standing);
  };

  const stopVisibility = env.onVisibility(() => {
    if (stopped) return;
    if (env.hidden()) {
      if (stream === undefined) return;
      closeStream();
      later(hiddenFloorMs * (1 + env.random()), proceed);
    } else if (stream === undefined) {
      later(env.random() * returnSpreadMs, () => {
        pollsLeft = Math.min(pollsLeft, 0);
        poll();
      });
    }
  });

  proceed();
  return { stop: finish };
}

function parse(data: string): Standing | undefined {
  try {
    return asStanding(JSON.parse(data));
  } catch {
    // A cut-off event: the next one, or the next poll, tells the same and more.
    return undefined;
  }
}

function asStanding(value: unknown): Standing | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const fields = value as Partial<Standing>;
  return typeof fields.state === 'string' && typeof fields.next_poll_after_ms === 'number'
    ? (value as Standing)
    : undefined;
}
