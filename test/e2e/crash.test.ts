import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { systemClock, systemTimers } from '../../src/app/system.ts';
import { shapedArrivals } from '../../src/lab/rush/arrivals.ts';
import { BackOffice } from '../../src/lab/rush/back-office.ts';
import type { StockView } from '../../src/lab/rush/back-office.ts';
import { Crowd } from '../../src/lab/rush/crowd.ts';
import { Dice } from '../../src/lab/rush/dice.ts';
import { isLive } from '../../src/lab/rush/dossier.ts';
import type { Dossier, RequestTrace } from '../../src/lab/rush/dossier.ts';
import { scenarios } from '../../src/lab/rush/scenarios.ts';
import { closeDoors, sweep } from '../../src/lab/rush/sweep.ts';
import { adminTokenIn, freePorts, SluiceProcess } from '../support/sluice-process.ts';
import { SeededRandom } from '../support/world.ts';

/**
 * One sale, and a server that is killed with SIGKILL at twenty seeded instants of it: in the lobby,
 * around the draw, in the rush, while orders are made and paid. Each time it starts again on the same
 * folder, and what people were told before must still be true. The crowd never learns that anything
 * happened but that nobody answered for a while.
 */
const seed = 'twenty instants';
const kills = 20;
const people = 500;
const stock = 120;
const activityId = 'crash';

const root = mkdtempSync(join(tmpdir(), 'sluice-crash-'));
const servers: SluiceProcess[] = [];
afterAll(async () => {
  // Where a test has failed its server is still there.
  for (const server of servers) await server.kill();
  rmSync(root, { recursive: true, force: true });
});

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

async function configured(folder: string, opensInMs: number): Promise<string> {
  const [port, adminPort] = await freePorts(2);
  const now = Date.now();
  const at = (ms: number): string => new Date(now + ms).toISOString();
  const file = join(folder, 'crash.yaml');
  writeFileSync(
    file,
    JSON.stringify({
      server: { port, admin_port: adminPort, trusted_proxies: ['127.0.0.0/8'] },
      data: join(folder, 'data'),
      // Nothing told may be lost, so nothing is told before the system has it; a killed process
      // loses nothing then. Power cuts are the journal's own tests.
      stores: { fsync: 'os' },
      identity: { mode: 'demo', demo_anywhere: true },
      activities: [
        {
          id: activityId,
          name: 'Crash',
          lobby_opens_at: at(-1_000),
          opens_at: at(opensInMs),
          closes_at: at(3_600_000),
          skus: [{ id: 'ticket', name: 'Ticket', stock, price: '20.00 EUR' }],
          room: { claim_window: '15s', pass_life: '20s', max_admissions: '500/s' },
          payment: { deadline: '60s', grace: '5s' },
        },
      ],
      telemetry: { log_level: 'warn' },
    }),
  );
  return file;
}

/** Asks the operator's side until it answers as wished, or gives the last answer; a busy machine may miss some. */
async function settled<Value>(
  ask: () => Promise<Value>,
  good: (value: Value) => boolean,
): Promise<Value> {
  for (let tries = 1; ; tries += 1) {
    try {
      const value = await ask();
      if (good(value) || tries === 40) return value;
    } catch (error) {
      if (tries === 40) throw error;
    }
    await pause(100);
  }
}

const addsUp = ({ total, sold, held, available }: StockView): boolean =>
  sold + held + available === total;

/** Everybody who was told that they hold a unit, and has not given it back. */
function winners(crowd: Crowd): [Dossier, RequestTrace][] {
  return [...crowd.dossiers.values()].flatMap((dossier) =>
    dossier.requests
      .filter((request) => isLive(request.state) && !request.cancelAsked)
      .map((request): [Dossier, RequestTrace] => [dossier, request]),
  );
}

/** Submits once more with the same request id, as a buyer would who never heard the answer. */
async function submitAgain(
  crowd: Crowd,
  shop: string,
  dossier: Dossier,
  request: RequestTrace,
): Promise<{ readonly status: number; readonly body: Record<string, unknown> }> {
  const answer = await fetch(new URL(dossier.submitPath, shop), {
    method: 'POST',
    headers: {
      authorization: `Bearer ${crowd.people.userToken(dossier.person)}`,
      'sluice-pass': dossier.pass,
      'content-type': 'application/json',
      'x-forwarded-for': crowd.people.address(dossier.person),
    },
    body: JSON.stringify({
      request_id: request.id,
      activity_id: activityId,
      sku_id: dossier.skuId,
      quantity: request.quantity,
    }),
  });
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> };
}

interface Sale {
  readonly server: SluiceProcess;
  readonly crowd: Crowd;
  readonly dataFolder: string;
}

/** A server on a folder of its own, and a crowd that comes for `overMs`. */
async function openSale(name: string, opensInMs: number, overMs: number): Promise<Sale> {
  const folder = join(root, name);
  mkdirSync(folder);
  const server = new SluiceProcess(await configured(folder, opensInMs));
  servers.push(server);
  await server.start();
  const crowd = new Crowd(
    {
      origin: new URL(server.shop),
      activityId,
      skus: [{ skuId: 'ticket', maxPerPerson: 1 }],
      scenario: {
        ...scenarios.even,
        duplicates: 0.5,
        timeouts: 0.2,
        bots: 0.1,
        abandons: 0.1,
        cancels: 0.1,
        impatient: 0,
        hopeful: 1,
      },
      arrivals: shapedArrivals('constant', people, overMs, new Dice(7)),
      people,
      seed: 7,
      limits: { replyTimeoutMs: 5_000 },
    },
    systemClock,
    systemTimers,
  );
  return { server, crowd, dataFolder: join(folder, 'data') };
}

/** What is no longer as it was told, after a restart; and how many winners asked again. */
async function problemsOf(
  { server, crowd, dataFolder }: Sale,
  told: readonly [Dossier, RequestTrace][],
): Promise<{ readonly problems: readonly string[]; readonly asked: number }> {
  const problems: string[] = [];
  const office = new BackOffice(server.operator, adminTokenIn(dataFolder));
  const units = await settled(() => office.stock(activityId), addsUp);
  if (!addsUp(units) || units.total !== stock || units.available < 0) {
    problems.push(`stock: ${JSON.stringify(units)}`);
  }
  const residual = await settled(
    () => office.ledgerResidual(),
    (value) => value === 0,
  );
  if (residual !== 0) problems.push(`ledger: residual ${residual}`);
  office.close();

  // Winners of before ask again: the same reservation, not another, and not "sold out".
  let asked = 0;
  for (const [dossier, request] of told) {
    const { status, body } = await submitAgain(crowd, server.shop, dossier, request);
    if (status === 503 || status === 429) continue;
    asked += 1;
    const same =
      status === 200 &&
      body['code'] === 'REQUEST_REPLAYED' &&
      body['reservation_id'] === request.reservationId;
    if (!same) problems.push(`${request.id} ${request.state}: ${status} ${JSON.stringify(body)}`);
  }
  for (const id of [1, 2, 3, 4, 12] as const) {
    problems.push(
      ...crowd.witness.breaches(id).described.map((each) => `invariant ${id}: ${each}`),
    );
  }
  return { problems, asked };
}

test(`killed at ${kills} instants of a sale, nothing told is lost and nothing is sold twice`, async () => {
  const random = new SeededRandom(seed);
  // The first kills fall into the lobby and around the draw.
  const sale = await openSale('killed', 12_000, 40_000);
  const { server, crowd, dataFolder } = sale;
  crowd.start();
  let retried = 0;
  try {
    for (let kill = 1; kill <= kills; kill += 1) {
      await pause(100 + random.float() * 1_400);
      const told = winners(crowd).slice(-4);
      await server.kill();
      await server.start();
      const { problems, asked } = await problemsOf(sale, told);
      expect(problems, `after kill ${kill} of seed "${seed}"\n${server.err}`).toEqual([]);
      retried += asked;
    }
    // The crowd goes on undisturbed until everybody is through, or for a while.
    for (let tries = 0; tries < 40 && crowd.people.settled < people; tries += 1) await pause(500);
    closeDoors(crowd);
    await sweep(crowd, systemTimers, 30_000);
  } finally {
    crowd.stop();
  }

  const office = new BackOffice(server.operator, adminTokenIn(dataFolder));
  try {
    const units = await settled(
      () => office.stock(activityId),
      (view) => addsUp(view) && view.held === 0,
    );
    expect(units).toMatchObject({ total: stock, held: 0 });
    expect(addsUp(units)).toBe(true);
    const { witness } = crowd;
    for (const id of [1, 2, 3, 4, 5, 12] as const) {
      expect(witness.breaches(id).described).toEqual([]);
    }
    // Everybody told QUEUED was told an outcome, and every order told is there as told.
    expect(crowd.people.outcomes().unknown).toBe(0);
    const orders = new Map((await office.orders(activityId)).map((each) => [each.orderId, each]));
    for (const { requests } of crowd.dossiers.values()) {
      for (const { orderId, state } of requests) {
        if (orderId === undefined) continue;
        expect(orders.has(orderId), orderId).toBe(true);
        if (state === 'PAID') expect(orders.get(orderId)?.state).toBe('PAID');
      }
    }
    // The kills hit a sale, not an empty room.
    expect(witness.reservations).toBeGreaterThan(stock / 2);
    expect(retried).toBeGreaterThan(kills);
    expect(witness.paidUnits).toBeGreaterThan(0);
  } finally {
    office.close();
    await server.stop();
  }
}, 600_000);

test('control: a server that wakes up without its last seconds is noticed', async () => {
  const sale = await openSale('forgetful', 2_000, 3_000);
  const { server, crowd, dataFolder } = sale;
  try {
    // As it was before anybody bought.
    await server.stop();
    cpSync(dataFolder, `${dataFolder}.before`, {
      recursive: true,
      filter: (path) => !/lock\.\d+$/.test(path),
    });
    await server.start();
    crowd.start();
    for (let tries = 0; tries < 100 && winners(crowd).length < 5; tries += 1) await pause(200);
    const told = winners(crowd).slice(0, 5);
    expect(told).toHaveLength(5);
    await server.kill();
    rmSync(dataFolder, { recursive: true });
    cpSync(`${dataFolder}.before`, dataFolder, { recursive: true });
    await server.start();
    const { problems } = await problemsOf(sale, told);
    expect(problems.length).toBeGreaterThanOrEqual(5);
  } finally {
    crowd.stop();
    await server.stop();
  }
}, 300_000);
