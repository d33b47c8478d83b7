import { once } from 'node:events';
import { systemClock, systemTimers } from '../../src/app/system.ts';
import { LeaseHolder } from '../../src/core/limit/lease.ts';
import { parseRate } from '../../src/core/limit/rate.ts';
import { RedisBudgetStore } from '../../src/stores/limits/redis-budget-store.ts';
import { RedisLink } from '../../src/stores/redis/client.ts';
import { Keys } from '../../src/stores/redis/keys.ts';

/** One deciding process of the lease benchmark: gets a task by message, answers a result, and ends. */
export interface ProcessTask {
  readonly mode: 'lease' | 'call';
  readonly url: string;
  readonly budget: string;
  readonly instance: string;
  readonly ratePerSecond: number;
  readonly demandPerSecond: number;
  readonly seconds: number;
}

export interface ProcessResult {
  readonly decisions: number;
  readonly calls: number;
  /** Calls without an answer in time: their outcome counts as spent. */
  readonly failed: number;
  readonly cpuUs: number;
  /** Admitted in each 10 ms since the start. */
  readonly perSlot: readonly number[];
  /** Unspent tokens at the beginning of each. */
  readonly outstanding: readonly number[];
}

const slotMs = 10;

async function run(task: ProcessTask): Promise<ProcessResult> {
  const link = await RedisLink.open({ urls: [task.url], cluster: false, timers: systemTimers });
  const store = new RedisBudgetStore({ link, keys: new Keys('bench') });
  const rate = parseRate(`${task.ratePerSecond}/s`);
  const budget = { name: task.budget, rate, burstMilli: task.ratePerSecond * 1000 };
  const check = {
    ruleId: task.budget,
    parts: ['all'],
    limit: { algorithm: 'token_bucket', rate, burstMilli: budget.burstMilli },
    costMilli: 1000,
    keepMilli: 0,
    slot: task.budget,
  } as const;
  const perSlot: number[] = [];
  const outstanding: number[] = [];
  let [decisions, calls, failed, owed] = [0, 0, 0, 0];
  // All begin together, once all are there: loading the code is not part of the load.
  process.send?.('ready');
  const [startAtMs] = (await once(process, 'message')) as [number];
  await new Promise((resolve) => setTimeout(resolve, startAtMs - Date.now()));
  const holder = new LeaseHolder({ instance: task.instance, phase: 0 }, systemClock.monoUs());
  const cpu = process.cpuUsage();
  const slotNow = (): number => Math.floor((Date.now() - startAtMs) / slotMs);
  const admit = (): void => {
    const slot = slotNow();
    perSlot[slot] = (perSlot[slot] ?? 0) + 1;
  };
  const waiting = new Set<Promise<void>>();
  let last = -1;
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      const slot = slotNow();
      if (slot >= (task.seconds * 1000) / slotMs) {
        clearInterval(timer);
        resolve();
        return;
      }
      // An open load: what is due since the last time, whether the timer was late or not.
      for (; last < slot; last += 1) {
        owed += (task.demandPerSecond * slotMs) / 1000;
        outstanding[last + 1] = holder.remainingMilli(systemClock.monoUs()) / 1000;
      }
      for (; owed >= 1; owed -= 1) {
        decisions += 1;
        if (task.mode === 'lease') {
          if (holder.spend(1000, systemClock.monoUs()) === 0) admit();
          continue;
        }
        calls += 1;
        const call = store.take([check]).then(
          ({ waitUs }) => {
            if (waitUs === 0) admit();
          },
          () => {
            failed += 1;
          },
        );
        waiting.add(call);
        void call.finally(() => waiting.delete(call));
      }
      if (task.mode !== 'lease') return;
      const request = holder.tick(systemClock.monoUs());
      if (request === undefined) return;
      calls += 1;
      const call = store.renew(budget, request).then(
        (reply) => holder.granted(reply, systemClock.monoUs()),
        () => {
          failed += 1;
          holder.failed(systemClock.monoUs());
        },
      );
      waiting.add(call);
      void call.finally(() => waiting.delete(call));
    }, slotMs);
  });
  await Promise.all(waiting);
  const { user, system } = process.cpuUsage(cpu);
  await store.close();
  const filled = Array.from(perSlot, (count: number | undefined) => count ?? 0);
  return { decisions, calls, failed, cpuUs: user + system, perSlot: filled, outstanding };
}

process.once('message', (task) => {
  run(task as ProcessTask).then(
    (result) => process.send?.(result),
    (error: unknown) => {
      console.error(error);
      process.exit(1);
    },
  );
});
