import type { SkuKey } from '../core/activity.ts';
import type { InventoryStore, StockMark } from '../ports/inventory-store.ts';

export interface ForgottenStockParts {
  readonly inventory: Pick<InventoryStore, 'mark'>;
  /** May this process act for all? */
  readonly leads: () => boolean;
  /** Says it to whoever leads. */
  readonly tell: (sku: SkuKey, generation: number) => void;
  /** Builds the SKU anew; only asked of the leader. */
  readonly rebuild: (sku: SkuKey, generation: number) => Promise<void>;
  /** A newer generation has taken its place. */
  readonly onRebuilt: (sku: SkuKey, mark: StockMark) => void;
  readonly onError: (sku: SkuKey, error: unknown) => void;
}

/**
 * SKUs whose stock has lost what it had acknowledged, until the leader has built them anew. Whoever
 * notices says so again at every look, because the first word may not have been heard; the leader tries
 * again at every look, because a rebuild may fail half way.
 */
export class ForgottenStock {
  readonly #parts: ForgottenStockParts;
  /** By name; with the generation that has forgotten. */
  readonly #known = new Map<string, { readonly sku: SkuKey; readonly generation: number }>();
  #mending: Promise<void> | undefined;

  constructor(parts: ForgottenStockParts) {
    this.#parts = parts;
  }

  /** That this generation of a SKU's stock has forgotten; 0 where the store does not know the SKU. */
  note(sku: SkuKey, generation: number): void {
    const name = nameOf(sku);
    const known = this.#known.get(name);
    if (known !== undefined && known.generation >= generation) return;
    this.#known.set(name, { sku, generation });
    this.#parts.tell(sku, generation);
  }

  /** Begins what is to be done, unless it is under way. */
  look(): void {
    if (this.#known.size === 0) return;
    this.#mending ??= this.#mend().finally(() => {
      this.#mending = undefined;
    });
  }

  /** Resolves once nothing is under way. */
  async settled(): Promise<void> {
    await this.#mending;
  }

  async #mend(): Promise<void> {
    const { inventory, leads, tell, rebuild, onRebuilt, onError } = this.#parts;
    for (const [name, { sku, generation }] of this.#known) {
      try {
        const mark = await inventory.mark(sku);
        if (mark !== undefined && mark.generation > generation) {
          this.#known.delete(name);
          onRebuilt(sku, mark);
        } else if (leads()) await rebuild(sku, generation);
        else tell(sku, generation);
      } catch (error) {
        onError(sku, error);
      }
    }
  }
}

function nameOf({ activityId, skuId }: SkuKey): string {
  return `${activityId}/${skuId}`;
}
