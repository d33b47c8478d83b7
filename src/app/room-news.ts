import type { InventoryStore } from '../ports/inventory-store.ts';
import type { OrderMessage } from '../ports/order-queue.ts';
import type { CommitFate, OrderStore, RestockDue } from '../ports/order-store.ts';
import type { Rooms } from './rooms.ts';

export interface RoomNewsParts {
  readonly rooms: Pick<Rooms, 'finish' | 'endAttempt'>;
  readonly inventory: Pick<InventoryStore, 'find'>;
  readonly orders: Pick<OrderStore, 'liveOfPerson'>;
  readonly onError: (error: unknown) => void;
}

/**
 * Tells the room what became of passes. It learns of ends beside the path, and loses nothing if it
 * misses one: a pass that is used up expires, and its place is offered again.
 */
export class RoomNews {
  readonly #parts: RoomNewsParts;

  constructor(parts: RoomNewsParts) {
    this.#parts = parts;
  }

  /** A told fate frees a place in the room, or gives its holder another try. */
  settled(messages: readonly OrderMessage[], fates: readonly CommitFate[]): void {
    const fateById = new Map(fates.map((fate) => [fate.reservationId, fate]));
    for (const message of messages) {
      const fate = fateById.get(message.reservationId);
      if (fate === undefined) continue;
      this.#tell(fate.fate === 'ordered' ? this.#bought(message) : this.#failed(message));
    }
  }

  /** Units came back: their holders may try again. */
  returned(returned: readonly RestockDue[]): void {
    for (const due of returned) this.#tell(this.#endAttemptOf(due));
  }

  async #failed(message: OrderMessage): Promise<void> {
    const { activityId, personId, nonce } = message;
    await this.#parts.rooms.finish(activityId, personId, 'failed');
    await this.#parts.rooms.endAttempt(message, personId, nonce);
  }

  /** Whoever may buy more gets another nonce while the claim window is open; this one is used. */
  async #bought(message: OrderMessage): Promise<void> {
    const { rooms, orders } = this.#parts;
    const { activityId, personId, nonce, quantity, limit } = message;
    if (quantity < limit) {
      const live = await orders.liveOfPerson(message, personId);
      const units = live.reduce((sum, order) => sum + order.quantity, 0);
      // Ended first: the room then counts them as one who has bought, with another try.
      if (units < limit) await rooms.endAttempt(message, personId, nonce);
    }
    await rooms.finish(activityId, personId, 'bought');
  }

  async #endAttemptOf(due: RestockDue): Promise<void> {
    const record = await this.#parts.inventory.find(due, due.userId, due.requestId);
    if (record === undefined || record.reservationId !== due.reservationId) return;
    await this.#parts.rooms.endAttempt(due, record.personId, record.nonce);
  }

  #tell(telling: Promise<void>): void {
    telling.catch((error: unknown) => this.#parts.onError(error));
  }
}
