import { join } from 'node:path';
import pino from 'pino';
import type { Config } from '../config/config.ts';
import { openActivities } from '../config/first-starts.ts';
import { ensureAdminToken } from '../control/admin/admin-token.ts';
import { type AdminServer, createAdminServer } from '../control/admin/server.ts';
import { OverloadLoop, overloadDefaults } from '../control/overload-loop.ts';
import { auditLines } from '../control/room-audit.ts';
import { perSecond } from '../core/limit/rate.ts';
import { type DataFolder, openDataFolder } from '../stores/data-folder.ts';
import { EventLog } from '../telemetry/log.ts';
import { adminCommands } from './admin-commands.ts';
import { openEmbeddedStores, type Stores } from './embedded-stores.ts';
import { ProcessProbe } from './health-probe.ts';
import { openKeys } from './keys-folder.ts';
import { Observatory } from './observatory.ts';
import { ordersDesk } from './orders-desk.ts';
import { operatorActions } from './operator-actions.ts';
import { prepareStock } from './prepare-stock.ts';
import { Sale } from './sale.ts';
import { openShop, type Shop } from './shop.ts';
import { webFolder } from './web-folder.ts';
import { systemClock, systemDefer, systemRandom, systemTimers } from './system.ts';

/** A server that runs. */
export interface RunningServer {
  readonly urls: {
    readonly shop: string;
    readonly operator: string;
    /** One-time link to the operator page. */
    readonly signIn: string;
  };
  /** Stops taking requests, finishes what is under way, flushes, unlocks. Idempotent. */
  close(): Promise<void>;
}

/** What the tests may exchange; the command has no way to say any of it. */
export interface StartOptions {
  readonly adaptStores?: (stores: Stores) => Stores;
}

/** Time for requests in progress when the server stops, ms. */
const drainMs = 5_000;

/** Issuer of every token of this deployment. */
const issuer = 'sluice';

/**
 * One process that holds every role, on embedded stores. The order of the start is the order of what
 * is promised: the folder is locked before anything in it is read, stock stands before the doors
 * open, and the doors open last. What has opened is closed again when a later step fails.
 */
export async function startServer(
  config: Config,
  options: StartOptions = {},
): Promise<RunningServer> {
  const opened: (() => Promise<void>)[] = [];
  const closeAll = async (): Promise<void> => {
    for (const close of opened.splice(0).toReversed()) await close();
  };
  try {
    return await start(config, options, opened, closeAll);
  } catch (error) {
    await closeAll();
    throw error;
  }
}

async function start(
  config: Config,
  options: StartOptions,
  opened: (() => Promise<void>)[],
  closeAll: () => Promise<void>,
): Promise<RunningServer> {
  const clock = systemClock;
  const timers = systemTimers;
  const random = systemRandom;
  const world = { clock, timers, random };

  const folder: DataFolder = await openDataFolder({ path: config.dataFolder, random });
  opened.push(() => folder.release());
  const destination = pino.destination({ fd: 2, sync: false });
  const log = new EventLog({ level: config.telemetry.logLevel, clock, destination });
  const keys = openKeys(join(folder.path, 'keys'), { nowMs: clock.wallMs(), random });

  const stores = await openStores(config, folder, options);
  opened.push(() => stores.close());
  // Only now: the seconds of a first start must not come off the time before the opening.
  const activities = openActivities(config, folder.path, clock.wallMs());
  const lost = await prepareStock(stores, activities);

  const probe = new ProcessProbe();
  opened.push(async () => probe.stop());
  const overload = new OverloadLoop({
    clock,
    probe,
    settings: { ...overloadDefaults, admitPerSecond: perSecond(config.server.ceiling) },
    onModeChange: (from, to, worst) =>
      log.warn('mode_change', { mode: to, reason: worst?.name ?? 'none', detail: `was ${from}` }),
  });
  const observatory = new Observatory({ config, clock, timers, probe, overload, log });
  const sale = new Sale({
    ...world,
    activities,
    paymentGraceMs: Math.max(0, ...config.activities.map((plan) => plan.paymentGraceMs)),
    backlogCeiling: config.budgets.backlogMax,
    stores,
    keys,
    issuer,
    defer: systemDefer,
    overload,
    ledger: observatory.ledger,
    demoPayments: true,
    instance: `embedded-${process.pid}`,
    hooks: observatory.hooks,
  });
  observatory.watch(sale, stores);
  overload.start(timers);
  opened.push(async () => overload.stop());
  for (const { activityId, skuId } of lost) {
    log.warn('stock_lost', { activity_id: activityId, sku_id: skuId });
    const why = 'the inventory store had lost it at start';
    await sale.rebuild({ activityId, skuId }, 'server', why);
  }
  await sale.start();
  opened.push(() => sale.stop());
  opened.push(() => observatory.close());

  const shop: Shop = await openShop({
    config,
    sale,
    stores,
    keys,
    issuer,
    overload,
    observatory,
    log,
    ...world,
  });
  opened.push(() => shop.gateway.close({ drainMs }));
  const admin: AdminServer = createAdminServer({
    settings: { host: config.server.adminHost, port: config.server.adminPort },
    ...world,
    log: consoleLog(log),
    adminToken: ensureAdminToken(folder.path, random),
    source: observatory.source,
    accounts: observatory.accounts,
    actions: operatorActions({
      stores,
      activity: (id) => sale.activities.get(id),
      rooms: sale.rooms,
      overload,
      clock,
      onUnitsDue: () => sale.workers.expiry.nudge(),
    }),
    audit: stores.orders.audit,
    drawAudit: (id) => {
      const activity = sale.activities.get(id);
      return activity === undefined ? undefined : auditLines(stores.admission, activity);
    },
    metrics: () => observatory.metrics(),
    orders: ordersDesk(stores.orders, clock),
    commands: adminCommands({
      reconciliation: sale.reconciliation,
      skus: () => sale.skus(),
      rebuild: (sku, who, why) => sale.rebuild(sku, who, why),
    }),
    consoleFolder: webFolder('console'),
  });
  const { url: operator } = await admin.start();
  opened.push(() => admin.close());
  const { url } = await shop.gateway.listen();
  log.info('listening', {});
  return {
    urls: {
      shop: url,
      operator,
      signIn: admin.signInUrl({ name: 'first-start', role: 'admin' }).url,
    },
    close: closeAll,
  };
}

async function openStores(
  config: Config,
  folder: DataFolder,
  options: StartOptions,
): Promise<Stores> {
  const stores = await openEmbeddedStores({
    folder: folder.path,
    fsync: config.stores.fsync,
    clock: systemClock,
    timers: systemTimers,
  });
  return options.adaptStores?.(stores) ?? stores;
}

/** The admin server's log in terms of ours: what it says in free fields goes into the detail. */
function consoleLog(log: EventLog): {
  warn(event: string, fields: Readonly<Record<string, unknown>>): void;
  error(event: string, fields: Readonly<Record<string, unknown>>): void;
} {
  return {
    warn: (event, fields) => log.warn(event, { detail: JSON.stringify(fields) }),
    error: (event, fields) => log.error(event, undefined, { detail: JSON.stringify(fields) }),
  };
}
