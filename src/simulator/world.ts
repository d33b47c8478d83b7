import { submitAudience } from '../app/sale.ts';
import type { Keys } from '../app/keys-folder.ts';
import type { Activity, SkuKey } from '../core/activity.ts';
import { KeyRing } from '../core/pass/key-ring.ts';
import type { TokenType } from '../core/pass/token.ts';
import { signPass } from '../core/pass/pass.ts';
import { pathIdOf } from '../core/pass/path-id.ts';
import { signUserToken } from '../core/pass/user-token.ts';
import type { RuleSet } from '../core/rules/model.ts';
import { readRules } from '../core/rules/read.ts';
import { hs256Key, macOf, nodeTextCodec } from '../pipeline/keys.ts';
import { SeededRandom } from './chance.ts';
import { type FaultKind, Faults, type PortName, dice } from './faults.ts';
import { Oracle } from './oracle.ts';
import type { Plan } from './plan.ts';
import { SimProcess } from './process.ts';
import { type Servers, openServers } from './servers.ts';
import { Digest, type Trace } from './trace.ts';
import { MachineClock, VirtualTime } from './time.ts';

/** When every world begins, on a clock that is right, ms. */
export const epochMs = 1_800_000_000_000;
export const activityId = 'show';
/** Longest wait of a client for an answer, µs. */
const clientPatienceUs = 4_000_000;
/** The second copy of a question comes up to so much later, µs. */
const lateCopyUs = 12_000_000;
/** A process that dies once it has answered dies within this, µs. */
const crashAnsweredUs = 2_000;
/** After its deadline an order waits so long for money that is on its way, ms. */
export const paymentGraceMs = 1_000;

/** What a client hears when it hears nothing. */
export const silence = Symbol('silence');
export type Silence = typeof silence;

/**
 * A whole deployment in one process, under virtual time: its servers, its processes and the network to
 * its clients. What happens to it is the simulation's to say.
 */
export class World {
  readonly plan: Plan;
  readonly time: VirtualTime;
  readonly faults: Faults;
  readonly servers: Servers;
  readonly oracle: Oracle;
  readonly activities: readonly Activity[];
  readonly skus: readonly SkuKey[];
  readonly rules: RuleSet | undefined;
  readonly issuer = 'sluice';
  readonly graceMs = paymentGraceMs;
  readonly processes: readonly SimProcess[];
  /** For latencies and other small chances of the world itself. */
  readonly chance: SeededRandom;
  readonly digest = new Digest();
  readonly #trace: Trace | undefined;
  readonly #secrets: Readonly<Record<string, Uint8Array>>;
  readonly #heardAtUs = new Map<SimProcess, number>();
  readonly #userKeys: Keys;

  constructor(plan: Plan, trace?: Trace) {
    this.plan = plan;
    this.#trace = trace;
    const { shape, seed } = plan;
    const random = new SeededRandom(`world/${seed}`);
    this.chance = random.fork('latency');
    const ties = random.fork('order');
    this.oracle = new Oracle(this);
    this.time = new VirtualTime({
      draw: () => ties.float(),
      afterEach: () => this.oracle.look(),
      onEvent: (label, nowUs) => {
        this.digest.event(label, nowUs);
        this.#trace?.event(nowUs, label);
      },
    });
    const embedded = shape.deployment === 'embedded';
    const roleSets = embedded
      ? [['gateway', 'worker', 'control'] as const]
      : [
          ...Array.from({ length: shape.gateways }, () => ['gateway'] as const),
          ...Array.from({ length: shape.workers }, () => ['worker'] as const),
          ...Array.from({ length: shape.controls }, () => ['control'] as const),
        ];
    this.faults = new Faults(shape.deployment, seed, roleSets.length);
    const clockOf = (name: string): MachineClock => {
      const own = random.fork(`clock ${name}`);
      const skewMs = Math.round((own.float() * 2 - 1) * shape.skewMs);
      return new MachineClock(this.time, epochMs, 1 + (own.float() * 2 - 1) * shape.drift, skewMs);
    };
    this.processes = roleSets.map((roles, index) => {
      const name = embedded ? 'all' : `${roles[0]}${index}`;
      return new SimProcess({
        world: this,
        index,
        name,
        roles,
        clock: clockOf(name),
        random: random.fork(name),
      });
    });
    const [first] = this.processes;
    this.servers = openServers({
      time: this.time,
      // Embedded stores live on the machine of their process.
      clock: embedded && first !== undefined ? first.clock : clockOf('servers'),
      random: random.fork('servers'),
      flushUs: embedded ? shape.flushUs : undefined,
      trouble: {
        givesTwice: () => this.happens('duplicate', -1) !== undefined,
        refusesMessage: ({ reservationId }) => this.#isPoison(reservationId),
      },
    });
    this.activities = [activityOf(plan)];
    this.skus = shape.skus.map(({ skuId }) => ({ activityId, skuId }));
    this.rules = rulesOf(plan);
    const secrets = random.fork('secrets');
    this.#secrets = Object.fromEntries(
      ['user', 'entry', 'pass', 'decision', 'challenge', 'path', 'nonce'].map((name) => [
        name,
        secrets.bytes(32),
      ]),
    );
    this.#userKeys = this.openKeys();
  }

  /** Whole milliseconds since the world began. */
  get nowMs(): number {
    return Math.floor(this.time.nowUs / 1_000);
  }

  /** The time that a clock would show which is right, ms since the Unix epoch. */
  get trueMs(): number {
    return epochMs + this.nowMs;
  }

  get activity(): Activity {
    const [activity] = this.activities;
    if (activity === undefined) throw new Error('a world without an activity');
    return activity;
  }

  /** Every process opens the same keys from the same folder. */
  openKeys(): Keys {
    const ring = (type: TokenType): KeyRing => {
      const made = new KeyRing(type, nodeTextCodec);
      made.add(hs256Key(`${type}-1`, this.#secret(type)));
      made.signWith(`${type}-1`);
      return made;
    };
    return {
      rings: {
        user: ring('user'),
        entry: ring('entry'),
        pass: ring('pass'),
        decision: ring('decision'),
        challenge: ring('challenge'),
      },
      pathMac: macOf(this.#secret('path')),
      nonceMac: macOf(this.#secret('nonce')),
    };
  }

  /** The path that anybody can guess or has heard of. */
  openPath(skuId: string): string {
    return pathIdOf(this.#userKeys.pathMac, { activityId, skuId }, this.activity.activityVersion);
  }

  /** A pass as somebody would make it who knows everything but the key. */
  forgedPass(userId: string, skuId: string, draw: SeededRandom): string {
    const ring = new KeyRing('pass', nodeTextCodec);
    ring.add(hs256Key('pass-1', draw.bytes(32)));
    ring.signWith('pass-1');
    const nowMs = Math.floor(this.trueMs / 1_000) * 1_000;
    return signPass(ring, {
      issuer: this.issuer,
      audience: submitAudience,
      activityId,
      skuId,
      userId,
      activityVersion: this.activity.activityVersion,
      pathId: this.openPath(skuId),
      maxQuantity: 1,
      wave: 1,
      nonce: Buffer.from(draw.bytes(16)).toString('base64url'),
      notBeforeMs: nowMs - 2_000,
      expiresAtMs: nowMs + 30_000,
      issuedAtMs: nowMs - 2_000,
    });
  }

  userToken(userId: string): string {
    return signUserToken(this.#userKeys.rings.user, {
      issuer: this.issuer,
      userId,
      issuedAtMs: epochMs - 60_000,
      expiresAtMs: epochMs + 12 * 3_600_000,
    });
  }

  /** A line of the history. */
  note(what: string, detail: string): void {
    this.digest.text(what);
    this.#trace?.line(this.time.nowUs, what, detail);
  }

  /** One way to a store or back, µs. */
  latency(port: PortName): number {
    const { storeUs, databaseUs } = this.plan.shape;
    const slow = port === 'orders' || port === 'payments' || port === 'lease';
    const [from, to] = slow ? databaseUs : storeUs;
    return (from + this.chance.below(to - from)) / 2;
  }

  happens(kind: FaultKind, process: number): boolean | undefined {
    const item = this.faults.happens(kind, process, this.nowMs);
    if (item === undefined) return undefined;
    this.note(kind, '');
    return true;
  }

  /** Ends a process at this instant. */
  crash(process: SimProcess): void {
    this.note('crash', process.name);
    this.oracle.edge('crash');
    const embedded = this.plan.shape.deployment === 'embedded';
    if (embedded) {
      const { inventory, admission } = this.servers;
      inventory.shut();
      inventory.log.crash(this.chance);
      admission.log.crash(this.chance);
      inventory.reopen();
      admission.reopen();
      this.servers.forgetBudgets();
      this.oracle.budgets.forgot();
      this.oracle.crashedWithJournals();
    }
    process.die();
  }

  /** A process has ended in order: its journals, where it has some, are whole. */
  closed(): void {
    if (this.plan.shape.deployment !== 'embedded') return;
    const { inventory, admission } = this.servers;
    inventory.shut();
    inventory.log.flushed();
    admission.log.flushed();
    inventory.reopen();
    admission.reopen();
  }

  /** The inventory's server hands over to a copy that lacks some of the newest writes. */
  failover(most: number): void {
    const { inventory } = this.servers;
    const lost = inventory.log.failover(most);
    inventory.reopen();
    this.faults.note('failover');
    this.note('failover', `${lost} writes forgotten`);
    this.oracle.forgot();
  }

  /** Words reach a process late, in their order, or not. */
  listen(process: SimProcess, listener: (topic: string, text: string) => void): Promise<void> {
    const { life } = process;
    void this.servers.words.listen((topic, text) => {
      if (process.life !== life) return;
      if (this.happens('drop_words', process.index) === true) return;
      if (this.faults.deaf(process.index, this.nowMs)) return;
      const atUs = Math.max(
        this.time.nowUs + this.latency('broadcast'),
        this.#heardAtUs.get(process) ?? 0,
      );
      this.#heardAtUs.set(process, atUs);
      this.time.after(atUs - this.time.nowUs, 'word', () => listener(topic, text), process);
    });
    return Promise.resolve();
  }

  /** An answer that nobody waits for was an error: fine where it is one that a caller may meet. */
  unheard(error: unknown): void {
    this.oracle.trouble('nobody', 'unheard', error);
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.time.after(ms * 1_000, 'person', resolve));
  }

  /**
   * A client asks some gateway, and hears what it says, late, twice sent or not at all. `work` begins
   * at the gateway.
   */
  ask<Value>(
    label: string,
    draw: SeededRandom,
    work: (gateway: SimProcess) => Promise<Value> | Value,
  ): Promise<Value | Silence> {
    return new Promise((resolve) => {
      let heard = false;
      const hear = (value: Value | Silence): void => {
        if (heard) return;
        heard = true;
        patience.cancel();
        resolve(value);
      };
      const patience = this.time.after(clientPatienceUs, 'impatience', () => hear(silence));
      const times = this.happens('net_twice', -1) === true ? 2 : 1;
      for (let n = 0; n < times; n += 1) {
        if (this.happens('net_loss', -1) === true) continue;
        const us = this.#networkUs(draw);
        // A second copy may come when everything has long been decided.
        const lateUs = n > 0 && draw.float() < 0.3 ? draw.below(lateCopyUs) : 0;
        this.time.after(us + lateUs, label, () => this.#serve(label, draw, work, hear));
      }
    });
  }

  #serve<Value>(
    label: string,
    draw: SeededRandom,
    work: (gateway: SimProcess) => Promise<Value> | Value,
    hear: (value: Value | Silence) => void,
  ): void {
    const gateways = this.processes.filter((process) => process.has('gateway'));
    const up = gateways.filter((process) => process.running !== undefined);
    const gateway = up[draw.below(Math.max(1, up.length))];
    if (gateway === undefined) {
      this.time.after(this.#networkUs(draw), `${label} refused`, () => hear(silence));
      return;
    }
    const { life } = gateway;
    const answer = (value: Value | Silence): void => {
      // The connection broke with the process.
      if (gateway.life !== life && value !== silence) return;
      if (label === 'submit' && this.happens('crash_answered', gateway.index) === true) {
        this.time.after(this.chance.below(crashAnsweredUs), 'crash', () => {
          if (gateway.life === life) this.crash(gateway);
        });
      }
      if (this.happens('net_loss', -1) === true) return;
      this.time.after(this.#networkUs(draw), `${label} back`, () => hear(value));
    };
    const begin = (): void => {
      Promise.resolve()
        .then(() => work(gateway))
        .then(answer, (error: unknown) => {
          // The gateway answers such a fault with 503.
          this.oracle.trouble(gateway.name, label, error);
          answer(silence);
        });
    };
    this.time.after(0, `${label} at ${gateway.name}`, begin, gateway);
  }

  #networkUs(draw: SeededRandom): number {
    const [from, to] = this.plan.shape.networkUs;
    const us = from + draw.below(to - from);
    return this.happens('net_slow', -1) === true ? us * 20 : us;
  }

  #isPoison(reservationId: string): boolean {
    if (this.faults.healed) return false;
    let hash = 0;
    for (const char of reservationId) hash = (Math.imul(hash, 31) + char.charCodeAt(0)) | 0;
    const poison = this.plan.items.find((item) => item.kind === 'fault' && item.fault === 'poison');
    if (poison === undefined || poison.atMs > this.nowMs) return false;
    const sick = dice(hash, poison.id) < 0.3;
    if (sick) this.faults.note('poison');
    return sick;
  }

  #secret(name: string): Uint8Array {
    const secret = this.#secrets[name];
    if (secret === undefined) throw new Error(`no secret "${name}"`);
    return secret;
  }
}

function activityOf({ shape }: Plan): Activity {
  const opensAtMs = epochMs + shape.lobbyMs;
  return {
    activityId,
    name: 'Show',
    revision: 1,
    activityVersion: 1,
    lobbyOpensAtMs: epochMs - 5_000,
    opensAtMs,
    closesAtMs: opensAtMs + shape.openForMs,
    timeZone: 'UTC',
    skus: shape.skus.map(({ skuId, stock, seats }) => ({
      skuId,
      name: skuId,
      price: { amountMinor: 4_900, currency: 'EUR' },
      stock,
      maxPerPerson: shape.maxPerPerson,
      ...(seats ? { seats: Array.from({ length: stock }, (_, at) => `A-${at + 1}`) } : {}),
    })),
    room: shape.room,
    paymentDeadlineMs: shape.paymentDeadlineMs,
  };
}

function rulesOf({ shape }: Plan): RuleSet | undefined {
  const { scope, perSecond, burst, fail } = shape.limits;
  if (scope === 'none') return undefined;
  const read = readRules({
    rules: [
      {
        id: 'budget',
        match: { route: 'submit' },
        key: ['activity'],
        limit: { rate: `${perSecond}/s`, burst },
        scope,
        fail: scope === 'exact' && fail === 'local' ? 'closed' : fail,
      },
      {
        id: 'per-user',
        match: { route: 'submit' },
        key: ['user'],
        limit: { rate: '5/s', burst: 10 },
      },
    ],
  });
  if (read.problems.length > 0) throw new Error(JSON.stringify(read.problems));
  return read.set;
}
