import type { Config } from '../config/config.ts';
import type { OverloadLoop } from '../control/overload-loop.ts';
import { trustedProxies } from '../core/limit/address.ts';
import { gatewayDefaults, type Readiness } from '../gateway/deps.ts';
import { createGateway, type Gateway } from '../gateway/gateway.ts';
import { loadAssets } from '../gateway/pages/assets.ts';
import { registerPages } from '../gateway/pages/pages.ts';
import type { Clock, Timers } from '../ports/clock.ts';
import type { Tracer } from '../ports/tracer.ts';
import type { Random } from '../ports/random.ts';
import type { EventLog } from '../telemetry/log.ts';
import type { Dependencies } from './dependencies.ts';
import type { Stores } from './embedded-stores.ts';
import { identityOf } from './identity.ts';
import type { Keys } from './keys-folder.ts';
import type { LiveRules } from './live-rules.ts';
import type { Observatory } from './observatory.ts';
import { pageServices } from './page-services.ts';
import type { Role } from './roles.ts';
import type { Sale } from './sale.ts';
import type { Theme } from '../gateway/pages/theme.ts';
import { webFolder } from './web-folder.ts';

export interface ShopParts {
  readonly config: Config;
  readonly sale: Sale;
  readonly stores: Stores;
  readonly keys: Keys;
  readonly issuer: string;
  readonly overload: OverloadLoop;
  readonly observatory: Observatory;
  readonly dependencies: Dependencies;
  /** Absent: nothing is traced. */
  readonly tracer?: Tracer;
  readonly rules: LiveRules;
  readonly theme: Theme;
  readonly log: EventLog;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
}

export interface Shop {
  readonly gateway: Gateway;
}

/** Stock that has not been looked at for so long is not known, ms. */
const lookStaleMs = 5_000;

/** The HTTP side of a sale: API and pages on one port, not yet listening. */
export async function openShop(parts: ShopParts): Promise<Shop> {
  const { config, sale, stores, overload, observatory, log, clock, timers, random } = parts;
  const { server } = config;
  const assets = loadAssets(webFolder('storefront'), parts.theme);
  const gateway = await createGateway({
    settings: {
      ...gatewayDefaults,
      host: server.host,
      port: server.port,
      proxies: trustedProxies(server.trustedProxies),
      maxConnections: server.maxConnections,
      canary: server.canary,
    },
    clock,
    timers,
    random,
    log: {
      warn: (event, fields) => log.warn(event, { detail: JSON.stringify(fields) }),
      error: (event, fields) => log.error(event, undefined, { detail: JSON.stringify(fields) }),
    },
    activities: sale.activities,
    ...identityOf({
      options: config.identity,
      ring: parts.keys.rings.user,
      issuer: parts.issuer,
      clock,
      timers,
      random,
      guardKeys: (fetchKeys) => parts.dependencies.keySet(fetchKeys),
      onError: (error) => log.error('identity_keys_failed', error),
    }),
    door: sale.rooms.door,
    health: overload,
    limits: parts.rules.limits,
    flags: sale.flags,
    status: sale.status,
    inventory: stores.inventory,
    orders: stores.orders,
    payments: sale.workers.payments,
    backlog: () => sale.backlog?.depth,
    backlogCeiling: config.budgets.backlogMax,
    submit: {
      paths: sale.paths,
      passes: sale.passes,
      batcher: sale.batcher,
      orders: stores.orders,
    },
    ledger: observatory.ledger,
    ...(parts.tracer === undefined ? {} : { tracer: parts.tracer }),
    readiness: () => readinessOf(sale, ['gateway']),
    publicRoom: (activityId) => sale.rooms.publicRoom(activityId),
    onAdmitted: (elapsedUs, sku) => observatory.onAdmitted(elapsedUs, sku),
    onTurnedAway: (elapsedUs) => observatory.onTurnedAway(elapsedUs),
    pages: (app, services) =>
      registerPages(app, pageServices(services, { theme: parts.theme, assets }, observatory.forms)),
  });
  observatory.attach(gateway, parts.rules);
  return { gateway };
}

/** Whether a process can do what its roles ask, or why not. */
export function readinessOf(sale: Sale, roles: readonly Role[]): Readiness {
  const reasons: string[] = [...sale.failures()];
  const age = sale.lookAgeMs;
  if (age === undefined) reasons.push('stock has not answered yet');
  else if (age > lookStaleMs) {
    reasons.push(`stock last answered ${Math.round(age / 1000)} s ago`);
  }
  if (roles.includes('gateway')) {
    for (const { activityId, skuId } of sale.unseen()) {
      reasons.push(`stock of ${activityId}/${skuId} is not loaded`);
    }
  }
  // Whoever leads makes the release states, and gateways act on them; a standby waits for its turn.
  if (roles.includes('gateway') || sale.leads) reasons.push(...sale.rooms.unready());
  return { ready: reasons.length === 0, reasons };
}
