import type { JoinResult, PassResult, StandingResult } from '../pipeline/door.ts';
import type { StatusResult } from '../pipeline/request-status.ts';
import { type Submission, type SubmitBody, type Verdict, nothingYet } from '../pipeline/stage.ts';
import type { Order } from '../ports/order-store.ts';
import type { PayResult } from '../workers/payment-service.ts';
import type { SeededRandom } from './chance.ts';
import type { Running, SimProcess } from './process.ts';
import { type Silence, type World, activityId, silence } from './world.ts';

/** A pass in somebody's hands. */
export type Pass = Extract<PassResult, { kind: 'pass' }>;

/** What one person's device can ask of the deployment: each question goes to some gateway. */
export class Client {
  readonly userId: string;
  readonly #world: World;
  readonly #draw: SeededRandom;
  readonly #token: string;
  readonly #address: string;

  constructor(world: World, userId: string, draw: SeededRandom) {
    this.#world = world;
    this.userId = userId;
    this.#draw = draw;
    this.#token = world.userToken(userId);
    this.#address = `192.0.2.${draw.below(250) + 1}`;
  }

  join(): Promise<JoinResult | Silence> {
    return this.#ask('join', ({ sale }) =>
      sale.rooms.door.join(activityId, this.#person, { skuIds: [] }),
    );
  }

  standing(entryToken: string | undefined): Promise<StandingResult | Silence> {
    return this.#ask('standing', ({ sale }) =>
      entryToken === undefined
        ? sale.rooms.door.standingByPerson(activityId, this.#person)
        : sale.rooms.door.standingByToken(activityId, entryToken),
    );
  }

  leave(): Promise<boolean | Silence> {
    return this.#ask('leave', ({ sale }) => sale.rooms.door.leave(activityId, this.#person));
  }

  takePass(skuId: string, entryToken: string | undefined): Promise<PassResult | Silence> {
    return this.#ask('pass', async ({ sale }) => {
      const reply = await sale.rooms.door.takePass(activityId, this.#person, skuId, entryToken);
      if (reply.kind === 'pass') {
        this.#world.oracle.promises.passIssued(reply.pass, this.userId, reply.expiresAtMs);
      }
      return reply;
    });
  }

  submit(
    pass: Pick<Pass, 'pass' | 'pathId'> | undefined,
    body: Omit<SubmitBody, 'activityId'>,
  ): Promise<Verdict | Silence> {
    return this.#askProcess('submit', async (gateway) => {
      const whole = { activityId, ...body };
      const pathId = pass?.pathId ?? this.#world.openPath(body.skuId);
      const submission = this.#submission(gateway, pathId, pass?.pass, whole);
      const verdict = await gateway.submit(submission);
      if (verdict?.code === 'SECKILL_QUEUED') {
        this.#world.oracle.promises.takenIn(this.userId, pass?.pass, submission.nowMs);
      }
      return verdict ?? silence;
    });
  }

  status(skuId: string, requestId: string): Promise<StatusResult | Silence> {
    return this.#ask('status', ({ sale }) =>
      sale.status.ask({ activityId, skuId }, this.userId, requestId),
    );
  }

  order(orderId: string): Promise<Order | undefined | Silence> {
    return this.#ask('order', ({ stores }) => stores.orders.orderById(orderId));
  }

  pay(order: Order, method: string): Promise<PayResult | Silence> {
    return this.#ask('pay', ({ sale }) => sale.workers.payments.pay(order, method));
  }

  cancel(order: Order): Promise<unknown> {
    return this.#ask('cancel', ({ sale }) => sale.workers.payments.cancel(order));
  }

  get #person(): { readonly userId: string; readonly personId: string } {
    return { userId: this.userId, personId: this.userId };
  }

  #ask<Value>(
    label: string,
    work: (running: Running) => Promise<Value> | Value,
  ): Promise<Value | Silence> {
    return this.#askProcess<Value | Silence>(label, (gateway) =>
      gateway.running === undefined ? silence : work(gateway.running),
    );
  }

  #askProcess<Value>(
    label: string,
    work: (gateway: SimProcess) => Promise<Value> | Value,
  ): Promise<Value | Silence> {
    return this.#world.ask(label, this.#draw, work);
  }

  #submission(
    gateway: SimProcess,
    pathId: string,
    pass: string | undefined,
    body: SubmitBody,
  ): Submission {
    return {
      arrivedUs: gateway.clock.monoUs(),
      nowMs: gateway.clock.wallMs(),
      address: this.#address,
      pathId,
      head: {
        method: 'POST',
        headerCount: 8,
        contentType: 'application/json',
        contentEncoding: undefined,
        contentLength: 120,
        repeated: undefined,
      },
      userToken: this.#token,
      passToken: pass,
      deviceHash: undefined,
      idempotencyKey: body.requestId,
      traceparent: undefined,
      fromForeignOrigin: false,
      readBody: () => Promise.resolve(body),
      ...nothingYet,
      claim: undefined,
    };
  }
}
