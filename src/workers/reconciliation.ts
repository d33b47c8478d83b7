/**
 * Compares inventory store, queue and durable side, and repairs by rule what has one right answer.
 * What has none is reported, for a person. Every repair leaves an audit row that says who asked for
 * it and why; repairing twice changes nothing.
 */
import type { SkuKey } from '../core/activity.ts';
import { type Finding, type FindingClass, compareSku } from '../core/orders/compare.ts';
import { skuKey } from '../core/orders/decide-batch.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { InventoryStore, RequestRecord } from '../ports/inventory-store.ts';
import type { OrderQueue } from '../ports/order-queue.ts';
import type { CommitFate, Order, OrderStore } from '../ports/order-store.ts';
import type { Random } from '../ports/random.ts';
import { WorkLoop } from './loop.ts';
import { type RebuildParts, rebuildSku } from './rebuild.ts';
import { fateOf } from './settle.ts';

export interface ReconciliationParts {
  readonly inventory: Pick<
    InventoryStore,
    'mark' | 'live' | 'find' | 'settle' | 'adjust' | 'setPaused' | 'rebuild'
  >;
  readonly queue: Pick<OrderQueue, 'backlog' | 'buried'>;
  readonly orders: OrderStore;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly skus: () => readonly SkuKey[];
  /** For rebuilding a SKU; see there. */
  readonly drain?: NonNullable<RebuildParts['drain']>;
  readonly seats?: NonNullable<RebuildParts['seats']>;
  readonly shards?: NonNullable<RebuildParts['shards']>;
  readonly onReport?: (report: ReconcileReport) => void;
  readonly onError?: (error: unknown) => void;
}

export interface ReconciliationSettings {
  /** Differences younger than this are moments. Default 30 s. */
  readonly marginMs?: number;
  /** Between two passes of the loop. Default 60 s. */
  readonly everyMs?: number;
  /** May the loop rebuild a SKU by itself? Default no: that loses undecided reservations. */
  readonly mayRebuild?: boolean;
}

export interface ReconcileOrder {
  readonly repair: boolean;
  /** Rebuilding loses undecided reservations: asked for apart. */
  readonly rebuild?: boolean;
  readonly who: string;
  readonly why: string;
}

export interface ReportedFinding extends Finding {
  readonly activityId: string;
  readonly skuId: string;
  readonly repaired: boolean;
}

export interface ReconcileReport {
  readonly findings: readonly ReportedFinding[];
  readonly skus: number;
  /** SKUs whose sums could not be judged, because they moved all the while. */
  readonly moving: number;
  readonly buried: number;
  readonly counts: Readonly<Partial<Record<FindingClass, number>>>;
}

const page = 1_000;
/** What is due to be told is read up to here; past it sums are not judged. */
const dueMax = 10_000;

export class Reconciliation {
  readonly #parts: ReconciliationParts;
  readonly #marginMs: number;
  readonly #loop: WorkLoop;
  /** SKUs that were paused at the last look though nobody has stopped them: since when, monotonic ms. */
  readonly #pausedSinceMs = new Map<string, number>();

  constructor(parts: ReconciliationParts, settings: ReconciliationSettings = {}) {
    this.#parts = parts;
    this.#marginMs = settings.marginMs ?? 30_000;
    this.#loop = new WorkLoop({
      timers: parts.timers,
      random: parts.random,
      pass: async () => {
        await this.runOnce({
          repair: true,
          rebuild: settings.mayRebuild ?? false,
          who: 'worker:reconciliation',
          why: 'periodic comparison',
        });
        return 'idle';
      },
      idleMs: settings.everyMs ?? 60_000,
      backOffMs: { first: 1_000, most: 60_000 },
      onError: (error) => parts.onError?.(error),
    });
  }

  start(): void {
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Compares everything once. Rejects when a store does not answer; what was repaired stays so. */
  async runOnce(order: ReconcileOrder): Promise<ReconcileReport> {
    const { queue, clock, skus, onReport } = this.#parts;
    const findings: ReportedFinding[] = [];
    let moving = 0;
    const all = skus();
    for (const sku of all) {
      const look = await this.#look(sku);
      if (look === undefined) continue;
      if (!look.still) moving += 1;
      for (const finding of look.findings) {
        const repaired = order.repair && (await this.#repair(sku, finding, look, order));
        findings.push({ ...finding, ...sku, repaired });
      }
    }
    findings.push(...(await this.#strayMoney()));
    const { buried } = await queue.backlog(clock.wallMs());
    const counts: Partial<Record<FindingClass, number>> = {};
    for (const finding of findings) counts[finding.class] = (counts[finding.class] ?? 0) + 1;
    const report = { findings, skus: all.length, moving, buried, counts };
    onReport?.(report);
    return report;
  }

  async #look(sku: SkuKey): Promise<Look | undefined> {
    const { inventory, orders, clock } = this.#parts;
    const durable = await orders.stock(sku);
    const mark = await inventory.mark(sku);
    if (durable === undefined || mark === undefined) return undefined;
    const dueBefore = await orders.restocksDue(dueMax);
    const live = await this.#liveRecords(sku);
    const fates = await this.#fatesOf(live);
    const liveOrders = await this.#liveOrders(sku);
    const strangers = await this.#strangers(sku, live, liveOrders);
    const tally = await orders.tally(sku);
    // Due at either end of the look: what was decided or told in the middle of it is no fault.
    const due = [...dueBefore, ...(await orders.restocksDue(dueMax))];
    const [durableAfter, markAfter] = [await orders.stock(sku), await inventory.mark(sku)];
    const still =
      due.length < 2 * dueMax &&
      mark.sequence === markAfter?.sequence &&
      durable.sold === durableAfter?.sold &&
      durable.paid === durableAfter.paid &&
      durable.total === durableAfter.total;
    const findings = compareSku({
      nowMs: clock.wallMs(),
      marginMs: this.#marginMs,
      skuId: sku.skuId,
      mark: markAfter ?? mark,
      live,
      fates,
      orders: liveOrders,
      strangers,
      durable: {
        ...durable,
        // Rows and counters are read apart: while they move, they are no evidence.
        rowsSold: still ? tally.sold : durable.sold,
        rowsPaid: still ? tally.paid : durable.paid,
        personsWrong: still ? tally.personsWrong : 0,
      },
      due: new Set(due.map((entry) => entry.reservationId)),
      still,
      pausedForMs: this.#pausedForMs(
        sku,
        markAfter?.paused === true && durableAfter?.stopped === false,
      ),
    });
    return { findings, still, live, fates, orders: liveOrders };
  }

  /** @param alone it is paused now, and nobody has stopped it. */
  #pausedForMs(sku: SkuKey, alone: boolean): number | undefined {
    const name = skuKey(sku);
    if (!alone) {
      this.#pausedSinceMs.delete(name);
      return undefined;
    }
    const nowMs = this.#parts.clock.monoUs() / 1_000;
    const sinceMs = this.#pausedSinceMs.get(name) ?? nowMs;
    this.#pausedSinceMs.set(name, sinceMs);
    return nowMs - sinceMs;
  }

  async #liveRecords(sku: SkuKey): Promise<readonly RequestRecord[]> {
    const records: RequestRecord[] = [];
    for (;;) {
      const some = await this.#parts.inventory.live(sku, records.at(-1)?.reservationId, page);
      records.push(...some);
      if (some.length < page) return records;
    }
  }

  async #fatesOf(live: readonly RequestRecord[]): Promise<ReadonlyMap<string, CommitFate>> {
    const fates = new Map<string, CommitFate>();
    for (let at = 0; at < live.length; at += page) {
      const ids = live.slice(at, at + page).map((record) => record.reservationId);
      for (const fate of await this.#parts.orders.fatesOf(ids)) fates.set(fate.reservationId, fate);
    }
    return fates;
  }

  async #liveOrders(sku: SkuKey): Promise<readonly Order[]> {
    const found: Order[] = [];
    for (;;) {
      const some = await this.#parts.orders.liveOrders(sku, found.at(-1)?.reservationId, page);
      found.push(...some.map((entry) => entry.order));
      if (some.length < page) return found;
    }
  }

  /** Live orders beyond the live records, as the inventory store remembers them, if it does. */
  async #strangers(
    sku: SkuKey,
    live: readonly RequestRecord[],
    orders: readonly Order[],
  ): Promise<ReadonlyMap<string, RequestRecord>> {
    const known = new Set(live.map((record) => record.reservationId));
    const strangers = new Map<string, RequestRecord>();
    for (const order of orders) {
      if (known.has(order.reservationId)) continue;
      const record = await this.#parts.inventory.find(
        sku,
        order.userId,
        order.requestId,
        order.personId,
      );
      if (record !== undefined) strangers.set(order.reservationId, record);
    }
    return strangers;
  }

  /** Money without its order belongs to no SKU. */
  async #strayMoney(): Promise<readonly ReportedFinding[]> {
    const { payments } = this.#parts.orders;
    const nowhere = { activityId: '', skuId: '', repair: 'report', repaired: false } as const;
    const [events, misplaced] = [await payments.unmatched(page), await payments.misplaced(page)];
    return [
      ...events.map((event) => ({
        ...nowhere,
        class: 'paid_without_order' as const,
        subject: event.eventId,
        found: `${event.amountMinor} ${event.currency} ${event.outcome} at ${event.provider} for order ${event.orderId}`,
        expected: 'an order of that id',
      })),
      ...misplaced.map((payment) => ({
        ...nowhere,
        class: 'paid_without_order' as const,
        subject: payment.paymentId,
        found: `payment CONFIRMED, and order ${payment.orderId} is not paid by it`,
        expected: 'a paid order, or the money due back',
      })),
    ];
  }

  /** True when the finding is no more. */
  async #repair(
    sku: SkuKey,
    finding: Finding,
    look: Look,
    order: ReconcileOrder,
  ): Promise<boolean> {
    const { orders, clock } = this.#parts;
    const nowMs = clock.wallMs();
    const done = await this.#repairOne(sku, finding, look, order, nowMs);
    if (done) {
      await orders.audit.append({
        at: nowMs,
        who: order.who,
        what: `reconciled ${finding.class} by ${finding.repair}`,
        why: order.why,
        subject: finding.subject,
        detail: { ...sku, found: finding.found, expected: finding.expected },
      });
    }
    return done;
  }

  async #repairOne(
    sku: SkuKey,
    finding: Finding,
    look: Look,
    order: ReconcileOrder,
    nowMs: number,
  ): Promise<boolean> {
    const { inventory, orders } = this.#parts;
    switch (finding.repair) {
      case 'report':
        return false;
      case 'release': {
        const record = look.live.find((one) => one.reservationId === finding.subject);
        if (record === undefined) return false;
        const decided = await orders.releaseUnordered(
          [{ message: { ...record, ...sku }, reason: 'deadline' }],
          nowMs,
        );
        await inventory.settle(sku, decided.map(fateOf), nowMs);
        return true;
      }
      case 'tell': {
        const fate = look.fates.get(finding.subject);
        if (fate === undefined) return false;
        return (await inventory.settle(sku, [fateOf(fate)], nowMs)).changed > 0;
      }
      case 'retake': {
        const found = look.orders.find((one) => one.orderId === finding.subject);
        if (found === undefined) return false;
        const fate = { reservationId: found.reservationId, fate: 'retaken' } as const;
        return (await inventory.settle(sku, [fate], nowMs)).changed > 0;
      }
      case 'adjust': {
        const [durable, mark] = [await orders.stock(sku), await inventory.mark(sku)];
        if (durable === undefined || mark === undefined) return false;
        const id = `reconcile-${mark.generation}-${mark.sequence}-${durable.total}`;
        const { applied } = await inventory.adjust(sku, id, durable.total - mark.total, nowMs);
        return applied;
      }
      case 'rebuild':
        if (order.rebuild !== true) return false;
        await rebuildSku(this.#parts, sku, { who: order.who, why: order.why });
        return true;
    }
  }
}

interface Look {
  readonly findings: readonly Finding[];
  readonly still: boolean;
  readonly live: readonly RequestRecord[];
  readonly fates: ReadonlyMap<string, CommitFate>;
  readonly orders: readonly Order[];
}
