import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SaleProcess } from '../support/sale-process.ts';
import { startPostgres } from '../support/servers/postgres.ts';
import { startRedis } from '../support/servers/redis.ts';

/**
 * A whole server on Redis and PostgreSQL whose store of limits is killed while a crowd asks: every fail
 * policy does what is written, and the emergency budget of an outage is spent once, however often the
 * rules are reloaded and the process is killed. (The policies themselves, in one process and in a
 * moment: test/contract/limits-outage.test.ts.)
 */
const emergency = 7;
/** With the process killed and started again in the outage: three more starts of a server. */
const long = process.env['SLUICE_LONG'] === '1';

const own = { scope: 'exact', limit: { rate: '100000/s' } };
const asked = [
  { id: 'closed', match: { route: 'pay' }, ...own },
  { id: 'instance', match: { route: 'cancel' }, ...own, fail: 'instance' },
  { id: 'open', match: { route: 'facts' }, ...own, fail: 'open' },
];
const leased = {
  id: 'local',
  match: { route: 'order' },
  scope: 'lease',
  limit: { rate: '2000/s', burst: 200 },
  fail: 'local',
};

const shed = /^503 (admission_budget|mode|slots|inflight)/;

type Asked = 'pay' | 'cancel' | 'facts' | 'order';

test('limits store killed under a full server: policies hold, the emergency budget is spent once', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-outage-'));
  const rulesFile = join(folder, 'rules.json');
  let version = 0;
  const write = (...rules: readonly object[]): void => {
    version += 1;
    writeFileSync(`${rulesFile}.new`, JSON.stringify({ version, rules }));
    renameSync(`${rulesFile}.new`, rulesFile);
  };
  write(...asked);
  const [limits, stock, orders] = await Promise.all([startRedis(), startRedis(), startPostgres()]);
  const sale = await SaleProcess.create({
    activity: {
      id: 'act',
      name: 'Act',
      lobby_opens_at: '+0s',
      opens_at: '+1s',
      closes_at: '+1h',
      time_zone: 'Europe/Berlin',
      skus: [{ id: 'sku', name: 'Sku', stock: 5, price: '1.00 EUR' }],
    },
    config: {
      server: { ceiling: '5000/s' },
      stores: {
        admission: limits.url,
        inventory: stock.url,
        orders: await orders.createDatabase(),
        queue: 'redis-streams',
      },
      budgets: { max_instances: 1, emergency },
      rules_file: rulesFile,
    },
  });
  const answers = new Map<string, number>();
  let going = true;
  const askers: Promise<void>[] = [];
  try {
    await sale.start();
    const session = (await (await fetch(`${sale.shop}/v1/session`, { method: 'POST' })).json()) as {
      token: string;
    };
    const headers = { authorization: `Bearer ${session.token}` };
    const paths: Record<Asked, readonly [method: string, path: string]> = {
      pay: ['POST', '/v1/orders/none/pay'],
      cancel: ['DELETE', '/v1/orders/none'],
      facts: ['GET', '/v1/activities'],
      order: ['GET', '/v1/orders/none'],
    };
    const ask = async (what: Asked): Promise<string> => {
      for (;;) {
        const said = await askOnce(what);
        // Health spoke there, and no limit was asked.
        if (!going || !shed.test(said)) return said;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    };
    const askOnce = async (what: Asked): Promise<string> => {
      const [method, path] = paths[what];
      const said = await fetch(sale.shop + path, { method, headers }).catch(() => undefined);
      if (said === undefined) return 'gone';
      const body = (await said.json()) as { reason?: string };
      return body.reason === undefined ? `${said.status}` : `${said.status} ${body.reason}`;
    };
    /** Let through by the limits: there is no such order. */
    const through = { pay: '404 order', cancel: '404 order', order: '404 order', facts: '200' };
    const away = '503 limits_unavailable';
    const until = async (what: Asked, says: string): Promise<void> => {
      for (let tries = 0; (await ask(what)) !== says; tries += 1) {
        if (tries > 3_000) throw new Error(`${what} never says ${says}: ${await ask(what)}`);
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
    };
    const load = (what: Asked): void => {
      const run = async (): Promise<void> => {
        while (going) {
          const said = `${what} ${await ask(what)}`;
          if (!going) return;
          answers.set(said, (answers.get(said) ?? 0) + 1);
        }
      };
      askers.push(run());
    };
    const spent = async (): Promise<number> => {
      const text = await (await fetch(`${sale.operator}/metrics`)).text();
      const line = /^sluice_fail_policy_admissions_total\{policy="local"\} (\d+)/m.exec(text);
      return Number(line?.[1] ?? Number.NaN);
    };
    const record = join(sale.folder, 'data', 'limits', 'instance-0', 'emergency-budgets.json');
    const unspent = (): boolean =>
      existsSync(record) && readFileSync(record, 'utf8').includes('"unspent":true');
    const pause = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 300));

    // First what is asked for each request.
    for (const what of ['pay', 'cancel', 'facts', 'order'] as const) {
      await until(what, through[what]);
      load(what);
    }
    await limits.kill();
    await until('pay', away);
    for (let n = 0; n < 2; n += 1) {
      write(...asked);
      await pause();
      expect(await ask('pay')).toBe(away);
      expect(await ask('cancel')).toBe(through.cancel);
      expect(await ask('facts')).toBe(through.facts);
    }
    await limits.start();
    await until('pay', through.pay);

    // Then what is leased. When it is spent, and the store stays away, health closes the doors too.
    const emergencySpent = async (): Promise<void> => {
      for (let tries = 0; (await spent()) < emergency; tries += 1) {
        if (tries > 1_000) throw new Error(`${await spent()} of ${emergency} are spent`);
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    };
    const nothingMore = async (): Promise<void> => {
      for (let n = 0; n < 20; n += 1) {
        const said = await askOnce('order');
        expect(said === away || shed.test(said), said).toBe(true);
      }
    };
    write(...asked, leased);
    while (!unspent()) await pause();
    await until('order', through.order);
    await limits.kill();
    await emergencySpent();
    for (let n = 0; n < 2; n += 1) {
      write(...asked, leased);
      await pause();
      await nothingMore();
    }
    expect(await spent()).toBe(emergency);
    expect(unspent()).toBe(false);

    if (long) {
      // Killed in the middle of the outage, and tried again: there is nothing left for it to spend.
      await sale.kill();
      await expect(sale.start()).rejects.toThrow('ended at its start');
      // The store is back with nothing in it; the next outage of this epoch finds the budget spent.
      await limits.start();
      await sale.start();
      await until('order', through.order);
      await limits.kill();
      while ((await askOnce('order')) === through.order) await pause();
      await nothingMore();
      expect(await spent()).toBe(0);
    }
    going = false;
    await Promise.all(askers);
    const allowed = new Set([
      ...(['pay', 'cancel', 'facts', 'order'] as const).flatMap((what) => [
        `${what} ${through[what]}`,
        `${what} gone`,
      ]),
      `pay ${away}`,
      `order ${away}`,
      // A lease is spent faster than it flows in: the ordinary no.
      'order 429 rate_limited',
    ]);
    expect([...answers.keys()].filter((said) => !allowed.has(said))).toEqual([]);
  } finally {
    going = false;
    await Promise.all(askers);
    await sale.remove();
    await Promise.all([limits.stop(), stock.stop(), orders.stop()]);
    rmSync(folder, { recursive: true, force: true });
  }
}, 240_000);
