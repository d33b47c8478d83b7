import type { OperatorContext } from '../control/admin/source.ts';
import { SeededRandom } from './chance.ts';
import { isPortFailure } from './oracle.ts';
import type { ActItem } from './plan.ts';
import type { Running } from './process.ts';
import { type World, activityId } from './world.ts';

/** Tries of one act by an operator whose page shows an error. */
const triesMax = 10;

/** What the operator of a simulated sale does, by the product's own hands, with an error now and then. */
export class Operator {
  readonly #world: World;
  #busy = 0;

  constructor(world: World) {
    this.#world = world;
  }

  /** Nothing is half done. */
  get idle(): boolean {
    return this.#busy === 0;
  }

  async act(item: ActItem): Promise<void> {
    this.#busy += 1;
    await this.#act(item);
    this.#busy -= 1;
  }

  async #act(item: ActItem): Promise<void> {
    const draw = new SeededRandom(`act/${this.#world.plan.seed}/${item.id}`);
    const context = { who: 'operator', why: item.act, actionId: `act-${item.id}` };
    this.#world.note('act', item.act);
    await this.#insist(item.act, (running) => this.#once(item, draw, running, context));
    const again = undoing[item.act];
    if (again === undefined) return;
    await this.#world.sleep(500 + draw.below(4_000));
    await this.#insist(item.act, (running) => again(running, context));
  }

  /** Before the sale ends in peace: whatever is still closed is opened. */
  async openAll(): Promise<void> {
    this.#busy += 1;
    const context = { who: 'operator', why: 'all is well', actionId: 'open-all' };
    const open = async (running: Running): Promise<void> => {
      await running.actions.perform({ kind: 'reopen', activityId }, context);
      await running.sale.rooms.resume(activityId, context);
      running.overload.unpin();
    };
    await this.#insist('open', open);
    this.#busy -= 1;
  }

  async #once(
    item: ActItem,
    draw: SeededRandom,
    running: Running,
    context: OperatorContext,
  ): Promise<void> {
    const { skus } = this.#world.plan.shape;
    const wanted = skus[item.size % skus.length] ?? skus[0];
    const skuId = wanted?.skuId ?? 'sku1';
    const sku = { activityId, skuId };
    const { actions, sale, stores } = running;
    switch (item.act) {
      case 'restock':
      case 'shrink': {
        if (wanted?.seats === true) return;
        const units = 1 + (item.size % 3);
        const delta = item.act === 'restock' ? units : -units;
        await actions.perform({ kind: 'restock', activityId, skuId, delta }, context);
        return;
      }
      case 'stop_and_reopen':
        await actions.perform({ kind: 'stop', activityId }, context);
        return;
      case 'hold_and_resume':
        await actions.perform({ kind: 'hold', activityId }, context);
        return;
      case 'pause_and_resume':
        await actions.perform({ kind: 'pause', activityId }, context);
        return;
      case 'cancel_order':
      case 'refund_order': {
        const orders = await stores.orders.search({ activityId, limit: 100 });
        const order = orders[draw.below(Math.max(1, orders.length))];
        if (order === undefined) return;
        if (item.act === 'cancel_order') {
          await actions.perform({ kind: 'cancel_order', orderId: order.orderId }, context);
        } else await sale.workers.payments.refund(order.orderId, context.who, context.why);
        return;
      }
      case 'revoke_wave':
        await sale.rooms.revokeWave(activityId, 1 + (item.size % 4), context);
        return;
      case 'reconcile':
        await sale.reconciliation.runOnce({ repair: true, ...context });
        return;
      case 'rebuild':
        await sale.rebuild(sku, context.who, context.why);
        return;
      case 'bypass': {
        const people = this.#world.plan.items.filter(({ kind }) => kind === 'buyer');
        const person = people[item.size % Math.max(1, people.length)];
        if (person === undefined) return;
        const entryId = await sale.rooms.door.entryIdOf(activityId, `u${person.id}`);
        await sale.rooms.bypass(activityId, entryId, context);
        return;
      }
      case 'pin_mode': {
        const modes = ['DEGRADED', 'QUEUE_ONLY', 'CLOSED'] as const;
        const mode = modes[item.size % modes.length] ?? 'DEGRADED';
        await actions.perform({ kind: 'pin_mode', mode, forMs: 3_000 }, context);
      }
    }
  }

  /** At whichever process leads, again where it failed: the same act has the same id. */
  async #insist(what: string, work: (running: Running) => Promise<void>): Promise<void> {
    for (let tries = 0; tries < triesMax; tries += 1) {
      const process = this.#world.processes.find(
        ({ running }) => running?.sale.rooms.leads === true,
      );
      const running = process?.running;
      if (process !== undefined && running !== undefined) {
        const { life } = process;
        const outcome = await Promise.race([
          this.#tried(process.name, what, () => work(running)),
          // The operator's page waits no longer, whatever becomes of it.
          this.#world.sleep(8_000).then(() => 'slow' as const),
        ]);
        if (outcome === 'done' && process.life === life) return;
      }
      await this.#world.sleep(1_000);
    }
  }

  async #tried(where: string, what: string, work: () => Promise<void>): Promise<'done' | 'failed'> {
    try {
      await work();
      return 'done';
    } catch (error) {
      if (!isPortFailure(error)) this.#world.oracle.trouble(where, what, error);
      return 'failed';
    }
  }
}

const undoing: Readonly<
  Partial<Record<ActItem['act'], (running: Running, context: OperatorContext) => Promise<void>>>
> = {
  stop_and_reopen: async ({ actions }, context) => {
    await actions.perform({ kind: 'reopen', activityId }, context);
  },
  hold_and_resume: async ({ actions }, context) => {
    await actions.perform({ kind: 'resume', activityId }, context);
  },
  pause_and_resume: async ({ actions }, context) => {
    await actions.perform({ kind: 'resume', activityId }, context);
  },
};
