import { expect, test } from 'vitest';
import { runRush, storyOf } from '../support/run-rush.ts';
import { SaleProcess } from '../support/sale-process.ts';
import { startPostgres } from '../support/servers/postgres.ts';
import { startRedis } from '../support/servers/redis.ts';

/**
 * A sale whose one SKU lies in four shards, on real Redis and PostgreSQL, with a crowd at the door: from
 * outside nothing tells it from any other, and inside every unit is accounted for.
 */
test('a crowd buys a SKU in four shards to its last unit, and nobody twice', async () => {
  const [admission, inventory, database] = await Promise.all([
    startRedis(),
    startRedis(),
    startPostgres(),
  ]);
  const [stock, shards] = [50, 4];
  const sale = await SaleProcess.create({
    activity: {
      id: 'act',
      name: 'Act',
      lobby_opens_at: '+0s',
      opens_at: '+3s',
      closes_at: '+1h',
      time_zone: 'Europe/Berlin',
      skus: [{ id: 'sku', name: 'Sku', stock, price: '1.00 EUR', shards }],
      room: { mode: 'draw', pass_life: '5s', claim_window: '5s', max_admissions: '1000/s' },
      payment: { deadline: '2m', grace: '2s' },
    },
    config: {
      server: { ceiling: '100000/s', trusted_proxies: ['127.0.0.0/8'] },
      stores: {
        admission: admission.url,
        inventory: inventory.url,
        orders: await database.createDatabase(),
        queue: 'redis-streams',
      },
    },
  });
  try {
    await sale.start();
    const ran = await runRush({
      target: sale.shop,
      adminUrl: sale.operator,
      adminToken: sale.adminToken,
      people: '200',
      over: '2s',
      duplicates: '20%',
    });
    expect(ran.report.verdict, storyOf(ran)).toBe('holds');
    const { total, sold, held, available } = ran.report.stock;
    expect(total).toBe(stock);
    expect(sold + held + (available ?? Number.NaN)).toBe(stock);
    expect(sold).toBeGreaterThan(stock / 2);
    // Every shard has sold; what one has sent another has received; together they are the whole.
    const field = async (shard: number, ...names: string[]): Promise<number[]> => {
      const said = await inventory.ask('HMGET', `sluice:{act/sku~${shard}}:stock`, ...names);
      return [...said.matchAll(/\$(-1|\d+\r\n(\d+))\r\n/g)].map(([, , value]) =>
        Number(value ?? 0),
      );
    };
    let units = 0;
    for (let one = 0; one < shards; one += 1) {
      const [has = 0, ordered = 0] = await field(one, 'total', 'ordered');
      units += has;
      expect(ordered).toBeGreaterThan(0);
      for (let other = 0; other < shards; other += 1) {
        const [sent] = await field(one, `out:1:${other}`);
        expect(await field(other, `in:1:${one}`)).toEqual([sent]);
      }
    }
    expect(units).toBe(stock);
    expect(await inventory.ask('EXISTS', 'sluice:{act/sku}:stock')).toBe(':0\r\n');
    const look = { dry_run: true, reason: 'a test' };
    expect(await sale.admin('/admin/v1/commands/reconcile', look)).toMatchObject({ findings: [] });

    // All of it is lost: it comes back in as many shards, with every order at its person's home.
    const before = (await Promise.all([0, 1, 2, 3].map((one) => field(one, 'ordered')))).flat();
    await inventory.ask('FLUSHALL');
    await sale.admin('/admin/v1/commands/recover', { reason: 'a test' });
    const after = (await Promise.all([0, 1, 2, 3].map((one) => field(one, 'ordered')))).flat();
    expect(after).toEqual(before);
    expect((await Promise.all([0, 1, 2, 3].map((one) => field(one, 'gen')))).flat()).toEqual([
      2, 2, 2, 2,
    ]);
    expect(await sale.admin('/admin/v1/commands/reconcile', look)).toMatchObject({ findings: [] });
  } finally {
    await sale.remove();
    await Promise.all([admission.stop(), inventory.stop(), database.stop()]);
  }
}, 180_000);
