/** `sluice/client`: no dependency; browser and Node. */
export {
  type Client,
  type ClientOptions,
  type JoinOptions,
  type Joined,
  type Result,
  createClient,
} from './client.ts';
export type { ClientEnvironment, EventStream, KeyValueStore } from './environment.ts';
export { debounce, throttle } from './pace.ts';
export { type Priority, Reads } from './reads.ts';
export { type RetryLimits, RetryBucket, retryDefaults, retryDelayMs } from './retry.ts';
export { type Outcome, Submission, type SubmissionState, type Wish } from './submission.ts';
export { systemEnvironment } from './system.ts';
export type { ClientCounts } from './telemetry.ts';
export { type Watch, type WatchOptions, watchStanding } from './watch.ts';
export { type WorkOptions, solveWork } from './work.ts';
