import type { Clock, TimerHandle, Timers } from '../../ports/clock.ts';
import type { Arrivals } from './arrivals.ts';
import { Bots } from './bots.ts';
import { Buyer } from './buyer.ts';
import { Dice, question } from './dice.ts';
import type { Dossier } from './dossier.ts';
import { HttpPool, poolLimitsDefault } from './http-pool.ts';
import type { FailureReason, PoolLimits } from './http-pool.ts';
import { Population, stage, trait } from './population.ts';
import type { Reply } from './reply-parser.ts';
import { RequestWriter } from './requests.ts';
import type { CallKind } from './requests.ts';
import { bodyOf, passIn, textIn } from './scene.ts';
import type { CrowdCall, Scene, StolenPass, Task } from './scene.ts';
import type { Scenario } from './scenarios.ts';
import { Series } from './series.ts';
import { TaskHeap } from './task-heap.ts';
import { Visitor } from './visitor.ts';
import { Wheel } from './wheel.ts';
import { Witness } from './witness.ts';

/** An arrival that begins later than this after its instant was not started: the open model broke. */
export const arrivalToleranceMs = 500;

export interface CrowdPlan {
  readonly origin: URL;
  readonly activityId: string;
  /** SKUs in the order of their popularity. */
  readonly skus: readonly { readonly skuId: string; readonly maxPerPerson: number }[];
  readonly scenario: Scenario;
  readonly arrivals: Arrivals;
  readonly people: number;
  readonly seed: number;
  readonly limits?: Partial<PoolLimits>;
}

/**
 * The crowd: an open model. Arrivals come from a schedule made beforehand and are started at their
 * instant whatever the server does; each person then goes at their own pace.
 *
 * One loop, every two milliseconds: start the arrivals that are due, turn the wheel of wake-ups, run
 * side tasks. Answers are handled as they come. Nothing waits, and nothing exists per person beyond
 * a row of the population, until the person holds a pass.
 */
export class Crowd implements Scene {
  readonly people: Population;
  readonly dice: Dice;
  readonly seed: number;
  readonly scenario: Scenario;
  readonly witness: Witness;
  readonly series: Series;
  readonly writer: RequestWriter;
  readonly dossiers = new Map<number, Dossier>();
  readonly stolen: StolenPass[] = [];
  readonly startMs: number;
  closing = false;
  /** Arrivals begun within the tolerance, and those that were not. */
  arrivalsStarted = 0;
  arrivalsLate = 0;
  worstLatenessMs = 0;
  /** Longest time between two turns of the loop: how long this process was not served, or busy. */
  worstTurnGapMs = 0;
  readonly #plan: CrowdPlan;
  readonly #clock: Clock;
  readonly #timers: Timers;
  readonly #pool: HttpPool<CallKind>;
  readonly #wheel: Wheel;
  readonly #tasks = new TaskHeap<Task>();
  readonly #visitor: Visitor;
  readonly #buyer: Buyer;
  readonly #bots: Bots;
  #nextArrival = 0;
  #loop: TimerHandle | undefined;
  #lastPoolTickMs = 0;
  #lastTurnMs = 0;
  #noiseSent = 0;
  readonly #arrivedAlready: Uint8Array;

  constructor(plan: CrowdPlan, clock: Clock, timers: Timers) {
    this.#plan = plan;
    this.#clock = clock;
    this.#timers = timers;
    this.seed = plan.seed;
    this.scenario = plan.scenario;
    this.dice = new Dice(plan.seed);
    this.people = new Population(plan.people, plan.scenario, plan.arrivals, this.dice);
    this.startMs = this.now();
    this.series = new Series(this.startMs);
    const limits = new Map(plan.skus.map(({ skuId, maxPerPerson }) => [skuId, maxPerPerson]));
    this.witness = new Witness(this.series, (skuId) => limits.get(skuId) ?? 1);
    this.writer = new RequestWriter(plan.origin, plan.activityId, this.people);
    this.#wheel = new Wheel(plan.people, this.startMs);
    this.#arrivedAlready = new Uint8Array(plan.people);
    this.#pool = new HttpPool<CallKind>(
      plan.origin,
      { ...poolLimitsDefault, ...plan.limits },
      {
        begun: (call, nowMs) => this.#begun(call, nowMs),
        replied: (call, reply, nowMs) => this.#replied(call, reply, nowMs),
        failed: (call, reason, nowMs) => this.#failed(call, reason, nowMs),
      },
      clock,
    );
    this.#visitor = new Visitor(this, (dossier) => this.#buyer.begin(dossier));
    this.#bots = new Bots(this);
    this.#buyer = new Buyer(this, this.#visitor, (dossier) => this.#bots.hasPass(dossier));
    this.#dealSkus();
  }

  start(): void {
    this.#loop = this.#timers.every(2, () => this.#turn());
  }

  /** Cuts every connection and stops the loop. */
  stop(): void {
    this.#loop?.cancel();
    this.#pool.close();
  }

  get inFlight(): number {
    return this.#pool.inFlight;
  }

  get connections(): number {
    return this.#pool.connections;
  }

  /** Arrivals whose instant has come. */
  get arrived(): number {
    return this.#nextArrival;
  }

  /** Grows whenever anybody gets further: admitted, reserved, ordered, paid, or done. */
  get steps(): number {
    const { series, people } = this;
    const counted = (['admitted', 'reserved', 'ordered', 'paid'] as const).map((name) =>
      series.total(name),
    );
    return counted.reduce((sum, count) => sum + count, people.settled);
  }

  /** Nothing is pending: no wake-up, no request, no side task. */
  get idle(): boolean {
    return (
      this.#nextArrival >= this.#plan.people &&
      this.#wheel.pending === 0 &&
      this.#tasks.size === 0 &&
      this.#pool.inFlight === 0 &&
      this.#pool.waiting === 0
    );
  }

  now(): number {
    return this.#clock.monoUs() / 1000;
  }

  skuOf(person: number): string {
    return this.#plan.skus[this.people.sku[person] ?? 0]?.skuId ?? '';
  }

  send(kind: CallKind, person: number, detail: number, text: string): CrowdCall {
    if (this.people.kind(person) === 'rotator') {
      this.people.used[person] = ((this.people.used[person] ?? 0) + 1) % 60_000;
    }
    const now = this.now();
    const call: CrowdCall = {
      kind,
      person,
      detail,
      text,
      dueMs: now,
      sentMs: 0,
      begun: false,
      settled: false,
    };
    this.series.add('requests', now);
    this.#pool.send(call);
    return call;
  }

  abandon(call: CrowdCall): void {
    this.#pool.abandon(call);
  }

  wake(person: number, afterMs: number): void {
    this.#wheel.set(person, this.now() + afterMs);
  }

  later(afterMs: number, task: Task): void {
    this.#tasks.push(this.now() + afterMs, task);
  }

  /** Asks what became of a request, on its person's behalf. */
  ask(dossier: Dossier, index: number): void {
    this.#buyer.ask(dossier, index);
  }

  #dealSkus(): void {
    const { skus, scenario } = this.#plan;
    if (skus.length < 2) return;
    const weights = skus.map((_, at) => 1 / (at + 1) ** scenario.skew);
    const total = weights.reduce((sum, weight) => sum + weight, 0);
    for (let person = 0; person < this.people.size; person += 1) {
      let left = this.dice.roll(person, question.sku) * total;
      let at = 0;
      while (at < weights.length - 1 && left >= (weights[at] ?? 0)) {
        left -= weights[at] ?? 0;
        at += 1;
      }
      this.people.sku[person] = at;
    }
  }

  #turn(): void {
    const now = this.now();
    if (this.#lastTurnMs > 0) {
      this.worstTurnGapMs = Math.max(this.worstTurnGapMs, now - this.#lastTurnMs);
    }
    this.#lastTurnMs = now;
    while (
      this.#nextArrival < this.#plan.people &&
      this.startMs + this.people.arrivalMs(this.#nextArrival) <= now
    ) {
      const person = this.#nextArrival;
      this.#nextArrival += 1;
      this.#arrive(person, now);
    }
    this.#wheel.turn(now, (person) => this.#wake(person));
    for (;;) {
      const task = this.#tasks.popDue(now);
      if (task === undefined) break;
      if (task.kind === 'attack') this.#bots.task(task);
      else this.#buyer.task(task);
    }
    this.#noise(now);
    this.series.peak('in_flight', now, this.#pool.inFlight);
    if (now - this.#lastPoolTickMs >= 50) {
      this.#lastPoolTickMs = now;
      this.#pool.tick();
    }
  }

  #arrive(person: number, now: number): void {
    this.series.add('arrivals', now);
    const { people, dice } = this;
    if (people.has(person, trait.impatient)) {
      people.quitAtMs[person] = now + dice.between(person, question.patience, 2_000, 20_000);
    }
    this.#wake(person);
  }

  #wake(person: number): void {
    const where = this.people.stage[person] ?? stage.done;
    if (where === stage.done) return;
    if (this.#bots.attacks(person)) this.#bots.wake(person);
    else if (where <= stage.pass) this.#visitor.wake(person);
    else this.#buyer.wake(person);
  }

  /** The loud user: person 0 asks for their standing, again and again, on top of all else. */
  #noise(now: number): void {
    const perSecond = this.scenario.loudPerSecond;
    if (perSecond === 0 || this.closing || this.people.entryToken(0) === '') return;
    const wanted = Math.floor(((now - this.startMs) / 1000) * perSecond);
    // After a stall the missed noise is not made up for.
    this.#noiseSent = Math.max(this.#noiseSent, wanted - perSecond);
    while (this.#noiseSent < wanted) {
      this.#noiseSent += 1;
      this.send('noise', 0, 0, this.writer.poll(0));
    }
  }

  #begun(call: CrowdCall, nowMs: number): void {
    if (this.#arrivedAlready[call.person] === 1) return;
    this.#arrivedAlready[call.person] = 1;
    const lateMs = nowMs - this.startMs - this.people.arrivalMs(call.person);
    if (lateMs > this.worstLatenessMs) this.worstLatenessMs = lateMs;
    if (lateMs <= arrivalToleranceMs) this.arrivalsStarted += 1;
    else this.arrivalsLate += 1;
  }

  #replied(call: CrowdCall, reply: Reply, nowMs: number): void {
    this.#measure(call, reply, nowMs);
    const { person } = call;
    if (call.kind === 'noise' || call.kind === 'leave') return;
    if (call.kind === 'attack') {
      this.#bots.over(call, reply);
      return;
    }
    if (call.kind === 'submit') {
      this.#buyer.submitReplied(call, reply);
      return;
    }
    if (call.kind === 'status') {
      this.#buyer.statusReplied(call, reply);
      return;
    }
    if (call.kind === 'pass' && call.detail > 0) {
      const pass = reply.status === 200 ? passIn(bodyOf(reply)) : undefined;
      this.#buyer.secondPassReplied(call, pass);
      return;
    }
    if (this.people.stage[person] === stage.done) return;
    if (call.kind === 'pay' || call.kind === 'cancel') this.#buyer.payReplied(call, reply);
    else this.#visitor.replied(call, reply);
  }

  #failed(call: CrowdCall, reason: FailureReason, nowMs: number): void {
    this.series.add('failures', nowMs);
    this.witness.answered(call.kind, 0, reason);
    if (call.kind === 'noise' || call.kind === 'leave') return;
    if (call.kind === 'attack') {
      this.#bots.over(call, undefined);
      return;
    }
    if (call.kind === 'pass' && call.detail > 0) {
      this.#buyer.secondPassReplied(call, undefined);
      return;
    }
    const buying = call.kind === 'submit' || call.kind === 'status';
    if (!buying && this.people.stage[call.person] === stage.done) return;
    if (buying || call.kind === 'pay' || call.kind === 'cancel') this.#buyer.failed(call);
    else this.#visitor.failed(call, reason);
  }

  #measure(call: CrowdCall, reply: Reply, nowMs: number): void {
    const { kind } = call;
    const latencyMs = nowMs - call.dueMs;
    const code = kind === 'poll' && reply.status === 200 ? '' : textIn(bodyOf(reply), 'code');
    this.witness.answered(kind, reply.status, code);
    if (reply.status >= 400 || code === 'SECKILL_SOLD_OUT') {
      this.series.add('refused', nowMs);
      this.witness.refusedMs.record(latencyMs);
    } else if (kind === 'submit') this.witness.admittedMs.record(latencyMs);
    else if (kind === 'poll') this.witness.pollMs.record(latencyMs);
  }
}
