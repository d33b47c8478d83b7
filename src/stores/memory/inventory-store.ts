import type { SkuKey } from '../../core/activity.ts';
import { backlogCeilingDefault } from '../../core/bounds.ts';
import { checkRebuild } from '../../core/stock/validate.ts';
import { UnavailableError, UnknownSkuError } from '../../ports/errors.ts';
import type {
  Fate,
  Preload,
  Rebuild,
  RequestRecord,
  ReserveReply,
  ReserveRequest,
  SettleReply,
  ShardState,
  ShardStore,
  StockMark,
} from '../../ports/inventory-store.ts';
import type { EngineOptions } from './inventory-engine.ts';
import { InventoryEngine } from './inventory-engine.ts';

/** Messages waiting past which nothing more is reserved, whatever the pipeline's ceiling says. */
export const outboxMaxDefault = 10 * backlogCeilingDefault;

/** Live records written between two turns of the event loop while a SKU is rebuilt. */
const stagePiece = 500;

/**
 * The inventory store of one process: the stock machine in memory, journaled before the answer.
 * Everything is O(1) per request but for listings. Memory: below a kibibyte per reservation, kept
 * until its activity is forgotten.
 */
export class MemoryInventoryStore implements ShardStore {
  readonly engine: InventoryEngine;
  readonly #outboxMax: number;
  /** Rebuilds stand in line: their records are put aside in pieces. */
  #rebuilds: Promise<unknown> = Promise.resolve();

  constructor(engine: InventoryEngine, outboxMax: number = outboxMaxDefault) {
    this.engine = engine;
    this.#outboxMax = outboxMax;
  }

  static async open(options: EngineOptions): Promise<MemoryInventoryStore> {
    return new MemoryInventoryStore(await InventoryEngine.open(options));
  }

  preload(sku: SkuKey, stock: Preload): Promise<StockMark> {
    return this.engine.run(() => this.engine.machine.preload(sku, stock));
  }

  async reserve(
    sku: SkuKey,
    batch: readonly ReserveRequest[],
    seenSequence: number,
    nowMs: number,
  ): Promise<ReserveReply> {
    this.engine.refuseIfEnded();
    const { machine } = this.engine;
    if (machine.outbox.pending.size + batch.length > this.#outboxMax)
      throw new UnavailableError(
        `${machine.outbox.pending.size} messages wait in the outbox; at most ${this.#outboxMax} may`,
      );
    const { reply, step } = machine.reserve(sku, batch, seenSequence, nowMs);
    this.engine.record(step);
    if (step !== undefined) this.engine.announceMessages();
    await this.engine.promised(step !== undefined);
    return reply;
  }

  find(sku: SkuKey, userId: string, requestId: string): Promise<RequestRecord | undefined> {
    return this.#read(() => this.engine.machine.find(sku, userId, requestId));
  }

  settle(sku: SkuKey, fates: readonly Fate[], _nowMs: number): Promise<SettleReply> {
    return this.engine.run(() => this.engine.machine.settle(sku, fates));
  }

  adjust(
    sku: SkuKey,
    adjustmentId: string,
    delta: number,
    _nowMs: number,
  ): Promise<{ readonly applied: boolean; readonly mark: StockMark }> {
    return this.engine.run(
      () => this.engine.machine.adjust(sku, adjustmentId, delta) ?? unknown(sku),
    );
  }

  setPaused(sku: SkuKey, paused: boolean): Promise<StockMark> {
    return this.engine.run(() => this.engine.machine.setPaused(sku, paused) ?? unknown(sku));
  }

  mark(sku: SkuKey): Promise<StockMark | undefined> {
    return this.#read(() => this.engine.machine.mark(sku));
  }

  shard(key: SkuKey): Promise<ShardState | undefined> {
    return this.#read(() => this.engine.machine.shard(key));
  }

  moveOut(
    key: SkuKey,
    to: number,
    units: number,
    generation: number,
  ): Promise<ShardState | undefined> {
    return this.engine.run(() => this.engine.machine.moveOut(key, to, units, generation));
  }

  moveIn(
    key: SkuKey,
    from: number,
    upTo: number,
    generation: number,
  ): Promise<ShardState | undefined> {
    return this.engine.run(() => this.engine.machine.moveIn(key, from, upTo, generation));
  }

  holders(sku: SkuKey): Promise<readonly string[]> {
    return this.#read(() => this.engine.machine.holders(sku));
  }

  live(sku: SkuKey, after: string | undefined, limit: number): Promise<readonly RequestRecord[]> {
    return this.#read(() => this.engine.machine.live(sku, after, limit));
  }

  rebuild(sku: SkuKey, state: Rebuild): Promise<StockMark> {
    const work = this.#rebuilds.then(() =>
      this.engine.withoutSnapshots(() => this.#rebuild(sku, state)),
    );
    this.#rebuilds = work.catch(() => undefined);
    return work;
  }

  forget(sku: SkuKey): Promise<boolean> {
    return this.engine.run(() => this.engine.machine.forget(sku));
  }

  close(): Promise<void> {
    return this.engine.close();
  }

  async #read<Value>(look: () => Value): Promise<Value> {
    this.engine.refuseIfEnded();
    const value = look();
    await this.engine.promised(false);
    return value;
  }

  async #rebuild(sku: SkuKey, state: Rebuild): Promise<StockMark> {
    checkRebuild(state);
    const { machine } = this.engine;
    const { live, ...head } = state;
    for (let at = 0; at === 0 || at < live.length; at += stagePiece) {
      this.engine.refuseIfEnded();
      this.engine.record(machine.stage(sku, at === 0, live.slice(at, at + stagePiece)));
      await this.engine.promised(false);
    }
    return this.engine.run(() => machine.rebuild(sku, head));
  }
}

function unknown(sku: SkuKey): never {
  throw new UnknownSkuError(sku.activityId, sku.skuId);
}
