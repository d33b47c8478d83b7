import type { Rate } from '../core/limit/rate.ts';
import type { Activity, RoomSettings, Sku } from '../core/activity.ts';
import type { RuleSet } from '../core/rules/model.ts';
import type { QueuePlace } from './values.ts';

/**
 * The configuration as the rest of the system takes it: plain values with units in their names,
 * nothing left to parse, nothing left to doubt.
 */
export interface Config {
  readonly server: ServerOptions;
  /** Folder of everything that lasts, as written. */
  readonly dataFolder: string;
  readonly stores: StoreOptions;
  readonly identity: IdentityOptions;
  readonly activities: readonly ActivityPlan[];
  readonly budgets: BudgetOptions;
  readonly rules: RulesChoice;
  /** Set where a room sends people to somebody who vouches for them. */
  readonly challengeProvider?: ChallengeProviderOptions;
  readonly pages: { readonly themeFile?: string };
  readonly overload: {
    readonly adaptive: 'on' | 'shadow' | 'off';
    readonly setpointMs: number;
    /** Whether a fresh or restarted instance comes up by the ramp. */
    readonly start: 'ramp' | 'full';
    /** Requests in progress at most, per resource. */
    readonly ceilings: Readonly<Record<'submit' | 'status' | 'payment' | 'admin', number>>;
  };
  readonly telemetry: {
    readonly logLevel: LogLevel;
    /** Base URL of the collector; absent: no traces. */
    readonly otlpEndpoint?: string;
    readonly traceRatio: number;
  };
}

/** What the whole deployment can take. */
export interface BudgetOptions {
  /** Reservations that may wait to become orders. */
  readonly backlogMax: number;
  /** Submits of one activity, over all instances. */
  readonly submit: Rate;
  /** Instances that there will ever be at a time. */
  readonly maxInstances: number;
  /** Tokens that one instance may spend of a budget, once per outage, under `fail: local`. */
  readonly emergency: number;
}

/** Where the rules come from: built in, written in the configuration, or a file that is watched. */
export type RulesChoice =
  | { readonly kind: 'default' }
  | { readonly kind: 'written'; readonly set: RuleSet }
  | { readonly kind: 'file'; readonly path: string };

export interface ChallengeProviderOptions {
  readonly url: string;
  /** As it was given. Never logged, never shown. */
  readonly secret: string;
}

export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

export interface ServerOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  readonly adminHost: string;
  readonly adminPort: number;
  /** Networks in canonical CIDR form. */
  readonly trustedProxies: readonly string[];
  readonly region: string;
  /** Hard limit of this process. */
  readonly ceiling: Rate;
  /** Runs beside the others for a while, with another share of the traffic. */
  readonly canary: boolean;
  readonly maxConnections: number;
}

export type MemoryOrRedis =
  | { readonly kind: 'memory' }
  | {
      readonly kind: 'redis';
      /** One server, or some nodes of a cluster. Never logged: a password may stand in them. */
      readonly urls: readonly string[];
      readonly cluster: boolean;
    };

export type PgliteOrPostgres =
  | { readonly kind: 'pglite' }
  | { readonly kind: 'postgres'; readonly url: string };

export interface StoreOptions {
  readonly admission: MemoryOrRedis;
  readonly inventory: MemoryOrRedis;
  readonly orders: PgliteOrPostgres;
  readonly queue: QueuePlace;
  /** First part of every key in Redis. */
  readonly prefix: string;
  /** `always`: on disk before the answer. `os`: handed to the operating system before the answer. */
  readonly fsync: 'always' | 'os';
}

export type IdentityOptions =
  | {
      readonly mode: 'demo';
      /** Hand out users to other machines than this one. */
      readonly demoAnywhere: boolean;
      readonly userClaim: string;
      readonly personClaim: string;
    }
  | {
      readonly mode: 'jwt';
      readonly keys:
        | { readonly jwksUrl: string }
        /** HS256 secret, as it was given. Never logged, never shown. */
        | { readonly secret: string };
      readonly issuer?: string;
      readonly audience?: string;
      /** Private networks in which the keys may be fetched. */
      readonly allowedPrivate: readonly string[];
      readonly userClaim: string;
      readonly personClaim: string;
    };

/**
 * Why several processes cannot share these stores, in words; undefined where they can. What is in the
 * memory or the data folder of one process, no other can see.
 */
export function ofOneProcess(stores: StoreOptions): string | undefined {
  const own = [
    ...(stores.admission.kind === 'memory' ? ['stores.admission: memory'] : []),
    ...(stores.inventory.kind === 'memory' ? ['stores.inventory: memory'] : []),
    ...(stores.orders.kind === 'pglite' ? ['stores.orders: pglite'] : []),
  ];
  return own.length === 0 ? undefined : own.join(', ');
}

/** At an instant, or so long after the first start. */
export type PlannedInstant =
  | { readonly kind: 'relative'; readonly offsetMs: number }
  | { readonly kind: 'absolute'; readonly atMs: number };

/** One sale as written: its instants may still be relative to the first start. */
export interface ActivityPlan {
  readonly activityId: string;
  readonly name: string;
  readonly revision: number;
  readonly activityVersion: number;
  readonly lobbyOpensAt: PlannedInstant;
  readonly opensAt: PlannedInstant;
  readonly closesAt: PlannedInstant;
  readonly timeZone: string;
  readonly skus: readonly Sku[];
  readonly room: RoomSettings;
  readonly paymentDeadlineMs: number;
  /** How much longer an unpaid order is kept while its payment is being processed. */
  readonly paymentGraceMs: number;
}

/** Do instants of this sale count from its first start? Then that start must be remembered. */
export function hasRelativeInstants(plan: ActivityPlan): boolean {
  return [plan.lobbyOpensAt, plan.opensAt, plan.closesAt].some(({ kind }) => kind === 'relative');
}

/** An instant, given the first start that relative ones count from. */
export function instantMs(instant: PlannedInstant, firstStartMs: number): number {
  return instant.kind === 'absolute' ? instant.atMs : firstStartMs + instant.offsetMs;
}

/**
 * The sale with its instants, relative ones counted from `firstStartMs`: the wall time at which this
 * activity was first served from this data folder. It must be remembered there, or a restart would
 * open the sale again.
 * @throws RangeError when the instants do not come in order, quoting them.
 */
export function activityOf(plan: ActivityPlan, firstStartMs: number): Activity {
  const lobbyOpensAtMs = instantMs(plan.lobbyOpensAt, firstStartMs);
  const opensAtMs = instantMs(plan.opensAt, firstStartMs);
  const closesAtMs = instantMs(plan.closesAt, firstStartMs);
  const disorder = instantDisorder(lobbyOpensAtMs, opensAtMs, closesAtMs);
  if (disorder !== undefined) throw new RangeError(`${plan.activityId}: ${disorder}`);
  const { activityId, name, revision, activityVersion, timeZone, skus, room } = plan;
  return {
    activityId,
    name,
    revision,
    activityVersion,
    lobbyOpensAtMs,
    opensAtMs,
    closesAtMs,
    timeZone,
    skus,
    room,
    paymentDeadlineMs: plan.paymentDeadlineMs,
  };
}

/** What is wrong with the order of the three instants, in words. */
function instantDisorder(
  lobbyOpensAtMs: number,
  opensAtMs: number,
  closesAtMs: number,
): string | undefined {
  const text = (ms: number): string => new Date(ms).toISOString();
  if (lobbyOpensAtMs > opensAtMs)
    return `lobby_opens_at ${text(lobbyOpensAtMs)} is after opens_at ${text(opensAtMs)}`;
  if (opensAtMs >= closesAtMs)
    return `opens_at ${text(opensAtMs)} is not before closes_at ${text(closesAtMs)}`;
  return undefined;
}
