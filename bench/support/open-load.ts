import { connect, type Socket } from 'node:net';
import { measure } from './http-load.ts';

/**
 * An open load: people come when they come, whether or not those before them have been answered. Times
 * are counted from the moment at which a request was due, so that a generator that falls behind, or a
 * server that makes it wait, is not forgiven (coordinated omission).
 *
 * Some people come back. A share of them, refused or not answered in time, asks the same again after a
 * wait, until they are served or have tried often enough; each person is served once.
 */
export interface OpenPlan {
  readonly durationMs: number;
  /** People per second at this instant of the run. */
  readonly perSecond: (atMs: number) => number;
  readonly requests: readonly Buffer[];
  /** Share of people who come back, 0…1; how often at most; and after how long, ms. */
  readonly retriers: number;
  readonly retriesMax: number;
  readonly retryAfterMs: (attempt: number, draw: () => number) => number;
  /**
   * Connections of the crowd, all opened before the run: what the kernel can do of handshakes is not
   * what is measured. Who finds none waits for one, no longer than for an answer; who gives up leaves
   * the connection to its answer.
   */
  readonly sockets: number;
  /** What must always work, at a steady pace. */
  readonly vital: readonly Buffer[];
  readonly vitalPerSecond: number;
  /** Called once at these instants of the run, for what changes in between. */
  readonly at?: readonly { readonly ms: number; readonly run: () => void }[];
}

export interface OpenResult {
  readonly people: number;
  readonly attempts: number;
  /** Answers 202 in time, of one measured part of the run. */
  readonly served: number;
  readonly refused: number;
  readonly late: number;
  readonly broken: number;
  /** Of those served, ms. */
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly vitalAsked: number;
  readonly vitalServed: number;
  /** Served, and attempts, in each tenth of a second of the whole run. */
  readonly servedPerTenth: readonly number[];
  readonly attemptsPerTenth: readonly number[];
  /** By how much the generator itself was late to ask: 99th percentile, ms. */
  readonly latenessP99Ms: number;
  /** Share of asks that it began more than `lateMs` after they were due. */
  readonly lateShare: number;
}

/** A generator that begins an ask later than this, ms, has missed it. */
export const lateMs = 50;
/** With more than this share of asks missed, what was measured is the generator. */
export const lateShareMax = 0.001;

/** A person waits so long for an answer, ms. */
export const patienceMs = 1_000;
/** Connections of those whose requests must always work: a crowd in front of the door does not hold theirs. */
const vitalSockets = 100;
/** A connection without an answer for so long, ms, is given up. */
const abandonMs = 5_000;
const tenthMs = 100;
const stepMs = 2;
/** Answers of people who came at the end are waited for. */
const drainMs = patienceMs + 200;

interface Asking {
  readonly bytes: Buffer;
  readonly dueMs: number;
  readonly attempt: number;
  readonly isVital: boolean;
  readonly comesBack: boolean;
  /** The person has given up. */
  isOver: boolean;
}

export class OpenLoad {
  readonly #plan: OpenPlan;
  readonly #measuredFromMs: number;
  readonly #crowd: Lanes;
  readonly #vital: Lanes;
  #random: number;
  #startMs = 0;
  #people = 0;
  #attempts = 0;
  #served = 0;
  #refused = 0;
  #late = 0;
  #broken = 0;
  #vitalAsked = 0;
  #vitalServed = 0;
  readonly #latencies: number[] = [];
  readonly #lateness: number[] = [];
  readonly #servedPerTenth: number[] = [];
  readonly #attemptsPerTenth: number[] = [];

  /** @param measuredFromMs what is due before is warm-up, and only in the series */
  constructor(port: number, plan: OpenPlan, measuredFromMs: number, seed = 1) {
    this.#plan = plan;
    const ended = (asking: Asking, status: number): void => this.#ended(asking, status);
    this.#crowd = new Lanes(port, plan.sockets, ended);
    this.#vital = new Lanes(port, Math.min(plan.sockets, vitalSockets), ended);
    this.#measuredFromMs = measuredFromMs;
    this.#random = seed * 2_654_435_761;
  }

  async run(): Promise<OpenResult> {
    await Promise.all([this.#crowd.warmUp(), this.#vital.warmUp()]);
    const {
      durationMs,
      perSecond,
      requests,
      vital,
      vitalPerSecond,
      retriers,
      at = [],
    } = this.#plan;
    this.#startMs = performance.now();
    let nextMs = 0;
    let nextVitalMs = 0;
    let next = 0;
    let nextVital = 0;
    let events = [...at];
    for (;;) {
      const nowMs = this.#nowMs();
      if (nowMs >= durationMs) break;
      for (const event of events.filter(({ ms }) => ms <= nowMs)) event.run();
      events = events.filter(({ ms }) => ms > nowMs);
      while (nextMs <= nowMs) {
        const comesBack = this.#draw() < retriers;
        if (nextMs >= this.#measuredFromMs) {
          this.#people += 1;
          this.#lateness.push(this.#nowMs() - nextMs);
        }
        this.#ask(requests[next % requests.length], nextMs, 0, false, comesBack);
        next += 1;
        nextMs += (-Math.log(1 - this.#draw()) * 1000) / Math.max(1e-6, perSecond(nextMs));
      }
      while (vitalPerSecond > 0 && nextVitalMs <= nowMs) {
        this.#ask(vital[nextVital % vital.length], nextVitalMs, 0, true, false);
        nextVital += 1;
        nextVitalMs += 1000 / vitalPerSecond;
      }
      this.#crowd.giveUp(nowMs);
      this.#vital.giveUp(nowMs);
      await new Promise((resolve) => setTimeout(resolve, stepMs));
    }
    const endMs = this.#nowMs() + drainMs;
    while (this.#nowMs() < endMs) {
      this.#crowd.giveUp(this.#nowMs());
      this.#vital.giveUp(this.#nowMs());
      await new Promise((resolve) => setTimeout(resolve, stepMs));
    }
    this.#crowd.destroy();
    this.#vital.destroy();
    const latencies = this.#latencies.toSorted((a, b) => a - b);
    const lateness = this.#lateness.toSorted((a, b) => a - b);
    const quantile = (sorted: readonly number[], q: number): number =>
      sorted[Math.floor(q * (sorted.length - 1))] ?? Number.NaN;
    return {
      people: this.#people,
      attempts: this.#attempts,
      served: this.#served,
      refused: this.#refused,
      late: this.#late,
      broken: this.#broken,
      p50Ms: quantile(latencies, 0.5),
      p99Ms: quantile(latencies, 0.99),
      vitalAsked: this.#vitalAsked,
      vitalServed: this.#vitalServed,
      servedPerTenth: Array.from(this.#servedPerTenth, (count) => count ?? 0),
      attemptsPerTenth: Array.from(this.#attemptsPerTenth, (count) => count ?? 0),
      latenessP99Ms: quantile(lateness, 0.99),
      lateShare: lateness.filter((ms) => ms > lateMs).length / Math.max(1, lateness.length),
    };
  }

  #ask(
    bytes: Buffer | undefined,
    dueMs: number,
    attempt: number,
    isVital: boolean,
    comesBack: boolean,
  ): void {
    if (bytes === undefined) throw new Error('no request is prepared');
    const asking: Asking = { bytes, dueMs, attempt, isVital, comesBack, isOver: false };
    if (!isVital) {
      this.#tick(this.#attemptsPerTenth, dueMs);
      if (dueMs >= this.#measuredFromMs) this.#attempts += 1;
    } else if (dueMs >= this.#measuredFromMs) this.#vitalAsked += 1;
    (isVital ? this.#vital : this.#crowd).push(asking);
  }

  #ended(asking: Asking, status: number): void {
    const nowMs = this.#nowMs();
    const tookMs = nowMs - asking.dueMs;
    const isMeasured = asking.dueMs >= this.#measuredFromMs;
    const isGood = tookMs <= patienceMs && (status === 202 || (asking.isVital && status === 200));
    if (asking.isVital) {
      if (isMeasured && isGood) this.#vitalServed += 1;
      return;
    }
    if (isGood) {
      this.#tick(this.#servedPerTenth, nowMs);
      if (!isMeasured || asking.dueMs >= this.#plan.durationMs) return;
      this.#served += 1;
      this.#latencies.push(tookMs);
      return;
    }
    if (isMeasured) {
      if (status >= 400) this.#refused += 1;
      else if (status === 0) this.#broken += 1;
      else this.#late += 1;
    }
    if (!asking.comesBack || asking.attempt >= this.#plan.retriesMax) return;
    const waitMs = this.#plan.retryAfterMs(asking.attempt, () => this.#draw());
    setTimeout(() => {
      const dueMs = this.#nowMs();
      if (dueMs < this.#plan.durationMs) {
        this.#ask(asking.bytes, dueMs, asking.attempt + 1, false, true);
      }
    }, waitMs);
  }

  #tick(series: number[], atMs: number): void {
    const at = Math.max(0, Math.floor(atMs / tenthMs));
    while (series.length <= at) series.push(0);
    series[at] = (series[at] ?? 0) + 1;
  }

  #nowMs(): number {
    return performance.now() - this.#startMs;
  }

  /** xorshift32: the same people in every run. */
  #draw(): number {
    let x = this.#random | 0 || 1;
    x ^= x << 13;
    x ^= x >>> 17;
    x ^= x << 5;
    this.#random = x;
    return (x >>> 0) / 2 ** 32;
  }
}

/** Connections, and who waits for one. */
class Lanes {
  readonly #port: number;
  readonly #most: number;
  readonly #ended: (asking: Asking, status: number) => void;
  readonly #free: Lane[] = [];
  readonly #busy = new Set<Lane>();
  /** Who waits, from `#lineAt` on. */
  readonly #line: Asking[] = [];
  #lineAt = 0;

  constructor(port: number, most: number, ended: (asking: Asking, status: number) => void) {
    this.#port = port;
    this.#most = most;
    this.#ended = ended;
  }

  async warmUp(): Promise<void> {
    while (this.#free.length < this.#most) {
      const missing = this.#most - this.#free.length;
      const lanes = Array.from({ length: Math.min(50, missing) }, () => this.#open());
      for (const lane of lanes) await lane?.connected;
      this.#free.push(...lanes.filter((lane) => lane !== undefined));
    }
  }

  push(asking: Asking): void {
    this.#line.push(asking);
    this.#serve();
  }

  /** Who has waited long enough gives up. */
  giveUp(nowMs: number): void {
    for (const lane of this.#busy) {
      const { asking } = lane;
      if (asking === undefined) continue;
      // In order of sending: the first that is young enough ends the look.
      if (nowMs - asking.dueMs < patienceMs) break;
      if (!asking.isOver) {
        asking.isOver = true;
        this.#ended(asking, 1);
      }
      if (nowMs - asking.dueMs >= abandonMs) {
        this.#busy.delete(lane);
        lane.abandon();
      }
    }
    for (; this.#lineAt < this.#line.length; this.#lineAt += 1) {
      const asking = this.#line[this.#lineAt];
      if (asking === undefined || nowMs - asking.dueMs < patienceMs) break;
      this.#ended(asking, 1);
    }
    this.#serve();
  }

  destroy(): void {
    for (const lane of [...this.#free, ...this.#busy]) lane.abandon();
  }

  #serve(): void {
    while (this.#lineAt < this.#line.length) {
      // In turn, so that none is idle long enough to be closed.
      const lane = this.#free.shift() ?? this.#open();
      if (lane === undefined) return;
      const asking = this.#line[this.#lineAt];
      this.#lineAt += 1;
      if (asking === undefined) continue;
      this.#busy.add(lane);
      lane.send(asking);
    }
    this.#line.length = 0;
    this.#lineAt = 0;
  }

  #open(): Lane | undefined {
    if (this.#busy.size + this.#free.length >= this.#most) return undefined;
    return new Lane(this.#port, (lane, asking, status) => {
      this.#busy.delete(lane);
      if (status > 0) this.#free.push(lane);
      else {
        const at = this.#free.indexOf(lane);
        if (at >= 0) this.#free.splice(at, 1);
      }
      if (asking !== undefined && !asking.isOver) this.#ended(asking, status);
      this.#serve();
    });
  }
}

/** Bytes of one answer at most. */
const answerMax = 32 * 1024;

/** One connection with at most one request on it. Status 0: it broke. */
class Lane {
  asking: Asking | undefined;
  readonly connected: Promise<void>;
  readonly #socket: Socket;
  readonly #done: (lane: Lane, asking: Asking | undefined, status: number) => void;
  #bytes: Buffer = Buffer.alloc(0);
  #gone = false;

  constructor(
    port: number,
    done: (lane: Lane, asking: Asking | undefined, status: number) => void,
  ) {
    this.#done = done;
    this.#socket = connect({ port, host: '127.0.0.1', noDelay: true });
    this.#socket.on('data', (part) => this.#read(part));
    this.#socket.on('error', () => undefined);
    this.connected = new Promise((resolve) => {
      this.#socket.once('connect', () => resolve());
      this.#socket.once('close', () => resolve());
    });
    this.#socket.on('close', () => {
      if (this.#gone) return;
      this.#gone = true;
      const { asking } = this;
      this.asking = undefined;
      this.#done(this, asking, 0);
    });
  }

  send(asking: Asking): void {
    this.asking = asking;
    this.#socket.write(asking.bytes);
  }

  /** Hangs up; nothing more is told of it. */
  abandon(): void {
    this.#gone = true;
    this.asking = undefined;
    this.#socket.destroy();
  }

  #read(part: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? part : Buffer.concat([this.#bytes, part]);
    if (this.#bytes.length > answerMax) throw new Error(`an answer past ${answerMax} bytes`);
    const answer = measure(this.#bytes);
    if (answer === undefined || this.#gone) return;
    this.#bytes = this.#bytes.subarray(answer.length);
    const { asking } = this;
    if (asking === undefined) {
      // The server's last word on a connection that asked nothing.
      this.#socket.destroy();
      return;
    }
    this.asking = undefined;
    this.#done(this, asking, answer.status);
  }
}
