import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { type RunningSale, startSale } from '../support/running-sale.ts';

/**
 * Rules that change while a real server is under load: no request may fail for it, no counter may move
 * that was not meant, and what is wrong must change nothing.
 */
let folder: string;
let sale: RunningSale | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'sluice-rules-'));
});

afterEach(async () => {
  await sale?.stop();
  sale = undefined;
  rmSync(folder, { recursive: true, force: true });
});

const file = (): string => join(folder, 'rules.yaml');

/** As editors and orchestrators do it: beside, and moved into place. */
function write(text: string): void {
  writeFileSync(`${file()}.new`, text);
  renameSync(`${file()}.new`, file());
}

const rules = (version: number, facts: string): string => `
version: ${version}
rules:
  - { id: facts, match: { route: facts }, limit: ${facts} }
  - { id: sessions, match: { route: session }, key: [ip], limit: { rate: 1/h, burst: 5 } }
`;

async function start(): Promise<string> {
  const config = join(folder, 'sluice.yaml');
  writeFileSync(config, `rules_file: ${file()}\noverload: { start: full }\n`);
  sale = await startSale('--config', config, '--fsync', 'os');
  return sale.shop;
}

const facts = (shop: string): Promise<Response> => fetch(`${shop}/v1/activities`);
const session = (shop: string): Promise<Response> =>
  fetch(`${shop}/v1/session`, { method: 'POST' });

/** Asks over and over until it is told to stop; how often each status came, and what failed. */
function load(shop: string): {
  readonly statuses: Map<number, number>;
  readonly failures: unknown[];
  stop(): Promise<void>;
} {
  const statuses = new Map<number, number>();
  const failures: unknown[] = [];
  let going = true;
  const askers = Array.from({ length: 8 }, async () => {
    while (going) {
      try {
        const said = await drained(facts(shop));
        if (isShed(said)) continue;
        statuses.set(said.status, (statuses.get(said.status) ?? 0) + 1);
      } catch (error) {
        failures.push(error);
      }
    }
  });
  return {
    statuses,
    failures,
    async stop() {
      going = false;
      await Promise.all(askers);
    },
  };
}

interface Said {
  readonly status: number;
  readonly text: string;
}

async function drained(asking: Promise<Response>): Promise<Said> {
  const said = await asking;
  return { status: said.status, text: await said.text() };
}

/** Whether health refused, which on a busy machine it may before rules are asked. */
function isShed({ status, text }: Said): boolean {
  return status === 503 && (JSON.parse(text) as { code?: string }).code === 'SYSTEM_OVERLOADED';
}

/** One answer by the rules. */
async function ruled(shop: string): Promise<Said> {
  for (let tries = 0; ; tries += 1) {
    const said = await drained(session(shop));
    if (tries === 200 || !isShed(said)) return said;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await holds())) await new Promise((resolve) => setTimeout(resolve, 20));
}

test('reload under load: no request fails, the new limit holds, untouched balances stay', async () => {
  write(rules(1, '{ rate: 100000/s, burst: 100000 }'));
  const shop = await start();
  for (let n = 0; n < 3; n += 1) expect((await ruled(shop)).status).toBe(200);
  const under = load(shop);
  await until(() => (under.statuses.get(200) ?? 0) > 50);
  expect([...under.statuses.keys()]).toEqual([200]);

  write(rules(2, '{ rate: 1/h, burst: 1 }'));
  await until(() => under.statuses.has(429));
  const admitted = under.statuses.get(200) ?? 0;
  await until(() => (under.statuses.get(429) ?? 0) > 50);
  // One token an hour: what was admitted after the first refusal was under way already.
  expect((under.statuses.get(200) ?? 0) - admitted).toBeLessThanOrEqual(8);
  // Two of five are left, no more and no fewer.
  for (let n = 0; n < 2; n += 1) expect((await ruled(shop)).status).toBe(200);
  const refused = await ruled(shop);
  expect(refused.status).toBe(429);
  expect(JSON.parse(refused.text)).toMatchObject({ rule_id: 'sessions', scope: 'source' });

  write(rules(3, '{ rate: 100000/s, burst: 100000 }'));
  const before = under.statuses.get(200) ?? 0;
  await until(() => (under.statuses.get(200) ?? 0) > before + 50);
  expect((await ruled(shop)).status).toBe(429);
  await under.stop();
  expect(under.failures).toEqual([]);
  expect(new Set(under.statuses.keys())).toEqual(new Set([200, 429]));
});

test('a file that is wrong, older or gone leaves the rules in force', async () => {
  write(rules(5, '{ rate: 1/h, burst: 2 }'));
  const shop = await start();
  expect((await drained(facts(shop))).status).toBe(200);
  const broken = [
    rules(6, '{ rate: a lot }'),
    'rules: [',
    rules(6, '{ rate: 100000/s }').replace('session }', 'sesion }'),
    rules(4, '{ rate: 100000/s, burst: 100000 }'),
  ];
  for (const text of broken) {
    write(text);
    await new Promise((resolve) => setTimeout(resolve, 600));
  }
  rmSync(file());
  await new Promise((resolve) => setTimeout(resolve, 600));
  expect((await drained(facts(shop))).status).toBe(200);
  expect((await drained(facts(shop))).status).toBe(429);
  // And it is still looked at.
  write(rules(6, '{ rate: 100000/s, burst: 100000 }'));
  await until(async () => (await drained(facts(shop))).status === 200);
});

test('a server does not start with a rules file that is wrong, and says why', async () => {
  write(rules(1, '{ rate: a lot }'));
  await expect(start()).rejects.toThrow(/rules\[0\]\.limit\.rate[^]*a lot/);
});
