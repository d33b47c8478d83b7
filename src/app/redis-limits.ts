import type { SharedLimits } from '../core/rules/shared.ts';
import type { EmergencyLedger } from '../ports/emergency-ledger.ts';
import { EmergencyFile } from '../stores/limits/emergency-file.ts';
import { RedisBudgetStore } from '../stores/limits/redis-budget-store.ts';
import { SharedBudgets } from '../stores/limits/shared-budgets.ts';
import { RedisLink } from '../stores/redis/client.ts';
import { Keys } from '../stores/redis/keys.ts';
import { systemClock, systemRandom, systemTimers } from './system.ts';

/**
 * Limits that many processes share, through Redis, for the library:
 *
 *     import { openRedisLimits } from 'sluice/redis';
 *     import { rateLimit } from 'sluice/express';
 *     const shared = await openRedisLimits({ urls: ['redis://localhost:6379'] });
 *     app.use(rateLimit({ limit: 100, window: '15m', shared }));
 */
export interface RedisLimitsOptions {
  /** `redis://…` or `rediss://…`; several for a cluster. */
  readonly urls: readonly string[];
  readonly cluster?: boolean;
  /** In front of every key; `sluice` when absent. */
  readonly prefix?: string;
  /** For one call, ms; 500 when absent. After it the outcome counts as spent. */
  readonly timeoutMs?: number;
  /**
   * For rules that say `fail: local`: tokens that this process may spend in an outage, and the folder
   * that remembers that it did. Without both, `local` refuses as `closed` does.
   */
  readonly emergency?: { readonly tokens: number; readonly folder: string };
  /** Told of lost connections and failed renewals; single requests follow their rule's policy. */
  readonly onTrouble?: (error: unknown) => void;
}

export interface RedisLimits extends SharedLimits {
  /** Hands leases back and closes the connection. */
  close(): Promise<void>;
}

/** Connects. @throws UnavailableError where nothing answers. */
export async function openRedisLimits(options: RedisLimitsOptions): Promise<RedisLimits> {
  const onTrouble = options.onTrouble ?? ((): void => undefined);
  const link = await RedisLink.open({
    urls: options.urls,
    cluster: options.cluster ?? false,
    timers: systemTimers,
    onTrouble,
    ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
  });
  const store = new RedisBudgetStore({ link, keys: new Keys(options.prefix), onTrouble });
  const { emergency } = options;
  const shared = new SharedBudgets({
    store,
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
    ledger: emergency === undefined ? neverUnspent : new EmergencyFile(emergency.folder),
    emergencyTokens: emergency?.tokens ?? 0,
    onTrouble,
  });
  return {
    lease: (rule, parts) => shared.lease(rule, parts),
    take: (checks) => shared.take(checks),
    giveBack: (checks) => shared.giveBack(checks),
    isStoreFailure: (error) => shared.isStoreFailure(error),
    async close() {
      await shared.close();
      await store.close();
    },
  };
}

/** No record, no emergency budget: a marker that is not there means spent. */
const neverUnspent: EmergencyLedger = {
  arm: async () => undefined,
  spend: async () => false,
  rearm: async () => undefined,
};
