import { join } from 'node:path';
import pino from 'pino';
import { type Config, ofOneProcess } from '../config/config.ts';
import { openActivities } from '../config/first-starts.ts';
import { ensureAdminToken } from '../control/admin/admin-token.ts';
import { type AdminServer, createAdminServer } from '../control/admin/server.ts';
import { OverloadLoop } from '../control/overload-loop.ts';
import { auditLines } from '../control/room-audit.ts';
import type { InstanceTraffic } from '../core/rules/instances.ts';
import { macOf } from '../pipeline/keys.ts';
import { LimitDesk } from '../pipeline/limit-desk.ts';
import { newId } from '../ports/random.ts';
import { type DataFolder, openDataFolder } from '../stores/data-folder.ts';
import { EventLog } from '../telemetry/log.ts';
import { adminCommands } from './admin-commands.ts';
import { Dependencies } from './dependencies.ts';
import type { Stores } from './embedded-stores.ts';
import { ProcessProbe } from './health-probe.ts';
import type { InstanceReport } from './fleet.ts';
import { followKeys } from './keys-follow.ts';
import { openKeys } from './keys-folder.ts';
import { Observatory } from './observatory.ts';
import { ordersDesk } from './orders-desk.ts';
import { operatorActions } from './operator-actions.ts';
import { overloadSettings } from './overload-settings.ts';
import { prepareStock } from './prepare-stock.ts';
import { Sale } from './sale.ts';
import type { SaleParts } from './sale-parts.ts';
import { openRules } from './open-rules.ts';
import { openStores } from './stores.ts';
import { allRoles, type Role } from './roles.ts';
import { lockInTurn } from './shared-folder.ts';
import { startStatusServer } from './status-server.ts';
import { openTraces } from './trace-export.ts';
import { themeOf } from './side-files.ts';
import { openShop, readinessOf, type Shop } from './shop.ts';
import { webFolder } from './web-folder.ts';
import { systemClock, systemDefer, systemRandom, systemTimers } from './system.ts';

/** A server that runs. */
export interface RunningServer {
  readonly urls: {
    /** Of a gateway. */
    readonly shop?: string;
    /** Of control. */
    readonly operator?: string;
    /** One-time link to the operator page. */
    readonly signIn?: string;
    /** Of a worker: whether it is ready, and its metrics. */
    readonly status?: string;
  };
  /** Stops taking requests, finishes what is under way, flushes, unlocks. Idempotent. */
  close(): Promise<void>;
}

/** What does not stand in the configuration. */
export interface StartOptions {
  /** For `${NAME}` in files that are read while the server runs. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly adaptStores?: (stores: Stores) => Stores;
  /** What this process does; everything by default. */
  readonly roles?: readonly Role[];
}

/** Time for requests in progress when the server stops, ms. */
const drainMs = 5_000;

/** Issuer of every token of this deployment. */
const issuer = 'sluice';

/**
 * One process, with the roles asked for. The order of the start is the order of what is promised: the
 * folder is locked before anything in it is read, stock stands before the doors open, and the doors
 * open last. What has opened is closed again when a later step fails.
 *
 * With embedded stores the folder stays locked: it is of this process alone. With stores on servers
 * nothing in it changes once its keys are made, so the next process may come.
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

  const roles = options.roles ?? allRoles;
  const alone = ofOneProcess(config.stores);
  if (alone !== undefined && roles.length < allRoles.length) {
    throw new Error(
      `found roles ${roles.join(', ')}; allowed with ${alone}: all roles in one process`,
    );
  }
  const folder: DataFolder =
    alone === undefined
      ? await lockInTurn(config.dataFolder, world)
      : await openDataFolder({ path: config.dataFolder, random });
  opened.push(() => folder.release());
  const destination = pino.destination({ fd: 2, sync: false });
  const log = new EventLog({ level: config.telemetry.logLevel, clock, destination });
  const keysFolder = join(folder.path, 'keys');
  const keys = openKeys(keysFolder, { nowMs: clock.wallMs(), random });
  const unfollow = followKeys({
    folder: keysFolder,
    rings: keys.rings,
    timers,
    onReload: () => log.info('keys_reloaded'),
    onError: (error) => log.error('keys_unreadable', error),
  });
  opened.push(async () => unfollow());

  const probe = new ProcessProbe(clock);
  opened.push(async () => probe.stop());
  const overload = new OverloadLoop({
    clock,
    probe,
    settings: overloadSettings(config),
    onModeChange: (from, to, worst) =>
      log.warn('mode_change', { mode: to, reason: worst?.name ?? 'none', detail: `was ${from}` }),
  });
  const adminToken = ensureAdminToken(folder.path, random);
  const instance =
    alone === undefined
      ? `${roles.join('-')}-${newId(random, String(process.pid))}`
      : `embedded-${process.pid}`;
  const own = await openStores({
    stores: config.stores,
    folder: folder.path,
    instance,
    worker: roles.includes('worker'),
    ...world,
    onPoolWait: (waitedUs) => probe.poolWait.record(waitedUs / 1000),
    onTrouble: (part, error) => log.error('connection_lost', error, { detail: part }),
  });
  opened.push(() => own.close());
  const dependencies = new Dependencies({
    ...world,
    mayRetry: () => overload.mode === 'NORMAL',
  });
  const stores = dependencies.guard(options.adaptStores?.(own) ?? own);
  // Only now: the seconds of a first start must not come off the time before the opening.
  const activities = openActivities(config, folder.path, clock.wallMs());
  if (alone === undefined) await folder.release();
  const lost = roles.includes('control') ? await prepareStock(stores, activities) : [];

  const { otlpEndpoint, traceRatio } = config.telemetry;
  const traces =
    otlpEndpoint === undefined
      ? undefined
      : openTraces({
          endpoint: otlpEndpoint,
          ratio: traceRatio,
          instance,
          dependencies,
          log,
          ...world,
        });
  // Closed after what makes spans.
  if (traces !== undefined) opened.push(() => traces.exporter.close());
  const tracer = traces === undefined ? {} : { tracer: traces.tracing };
  const observatory = new Observatory({
    config,
    clock,
    timers,
    probe,
    overload,
    log,
    dependencies,
    ...(traces === undefined ? {} : { traces: traces.exporter }),
    instance,
    roles,
  });
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
    instance,
    roles,
    report: () => observatory.report(instance, roles),
    ...challengeProviderOf(config),
    ...tracer,
    guardProvider: (provider) => dependencies.provider(provider),
    inventoryMayForget: config.stores.inventory.kind === 'redis',
    hooks: observatory.hooks,
  });
  observatory.watch(sale, stores);
  overload.start(timers);
  opened.push(async () => overload.stop());
  for (const { activityId, skuId } of lost) {
    log.warn('stock_lost', { activity_id: activityId, sku_id: skuId });
    const why = 'the inventory store had lost it at start';
    if (stores.lease === undefined) await sale.rebuild({ activityId, skuId }, 'server', why);
    else sale.noteLost({ activityId, skuId });
  }
  await sale.start();
  opened.push(() => sale.stop());
  opened.push(() => observatory.close());
  const shop = roles.includes('gateway') ? await openGateway() : undefined;
  const admin = roles.includes('control') ? openOperator() : undefined;

  async function openGateway(): Promise<Shop> {
    const rules = await openRules({
      config,
      activities: () => sale.activities.list(),
      folder: folder.path,
      shared: alone === undefined,
      environment: options.environment ?? {},
      log,
      traffic: () => ({
        own: instance,
        all: gatewaysIn([observatory.report(instance, roles), ...(sale.fleet?.others() ?? [])]),
      }),
      desk: new LimitDesk({ ring: keys.rings.challenge, issuer, random }),
      budgetCalls: observatory.budgetCalls,
      ...(stores.budgets === undefined ? {} : { budgets: stores.budgets }),
      ...world,
    });
    opened.push(() => rules.close());
    const opening = await openShop({
      config,
      sale,
      stores,
      keys,
      issuer,
      overload,
      observatory,
      dependencies,
      ...tracer,
      rules,
      theme: themeOf(config, options.environment ?? {}),
      log,
      ...world,
    });
    opened.push(() => opening.gateway.close({ drainMs }));
    return opening;
  }

  function openOperator(): AdminServer {
    return createAdminServer({
      settings: { host: config.server.adminHost, port: config.server.adminPort },
      ...world,
      log: consoleLog(log),
      adminToken,
      source: observatory.source,
      accounts: observatory.accounts,
      actions: operatorActions({
        stores,
        activity: (id) => sale.activities.get(id),
        rooms: sale.rooms,
        overload,
        tellDoors: (word) => sale.fleet?.tellDoors(word),
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
        rooms: sale.rooms,
        rehearse: (activityId, plan) => sale.activities.rehearse(activityId, plan),
      }),
      consoleFolder: webFolder('console'),
    });
  }

  const urls: { shop?: string; operator?: string; signIn?: string; status?: string } = {};
  if (admin !== undefined) {
    if (shop === undefined) {
      admin.app.get('/readyz', (_request, reply) => {
        const { ready, reasons } = readinessOf(sale, roles);
        const { leads, leader } = sale.rooms;
        const led = { leads, leader: leader ?? null };
        return reply.code(ready ? 200 : 503).send({ ready, reasons, ...led });
      });
    }
    urls.operator = (await admin.start()).url;
    opened.push(() => admin.close());
    urls.signIn = admin.signInUrl({ name: 'first-start', role: 'admin' }).url;
  }
  if (shop !== undefined) urls.shop = (await shop.gateway.listen()).url;
  if (shop === undefined && admin === undefined) {
    const status = await startStatusServer({
      host: config.server.adminHost,
      port: config.server.adminPort,
      readiness: () => readinessOf(sale, roles),
      metrics: () => observatory.metrics(),
      wallMs: () => clock.wallMs(),
    });
    opened.push(() => status.close());
    urls.status = status.url;
  }
  log.info('listening', {});
  return { urls, close: closeAll };
}

function challengeProviderOf({ challengeProvider }: Config): Pick<SaleParts, 'challengeProvider'> {
  if (challengeProvider === undefined) return {};
  const { url, secret } = challengeProvider;
  return { challengeProvider: { url, mac: macOf(Buffer.from(secret, 'utf8')) } };
}

/** What each gateway has had to do. */
function gatewaysIn(reports: readonly InstanceReport[]): readonly InstanceTraffic[] {
  return reports
    .filter(({ roles }) => roles.includes('gateway'))
    .map(({ instance, ledger }) => ({ instance, arrivals: ledger.arrivals }));
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
