import { describe, expect, it } from 'vitest';
import {
  kinds,
  nowMs,
  request,
  reserve,
  sku,
  stockOf,
} from '../../../test/contract/stock-samples.ts';
import { FaultDisk } from '../../../test/support/fault-disk.ts';
import { SeededRandom, World } from '../../../test/support/world.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { RequestRecord, ReserveRequest } from '../../ports/inventory-store.ts';
import { MemoryOrderQueue } from '../../queues/memory-queue.ts';
import type { StepLog } from './inventory-engine.ts';
import { InventoryEngine, pendingCharsMax } from './inventory-engine.ts';
import { MemoryInventoryStore } from './inventory-store.ts';

const total = 30;
const open = (disk: FaultDisk) =>
  MemoryInventoryStore.open({
    folder: '/i',
    fsync: 'always',
    compactAtBytes: 3_000,
    disk: disk.session(),
  });

/** What people were told before the power went. */
interface Told {
  readonly reserved: Map<string, RequestRecord>;
  readonly released: Set<string>;
  readonly ordered: Set<string>;
  readonly delivered: Set<string>;
  sequence: number;
  readonly asked: ReserveRequest[];
}

/** Sixty people and two workers at once, until the sale is over or the power is gone. */
async function sale(store: MemoryInventoryStore, random: SeededRandom, told: Told): Promise<void> {
  const world = new World();
  const queue = new MemoryOrderQueue(store.engine, { clock: world, timers: world });
  const person = async (at: number): Promise<void> => {
    const userId = `user-${at % 40}`;
    const wish = request({ userId, personId: userId, limit: 2, quantity: 1 + (at % 2) });
    told.asked.push(wish);
    for (let turn = random.below(6); turn > 0; turn -= 1) await Promise.resolve();
    const reply = await store.reserve(sku, [wish], told.sequence, nowMs);
    if (reply.kind !== 'done') throw new Error(reply.kind);
    told.sequence = Math.max(told.sequence, reply.mark.sequence);
    for (const outcome of reply.outcomes)
      if (outcome.kind === 'reserved') told.reserved.set(wish.reservationId, outcome.record);
  };
  const worker = async (name: string): Promise<void> => {
    for (let round = 0; round < 12; round += 1) {
      const deliveries = await queue.receive(name, 5, 0);
      for (const { message } of deliveries) told.delivered.add(message.reservationId);
      const fates = deliveries.map(({ message }) => ({
        reservationId: message.reservationId,
        fate: random.below(3) === 0 ? ('released' as const) : ('ordered' as const),
      }));
      const reply = await store.settle(sku, fates, nowMs);
      told.sequence = Math.max(told.sequence, reply.mark.sequence);
      for (const { reservationId, fate } of fates)
        (fate === 'released' ? told.released : told.ordered).add(reservationId);
      await queue.acknowledge(deliveries);
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  };
  const results = await Promise.allSettled([
    ...Array.from({ length: 60 }, (_, at) => person(at)),
    worker('a'),
    worker('b'),
  ]);
  for (const result of results)
    if (result.status === 'rejected') {
      const error: unknown = result.reason;
      if (!(error instanceof OutcomeUnknownError) && !(error instanceof UnavailableError))
        throw error;
    }
}

describe('power lost in the middle of a sale', () => {
  it('keeps everything that was answered, and sells nothing twice', {
    timeout: 120_000,
  }, async () => {
    const quiet = new FaultDisk();
    const whole = await open(quiet);
    await whole.preload(sku, stockOf(total));
    await sale(whole, new SeededRandom('quiet'), newTold());
    await whole.close();
    expect(quiet.changes).toBeGreaterThan(40);
    let unanswered = 0;
    let compactions = 0;
    for (let seed = 0; seed < 400; seed += 1) {
      const random = new SeededRandom(`sale ${seed}`);
      const disk = new FaultDisk();
      let store = await open(disk);
      await store.preload(sku, stockOf(total));
      disk.dieAt = disk.changes + 1 + random.below(quiet.changes);
      const told = newTold();
      await sale(store, random, told);
      await store.close().catch(() => undefined);
      // Every other time only the process dies, and what was written and not yet promised stays.
      if (seed % 2 === 0) disk.losePower(random);
      else disk.restart();

      store = await open(disk);
      if (disk.paths().some((path) => path.endsWith('.snap'))) compactions += 1;
      const mark = (await store.mark(sku))!;
      expect(mark.sequence).toBeGreaterThanOrEqual(told.sequence);
      expect(mark.available + mark.held + mark.ordered).toBe(total);
      for (const [reservationId, record] of told.reserved) {
        const kept = await store.find(sku, record.userId, record.requestId);
        expect(kept, `seed ${seed}: ${reservationId} was answered and is lost`).toMatchObject({
          reservationId,
          quantity: record.quantity,
        });
        if (told.released.has(reservationId)) expect(kept!.state).toBe('released');
        if (told.ordered.has(reservationId)) expect(kept!.state).toBe('ordered');
      }
      // A reservation that is held has its message, and no worker saw one that is gone.
      const waiting = new Set(
        [...store.engine.machine.outbox.pending.values()].map(
          (each) => each.reservation.reservationId,
        ),
      );
      const live = await store.live(sku, undefined, 1_000);
      for (const record of live)
        if (record.state === 'held') expect(waiting).toContain(record.reservationId);
      const persons = new Map<string, number>();
      for (const record of live)
        persons.set(record.personId, (persons.get(record.personId) ?? 0) + record.quantity);
      for (const units of persons.values()) expect(units).toBeLessThanOrEqual(2);
      const known = new Set<string>();
      for (const wish of told.asked) {
        const record = await store.find(sku, wish.userId, wish.requestId);
        if (record !== undefined) known.add(record.reservationId);
        if (record !== undefined && !told.reserved.has(record.reservationId)) unanswered += 1;
      }
      for (const reservationId of told.delivered) expect(known).toContain(reservationId);

      // Everybody asks again, with the same request id: no stock moves for those who had it.
      const before = (await store.mark(sku))!;
      const retries = told.asked.filter((wish) => known.has(wish.reservationId));
      for (const wish of retries)
        expect(
          kinds(await reserve(store, [{ ...wish, reservationId: `again ${wish.reservationId}` }])),
        ).toEqual(['existing']);
      expect(await store.mark(sku)).toEqual(before);
      await store.close();
    }
    // Both happened, or this test shows less than it says.
    expect(unanswered).toBeGreaterThan(10);
    expect(compactions).toBeGreaterThan(10);
  });

  const newTold = (): Told => ({
    reserved: new Map(),
    released: new Set(),
    ordered: new Set(),
    delivered: new Set(),
    sequence: 0,
    asked: [],
  });
});

describe('a journal that fails', () => {
  it('makes a change unknown, and everything after it unavailable, reads too', async () => {
    const disk = new FaultDisk();
    const store = await open(disk);
    await store.preload(sku, stockOf(5));
    const safe = request();
    await reserve(store, [safe]);
    expect(store.engine.failure).toBeUndefined();
    disk.failNextSync = true;
    const wish = request();
    const read = store.find(sku, safe.userId, safe.requestId);
    const lost = store.reserve(sku, [wish], 0, nowMs);
    // Asked while the reservation is made and not yet safe: it must not be told either.
    const reveals = store.find(sku, wish.userId, wish.requestId);
    await expect(lost).rejects.toThrow(OutcomeUnknownError);
    await expect(reveals).rejects.toThrow(UnavailableError);
    expect(await read).toBeDefined();
    await expect(store.mark(sku)).rejects.toThrow(UnavailableError);
    await expect(store.reserve(sku, [request()], 0, nowMs)).rejects.toThrow(UnavailableError);
    await expect(store.settle(sku, [], nowMs)).rejects.toThrow(UnavailableError);
    expect(store.engine.failure?.message).toMatch(/journal/);
  });

  it('control: a store that answers before its log has promised does reveal it', async () => {
    let promise: () => void = () => undefined;
    const promised = new Promise<void>((resolve) => {
      promise = resolve;
    });
    const log: StepLog = { append: () => undefined, durable: () => promised, failure: undefined };
    const careful = new MemoryInventoryStore(InventoryEngine.over(log));
    const hasty = new MemoryInventoryStore(InventoryEngine.over());
    const answered: string[] = [];
    const ask = async (name: string, store: MemoryInventoryStore): Promise<void> => {
      await store.preload(sku, stockOf(1));
      answered.push(name);
    };
    const both = [ask('careful', careful), ask('hasty', hasty)];
    await new Promise<void>((resolve) => setImmediate(resolve));
    expect(answered).toEqual(['hasty']);
    promise();
    await Promise.all(both);
    expect(answered).toEqual(['hasty', 'careful']);
  });

  it('refuses while too much waits for a slow disk, and goes on when it is written', async () => {
    const log = {
      append: () => undefined,
      durable: () => Promise.resolve(),
      failure: undefined,
      pendingChars: 0,
    };
    const store = new MemoryInventoryStore(InventoryEngine.over(log));
    await store.preload(sku, stockOf(5));
    log.pendingChars = pendingCharsMax + 1;
    await expect(reserve(store, [request()])).rejects.toThrow(UnavailableError);
    log.pendingChars = 0;
    expect(await store.mark(sku)).toMatchObject({ held: 0 });
    expect(kinds(await reserve(store, [request()]))).toEqual(['reserved']);
  });

  it('refuses to reserve past the bound of the outbox, and goes on below it', async () => {
    const world = new World();
    const engine = InventoryEngine.over();
    const store = new MemoryInventoryStore(engine, 3);
    const queue = new MemoryOrderQueue(engine, { clock: world, timers: world });
    await store.preload(sku, stockOf(10));
    await reserve(store, [request(), request()]);
    await expect(reserve(store, [request(), request()])).rejects.toThrow(UnavailableError);
    await reserve(store, [request()]);
    await queue.acknowledge(await queue.receive('a', 2, 0));
    expect(kinds(await reserve(store, [request(), request()]))).toEqual(['reserved', 'reserved']);
  });
});
