import type {
  ActionReply,
  OperatorAction,
  OperatorActionKind,
  OperatorActions,
  OperatorContext,
} from '../control/admin/source.ts';
import type { OverloadLoop } from '../control/overload-loop.ts';
import type { Activity } from '../core/activity.ts';
import type { Clock } from '../ports/clock.ts';
import type { Transition } from '../ports/order-store.ts';
import { obeyDoors } from './doors.ts';
import type { DoorsWord } from './fleet.ts';
import type { Stores } from './embedded-stores.ts';

/** What the operator may do to a room; kept durably by whoever implements it. */
export interface RoomSwitches {
  /** False where another process runs the rooms: then nothing can be switched here. */
  readonly leads: boolean;
  /** Name of the process that does, where another does and is known. */
  readonly leader?: string | undefined;
  pause(activityId: string, context: OperatorContext): Promise<boolean>;
  resume(activityId: string, context: OperatorContext): Promise<boolean>;
  hold(activityId: string, context: OperatorContext): Promise<boolean>;
}

export interface OperatorActionsParts {
  readonly stores: Pick<Stores, 'inventory' | 'orders'>;
  readonly activity: (activityId: string) => Activity | undefined;
  readonly rooms: RoomSwitches;
  readonly overload: OverloadLoop;
  /** Tells every other process, where there are any. */
  readonly tellDoors?: (word: DoorsWord) => void;
  readonly clock: Clock;
  /** Units are due back: whoever returns them need not wait for its next look. */
  readonly onUnitsDue: () => void;
}

const offered: readonly OperatorActionKind[] = [
  'pause',
  'resume',
  'hold',
  'stop',
  'reopen',
  'restock',
  'pin_mode',
  'unpin_mode',
  'cancel_order',
];

const done = (detail: string): ActionReply => ({ kind: 'done', detail });
const refused = (detail: string): ActionReply => ({ kind: 'refused', detail });

/** The operator's hands. The durable side is told first, so that a crash in between is found and healed. */
export function operatorActions(parts: OperatorActionsParts): OperatorActions {
  const { stores, rooms, overload, clock } = parts;

  const elsewhere = (): ActionReply => {
    const who = rooms.leader === undefined ? '' : ` (${rooms.leader})`;
    return refused(`another process leads the rooms${who}; ask its operator page`);
  };

  async function forRoom(
    activityId: string,
    how: (activityId: string) => Promise<boolean>,
    said: string,
  ): Promise<ActionReply> {
    if (parts.activity(activityId) === undefined) return refused(`no activity "${activityId}"`);
    if (!rooms.leads) return elsewhere();
    return (await how(activityId)) ? done(said) : refused('it stands so already');
  }

  /** Here at once, and everywhere else as soon as it is heard. */
  function doors(word: DoorsWord): void {
    obeyDoors(overload, word, 0);
    parts.tellDoors?.(word);
  }

  /** One switch for every door: waves stop being released and stock stops being taken, or both go on. */
  async function setStopped(
    activityId: string,
    stopped: boolean,
    context: OperatorContext,
  ): Promise<ActionReply> {
    const activity = parts.activity(activityId);
    if (activity === undefined) return refused(`no activity "${activityId}"`);
    if (!rooms.leads) return elsewhere();
    if (stopped) await rooms.pause(activityId, context);
    const { who, why } = context;
    for (const { skuId } of activity.skus) {
      const sku = { activityId, skuId };
      await stores.orders.setStopped(sku, stopped, { who, why, nowMs: clock.wallMs() });
      await stores.inventory.setPaused(sku, stopped);
    }
    if (!stopped) {
      doors({ kind: 'ramp' });
      await rooms.resume(activityId, context);
    }
    return done(
      stopped ? 'no more waves, no more reservations' : 'waves and reservations go on, by the ramp',
    );
  }

  async function restock(
    action: Extract<OperatorAction, { kind: 'restock' }>,
    context: OperatorContext,
  ): Promise<ActionReply> {
    const { activityId, skuId, delta } = action;
    const sku = { activityId, skuId };
    if (parts.activity(activityId)?.skus.every((one) => one.skuId !== skuId) !== false) {
      return refused(`no SKU "${skuId}" in activity "${activityId}"`);
    }
    const { actionId, who, why } = context;
    if (delta < 0) {
      // Taken from the shelf first: what is not there cannot be taken from the books.
      const { applied, mark } = await stores.inventory.adjust(sku, actionId, delta, clock.wallMs());
      if (!applied) return refused(`only ${mark.available} units are available`);
    }
    const audit = { who, why, nowMs: clock.wallMs() };
    const recorded = await stores.orders.adjustTotal(sku, actionId, delta, audit);
    if (delta > 0) await stores.inventory.adjust(sku, actionId, delta, clock.wallMs());
    const change = `${delta > 0 ? '+' : ''}${delta} units`;
    return done(recorded ? change : `${change}: had been recorded before`);
  }

  async function cancel(orderId: string, context: OperatorContext): Promise<ActionReply> {
    const change: Transition = {
      from: ['PENDING_PAYMENT'],
      to: 'CANCELLED',
      who: context.who,
      why: context.why,
      nowMs: clock.wallMs(),
    };
    const reply = await stores.orders.transition(orderId, change);
    if (reply.kind === 'unknown') return refused(`no order "${orderId}"`);
    if (reply.kind === 'refused') return refused(`the order is ${reply.order.state}`);
    parts.onUnitsDue();
    return done('cancelled; its units go back');
  }

  return {
    offered,
    async perform(action, context) {
      switch (action.kind) {
        case 'pause':
          return forRoom(action.activityId, (id) => rooms.pause(id, context), 'waves paused');
        case 'resume':
          return forRoom(action.activityId, (id) => rooms.resume(id, context), 'waves go on');
        case 'hold':
          return forRoom(action.activityId, (id) => rooms.hold(id, context), 'everybody waits');
        case 'stop':
          return setStopped(action.activityId, true, context);
        case 'reopen':
          return setStopped(action.activityId, false, context);
        case 'restock':
          return restock(action, context);
        case 'pin_mode':
          doors({
            kind: 'pin',
            mode: action.mode,
            forMs: action.forMs,
            who: context.who,
            reason: context.why,
          });
          return done(`mode ${action.mode} is pinned`);
        case 'unpin_mode':
          doors({ kind: 'unpin' });
          return done('the mode follows the signals again');
        case 'cancel_order':
          return cancel(action.orderId, context);
        default:
          return refused(`"${action.kind}" is not offered here; offered: ${offered.join(', ')}`);
      }
    },
  };
}
