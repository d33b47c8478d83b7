import type { SkuKey } from '../core/activity.ts';
import { skuName } from '../core/stock/stock-machine.ts';
import type { ReserveReply, ReserveRequest } from '../ports/inventory-store.ts';
import type { Oracle } from './oracle.ts';
import { type World, activityId } from './world.ts';

/** Stock as the inventory keeps it: the equation, and what was reserved for whom, with which pass. */
export class StockWatch {
  readonly #world: World;
  readonly #oracle: Oracle;
  readonly #sequences = new Map<string, number>();
  /** Nonce → (user, request id) that a store has bound it to. */
  readonly #nonces = new Map<string, { readonly key: string; readonly forgotten: number }>();
  /** (SKU, user, request id) → its reservation. */
  readonly #reservations = new Map<
    string,
    { readonly id: string; readonly fingerprint: string; readonly forgotten: number }
  >();

  constructor(world: World, oracle: Oracle) {
    this.#world = world;
    this.#oracle = oracle;
  }

  /** Stock is not what it was, whatever its sequence says. */
  lookAnew(): void {
    this.#sequences.clear();
  }

  reserved(given: readonly unknown[], reply: ReserveReply): void {
    const [sku, batch] = given as [{ skuId: string }, readonly ReserveRequest[]];
    if (reply.kind !== 'done') {
      this.#oracle.edge(`reserve ${reply.kind}`);
      return;
    }
    for (const [at, outcome] of reply.outcomes.entries()) {
      const request = batch[at];
      if (request === undefined) continue;
      this.#oracle.edge(`reserve ${outcome.kind}`);
      if (outcome.kind !== 'reserved' && outcome.kind !== 'existing') continue;
      const { record } = outcome;
      const key = `${sku.skuId} ${request.userId} ${request.requestId}`;
      const known = this.#reservations.get(key);
      if (outcome.kind === 'reserved') {
        this.#oracle.check(
          !reply.mark.paused,
          'stopped',
          () => `${key} reserved while the sale is stopped`,
        );
        this.#withinLimit(request, { activityId, skuId: sku.skuId });
        const bound = this.#nonces.get(request.nonce);
        this.#oracle.check(
          bound === undefined || bound.key === key || bound.forgotten < this.#oracle.forgotten,
          '3',
          () => `nonce ${request.nonce} served ${bound?.key ?? ''} and now ${key}`,
        );
        this.#oracle.check(
          known === undefined || known.forgotten < this.#oracle.forgotten,
          '3',
          () => `${key} reserved twice: ${known?.id ?? ''} and ${record.reservationId}`,
        );
        this.#nonces.set(request.nonce, { key, forgotten: this.#oracle.forgotten });
        this.#reservations.set(key, {
          id: record.reservationId,
          fingerprint: record.fingerprint,
          forgotten: this.#oracle.forgotten,
        });
      } else if (known !== undefined) {
        this.#oracle.check(
          known.id === record.reservationId || known.forgotten < this.#oracle.forgotten,
          '3',
          () => `${key} has reservation ${known.id}, and is told ${record.reservationId}`,
        );
        this.#oracle.check(
          request.fingerprint === record.fingerprint,
          '3',
          () => `${key} was replayed with another content`,
        );
      }
    }
  }

  /** Everything live of a person, with what they have just got. */
  #withinLimit(request: ReserveRequest, sku: SkuKey): void {
    const stock = this.#world.servers.inventory.engine.machine.skus.get(skuName(sku))?.stock;
    let units = 0;
    for (const { personId, state, quantity } of stock?.order ?? []) {
      if (personId === request.personId && state !== 'released') units += quantity;
    }
    this.#oracle.check(
      units <= request.limit,
      '2',
      () => `${request.personId} holds ${units} units; allowed ${request.limit}`,
    );
  }

  /** Answers whether anything had changed. */
  look(): boolean {
    const { engine } = this.#world.servers.inventory;
    let changed = false;
    for (const { key, stock } of engine.machine.skus.values()) {
      if (this.#sequences.get(key.skuId) === stock.sequence) continue;
      this.#sequences.set(key.skuId, stock.sequence);
      changed = true;
      let [held, ordered] = [0, 0];
      const persons = new Map<string, number>();
      for (const { state, quantity, personId } of stock.order) {
        if (state === 'released') continue;
        if (state === 'held') held += quantity;
        else ordered += quantity;
        persons.set(personId, (persons.get(personId) ?? 0) + quantity);
      }
      const { available, total } = stock;
      this.#oracle.check(
        available >= 0 && held === stock.held && ordered === stock.ordered,
        '1',
        () =>
          `${key.skuId}: ${JSON.stringify(stock.mark())}, and records hold ${held} and ${ordered}`,
      );
      this.#oracle.check(
        available + held + ordered === total,
        '1',
        () => `${key.skuId}: ${available} available + ${held} held + ${ordered} ordered ≠ ${total}`,
      );
    }
    return changed;
  }
}
