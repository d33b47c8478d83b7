import { auditLines } from '../control/room-audit.ts';
import { holdsUnits } from '../core/orders/states.ts';
import { verifyDraw } from '../core/room/audit.ts';
import { stateOf } from './buyer.ts';
import { Client } from './client.ts';
import { SeededRandom } from './chance.ts';
import type { Intention } from './promises.ts';
import { type World, activityId } from './world.ts';

/**
 * When everything has come to rest: do the stores agree, is everybody answered, is no money lost, is
 * every request found again, and does the draw come out the same? Here nothing may be "not yet".
 */
export async function checkEnding(world: World): Promise<void> {
  await askForAll(world);
  checkStock(world);
  checkQueue(world);
  checkMoney(world);
  checkLedgers(world);
  await checkDraw(world);
}

/** Nothing is on its way any more: an early look at what `checkEnding` will ask. O(orders). */
export function isSettled(world: World): boolean {
  const { servers, plan } = world;
  const { machine } = servers.inventory.engine;
  if (machine.outbox.pending.size > 0) return false;
  for (const order of servers.orders.everyOrder()) {
    if (order.state === 'PENDING_PAYMENT') return false;
  }
  for (const fate of servers.orders.everyFate()) if (fate.due) return false;
  for (const { state } of servers.orders.everyPayment()) {
    if (unfinished.has(state)) return false;
  }
  return plan.shape.skus.every(({ skuId }) => {
    const durable = servers.orders.stockNow({ activityId, skuId });
    const stock = [...machine.skus.values()].find(({ key }) => key.skuId === skuId)?.stock;
    return (
      durable !== undefined &&
      stock !== undefined &&
      !stock.paused &&
      stock.held === 0 &&
      stock.ordered === durable.sold &&
      stock.total === durable.total &&
      stock.generation === durable.generation
    );
  });
}

/** Only whoever leads can build anew what was forgotten, or reopen what stayed paused. */
export function needsLeader(world: World): boolean {
  const { machine } = world.servers.inventory.engine;
  return world.oracle.forgotten > 0 || [...machine.skus.values()].some(({ stock }) => stock.paused);
}

const unfinished: ReadonlySet<string> = new Set(['CREATED', 'PROCESSING', 'UNKNOWN', 'REFUND_DUE']);

const finalStates: ReadonlySet<string> = new Set([
  'PAID',
  'REFUNDED',
  'EXPIRED',
  'CANCELLED',
  'REJECTED',
  'RESERVATION_LOST',
  'NOT_FOUND',
]);

/** Every question that may get an answer in the morning. */
const questions = 12;

/** Whoever was told that they are in is told how it ended, and the durable side says the same. */
async function askForAll(world: World): Promise<void> {
  const { oracle } = world;
  for (const intention of oracle.promises.all()) {
    if (intention.told === undefined || intention.told === 'SOLD_OUT') continue;
    const state = await finalAnswer(world, intention);
    const { userId, requestId, told } = intention;
    oracle.check(
      state !== undefined && finalStates.has(state),
      '12',
      () =>
        `${userId} was told ${told ?? ''} of ${requestId}, and in the end ${state ?? 'nothing'}`,
    );
  }
}

async function finalAnswer(world: World, intention: Intention): Promise<Intention['told']> {
  const { userId, skuId, requestId } = intention;
  const client = new Client(world, userId, new SeededRandom(`morning/${userId}/${requestId}`));
  let state: Intention['told'];
  let askedAtUs = 0;
  for (let asked = 0; asked < questions; asked += 1) {
    askedAtUs = world.time.nowUs;
    state = stateOf(await client.status(skuId, requestId));
    if (state !== undefined && finalStates.has(state)) break;
    await world.sleep(1_500);
  }
  if (state !== undefined) world.oracle.promises.heard(intention, state, askedAtUs);
  return state;
}

function checkStock(world: World): void {
  const { servers, oracle, plan } = world;
  const live = new Map<string, Map<string, number>>();
  for (const order of servers.orders.everyOrder()) {
    oracle.check(
      order.state !== 'PENDING_PAYMENT',
      '12',
      () => `order ${order.orderId} is still unpaid, and was to be paid by ${order.payBeforeMs}`,
    );
    if (!holdsUnits(order.state)) continue;
    const ofSku = live.get(order.skuId) ?? new Map<string, number>();
    ofSku.set(order.reservationId, order.quantity);
    live.set(order.skuId, ofSku);
  }
  for (const { skuId } of plan.shape.skus) {
    const durable = servers.orders.stockNow({ activityId, skuId });
    const entry = [...servers.inventory.engine.machine.skus.values()].find(
      ({ key }) => key.skuId === skuId,
    );
    if (durable === undefined || entry === undefined) {
      oracle.fail('1', `${skuId}: no stock is known in the end`);
      continue;
    }
    const { stock } = entry;
    const seen = JSON.stringify({ inventory: stock.mark(), orders: durable });
    oracle.check(stock.held === 0, '1', () => `${skuId}: units are still held: ${seen}`);
    oracle.check(stock.total === durable.total, '1', () => `${skuId}: totals differ: ${seen}`);
    oracle.check(stock.ordered === durable.sold, '1', () => `${skuId}: sales differ: ${seen}`);
    oracle.check(!stock.paused, 'liveness', () => `${skuId} is still paused: ${seen}`);
    oracle.check(
      stock.generation === durable.generation,
      '1',
      () => `${skuId}: generations differ: ${seen}`,
    );
    const orders = live.get(skuId) ?? new Map<string, number>();
    for (const { reservationId, state } of stock.order) {
      oracle.check(
        (state !== 'released') === orders.has(reservationId),
        '1',
        () => `${skuId}: reservation ${reservationId} is ${state}, its order says otherwise`,
      );
    }
  }
}

function checkQueue(world: World): void {
  const { servers, oracle } = world;
  const { outbox } = servers.inventory.engine.machine;
  oracle.check(outbox.pending.size === 0, '12', () => `${outbox.pending.size} messages still wait`);
  let due = 0;
  for (const fate of servers.orders.everyFate()) if (fate.due) due += 1;
  oracle.check(due === 0, '12', () => `${due} fates have not been told to the inventory`);
  if (oracle.forgotten > 0) return;
  const found = outbox.acknowledged + outbox.buried.size + outbox.pending.size;
  // Of messages that a crash took before anybody was answered, only the numbers are left.
  const produced = outbox.produced - servers.inventory.numbersSkipped;
  oracle.check(
    produced === found,
    '11',
    () => `${produced} messages were produced, ${found} are found`,
  );
}

function checkMoney(world: World): void {
  const { servers, oracle } = world;
  const orders = new Map([...servers.orders.everyOrder()].map((order) => [order.orderId, order]));
  for (const payment of servers.orders.everyPayment()) {
    const order = orders.get(payment.orderId);
    const { state, paymentId } = payment;
    const told = (): string =>
      `payment ${paymentId} is ${state} (${payment.reason}), order ${payment.orderId} ${order?.state ?? 'gone'}`;
    switch (state) {
      case 'CONFIRMED':
        oracle.check(order?.state === 'PAID' && order.paidBy === paymentId, '12', told);
        break;
      case 'FAILED':
      case 'REFUNDED':
        oracle.check(order?.paidBy !== paymentId || order.state === 'REFUNDED', '12', told);
        break;
      case 'HELD':
        // Another amount than was asked, or a refund that the provider refuses: the operator's to decide.
        break;
      default:
        oracle.fail('12', told());
    }
  }
  for (const order of orders.values()) {
    if (order.state !== 'PAID') continue;
    const payment = servers.orders.everyPayment().find((one) => one.paymentId === order.paidBy);
    oracle.check(
      payment?.state === 'CONFIRMED',
      '12',
      () => `order ${order.orderId} is paid by ${payment?.state ?? 'nothing'}`,
    );
    oracle.check(
      payment === undefined || !paidShort(payment.intentId),
      '12',
      () => `order ${order.orderId} is PAID, and less was paid than it costs`,
    );
  }
}

/** The demo provider's intents say how they are paid; that method pays one unit of money too little. */
function paidShort(intentId: string): boolean {
  const facts = /^int_([^.]+)\./.exec(intentId)?.[1] ?? '';
  return Buffer.from(facts, 'base64url').toString().includes('"short"');
}

function checkLedgers(world: World): void {
  for (const { running, name, inSystem } of world.processes) {
    if (running === undefined) continue;
    const residual = running.ledger.residual();
    world.oracle.check(residual === 0, '11', () => `${name}: residual ${residual}`);
    world.oracle.check(inSystem === 0, '11', () => `${name}: ${inSystem} submits have no answer`);
    const { slots } = running.overload;
    world.oracle.check(
      slots.submit.inflight === 0,
      '9',
      () => `${name}: ${slots.submit.inflight} slots were never given back`,
    );
  }
}

/** Recomputed from the audit file alone. */
async function checkDraw(world: World): Promise<void> {
  const { mode } = world.plan.shape.room;
  if (mode === 'passthrough' || mode === 'reject' || world.oracle.room.decisions === 0) return;
  const lines: string[] = [];
  for await (const line of auditLines(world.servers.admission.store, world.activity)) {
    lines.push(line);
  }
  const verdict = verifyDraw(lines.join(''));
  world.oracle.check(
    verdict.holds,
    '13',
    () => `the audit does not hold: ${JSON.stringify(verdict.problems.slice(0, 2))}`,
  );
}
