import { execFileSync } from 'node:child_process';
import pg from 'pg';
import type { Clock, Timers } from '../../ports/clock.ts';
import type { Random } from '../../ports/random.ts';
import { BackOffice, type StockView } from '../rush/back-office.ts';
import { Asker, member } from '../rush/ask.ts';
import { DrillCannotRunError } from './drill.ts';
import { RedisHand } from './redis-hand.ts';
import { type Heard, type Pass, textIn, Visitor } from './visitor.ts';

/** A deployment within reach: its processes are on this machine, its servers answer us. */
export interface SiteParts {
  readonly shop: string;
  readonly operator: string;
  readonly adminToken: string;
  /** Of the servers behind it. */
  readonly admissionUrl: string;
  readonly inventoryUrl: string;
  readonly ordersUrl: string;
  /** Ids by name, as they are now: `control`, `worker-1`, `gateways`, … */
  readonly processes: () => Readonly<Record<string, number>>;
  /** The replica that takes over when the inventory's server dies, where there is one. */
  readonly inventoryStandbyUrl?: () => string | undefined;
  readonly activityId: string;
  readonly skuId: string;
  /** From which every process reads its rules, where that is one. */
  readonly rulesFile?: string;
  /** First part of every key in Redis. */
  readonly prefix: string;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
}

/** Between two looks, ms. */
const lookMs = 50;

/** What a drill may do to a deployment and ask of it; keeps what is to be undone. */
export class Site {
  readonly parts: SiteParts;
  readonly admission: RedisHand;
  readonly inventory: RedisHand;
  readonly #office: BackOffice;
  readonly #operator: Asker;
  readonly #undo: { readonly what: string; readonly run: () => unknown }[] = [];
  #count = 0;

  constructor(parts: SiteParts) {
    this.parts = parts;
    this.admission = new RedisHand(parts.admissionUrl, parts.timers);
    this.inventory = new RedisHand(parts.inventoryUrl, parts.timers);
    this.#office = new BackOffice(parts.operator, parts.adminToken);
    this.#operator = new Asker(new URL(parts.operator), parts.adminToken);
  }

  close(): void {
    this.#office.close();
    this.#operator.close();
  }

  nowMs(): number {
    return this.parts.clock.monoUs() / 1_000;
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.parts.timers.after(ms, resolve));
  }

  /** Looks again and again; whether it came to be within the time. What throws is not so yet. */
  async within(ms: number, holds: () => Promise<boolean>): Promise<boolean> {
    const endMs = this.nowMs() + ms;
    for (;;) {
      if (await holds().catch(() => false)) return true;
      if (this.nowMs() >= endMs) return false;
      await this.sleep(lookMs);
    }
  }

  /** How long it took to come to be, ms; undefined where it did not within the time. */
  async msUntil(withinMs: number, holds: () => Promise<boolean>): Promise<number | undefined> {
    const begunMs = this.nowMs();
    return (await this.within(withinMs, holds)) ? this.nowMs() - begunMs : undefined;
  }

  /** Done after the drill, the last first, whatever becomes of it. */
  undo(what: string, run: () => unknown): void {
    this.#undo.push({ what, run });
  }

  /** What could not be undone, in words. */
  async cleanUp(): Promise<readonly string[]> {
    const failed: string[] = [];
    for (const { what, run } of this.#undo.splice(0).toReversed()) {
      try {
        await run();
      } catch (error) {
        failed.push(`${what}: ${error instanceof Error ? error.message : String(error)}`);
      }
    }
    return failed;
  }

  /** On a fresh connection, as often as it takes to meet every gateway. */
  async isReady(): Promise<boolean> {
    const nobody = this.#visitor();
    for (let look = 0; look < 4; look += 1) {
      if ((await nobody.ask('GET', '/readyz')).status !== 200) return false;
    }
    return true;
  }

  stock(): Promise<StockView> {
    return this.#office.stock(this.parts.activityId);
  }

  ledgerResidual(): Promise<number> {
    return this.#office.ledgerResidual();
  }

  /** @throws Error with what the operator's side answered, where that is not "done". */
  async act(action: string, more: object): Promise<void> {
    const answer = await this.#operator.post('/admin/v1/actions', {
      action,
      activity_id: this.parts.activityId,
      action_id: this.newId('drill'),
      reason: 'a drill',
      ...more,
    });
    if (answer.status !== 200)
      throw new Error(`${action}: ${answer.status} ${String(member(answer.json, 'detail'))}`);
  }

  pid(name: string): number {
    const pid = this.parts.processes()[name];
    if (pid === undefined) throw new DrillCannotRunError(`there is no process "${name}" here`);
    return pid;
  }

  /** Processes behind the shop's port, as they are now. */
  gateways(): readonly number[] {
    const parent = this.parts.processes()['gateways'];
    if (parent === undefined) return [];
    let text: string;
    try {
      text = execFileSync('ps', ['-o', 'pid=', '--ppid', String(parent)], { encoding: 'utf8' });
    } catch {
      // No children, or no such process.
      return [];
    }
    return text.trim().split(/\s+/).filter(Boolean).map(Number);
  }

  /** A connection to the database that ends with the drill. */
  async database(): Promise<pg.Client> {
    const client = new pg.Client({
      connectionString: this.parts.ordersUrl,
      connectionTimeoutMillis: 5_000,
    });
    // A connection that is cut is an event without a question to fail.
    client.on('error', () => undefined);
    await client.connect();
    return client;
  }

  newId(what: string): string {
    return `${what}-${Buffer.from(this.parts.random.bytes(9)).toString('base64url')}`;
  }

  /** Somebody new, from an address of their own. */
  visitor(keeps = false): Visitor {
    const visitor = this.#visitor(keeps);
    this.undo('closing connections', () => visitor.close());
    return visitor;
  }

  /** Somebody who stands in the room; leaves it afterwards. */
  async waiting(): Promise<Visitor> {
    const { activityId, skuId } = this.parts;
    const visitor = this.visitor();
    const signedIn = await this.#untilHeard(() => visitor.signIn());
    if (signedIn.status !== 200)
      throw new DrillCannotRunError(`the shop gives out no users (${said(signedIn)})`);
    const joined = await this.#untilHeard(() => visitor.join(activityId, skuId));
    if (joined.status >= 300)
      throw new DrillCannotRunError(`nobody can join the sale (${said(joined)})`);
    this.undo('leaving the room', () => visitor.leave(activityId));
    return visitor;
  }

  /** Somebody whose turn it is, with a pass. Waits for it. */
  async admitted(): Promise<{ readonly visitor: Visitor; readonly pass: Pass }> {
    const { activityId, skuId } = this.parts;
    const visitor = await this.waiting();
    let pass: Pass | undefined;
    await this.within(40_000, async () => {
      pass = await visitor.takePass(activityId, skuId);
      return pass !== undefined;
    });
    if (pass === undefined)
      throw new DrillCannotRunError(
        `nobody is let in: the sale must be open, with units (${said(await visitor.standing(activityId))})`,
      );
    return { visitor, pass };
  }

  /** Submits, and gives the unit back afterwards. */
  async buy(
    visitor: Visitor,
    pass: Pass,
  ): Promise<{ readonly requestId: string; readonly submitted: Heard }> {
    const { activityId, skuId } = this.parts;
    const requestId = this.newId('drill');
    this.undo('giving the unit back', async () => {
      let orderId = '';
      const known = await this.within(20_000, async () => {
        const heard = await visitor.status(activityId, skuId, requestId);
        orderId = textIn(heard, 'order_id');
        return orderId !== '' || heard.status === 404 || heard.status === 409;
      });
      if (!known) throw new Error(`request ${requestId} has no outcome`);
      if (orderId === '') return;
      // What was broken may not be whole yet: "not now" is asked again.
      let cancelled = await visitor.cancel(orderId);
      await this.within(20_000, async () => {
        if (cancelled.status >= 500) cancelled = await visitor.cancel(orderId);
        return cancelled.status < 500;
      });
      if (cancelled.status !== 200) throw new Error(`order ${orderId}: ${said(cancelled)}`);
    });
    return {
      requestId,
      submitted: await this.#untilHeard(() => visitor.submit(pass, activityId, skuId, requestId)),
    };
  }

  /** The state of a request in the words of the wire; '' where it is not said. */
  async stateOf(visitor: Visitor, requestId: string): Promise<string> {
    const { activityId, skuId } = this.parts;
    return textIn(await visitor.status(activityId, skuId, requestId), 'state');
  }

  /** Asks again, as people do, while health or a limit says "not now"; at most ten seconds. */
  async #untilHeard(ask: () => Promise<Heard>): Promise<Heard> {
    const endMs = this.nowMs() + 10_000;
    for (;;) {
      const heard = await ask();
      const notNow = heard.status === 429 || heard.body['code'] === 'SYSTEM_OVERLOADED';
      if (!notNow || this.nowMs() >= endMs) return heard;
      await this.sleep(500);
    }
  }

  #visitor(keeps = false): Visitor {
    this.#count += 1;
    const address = `198.51.100.${1 + (this.#count % 250)}`;
    return new Visitor(new URL(this.parts.shop), address, () => this.nowMs(), keeps);
  }
}

export const said = ({ status, body }: Heard): string =>
  `${status} ${typeof body['code'] === 'string' ? body['code'] : ''}`.trim();

/** Milliseconds for people; "never" where it did not come to be. */
export const inMs = (ms: number | undefined): string =>
  ms === undefined ? 'never' : `${Math.round(ms)} ms`;
