import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { StandIn } from './stand-in.ts';
import type { Misbehaviour } from './stand-in.ts';

/**
 * The stand-in as a process that is started as the real server is: `up --config FILE --json`. A
 * misbehaviour comes before that: `--misbehave NAME`.
 */
const argv = process.argv.slice(2);
const after = (flag: string): string | undefined => {
  const at = argv.indexOf(flag);
  return at < 0 ? undefined : argv[at + 1];
};

interface Written {
  readonly data: string;
  readonly activities: readonly {
    readonly id: string;
    readonly opens_at: string;
    readonly skus: readonly { readonly id: string; readonly stock: number }[];
  }[];
}

const config = JSON.parse(readFileSync(after('--config') ?? '', 'utf8')) as Written;
const activity = config.activities[0]!;
const sku = activity.skus[0]!;
const standIn = new StandIn({
  stock: sku.stock,
  activityId: activity.id,
  skuId: sku.id,
  opensInMs: Date.parse(activity.opens_at) - Date.now(),
  misbehaviour: after('--misbehave') as Misbehaviour | undefined,
});
const { shop, operator, adminToken } = await standIn.listen();
mkdirSync(config.data, { recursive: true });
writeFileSync(join(config.data, 'admin-token'), `${adminToken}\n`, { mode: 0o600 });
process.on('SIGTERM', () => {
  void standIn.close().then(() => process.exit(0));
});
console.log(JSON.stringify({ event: 'listening', shop, operator }));
