import type { SkuKey } from '../../../src/core/activity.ts';
import type { SkuStock as SkuStockClass } from '../../../src/core/stock/sku-stock.ts';
import type { ReserveRequest } from '../../../src/ports/inventory-store.ts';
import type { SoldOutFlags as SoldOutFlagsClass } from '../../../src/pipeline/sold-out-flags.ts';

/** Guards of a sale that can be taken out, one at a time; `nothing` takes out none. */
export const guards = ['nothing', 'stock', 'person', 'nonce', 'epoch'] as const;
export type Guard = (typeof guards)[number];

export interface GuardedClasses {
  readonly SkuStock: typeof SkuStockClass;
  readonly SoldOutFlags: typeof SoldOutFlagsClass;
}

/**
 * What makes a world harsh. `flagless`: no sold-out flag saves any work, so that the stock check
 * alone decides. `late`: sold-out messages are delivered again and again, long after a reopening.
 */
export const worlds = ['flagless', 'late'] as const;
export type HarshWorld = (typeof worlds)[number];

/** Exchanges the code of one guard in these classes, for the life of the process. */
export function without(
  guard: Guard,
  world: HarshWorld,
  { SkuStock, SoldOutFlags }: GuardedClasses,
): void {
  if (world === 'late') redeliverSoldOuts(SoldOutFlags, guard === 'epoch');
  else SoldOutFlags.prototype.ask = () => 'pass';
  switch (guard) {
    case 'nothing':
      return;
    case 'epoch':
      if (world !== 'late') throw new RangeError('the epoch check guards against late messages');
      return;
    case 'stock':
      judgeWith(SkuStock, (stock, judge) => {
        const { available } = stock;
        stock.available = Number.MAX_SAFE_INTEGER;
        try {
          return judge();
        } finally {
          stock.available = available;
        }
      });
      // The other half of the same guard: the sum after each step.
      dropSealsAlarm(SkuStock);
      return;
    case 'person':
      judgeWith(SkuStock, (_, judge) => judge({ limit: Number.MAX_SAFE_INTEGER }));
      return;
    case 'nonce': {
      let asked = 0;
      judgeWith(SkuStock, (_, judge) => {
        asked += 1;
        return judge({ nonce: `never-seen-${asked}` });
      });
      return;
    }
    default:
      throw new RangeError(`--without: found "${String(guard)}"; allowed: ${guards.join(', ')}`);
  }
}

type Judge = SkuStockClass['judge'];

function judgeWith(
  SkuStock: typeof SkuStockClass,
  change: (
    stock: SkuStockClass,
    judge: (otherwise?: Partial<ReserveRequest>) => ReturnType<Judge>,
  ) => ReturnType<Judge>,
): void {
  const original = methodOf(SkuStock.prototype, 'judge');
  SkuStock.prototype.judge = function judgeUnguarded(request) {
    return change(this, (otherwise) => original.call(this, { ...request, ...otherwise }));
  };
}

function dropSealsAlarm(SkuStock: typeof SkuStockClass): void {
  const original = methodOf(SkuStock.prototype, 'seal');
  SkuStock.prototype.seal = function sealUnguarded() {
    try {
      original.call(this);
    } catch (error) {
      if (!(error instanceof Error) || !/does not add up/.test(error.message)) throw error;
    }
  };
}

/**
 * Ten times a second the first sold-out statement of each SKU is heard again. With the epoch check it
 * changes nothing once the SKU has reopened; without it (`believeAll`) whatever was heard last holds.
 */
function redeliverSoldOuts(SoldOutFlags: typeof SoldOutFlagsClass, believeAll: boolean): void {
  const { prototype } = SoldOutFlags;
  const observe = methodOf(prototype, 'observe');
  const hear = methodOf(prototype, 'hear');
  const ask = methodOf(prototype, 'ask');
  const keyOf = (sku: SkuKey): string => `${sku.activityId}/${sku.skuId}`;
  /** The last word on each SKU, whatever its epoch. */
  const soldOut = new Map<string, boolean>();
  const again = new Set<string>();
  prototype.observe = function observeAndKeep(sku, mark) {
    observe.call(this, sku, mark);
    const key = keyOf(sku);
    const odd = mark.stockEpoch % 2 === 1;
    soldOut.set(key, odd);
    if (!odd || again.has(key)) return;
    again.add(key);
    const timer = setInterval(() => {
      soldOut.set(key, true);
      hear.call(this, {
        schemaVersion: 1,
        messageId: 'again',
        eventType: 'SOLD_OUT',
        activityId: sku.activityId,
        skuId: sku.skuId,
        activityVersion: 1,
        stockEpoch: mark.stockEpoch,
        generation: mark.generation,
        emittedAtMs: 0,
      });
    }, 100);
    timer.unref();
  };
  if (!believeAll) return;
  prototype.ask = function askUnguarded(sku, personId) {
    return soldOut.get(keyOf(sku)) === true ? 'sold_out' : ask.call(this, sku, personId);
  };
}

/** A method to be called with whatever `this` its class calls it with. */
function methodOf<Class extends object, Name extends keyof Class>(
  prototype: Class,
  name: Name,
): Class[Name] {
  return prototype[name];
}
