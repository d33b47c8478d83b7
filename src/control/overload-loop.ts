import { type AdaptiveSwitch, InflightSlots } from '../core/overload/inflight.ts';
import {
  beginRamp,
  budgetShare,
  type HardTrip,
  initialMode,
  type Mode,
  modeDefaults,
  modeInForce,
  type ModeSettings,
  type ModeState,
  type Pin,
  pinMode,
  stepMode,
} from '../core/overload/mode.ts';
import {
  type Priority,
  PriorityBudget,
  rotationMs,
  rotationPoint,
} from '../core/overload/priority.ts';
import { SignalBoard, type SignalMarks, type WorstSignal } from '../core/overload/signals.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { HealthProbe, HealthReading } from '../ports/health-probe.ts';

export type Resource = 'submit' | 'status' | 'payment' | 'admin';
export type SignalName = keyof HealthReading | 'inflight';

export interface OverloadSettings {
  readonly adaptive: AdaptiveSwitch;
  /** Static ceilings of requests in progress, per resource. */
  readonly ceilings: Readonly<Record<Resource, number>>;
  readonly setpointMs: number;
  /** Requests per second that this instance may admit at full budget. */
  readonly admitPerSecond: number;
  readonly marks: Readonly<Record<SignalName, SignalMarks>>;
  readonly mode: ModeSettings;
  readonly start: 'ramping' | 'steady';
}

/** Marks chosen so that pressure 1 is where a buyer's 100 ms are spent. */
export const overloadDefaults: OverloadSettings = {
  adaptive: 'on',
  ceilings: { submit: 2_000, status: 1_000, payment: 500, admin: 50 },
  setpointMs: 20,
  admitPerSecond: 20_000,
  marks: {
    queueWaitMs: { low: 20, high: 100 },
    inflight: { low: 0.6, high: 1 },
    loopDelayMs: { low: 30, high: 200 },
    loopUtilization: { low: 0.9, high: 1.05 },
    admittedP99Ms: { low: 80, high: 400 },
    reserveMs: { low: 15, high: 150 },
    storeErrorRatio: { low: 0.01, high: 0.2 },
    queueDepth: { low: 20_000, high: 100_000 },
    queueOldestAgeMs: { low: 5_000, high: 40_000 },
    poolWaitMs: { low: 50, high: 1_000 },
    // Never more than 1, so never alone past DEGRADED: a busy machine is not a broken one.
    cpuRatio: { low: 0.9, high: 1.05 },
    memoryRatio: { low: 0.75, high: 0.95 },
  },
  mode: modeDefaults,
  start: 'steady',
};

/**
 * Share of its ceiling that each resource always keeps. New submits shrink furthest; who already
 * holds something, or brings money, is answered while anything is answered.
 */
const floorShares: Readonly<Record<Resource, number>> = {
  submit: 0.002,
  status: 0.25,
  payment: 0.5,
  admin: 0.5,
};

/** Of standings and facts, what is answered in any mode: those who wait must learn something. */
const leastOfP3 = 0.1;

const innerPeriodMs = 100;
const cyclesPerStateStep = 10;

/**
 * The overload control of one instance: an inner loop every 100 ms (in-flight limits, the budget by
 * priority) and a state loop every second (the mode). Requests only read what the loops have set;
 * none ever waits for a decision.
 */
export class OverloadLoop {
  readonly slots: Readonly<Record<Resource, InflightSlots>>;
  readonly #allSlots: readonly InflightSlots[];
  readonly #settings: OverloadSettings;
  readonly #board: SignalBoard<SignalName>;
  readonly #budget = new PriorityBudget();
  readonly #clock: Clock;
  readonly #probe: HealthProbe;
  readonly #trips = new Set<HardTrip>();
  #state: ModeState;
  #share = 1;
  #window = 0;
  #timer: TimerHandle | undefined;
  #reading: HealthReading = {};
  #modeChanges = 0;
  readonly #onModeChange: (from: Mode, to: Mode, worst: WorstSignal | undefined) => void;

  constructor(options: {
    readonly clock: Clock;
    readonly probe: HealthProbe;
    readonly settings?: OverloadSettings;
    readonly onModeChange?: (from: Mode, to: Mode, worst: WorstSignal | undefined) => void;
  }) {
    this.#settings = options.settings ?? overloadDefaults;
    this.#clock = options.clock;
    this.#probe = options.probe;
    this.#onModeChange = options.onModeChange ?? (() => undefined);
    this.#board = new SignalBoard(this.#settings.marks);
    this.#state = initialMode(this.#nowMs(), this.#settings.start, this.#settings.mode);
    this.#fill(this.#nowMs());
    const { adaptive, ceilings, setpointMs } = this.#settings;
    const slotsOf = (resource: Resource): InflightSlots =>
      new InflightSlots({
        adaptive,
        ceiling: ceilings[resource],
        floor: Math.max(1, Math.floor(ceilings[resource] * floorShares[resource])),
        setpointMs,
      });
    this.slots = {
      submit: slotsOf('submit'),
      status: slotsOf('status'),
      payment: slotsOf('payment'),
      admin: slotsOf('admin'),
    };
    this.#allSlots = Object.values(this.slots);
  }

  start(timers: Timers): void {
    this.#timer ??= timers.every(innerPeriodMs, () => this.runOnce());
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  /** One inner window; every tenth is a state cycle too. */
  runOnce(): void {
    const nowMs = this.#nowMs();
    this.#reading = this.#probe.read();
    const { submit } = this.slots;
    // Of the static ceiling: a full adaptive limit is the inner loop at work, not trouble.
    this.#board.feed(this.#reading, {
      inflight: submit.inflight / this.#settings.ceilings.submit,
    });
    // Of this window: what is smoothed would go on shrinking limits long after the cause has gone.
    const wait = this.#reading.queueWaitMs ?? this.#reading.loopDelayMs;
    for (const slots of this.#allSlots) slots.tick(wait, innerPeriodMs);
    this.#window += 1;
    if (this.#window % cyclesPerStateStep === 0) this.#stepState(nowMs);
    this.#fill(nowMs);
  }

  /** The share of this moment, and the budget of the next window. */
  #fill(nowMs: number): void {
    this.#share = this.#shareNow(this.#board.worst()?.pressure, nowMs);
    const full = (this.#settings.admitPerSecond * innerPeriodMs) / 1000;
    this.#budget.tick(full * this.#share, full, nowMs);
  }

  #shareNow(pressure: number | undefined, nowMs: number): number {
    return budgetShare(this.#state, pressure, nowMs, this.#settings.mode);
  }

  #stepState(nowMs: number): void {
    const before = this.mode;
    const worst = this.#board.worst();
    const age = this.#board.value('queueOldestAgeMs') ?? 0;
    this.#state = stepMode(
      this.#state,
      {
        pressure: worst?.pressure,
        trips: [...this.#trips],
        settled: age <= this.#settings.marks.queueOldestAgeMs.low,
        nowMs,
      },
      this.#settings.mode,
    );
    this.#noteChange(before, worst);
  }

  #noteChange(before: Mode, worst: WorstSignal | undefined): void {
    if (this.mode === before) return;
    this.#modeChanges += 1;
    this.#onModeChange(before, this.mode, worst);
  }

  /** Whether a request of this priority gets in now; O(1), synchronous. */
  admit(priority: Priority, caller: string): boolean {
    if (priority >= 3 && this.mode !== 'NORMAL' && !this.#spared(priority, caller)) return false;
    return this.#budget.admit(priority, caller);
  }

  /** Outside NORMAL the lowest work goes at once, the next with the pressure, for some of its callers. */
  #spared(priority: Priority, caller: string): boolean {
    if (priority === 4) return false;
    const share = this.mode === 'DEGRADED' ? Math.max(leastOfP3, 2 * this.#share - 1) : leastOfP3;
    return rotationPoint(caller, Math.floor(this.#nowMs() / rotationMs)) < share;
  }

  /** Something is wrong beyond doubt: closes at the very moment, not at the next cycle. */
  trip(trip: HardTrip): void {
    this.#trips.add(trip);
    const before = this.mode;
    this.#state = stepMode(
      this.#state,
      { pressure: undefined, trips: [trip], settled: false, nowMs: this.#nowMs() },
      this.#settings.mode,
    );
    this.#share = this.#shareNow(undefined, this.#nowMs());
    this.#noteChange(before, { name: trip, pressure: 1 });
  }

  clearTrip(trip: HardTrip): void {
    this.#trips.delete(trip);
  }

  pin(pin: Omit<Pin, 'untilMs'> & { readonly forMs: number }): void {
    const { forMs, ...rest } = pin;
    const before = this.mode;
    this.#state = pinMode(this.#state, { ...rest, untilMs: this.#nowMs() + forMs });
    this.#noteChange(before, { name: 'pin', pressure: 0 });
  }

  /** Opens by the ramp, as after an outage. */
  ramp(): void {
    this.#state = beginRamp(this.#state, this.#nowMs());
    this.#share = this.#shareNow(this.#board.worst()?.pressure, this.#nowMs());
  }

  /** What waves go by: a process on its ramp is not yet whole. */
  get modeForWaves(): Mode {
    return this.mode === 'NORMAL' && this.#state.stage !== 'steady' ? 'DEGRADED' : this.mode;
  }

  unpin(): void {
    this.#state = pinMode(this.#state, undefined);
  }

  get mode(): Mode {
    return modeInForce(this.#state, this.#nowMs());
  }

  get share(): number {
    return this.#share;
  }

  /** Requests per second that the share leaves of the full budget. */
  get admissionPerSecond(): number {
    return this.#settings.admitPerSecond * this.#share;
  }

  get state(): ModeState {
    return this.#state;
  }

  get modeChanges(): number {
    return this.#modeChanges;
  }

  /** What drives the mode now, for people. */
  get worst(): WorstSignal | undefined {
    return this.#board.worst();
  }

  get reading(): HealthReading {
    return this.#reading;
  }

  #nowMs(): number {
    return this.#clock.monoUs() / 1000;
  }
}
