import { type FixedRefusal, refuse } from '../core/decision.ts';
import type { TimerHandle } from '../ports/clock.ts';
import type { Standing } from '../wire/standing.ts';
import type { GatewayContext } from './context.ts';
import { type Call, param, type RouteReply, type StreamTarget } from './route.ts';
import { doorPerson, standingOf } from './standing.ts';

/**
 * Standing as Server-Sent Events.
 *
 * A stream per waiting person would be a timer per person, and a million strings kept to compare. So
 * all streams share one timer, and each keeps its entry token and the last state it sent. A tick asks
 * the door by token, which is no store call, for a quarter of the streams: each is looked at once a
 * second, and no tick is a pause that anybody would notice. An event goes out when what a person
 * would act on has changed, and otherwise as a sign of life.
 */

const tickMs = 250;
/** Ticks in which every stream is looked at once. */
const ticksPerRound = 4;
/** A stream without an entry token costs a store read; it gets one this often, ms. */
const readEveryMs = 5_000;
/** An unchanged standing is sent again after this, so that proxies keep the connection. */
const aliveMs = 15_000;
/** Position updates are no faster than this, however the room moves. */
const paceMs = 2_000;
/** A reader who has not taken this many bytes is gone. */
const pendingMax = 16 * 1024;
/** What a browser should wait before it comes back, ms. */
const retryMs = 3_000;

const tooManyStreams: FixedRefusal = {
  decision: 'reject',
  stage: 'slot',
  code: 'SYSTEM_OVERLOADED',
  scope: 'system',
  reason: 'streams',
  detail: 'as many event streams are open as may be; poll instead',
};

interface Stream {
  readonly target: StreamTarget;
  readonly next: () => Standing | undefined;
  lastKey: string;
  lastSentUs: number;
  sequence: number;
}

/** All open streams of one gateway. */
export class StandingStreams {
  readonly #context: GatewayContext;
  readonly #streams = new Set<Stream>();
  #timer: TimerHandle | undefined;

  constructor(context: GatewayContext) {
    this.#context = context;
  }

  get open(): number {
    return this.#streams.size;
  }

  get full(): boolean {
    return this.#streams.size >= this.#context.deps.settings.maxStreams;
  }

  add(target: StreamTarget, first: Standing, next: () => Standing | undefined): void {
    const stream: Stream = { target, next, lastKey: '', lastSentUs: 0, sequence: 0 };
    this.#streams.add(stream);
    target.onClose(() => this.#remove(stream));
    target.start();
    target.write(`retry: ${retryMs}\n\n`);
    this.#send(stream, first);
    this.#timer ??= this.#context.deps.timers.every(tickMs, () => this.#tick());
  }

  closeAll(): void {
    for (const stream of this.#streams) stream.target.end();
    this.#streams.clear();
    this.#stop();
  }

  #tick(): void {
    const due = Math.ceil(this.#streams.size / ticksPerRound);
    let looked = 0;
    for (const stream of this.#streams) {
      if (looked >= due) return;
      looked += 1;
      // To the end of the line: a set is walked in the order of adding.
      this.#streams.delete(stream);
      this.#streams.add(stream);
      this.#look(stream);
    }
  }

  #look(stream: Stream): void {
    if (stream.target.pending > pendingMax) {
      stream.target.end();
      this.#remove(stream);
      return;
    }
    const standing = stream.next();
    if (standing === undefined) return;
    const waitedMs = (this.#context.deps.clock.monoUs() - stream.lastSentUs) / 1000;
    const due = waitedMs >= (standing.state === 'waiting' ? paceMs : aliveMs);
    if (due || keyOf(standing) !== stream.lastKey) this.#send(stream, standing);
  }

  #send(stream: Stream, standing: Standing): void {
    stream.sequence += 1;
    stream.lastKey = keyOf(standing);
    stream.lastSentUs = this.#context.deps.clock.monoUs();
    const data = JSON.stringify(standing);
    stream.target.write(`id: ${stream.sequence}\nevent: standing\ndata: ${data}\n\n`);
  }

  #remove(stream: Stream): void {
    this.#streams.delete(stream);
    if (this.#streams.size === 0) this.#stop();
  }

  #stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }
}

/** What a person would act on: a change of it is told at once. */
function keyOf(standing: Standing): string {
  return `${standing.state} ${standing.sell_through} ${standing.claim_before ?? ''}`;
}

const streamsOf = new WeakMap<GatewayContext, StandingStreams>();

/** The streams of a gateway, made on first use. */
export function streamsFor(context: GatewayContext): StandingStreams {
  let streams = streamsOf.get(context);
  if (streams === undefined) {
    streams = new StandingStreams(context);
    streamsOf.set(context, streams);
  }
  return streams;
}

export async function standingEvents(call: Call): Promise<RouteReply> {
  const { context } = call;
  const streams = streamsFor(context);
  if (streams.full) return refuse(tooManyStreams, 2_000);
  const found = await standingOf(call);
  if ('decision' in found) return found;
  const next = nextByToken(call) ?? nextByPerson(call, found.standing);
  return { stream: (target) => streams.add(target, found.standing, next) };
}

/** Undefined when the token cannot answer (there is none, or it does not hold). */
function nextByToken(call: Call): (() => Standing | undefined) | undefined {
  const { door } = call.context.deps;
  const activityId = param(call, 'activity_id');
  const token = call.credentials.entryToken;
  if (token === undefined) return undefined;
  const ask = (): Standing | undefined => {
    const result = door.standingByToken(activityId, token);
    return result.kind === 'standing' ? result.standing : undefined;
  };
  return ask() === undefined ? undefined : ask;
}

/** By identity: what the last store read said, and a new read when it has aged. */
function nextByPerson(call: Call, first: Standing): () => Standing | undefined {
  const { door, clock, log } = call.context.deps;
  const activityId = param(call, 'activity_id');
  const person = doorPerson(call);
  let latest: Standing = first;
  let readUs = clock.monoUs();
  let reading = false;
  return () => {
    if (!reading && clock.monoUs() - readUs >= readEveryMs * 1000) {
      reading = true;
      door
        .standingByPerson(activityId, person)
        .then(
          (result) => {
            if (result.kind === 'standing') latest = result.standing;
          },
          (error: unknown) => log.warn('standing_read_failed', { error: String(error) }),
        )
        .finally(() => {
          reading = false;
          readUs = clock.monoUs();
        });
    }
    return latest;
  };
}
