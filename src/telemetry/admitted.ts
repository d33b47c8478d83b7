import type { SkuKey } from '../core/activity.ts';

export interface AdmittedRow extends SkuKey {
  readonly count: number;
}

/** SKUs that are counted apart; what is admitted of further ones is summed. */
export const admittedSkusMax = 500;

/**
 * Submits that took units, per SKU. Only what the stock has let through is counted here, so a flood of
 * refusals neither pays for it nor names anything; rehearsals come and go, hence the bound.
 */
export class Admitted {
  readonly #counts = new Map<string, { readonly row: SkuKey; count: number }>();
  readonly #max: number;

  constructor(max = admittedSkusMax) {
    this.#max = max;
  }

  /** O(1). */
  record({ activityId, skuId }: SkuKey): void {
    const name = `${activityId}/${skuId}`;
    const known = this.#counts.get(name);
    if (known !== undefined) {
      known.count += 1;
      return;
    }
    if (this.#counts.size < this.#max) {
      this.#counts.set(name, { row: { activityId, skuId }, count: 1 });
      return;
    }
    const rest = this.#counts.get('other') ?? {
      row: { activityId: 'other', skuId: 'other' },
      count: 0,
    };
    rest.count += 1;
    this.#counts.set('other', rest);
  }

  *rows(): Iterable<AdmittedRow> {
    for (const { row, count } of this.#counts.values()) yield { ...row, count };
  }
}
