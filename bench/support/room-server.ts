import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { systemClock, systemDefer, systemRandom, systemTimers } from '../../src/app/system.ts';
import { RoomLoop } from '../../src/control/room-loop.ts';
import type { Activity } from '../../src/core/activity.ts';
import { KeyRing } from '../../src/core/pass/key-ring.ts';
import { laneKey } from '../../src/core/room/lanes.ts';
import { createGateway } from '../../src/gateway/gateway.ts';
import { hs256Key, macOf, nodeTextCodec } from '../../src/pipeline/keys.ts';
import { ReleaseStates } from '../../src/pipeline/release-states.ts';
import { RoomDoor } from '../../src/pipeline/room-door.ts';
import type { AdmissionStore } from '../../src/ports/admission-store.ts';
import { Journal } from '../../src/stores/journal/journal.ts';
import { MemoryAdmissionStore } from '../../src/stores/memory/admission-store.ts';
import { bareServer } from './bare-server.ts';
import { refusingDeps } from './refuse-deps.ts';
import { benchSku, secretOf } from './refuse-requests.ts';

/**
 * The server of `bench room`, in a process of its own: one process with every role, as `sluice up` is
 * by default: gateway, journaled entry store, and control with its draw. Or a bare `node:http` server
 * that sends the bytes it is told. Told by its parent over IPC.
 */
export type RoomOrder =
  | { readonly order: 'room'; readonly stock: number; readonly wave: number }
  | { readonly order: 'bare'; readonly answer: string }
  | { readonly order: 'fill'; readonly from: number; readonly to: number; readonly keep: number }
  | { readonly order: 'open' }
  | { readonly order: 'quiet'; readonly ms: number }
  | { readonly order: 'usage' }
  | { readonly order: 'cpu' }
  | { readonly order: 'stop' };

export interface Usage {
  readonly rssMib: number;
  /** Heap and buffers after a full collection, MiB. */
  readonly settledMib: number;
  /** Of it what the engine holds for its heap, used or not: its young generation keeps what a load took. */
  readonly heapMib: number;
  readonly storeCalls: number;
}

export interface Opened {
  /** From the opening to the first wave's publication, ms: closing, root, draw, wave. */
  readonly drawMs: number;
  /** Longest time that anything else had to wait meanwhile, ms. */
  readonly longestStallMs: number;
  /** Entries that are admitted by the release state, counted one by one. */
  readonly admitted: number;
}

class Room {
  readonly store: MemoryAdmissionStore;
  readonly folder: string;
  readonly door: RoomDoor;
  readonly loop: RoomLoop;
  readonly states: ReleaseStates;
  activity: Activity;
  port = 0;
  storeCalls = 0;

  private constructor(store: MemoryAdmissionStore, folder: string, activity: Activity) {
    this.store = store;
    this.folder = folder;
    this.activity = activity;
    const ring = (type: 'entry' | 'pass'): KeyRing => {
      const made = new KeyRing(type, nodeTextCodec);
      made.add(hs256Key(`${type}-1`, secretOf(type)));
      made.signWith(`${type}-1`);
      return made;
    };
    this.states = new ReleaseStates(systemClock, () => undefined);
    const counted = new Proxy<AdmissionStore>(store, {
      get: (target, name) => {
        const value: unknown = Reflect.get(target, name);
        if (typeof value !== 'function') return value;
        return (...args: unknown[]): unknown => {
          this.storeCalls += 1;
          return Reflect.apply(value, target, args);
        };
      },
    });
    this.door = new RoomDoor({
      store: counted,
      clock: systemClock,
      random: systemRandom,
      activities: { get: () => this.activity },
      states: this.states,
      rings: { entry: ring('entry'), pass: ring('pass') },
      pathMac: macOf(secretOf('path')),
      nonceMac: macOf(secretOf('nonce')),
      issuer: 'bench',
      audience: 'bench',
    });
    const stock = activity.skus[0]?.stock ?? 0;
    this.loop = new RoomLoop({
      store,
      clock: systemClock,
      timers: systemTimers,
      random: systemRandom,
      activity: () => this.activity,
      signals: () => ({
        skus: [{ skuId: benchSku.skuId, available: stock, held: 0, total: stock }],
        mode: 'NORMAL',
        backlogRatio: 0,
        reserveRatio: 0,
        unitsPerBuyer: 1,
      }),
      publish: (state) => void this.states.accept(state),
      breathe: () => new Promise((resolve) => systemDefer(() => resolve())),
      onError: (error) => console.error(error),
    });
  }

  static async start(stock: number, wave: number): Promise<Room> {
    const deps = await refusingDeps('after_identity');
    const template = deps.activities.list()[0];
    if (template === undefined) throw new Error('no activity');
    const activity: Activity = {
      ...template,
      opensAtMs: systemClock.wallMs() + 86_000_000,
      skus: template.skus.map((sku) => ({ ...sku, stock })),
      room: {
        ...template.room,
        claimWindowMs: 3_600_000,
        maxAdmissionsPerSecond: wave,
        maxActive: wave,
      },
    };
    const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
    const store = new MemoryAdmissionStore();
    store.attach(await Journal.open({ folder, fsync: 'os', ...store.replay }));
    const room = new Room(store, folder, activity);
    await room.loop.runOnce();
    room.loop.start();
    const gateway = await createGateway({
      ...deps,
      activities: { list: () => [room.activity], get: () => room.activity },
      door: room.door,
      limits: { ...deps.limits, source: () => undefined, person: () => undefined },
    });
    room.port = (await gateway.listen()).port;
    return room;
  }

  /** Joins people in-process, through the same door; every `keep`th token is handed back. */
  async fill(from: number, to: number, keep: number): Promise<readonly string[]> {
    const tokens: string[] = [];
    for (let at = from; at < to; at += 512) {
      const batch = Array.from({ length: Math.min(512, to - at) }, (_, n) => `u_${at + n}`);
      const joins = await Promise.all(
        batch.map((id) =>
          this.door.join(benchSku.activityId, { userId: id, personId: id }, { skuIds: [] }),
        ),
      );
      joins.forEach((joined, n) => {
        if (joined.kind !== 'joined') throw new Error(`join: ${joined.kind}`);
        if ((at + n) % keep === 0) tokens.push(joined.entryToken);
      });
      // The socket, the loop and the journal get their turn.
      await new Promise((resolve) => setImmediate(resolve));
    }
    return tokens;
  }

  async open(): Promise<Opened> {
    await this.loop.stop();
    await this.loop.runOnce();
    const delay = monitorEventLoopDelay({ resolution: 1 });
    delay.enable();
    const started = process.hrtime.bigint();
    this.activity = { ...this.activity, opensAtMs: systemClock.wallMs() };
    await this.loop.runOnce();
    const drawMs = Number(process.hrtime.bigint() - started) / 1e6;
    delay.disable();
    this.loop.start();

    const view = this.states.fresh(benchSku.activityId);
    if (view === undefined) throw new Error('no release state');
    const nowMs = systemClock.wallMs();
    let admitted = 0;
    for (let from = 0; ; ) {
      const page = await this.store.participants(benchSku.activityId, from, 4096);
      if (page.length === 0) break;
      from += page.length;
      for (const each of page) {
        const place = { ...each, cohort: 'lobby' as const, lane: laneKey(each.group, each.skuIds) };
        if (view.whereabouts(place, this.activity, nowMs).kind === 'admitted') admitted += 1;
      }
    }
    return { drawMs, longestStallMs: delay.max / 1e6, admitted };
  }
}

function usage(storeCalls: number): Usage {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect !== 'function') throw new Error('this Node cannot collect on demand');
  for (let pass = 0; pass < 3; pass += 1) collect();
  const { rss, heapUsed, heapTotal, arrayBuffers } = process.memoryUsage();
  const mib = (bytes: number): number => bytes / 2 ** 20;
  return {
    rssMib: mib(rss),
    settledMib: mib(heapUsed + arrayBuffers),
    heapMib: mib(heapTotal),
    storeCalls,
  };
}

let room: Room | undefined;

async function obey(order: RoomOrder): Promise<unknown> {
  switch (order.order) {
    case 'room':
      room = await Room.start(order.stock, order.wave);
      return room.port;
    case 'bare':
      return bareServer(order.answer);
    case 'fill':
      return room?.fill(order.from, order.to, order.keep);
    case 'open':
      return room?.open();
    case 'quiet':
      await new Promise((resolve) => systemTimers.after(order.ms, () => resolve(undefined)));
      return undefined;
    // Apart from memory, for which everything is collected first: that is no poll's work.
    case 'cpu': {
      const { user, system } = process.cpuUsage();
      return user + system;
    }
    case 'usage':
      return usage(room?.storeCalls ?? 0);
    case 'stop':
      await room?.loop.stop();
      if (room !== undefined) rmSync(room.folder, { recursive: true });
      process.exit(0);
  }
}

process.on('message', (order: RoomOrder) => {
  obey(order).then(
    (result) => process.send?.({ result }),
    (error: unknown) => process.send?.({ error: String(error) }),
  );
});
