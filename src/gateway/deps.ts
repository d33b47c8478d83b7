import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { SkuKey } from '../core/activity.ts';
import type { StageLedger } from '../core/ledger/ledger.ts';
import type { TrustedProxies } from '../core/limit/address.ts';
import type { ActivityDirectory } from '../pipeline/activities.ts';
import type { Door } from '../pipeline/door.ts';
import type { Health } from '../pipeline/health.ts';
import type { IdentityVerifier } from '../pipeline/identity.ts';
import type { PathLimits } from '../pipeline/limits.ts';
import type { PipelineParts, SubmitPipeline } from '../pipeline/pipeline.ts';
import type { RequestStatus } from '../pipeline/request-status.ts';
import type { SoldOutFlags } from '../pipeline/sold-out-flags.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { InventoryStore } from '../ports/inventory-store.ts';
import type { Order, OrderStore } from '../ports/order-store.ts';
import type { Random } from '../ports/random.ts';
import type { Tracer } from '../ports/tracer.ts';
import type { AvailabilityBoard } from './availability.ts';

/** Everything that the gateway needs of the world, in one object; composed in `app/`. */
export interface GatewayDeps {
  readonly settings: GatewaySettings;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly log: GatewayLog;
  readonly activities: ActivityDirectory;
  readonly identity: IdentityVerifier;
  /** Demo people, where the configuration hands them out. */
  readonly sessions?: SessionIssuer;
  readonly door: Door;
  readonly health: Health;
  readonly limits: PathLimits;
  readonly flags: SoldOutFlags;
  readonly status: RequestStatus;
  readonly inventory: Pick<InventoryStore, 'mark'>;
  readonly orders: Pick<OrderStore, 'orderById' | 'stock'>;
  readonly payments: PaymentDesk;
  /** Backlog of the order queue past its ceiling: availability is not told then. */
  readonly backlog: PipelineParts['backlog'];
  readonly backlogCeiling?: number;
  /** Parts of the submit path that only it needs. */
  readonly submit: Pick<PipelineParts, 'paths' | 'passes' | 'batcher' | 'orders'>;
  readonly ledger: StageLedger;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer;
  readonly readiness: () => Readiness;
  /** What of the draw is public now. */
  readonly publicRoom?: (activityId: string) => PublicRoom;
  /** Time of a submit that got units, µs, for the overload signals; and of one that did not. */
  readonly onAdmitted?: (elapsedUs: number, sku: SkuKey) => void;
  readonly onTurnedAway?: (elapsedUs: number) => void;
  /** Adds the HTML pages. */
  readonly pages?: (app: FastifyInstance, gateway: GatewayServices) => PageFallback | undefined;
}

/** What a browser is shown where there is nothing. */
export interface PageFallback {
  /** Undefined where the caller is no browser: then it gets a problem as any API client does. */
  notFound(request: FastifyRequest, reply: FastifyReply): FastifyReply | undefined;
}

/** What the pages may ask of the gateway that serves them. */
export interface GatewayServices {
  readonly deps: GatewayDeps;
  /** The submit path, for a form of ours. */
  readonly pipeline: SubmitPipeline;
  /** Availability and phase as the API tells them. */
  readonly board: AvailabilityBoard;
}

export interface GatewaySettings {
  readonly host: string;
  /** 0 takes any free port. */
  readonly port: number;
  readonly proxies: TrustedProxies;
  /** Buyers reach us over HTTPS, whatever the last hop is. */
  readonly secure?: boolean;
  /** Refusals say that they are of a canary. */
  readonly canary?: boolean;
  readonly maxConnections: number;
  readonly maxConnectionsPerAddress: number;
  /** Time for a request's headers, ms. */
  readonly headersTimeoutMs: number;
  /** Time for a whole request, ms. */
  readonly requestTimeoutMs: number;
  /** Time a connection may stay idle between requests, ms. */
  readonly idleTimeoutMs: number;
  /** Requests on one connection before it is closed; 0 is no limit. */
  readonly maxRequestsPerConnection: number;
  /** Open event streams in total. */
  readonly maxStreams: number;
}

export const gatewayDefaults: GatewaySettings = {
  host: '127.0.0.1',
  port: 8080,
  proxies: { contains: () => false, hops: 1 },
  maxConnections: 20_000,
  // A campus, an office or a mobile carrier's gateway shares one address.
  maxConnectionsPerAddress: 4_000,
  headersTimeoutMs: 5_000,
  requestTimeoutMs: 10_000,
  // Longer than the idle time of the usual proxies, so that they close first and never race us.
  idleTimeoutMs: 75_000,
  maxRequestsPerConnection: 0,
  maxStreams: 10_000,
};

/** Structured log lines; fields never hold a token, a raw device or an address. */
export interface GatewayLog {
  warn(event: string, fields: Readonly<Record<string, unknown>>): void;
  error(event: string, fields: Readonly<Record<string, unknown>>): void;
}

export interface SessionIssuer {
  /** `undefined`: not for this sender. */
  issue(sender: { readonly address: string; readonly loopback: boolean }): Session | undefined;
}

export interface Session {
  readonly userId: string;
  readonly token: string;
  readonly expiresAtMs: number;
}

export interface Readiness {
  readonly ready: boolean;
  /** Why not; empty when ready. */
  readonly reasons: readonly string[];
}

export interface PublicRoom {
  /** Hex SHA-256 of the draw's secret; null where nothing is drawn. */
  readonly commitment: string | null;
  readonly beacon?: string;
  /** Binds what was decided so far; absent before the lobby has closed. */
  readonly checkpoint?: string;
  /** Held or paused: nobody is let in at the moment. */
  readonly halted?: boolean;
}

/** Payments as the gateway sees them. Rejects with the stores' errors. */
export interface PaymentDesk {
  /** True where buyers pay at the built-in demo provider. */
  readonly demo: boolean;
  pay(order: Order, method: string | undefined): Promise<OrderChange>;
  cancel(order: Order): Promise<OrderChange>;
  /** Raw body and headers, as signed. */
  callback(
    provider: string,
    body: Uint8Array,
    headers: Readonly<Record<string, string | undefined>>,
  ): Promise<CallbackResult>;
}

export type OrderChange =
  | { readonly kind: 'done'; readonly order: Order }
  | { readonly kind: 'refused'; readonly order: Order };

export type CallbackResult =
  | { readonly kind: 'accepted'; readonly duplicate: boolean }
  | { readonly kind: 'unknown_provider' }
  | { readonly kind: 'bad_signature' }
  | { readonly kind: 'bad_body'; readonly detail: string }
  | { readonly kind: 'unknown_order' };
