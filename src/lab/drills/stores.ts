import type pg from 'pg';
import { DrillCannotRunError, type Drill } from './drill.ts';
import { inMs, said } from './site.ts';
import { isAnswer } from './visitor.ts';

/** The door's store hangs. */
export const cutAdmission: Drill<{
  readonly polls: number;
  readonly wrong: number;
  readonly join: string;
  readonly joinMs: number;
  readonly againMs: number | undefined;
}> = {
  name: 'cut-admission',
  about: 'the admission store answers nobody for four seconds',
  expected:
    'people who wait hear of their place all the time; whoever joins is answered within 6 s, if only "not now"; joining works within 10 s after',
  async observe(site) {
    const { activityId, skuId } = site.parts;
    const waiting = await site.waiting();
    const late = site.visitor();
    await late.signIn();
    site.undo('leaving the room', () => late.leave(activityId));
    site.undo('letting it answer', () => site.admission.say('CLIENT', 'UNPAUSE'));
    await site.admission.say('CLIENT', 'PAUSE', '4000', 'ALL');
    const joining = late.join(activityId, skuId);
    let [polls, wrong] = [0, 0];
    const endMs = site.nowMs() + 4_000;
    while (site.nowMs() < endMs) {
      polls += 1;
      if (!isAnswer(await waiting.standing(activityId))) wrong += 1;
      await site.sleep(50);
    }
    const joined = await joining;
    const againMs = await site.msUntil(10_000, async () => {
      return (await late.join(activityId, skuId)).status < 300;
    });
    return { polls, wrong, join: said(joined), joinMs: joined.tookMs, againMs };
  },
  judge: ({ polls, wrong, join, joinMs, againMs }) => ({
    holds:
      polls > 0 &&
      wrong === 0 &&
      joinMs <= 6_000 &&
      /^(?:20[01]|503)/.test(join) &&
      againMs !== undefined,
    seen: `${polls - wrong} of ${polls} polls answered; a join heard ${join} after ${inMs(joinMs)}; joining works ${inMs(againMs)} after`,
  }),
};

interface Slowed {
  readonly submitted: string;
  readonly meanwhile: string;
  readonly orderedMs: number | undefined;
}

const judgeSlowed = ({ submitted, meanwhile, orderedMs }: Slowed) => ({
  holds:
    submitted.startsWith('202') &&
    ['QUEUED', 'UNKNOWN', ''].includes(meanwhile) &&
    orderedMs !== undefined,
  seen: `the submit heard ${submitted}; its state meanwhile was ${meanwhile === '' ? 'not told' : meanwhile}; ordered ${inMs(orderedMs)} after`,
});

/** Orders cannot be written. */
export const slowQueue: Drill<Slowed> = {
  name: 'slow-queue',
  about: 'no order can be written for four seconds',
  expected:
    'reservations go on and say QUEUED meanwhile; the order is there within 20 s after, once',
  async observe(site) {
    const { visitor, pass } = await site.admitted();
    const database = await site.database();
    site.undo('letting orders be written', () => database.end());
    await database.query('BEGIN');
    await database.query('LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE');
    const { requestId, submitted } = await site.buy(visitor, pass);
    await site.sleep(4_000);
    const meanwhile = await site.stateOf(visitor, requestId);
    await database.query('ROLLBACK');
    const orderedMs = await site.msUntil(
      20_000,
      async () => (await site.stateOf(visitor, requestId)) === 'ORDERED',
    );
    return { submitted: said(submitted), meanwhile, orderedMs };
  },
  judge: judgeSlowed,
};

/** Nobody gets a connection to the database. */
export const noDatabaseConnections: Drill<Slowed & { readonly held: number }> = {
  name: 'no-database-connections',
  about: 'every connection of the database is taken for four seconds',
  expected:
    'reservations go on; nothing is told that is not so; the order is there within 30 s after, once',
  async observe(site) {
    const { visitor, pass } = await site.admitted();
    const held: pg.Client[] = [];
    const letGo = async (): Promise<void> => {
      for (const client of held.splice(0)) await client.end().catch(() => undefined);
    };
    site.undo('giving the connections back', letGo);
    const first = await site.database();
    held.push(first);
    const cut = async (): Promise<number> => {
      const { rows } = await first.query(
        'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = $1 AND NOT (pid = ANY($2::int[]))',
        ['client backend', held.map((client) => Number(Reflect.get(client, 'processID')))],
      );
      return rows.length;
    };
    // Those that are cut come back for their places, until there is nobody left to be cut.
    for (let round = 0; ; round += 1) {
      if ((await cut()) === 0 && round > 0) break;
      if (round >= 200)
        throw new DrillCannotRunError('the others always get a connection before us');
      for (;;) {
        try {
          held.push(await site.database());
        } catch {
          break; // Full.
        }
        if (held.length > 1_000) throw new DrillCannotRunError('more than 1,000 connections');
      }
    }
    const count = held.length;
    const { requestId, submitted } = await site.buy(visitor, pass);
    await site.sleep(4_000);
    const meanwhile = await site.stateOf(visitor, requestId);
    await letGo();
    const orderedMs = await site.msUntil(
      30_000,
      async () => (await site.stateOf(visitor, requestId)) === 'ORDERED',
    );
    return { submitted: said(submitted), meanwhile, orderedMs, held: count };
  },
  judge(observed) {
    const { holds, seen } = judgeSlowed(observed);
    return {
      holds: holds && observed.held > 0,
      seen: `${observed.held} connections held; ${seen}`,
    };
  },
};

/** The database throws everybody out and recovers from its log, as after a crash. */
export const databaseCrash: Drill<Slowed> = {
  name: 'database-crash',
  about: 'a process of PostgreSQL is killed: it ends every connection and recovers from its log',
  expected:
    'reservations go on; nothing is told that is not so; the order is there within 30 s after, once',
  async observe(site) {
    const { visitor, pass } = await site.admitted();
    const database = await site.database();
    site.undo('closing the connection', () => database.end().catch(() => undefined));
    const { rows } = await database.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    try {
      process.kill(rows[0]?.pid ?? 0, 'SIGKILL');
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new DrillCannotRunError(`its process cannot be killed from here: ${why}`);
    }
    const { requestId, submitted } = await site.buy(visitor, pass);
    const meanwhile = await site.stateOf(visitor, requestId);
    const orderedMs = await site.msUntil(
      30_000,
      async () => (await site.stateOf(visitor, requestId)) === 'ORDERED',
    );
    // It may be back before anybody looks.
    return {
      submitted: said(submitted),
      meanwhile: meanwhile === 'ORDERED' ? 'QUEUED' : meanwhile,
      orderedMs,
    };
  },
  judge: judgeSlowed,
};

/** The server that queue and stock lie in starts anew. */
export const brokerRestart: Drill<{
  readonly uptimeBefore: number;
  readonly uptimeAfter: number;
  readonly orderedMs: number | undefined;
  readonly secondMs: number | undefined;
}> = {
  name: 'broker-restart',
  about: 'the server of queue and stock restarts, with a reservation in it',
  expected:
    'what was reserved becomes an order within 30 s, once; whoever comes after is served within 30 s',
  async observe(site) {
    const one = await site.admitted();
    const two = await site.admitted();
    const uptime = async (): Promise<number> => {
      const info = String(await site.inventory.say('INFO', 'server'));
      return Number(/uptime_in_seconds:(\d+)/.exec(info)?.[1]);
    };
    const uptimeBefore = await uptime();
    const first = await site.buy(one.visitor, one.pass);
    try {
      await site.inventory.say('DEBUG', 'RESTART');
    } catch (error) {
      // It ends its connections, ours too; what it refuses, it says.
      const words = error instanceof Error ? error.message : '';
      if (words.startsWith('ERR'))
        throw new DrillCannotRunError(`the server does not restart: ${words}`);
    }
    let uptimeAfter = Number.NaN;
    await site.within(10_000, async () => {
      uptimeAfter = await uptime();
      return true;
    });
    const { activityId, skuId } = site.parts;
    let { pass } = two;
    const second = await site.buy(two.visitor, pass);
    let { status } = second.submitted;
    const secondMs = await site.msUntil(30_000, async () => {
      if (status === 200 || status === 202) return true;
      // A pass lives shorter than this may take: then another one, for the same request.
      if (status === 401 || status === 403) {
        pass = (await two.visitor.takePass(activityId, skuId)) ?? pass;
      }
      ({ status } = await two.visitor.submit(pass, activityId, skuId, second.requestId));
      return false;
    });
    const orderedMs = await site.msUntil(
      30_000,
      async () => (await site.stateOf(one.visitor, first.requestId)) === 'ORDERED',
    );
    return { uptimeBefore, uptimeAfter, orderedMs, secondMs };
  },
  judge: ({ uptimeBefore, uptimeAfter, orderedMs, secondMs }) => ({
    holds: uptimeAfter < uptimeBefore && orderedMs !== undefined && secondMs !== undefined,
    seen: `up for ${uptimeBefore} s before and ${uptimeAfter} s after; ordered after ${inMs(orderedMs)}; the next one served after ${inMs(secondMs)}`,
  }),
};
