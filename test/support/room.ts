import { RoomLoop } from '../../src/control/room-loop.ts';
import type { Activity, RoomSettings } from '../../src/core/activity.ts';
import { KeyRing } from '../../src/core/pass/key-ring.ts';
import { verifyPass } from '../../src/core/pass/pass.ts';
import type { PassVerdict } from '../../src/core/pass/pass.ts';
import type { RoomSignals } from '../../src/core/room/model.ts';
import type { ReleaseState } from '../../src/core/room/release.ts';
import { Challenges } from '../../src/pipeline/challenges.ts';
import type { Person } from '../../src/pipeline/door.ts';
import { hs256Key, macOf, nodeTextCodec } from '../../src/pipeline/keys.ts';
import { ReleaseStates } from '../../src/pipeline/release-states.ts';
import { RoomDoor } from '../../src/pipeline/room-door.ts';
import type { AdmissionStore } from '../../src/ports/admission-store.ts';
import { MemoryAdmissionStore } from '../../src/stores/memory/admission-store.ts';
import type { Standing } from '../../src/wire/standing.ts';
import { SeededRandom, World } from './world.ts';

/** The key that a vouching provider shares with us. */
export const voucherMac = macOf(new Uint8Array(32).fill(3));

const startMs = 1_800_000_000_000;

export interface RoomWorldOptions {
  readonly seed?: string;
  readonly room?: Partial<RoomSettings>;
  readonly stock?: number;
  readonly skus?: readonly { readonly skuId: string; readonly stock: number }[];
  readonly store?: AdmissionStore;
}

/** A whole room in virtual time: store, control, one gateway's door; the stock is played by the test. */
export class RoomWorld {
  readonly world = new World(startMs);
  readonly random: SeededRandom;
  readonly store: AdmissionStore;
  activity: Activity;
  loop: RoomLoop;
  readonly states: ReleaseStates;
  readonly door: RoomDoor;
  readonly rings: { readonly entry: KeyRing; readonly pass: KeyRing };
  readonly #challengeRing: KeyRing;
  readonly published: ReleaseState[] = [];
  readonly errors: unknown[] = [];
  signals: RoomSignals | undefined;
  beacon: string | undefined;
  /** Whether people may buy more than they have. */
  mayBuyMore = false;
  /** Set to make control unreachable from the gateway. */
  cut = false;

  constructor(options: RoomWorldOptions = {}) {
    this.random = new SeededRandom(options.seed ?? 'room');
    this.store = options.store ?? new MemoryAdmissionStore();
    const skus = options.skus ?? [{ skuId: 'front', stock: options.stock ?? 100 }];
    this.activity = {
      activityId: 'concert',
      name: 'Concert',
      revision: 1,
      activityVersion: 1,
      lobbyOpensAtMs: startMs,
      opensAtMs: startMs + 60_000,
      closesAtMs: startMs + 3_600_000,
      timeZone: 'UTC',
      skus: skus.map((sku) => ({
        ...sku,
        name: sku.skuId,
        price: { amountMinor: 100, currency: 'EUR' },
        maxPerPerson: 1,
      })),
      room: {
        mode: 'draw',
        passLifeMs: 30_000,
        claimWindowMs: 10_000,
        maxAdmissionsPerSecond: 1_000,
        maxActive: 10_000,
        ...options.room,
      },
      paymentDeadlineMs: 900_000,
    };
    this.signals = {
      skus: skus.map(({ skuId, stock }) => ({ skuId, available: stock, held: 0, total: stock })),
      mode: 'NORMAL',
      backlogRatio: 0,
      reserveRatio: 0,
      unitsPerBuyer: 1,
    };
    const ring = (type: 'entry' | 'pass' | 'challenge'): KeyRing => {
      const made = new KeyRing(type, nodeTextCodec);
      made.add(hs256Key(`${type}-1`, this.random.bytes(32)));
      made.signWith(`${type}-1`);
      return made;
    };
    this.rings = { entry: ring('entry'), pass: ring('pass') };
    this.states = new ReleaseStates(this.world, (kids) => {
      this.rings.entry.setRevoked(kids);
      this.rings.pass.setRevoked(kids);
    });
    this.#challengeRing = ring('challenge');
    this.loop = this.newLoop();
    this.door = this.newDoor();
  }

  /** Another gateway over the same store and the same release states: nothing of its own memory. */
  newDoor(): RoomDoor {
    const { rings, states, world, random } = this;
    return new RoomDoor({
      store: this.store,
      clock: world,
      random,
      activities: { get: (id) => (id === 'concert' ? this.activity : undefined) },
      states,
      rings,
      pathMac: macOf(new Uint8Array(32).fill(1)),
      nonceMac: macOf(new Uint8Array(32).fill(2)),
      issuer: 'sluice',
      audience: 'submit',
      mayBuyMore: () => Promise.resolve(this.mayBuyMore),
      challenges: new Challenges({
        ring: this.#challengeRing,
        issuer: 'sluice',
        random,
        callback: { url: 'https://vouch.example/', mac: voucherMac },
      }),
    });
  }

  /** A room whose control has published once, so that the door is open. */
  static async started(options: RoomWorldOptions = {}): Promise<RoomWorld> {
    const made = new RoomWorld(options);
    await made.loop.runOnce();
    return made;
  }

  /** Another control process over the same store, as after a restart. */
  newLoop(store: AdmissionStore = this.store): RoomLoop {
    return new RoomLoop({
      store,
      clock: this.world,
      timers: this.world,
      random: this.random,
      activity: () => this.activity,
      signals: () => this.signals,
      beaconValue: () => this.beacon,
      publish: (state) => {
        if (this.cut) return;
        this.published.push(state);
        this.states.accept(state);
      },
      onError: (error) => this.errors.push(error),
      breathe: () => Promise.resolve(),
    });
  }

  get state(): ReleaseState {
    const state = this.states.latest('concert')?.state;
    if (state === undefined) throw new Error('nothing was published yet');
    return state;
  }

  /** One turn of control after each quarter second of `ms`. */
  async run(ms: number): Promise<void> {
    for (let passed = 0; passed < ms; passed += 250) {
      await this.world.advance(250);
      await this.loop.runOnce();
    }
  }

  /** To the moment of opening, and the first turn after it. */
  async open(): Promise<void> {
    await this.world.advance(this.activity.opensAtMs - this.world.wallMs());
    await this.loop.runOnce();
  }

  setStock(skuId: string, available: number, held = 0): void {
    const { signals } = this;
    if (signals === undefined) throw new Error('no signals');
    this.signals = {
      ...signals,
      skus: signals.skus.map((sku) => (sku.skuId === skuId ? { ...sku, available, held } : sku)),
    };
  }

  availableOf(skuId: string): number {
    return this.signals?.skus.find((sku) => sku.skuId === skuId)?.available ?? 0;
  }

  async join(name: string, skuIds: readonly string[] = []): Promise<string> {
    const joined = await this.door.join('concert', person(name), { skuIds });
    if (joined.kind !== 'joined') throw new Error(`${name} could not join: ${joined.kind}`);
    return joined.entryToken;
  }

  async joinMany(prefix: string, count: number): Promise<Map<string, string>> {
    const tokens = new Map<string, string>();
    for (let at = 0; at < count; at += 1) {
      tokens.set(`${prefix}${at}`, await this.join(`${prefix}${at}`));
    }
    return tokens;
  }

  standing(token: string): Standing {
    const result = this.door.standingByToken('concert', token);
    if (result.kind !== 'standing') throw new Error(`standing: ${result.kind}`);
    return result.standing;
  }

  /** Takes the pass and buys one unit, as the reservation step would. */
  async buy(name: string, skuId = 'front'): Promise<boolean> {
    const taken = await this.door.takePass('concert', person(name), skuId);
    if (taken.kind !== 'pass' || this.availableOf(skuId) === 0) return false;
    this.setStock(skuId, this.availableOf(skuId) - 1);
    const entryId = await this.door.entryIdOf('concert', name);
    await this.store.finish('concert', entryId, 'bought', this.world.wallMs());
    return true;
  }

  verify(pass: string, userId: string, skuId = 'front'): PassVerdict {
    const taken = JSON.parse(
      Buffer.from(pass.split('.')[1] ?? '', 'base64url').toString(),
    ) as Record<string, unknown>;
    return verifyPass(
      this.rings.pass,
      pass,
      {
        issuer: 'sluice',
        audience: 'submit',
        activityId: 'concert',
        skuId,
        userId,
        activityVersion: 1,
        pathId: String(taken.pid),
        isWaveRevoked: (wave) => this.states.isWaveRevoked('concert', wave),
      },
      this.world.wallMs(),
    );
  }
}

export function person(name: string): Person {
  return { userId: name, personId: name };
}
