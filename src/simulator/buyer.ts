import type { StatusResult } from '../pipeline/request-status.ts';
import type { Verdict } from '../pipeline/stage.ts';
import { holdsUnits } from '../core/orders/states.ts';
import { epochIsSoldOut } from '../pipeline/sold-out-flags.ts';
import { demoMethods } from '../workers/demo-provider.ts';
import { SeededRandom } from './chance.ts';
import { Client, type Pass } from './client.ts';
import type { BuyerItem } from './plan.ts';
import type { Intention } from './promises.ts';
import { type Silence, type World, silence } from './world.ts';

/**
 * One person of a simulated sale, from the first click to whatever end: written as a person would tell
 * it, with the bad luck and bad manners that their persona has. Every wait and every number of tries is
 * bounded; whoever has no patience left goes.
 */
export type Ending =
  | 'bought'
  | 'ordered'
  | 'sold_out'
  | 'not_let_in'
  | 'left'
  | 'closed'
  | 'refused'
  | 'gave_up';

/** Polls of one person in the room, and questions about one request. */
const pollsMax = 40;
const questionsMax = 25;
const triesMax = 8;
/** Names under which a hammer knocks: each is limited by itself. */
const hammerNames = 3;

export class Buyer {
  readonly userId: string;
  /** How it ended; undefined while it has not. */
  ending: Ending | undefined;
  readonly #world: World;
  readonly #item: BuyerItem;
  readonly #draw: SeededRandom;
  readonly #client: Client;
  #requests = 0;
  /** Submits of the present request. */
  #tries = 0;
  #entryToken: string | undefined;

  constructor(world: World, item: BuyerItem) {
    this.#world = world;
    this.#item = item;
    this.userId = `u${item.id}`;
    this.#draw = new SeededRandom(`buyer/${world.plan.seed}/${item.id}`);
    this.#client = new Client(world, this.userId, this.#draw);
  }

  /** Never rejects but for a fault of the simulation. */
  async live(): Promise<void> {
    this.ending = await this.#story();
    this.#world.oracle.edge(`person ${this.ending}`);
    this.#world.note('ends', `${this.userId} ${this.#item.persona} ${this.ending}`);
  }

  async #story(): Promise<Ending> {
    const { persona } = this.#item;
    if (persona === 'forger') return this.#forge();
    if (persona === 'hammer') return this.#hammer();
    const joined = await this.#join();
    if (joined !== undefined) return joined;
    if (persona === 'leaver' && this.#draw.float() < 0.5) {
      await this.#client.leave();
      return 'left';
    }
    let ending: Ending = 'gave_up';
    const rounds = persona === 'persistent' || persona === 'collector' ? 3 : 1;
    for (let round = 0; round < rounds; round += 1) {
      ending = await this.#oneTry();
      if (ending === 'closed' || ending === 'left') return ending;
      if (ending === 'bought' && persona !== 'collector') return ending;
      await this.#world.sleep(200 + this.#draw.below(2_000));
      if (round + 1 < rounds) await this.#join();
    }
    return ending;
  }

  async #join(): Promise<Ending | undefined> {
    for (let tries = 0; tries < triesMax; tries += 1) {
      const reply = await this.#client.join();
      if (reply !== silence && reply.kind === 'joined') {
        this.#entryToken = this.#draw.float() < 0.8 ? reply.entryToken : undefined;
        if (this.#item.persona === 'two_devices') await this.#client.join();
        return undefined;
      }
      if (reply !== silence && reply.kind === 'not_open' && reply.over) return 'closed';
      await this.#world.sleep(300 + this.#draw.below(1_500));
    }
    return 'gave_up';
  }

  /** From waiting to a request's end. */
  async #oneTry(): Promise<Ending> {
    const skuId = this.#wantedSku();
    const waited = await this.#waitForTurn(skuId);
    if (typeof waited === 'string') return waited;
    const { persona } = this.#item;
    if (persona === 'sleeper') await this.#world.sleep(this.#world.activity.room.passLifeMs);
    if (persona === 'leaver') {
      await this.#client.leave();
    }
    const quantity = 1 + this.#draw.below(Math.min(2, waited.maxQuantity));
    const requestId = this.#newRequest();
    if (persona === 'double_click') {
      const other = this.#newRequest();
      const [first, second] = await Promise.all([
        this.#insist(waited, skuId, requestId, quantity, 2),
        this.#insist(waited, skuId, other, quantity, 2),
      ]);
      return first === 'bought' ? first : second;
    }
    if (persona === 'two_devices') {
      const [first] = await Promise.all([
        this.#insist(waited, skuId, requestId, quantity, triesMax),
        this.#insist(waited, skuId, requestId, quantity, 2),
      ]);
      return first;
    }
    const ending = await this.#insist(waited, skuId, requestId, quantity, triesMax);
    if (persona === 'replayer') {
      await this.#insist(waited, skuId, this.#newRequest(), quantity, 1);
      // The same again, as a page does that is loaded anew.
      await this.#world.sleep(this.#draw.below(3_000));
      await this.#insist(waited, skuId, requestId, quantity, 1);
      // The same intention with another content.
      await this.#insist(waited, skuId, requestId, quantity + 1, 1);
    }
    return ending;
  }

  async #waitForTurn(skuId: string): Promise<Pass | Ending> {
    const most = this.#item.persona === 'impatient' ? 4 : pollsMax;
    for (let polls = 0; polls < most; polls += 1) {
      const reply = await this.#client.standing(this.#entryToken);
      let waitMs = 1_000;
      if (reply !== silence && reply.kind === 'unknown_entry') return 'not_let_in';
      if (reply !== silence && reply.kind === 'standing') {
        const { standing } = reply;
        this.#world.oracle.edge(`standing ${standing.state}`);
        waitMs = Math.min(2_000, standing.next_poll_after_ms);
        if (standing.state === 'closed') return 'closed';
        if (standing.state === 'left') return 'left';
        if (standing.state === 'not_drawn' || standing.state === 'missed') return 'not_let_in';
        if (standing.state === 'sold_out' && this.#draw.float() < 0.2) return 'sold_out';
        if (standing.state === 'admitted' || standing.state === 'claimed') {
          const pass = await this.#client.takePass(skuId, this.#entryToken);
          if (pass !== silence && pass.kind === 'pass') {
            this.#world.oracle.edge('pass taken');
            return pass;
          }
          if (pass !== silence && pass.kind === 'not_admitted' && pass.missed) return 'not_let_in';
        }
      }
      await this.#world.sleep(waitMs / 2 + this.#draw.below(Math.ceil(waitMs)));
    }
    return 'gave_up';
  }

  /** Submits until there is an answer, then follows what becomes of it. */
  async #insist(
    pass: Pass,
    skuId: string,
    requestId: string,
    quantity: number,
    most: number,
  ): Promise<Ending> {
    const intention = this.#world.oracle.promises.intention(this.userId, skuId, requestId);
    for (let tries = 0; tries < most; tries += 1) {
      this.#tries = tries + 1;
      const askedAtUs = this.#world.time.nowUs;
      const verdict = await this.#client.submit(pass, { requestId, skuId, quantity });
      const heard = this.#understand(verdict, intention, askedAtUs);
      if (heard === 'follow') return this.#follow(intention);
      if (heard === 'refused' || heard === 'sold_out') return heard;
      await this.#world.sleep(150 + this.#draw.below(1_200));
    }
    // Whoever does not know asks once more before going.
    return this.#follow(intention, 3);
  }

  #understand(
    verdict: Verdict | Silence,
    intention: Intention,
    askedAtUs: number,
  ): 'follow' | 'again' | 'refused' | 'sold_out' {
    if (verdict === silence) return 'again';
    this.#world.oracle.edge(`answer ${verdict.stage} ${verdict.code}`);
    if (verdict.decision === 'handle') {
      const { outcome } = verdict;
      this.#world.oracle.check(
        outcome.requestId === intention.requestId,
        'own answer',
        () =>
          `${this.userId} asked about ${intention.requestId} and heard of ${outcome.requestId ?? ''}`,
      );
      if (verdict.stage === 'sold_out') {
        this.#mayBeTurnedAway(intention, askedAtUs);
        return 'sold_out';
      }
      this.#world.oracle.promises.heard(intention, outcome.state, askedAtUs, outcome.reservationId);
      return outcome.state === 'SOLD_OUT' ? 'sold_out' : 'follow';
    }
    switch (verdict.code) {
      case 'RESERVATION_LOST':
        this.#world.oracle.promises.heard(intention, 'RESERVATION_LOST', askedAtUs);
        return 'again';
      case 'DEPENDENCY_UNAVAILABLE':
        if (verdict.reason === 'stock_unavailable') this.#nothingTaken(intention);
        return this.#draw.float() < 0.5 ? 'follow' : 'again';
      case 'RATE_LIMITED':
      case 'SYSTEM_OVERLOADED':
        return 'again';
      default:
        return 'refused';
    }
  }

  /** "Nothing was taken" is a promise too: only a certain failure may be told so. */
  #nothingTaken(intention: Intention): void {
    // Another copy of the same submit may have fared better.
    const copies = this.#world.plan.items.some(
      (item) => item.kind === 'fault' && item.fault === 'net_twice',
    );
    if (this.#item.persona !== 'honest' || intention.told !== undefined || copies) return;
    for (const { key, stock } of this.#world.servers.inventory.engine.machine.skus.values()) {
      if (key.skuId !== intention.skuId) continue;
      const taken = stock.byRequest(this.userId, intention.requestId);
      this.#world.oracle.check(
        taken === undefined || this.#tries > 1,
        '12',
        () =>
          `${this.userId} was told that nothing was taken, and ${taken?.reservationId ?? ''} was`,
      );
    }
  }

  /**
   * A flag alone has told somebody that nothing is left. Whoever holds a unit that the flag's own epoch
   * knows of must hear of it instead.
   */
  #mayBeTurnedAway(intention: Intention, askedAtUs: number): void {
    const { machine } = this.#world.servers.inventory.engine;
    for (const { key, stock } of machine.skus.values()) {
      if (key.skuId !== intention.skuId || !epochIsSoldOut(stock.stockEpoch)) continue;
      const mine = stock.order.find(
        ({ userId, state }) => userId === this.userId && state !== 'released',
      );
      const { told, takenSinceUs } = this.#world.oracle.promises.intention(
        this.userId,
        key.skuId,
        mine?.requestId ?? '',
      );
      // Only of what they knew of when they asked: before that, this answer may have been right when it
      // was given, and another device of theirs have been served while it was on its way.
      const asksAgain = told !== 'SOLD_OUT' && takenSinceUs <= askedAtUs;
      this.#world.oracle.check(
        mine === undefined || !asksAgain || this.#flagIsOlder(),
        '8',
        () => `${this.userId} holds ${mine?.reservationId ?? ''} and was told that it is sold out`,
      );
    }
  }

  /** Some gateway has not heard of the newest epoch yet: it may be wrong for its time to live. */
  #flagIsOlder(): boolean {
    return this.#world.processes.some((process) => {
      const flags = process.running?.sale.flags;
      if (flags === undefined || !process.has('gateway')) return false;
      for (const { key, stock } of this.#world.servers.inventory.engine.machine.skus.values()) {
        const epoch = flags.epochOf(key);
        if (epoch?.stockEpoch !== stock.stockEpoch || epoch.generation !== stock.generation) {
          return true;
        }
      }
      return false;
    });
  }

  /** Asks what became of it until that is final, pays or not. */
  async #follow(intention: Intention, most = questionsMax): Promise<Ending> {
    let paid = false;
    for (let asked = 0; asked < most; asked += 1) {
      const askedAtUs = this.#world.time.nowUs;
      const reply = await this.#client.status(intention.skuId, intention.requestId);
      const state = stateOf(reply);
      if (state !== undefined) {
        const outcome = reply !== silence && reply.kind === 'outcome' ? reply.outcome : undefined;
        this.#world.oracle.promises.heard(
          intention,
          state,
          askedAtUs,
          outcome?.reservationId ?? null,
        );
        switch (state) {
          case 'PAID':
            return 'bought';
          case 'SOLD_OUT':
            return 'sold_out';
          case 'REJECTED':
          case 'EXPIRED':
          case 'CANCELLED':
          case 'REFUNDED':
          case 'NOT_FOUND':
          case 'RESERVATION_LOST':
            return 'refused';
          case 'ORDERED':
            if (!paid && typeof outcome?.orderId === 'string') {
              const done = await this.#payOrNot(outcome.orderId);
              if (done !== undefined) return done;
              paid = true;
            }
            break;
          default:
            break;
        }
      }
      await this.#world.sleep(200 + this.#draw.below(1_500));
    }
    return 'gave_up';
  }

  async #payOrNot(orderId: string): Promise<Ending | undefined> {
    const { persona } = this.#item;
    if (persona === 'abandoner') return 'ordered';
    const order = await this.#client.order(orderId);
    if (order === silence || order === undefined) return undefined;
    if (!holdsUnits(order.state)) return undefined;
    if (persona === 'canceller') {
      if (this.#draw.float() < 0.5) await this.#client.pay(order, 'card');
      await this.#client.cancel(order);
      return undefined;
    }
    if (persona === 'late_payer') {
      // At the last moment, and with money that takes its time.
      const leftMs = order.payBeforeMs - this.#world.trueMs - 100 - this.#draw.below(900);
      await this.#world.sleep(Math.min(20_000, Math.max(0, leftMs)));
      await this.#client.pay(order, this.#draw.float() < 0.6 ? 'slow' : 'card');
      return undefined;
    }
    // Some think better of it.
    if (persona !== 'honest' && this.#draw.float() < 0.15) {
      await this.#client.cancel(order);
      return undefined;
    }
    const methods = Object.keys(demoMethods);
    const method = this.#draw.float() < 0.5 ? 'card' : methods[this.#draw.below(methods.length)];
    await this.#client.pay(order, method ?? 'card');
    if (this.#draw.float() < 0.2) await this.#client.pay(order, 'card');
    return undefined;
  }

  /** Somebody without a right to anything: whatever they try, nothing is reserved for them. */
  async #forge(): Promise<Ending> {
    const skuId = this.#wantedSku();
    for (let tries = 0; tries < 5; tries += 1) {
      const pathId = this.#world.openPath(skuId);
      const pass = this.#fakePass(skuId);
      const forged = pass === undefined ? undefined : { pass, pathId };
      const requestId = this.#newRequest();
      const verdict = await this.#client.submit(forged, { requestId, skuId, quantity: 1 });
      this.#nothingFor(verdict);
      await this.#world.sleep(1_000 + this.#draw.below(4_000));
    }
    return 'refused';
  }

  /** Under several names, without waiting for answers: knocks that count, and that reserve nothing. */
  async #hammer(): Promise<Ending> {
    const names = Array.from(
      { length: hammerNames },
      (_, at) => new Client(this.#world, `${this.userId}x${at}`, this.#draw),
    );
    const skuId = this.#wantedSku();
    const answers: Promise<unknown>[] = [];
    const knocks = 15 + this.#draw.below(25);
    for (let knock = 0; knock < knocks; knock += 1) {
      const client = names[knock % names.length];
      const asked = client?.submit(undefined, {
        requestId: this.#newRequest(),
        skuId,
        quantity: 1,
      });
      answers.push(Promise.resolve(asked).then((verdict) => this.#nothingFor(verdict)));
      // In bursts: what a lease has left after one is there when the next begins.
      const pause = this.#draw.float() < 0.15 ? 400 + this.#draw.below(2_500) : 20;
      await this.#world.sleep(pause + this.#draw.below(60));
    }
    await Promise.all(answers);
    return 'refused';
  }

  #nothingFor(verdict: Verdict | Silence | undefined): void {
    if (verdict === undefined || verdict === silence) return;
    this.#world.oracle.edge(`answer ${verdict.stage} ${verdict.code}`);
    this.#world.oracle.check(
      verdict.decision !== 'handle' || verdict.outcome.state === 'SOLD_OUT',
      '5',
      () => `${this.userId} has no pass, and was answered ${verdict.code}`,
    );
  }

  /** None, nonsense, one of their own making, or somebody else's. */
  #fakePass(skuId: string): string | undefined {
    const part = (): string => Buffer.from(this.#draw.bytes(24)).toString('base64url');
    switch (this.#draw.below(5)) {
      case 0:
        return undefined;
      case 1:
        return `${part()}.${part()}.${part()}`;
      case 2:
        return this.#world.forgedPass(this.userId, skuId, this.#draw);
      default:
        return this.#world.oracle.promises.somePass(this.userId, (count) =>
          this.#draw.below(count),
        );
    }
  }

  #wantedSku(): string {
    const { skus } = this.#world.plan.shape;
    return skus[this.#draw.below(skus.length)]?.skuId ?? 'sku1';
  }

  #newRequest(): string {
    this.#requests += 1;
    return `${this.userId}-r${this.#requests}`;
  }
}

export function stateOf(reply: StatusResult | Silence): Intention['told'] {
  if (reply === silence) return undefined;
  switch (reply.kind) {
    case 'outcome':
      return reply.outcome.state;
    case 'not_found':
      return 'NOT_FOUND';
    case 'reservation_lost':
      return 'RESERVATION_LOST';
    case 'unavailable':
      return undefined;
  }
}
