import { ignoreRetryAfter } from './crowd.ts';
import type { Drill } from './drill.ts';
import { cutInventory, databaseRestart, inventoryFailover, killWorker } from './losses.ts';
import { killGateway, staleControl } from './processes.ts';
import { squeeze } from './squeeze.ts';
import {
  brokerRestart,
  cutAdmission,
  databaseCrash,
  noDatabaseConnections,
  slowQueue,
} from './stores.ts';
import { lateSoldOut, lostBroadcasts, noReleaseState } from './words.ts';

/** Every drill, in the order in which `sluice drill all` runs them: the gentle ones first. */
export const drills: readonly Drill[] = [
  ignoreRetryAfter,
  squeeze,
  lateSoldOut,
  lostBroadcasts,
  noReleaseState,
  cutAdmission,
  slowQueue,
  noDatabaseConnections,
  databaseCrash,
  killGateway,
  staleControl,
  cutInventory,
  killWorker,
  databaseRestart,
  brokerRestart,
  inventoryFailover,
];
