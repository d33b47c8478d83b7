import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, totalmem } from 'node:os';
import type { Clock, Timers } from '../../ports/clock.ts';
import { BadLogError, logArrivals, shapedArrivals } from './arrivals.ts';
import type { Arrivals } from './arrivals.ts';
import { Asker } from './ask.ts';
import { BackOffice } from './back-office.ts';
import { Crowd } from './crowd.ts';
import { Dice } from './dice.ts';
import { checkDraw } from './draw-check.ts';
import { builtCommand, embeddedLimits, lobbyShare, startEmbedded } from './embedded.ts';
import type { EmbeddedServer, ServerCommand } from './embedded.ts';
import type { PoolLimits } from './http-pool.ts';
import { htmlReport } from './html-report.ts';
import { Monitor } from './monitor.ts';
import { parseRushOptions } from './options.ts';
import type { RawOptions, RushOptions } from './options.ts';
import { Progress, progressLine } from './progress.ts';
import type { Quantiles, RushReport } from './report.ts';
import { CannotStartError, findSale, messageOf } from './sale.ts';
import type { Sale } from './sale.ts';
import { seriesNames } from './series.ts';
import { summaryOf } from './summary.ts';
import { closeDoors, sweep } from './sweep.ts';
import { judge, unitsLive } from './verdict.ts';
import type { Findings } from './verdict.ts';
import type { Histogram } from './histogram.ts';

/** What the command needs of the world. */
export interface RushSurroundings {
  readonly out: (text: string) => void;
  readonly err: (text: string) => void;
  /** Is standard error a terminal? Progress is rewritten in place there. */
  readonly isTty: boolean;
  readonly clock: Clock;
  readonly timers: Timers;
  /** How an embedded server is started; the built command by default. */
  readonly serverCommand?: ServerCommand;
  readonly patience?: Patience;
  /**
   * Asks the system to serve this process before others: the crowd stands for other people's phones,
   * which what happens here must not slow down. False where the system refuses.
   */
  readonly beServedFirst?: () => boolean;
  /** Resolves when somebody wants the run to end early. */
  readonly stopSignal?: () => Promise<string>;
  /** Bounds of the generator's connections, where they are not the usual ones. */
  readonly limits?: Partial<PoolLimits>;
}

/** How long a run may go on, ms. */
export interface Patience {
  /** After the last arrival and the opening. */
  readonly afterLastMs: number;
  /** Once all have come and the sale is open: without anybody admitted, served or gone. */
  readonly quietMs: number;
  /** For the closing sweep, in which every request is asked after. */
  readonly sweepMs: number;
}

/** Quiet lasts longer than an unpaid order does, so that units which come back find somebody. */
const patienceDefault: Patience = { afterLastMs: 180_000, quietMs: 45_000, sweepMs: 30_000 };

const exitHolds = 0;
const exitBroken = 1;
const exitUsage = 2;

/** Arrivals not started, above which a run is void. */
const voidShare = 0.001;

/**
 * `sluice rush`. `raw` are the options as a command line gives them (camelCase, values as text), with
 * `adminUrl` and `adminToken` where the environment names them.
 * @returns 0 when the verdict holds, 1 when it does not, 2 when the run could not be started as asked.
 */
export async function rushCommand(raw: RawOptions, around: RushSurroundings): Promise<number> {
  const parsed = parseRushOptions(raw);
  if (!parsed.ok) {
    around.err(`${parsed.errors.map((error) => `sluice rush: ${error}`).join('\n')}\n`);
    return exitUsage;
  }
  const { options } = parsed;
  const progress = new Progress(around.err, around.isTty);
  let server: EmbeddedServer | undefined;
  try {
    const arrivals = arrivalsOf(options);
    // Found out now, not after the run.
    for (const file of Object.values(reportFiles(options.reportFile ?? '')))
      if (options.reportFile !== undefined) appendTo(file, '');
    if (options.target === undefined) {
      progress.say('Starting a server of its own …');
      server = await startEmbedded(
        options,
        around.serverCommand ?? builtCommand,
        around.clock,
        around.timers,
      );
      progress.say(`Its shop is ${server.shop}, its operator page ${server.operator}`);
    }
    const report = await runCrowd(options, arrivals, server, progress, around);
    if (options.reportFile !== undefined) writeReport(options.reportFile, report);
    around.out(options.json ? `${JSON.stringify(report)}\n` : summaryOf(report));
    return report.verdict === 'holds' ? exitHolds : exitBroken;
  } catch (error) {
    progress.end();
    if (error instanceof CannotStartError || error instanceof BadLogError) {
      around.err(`sluice rush: ${error.message}\n`);
      return exitUsage;
    }
    throw error;
  } finally {
    progress.end();
    await server?.stop();
  }
}

/** The schedule of arrivals that the options ask for. @throws CannotStartError, BadLogError for a bad log. */
export function arrivalsOf(options: RushOptions): Arrivals {
  if (options.arrivalsFile === undefined) {
    const dice = new Dice(options.seed);
    return shapedArrivals(options.scenario.arrivals, options.people, options.overMs, dice);
  }
  let text: string;
  try {
    text = readFileSync(options.arrivalsFile, 'utf8');
  } catch (error) {
    throw new CannotStartError(`--arrivals: ${messageOf(error)}`);
  }
  return logArrivals(text, options.people, options.overMs);
}

const pause = (timers: Timers, ms: number): Promise<void> =>
  new Promise((resolve) => timers.after(ms, resolve));

async function runCrowd(
  options: RushOptions,
  arrivals: Arrivals,
  server: EmbeddedServer | undefined,
  progress: Progress,
  around: RushSurroundings,
): Promise<RushReport> {
  const { clock, timers, patience = patienceDefault } = around;
  const shopUrl = server?.shop ?? options.target ?? '';
  const shop = new Asker(new URL(shopUrl));
  const adminUrl = server?.operator ?? options.adminUrl;
  const adminToken = server?.adminToken ?? options.adminToken;
  const office =
    adminUrl !== undefined && adminToken !== undefined
      ? new BackOffice(adminUrl, adminToken)
      : undefined;
  const sale = await findSale(shop, server?.activityId ?? options.activity);
  await untilArrivals(sale, server, options, progress, around);

  const priority = around.beServedFirst?.() === true ? 'raised' : 'usual';
  const startedAtMs = clock.wallMs();
  const cpuBefore = process.cpuUsage();
  const crowd = new Crowd(
    {
      origin: new URL(shopUrl),
      activityId: sale.activityId,
      skus: sale.skus,
      scenario: options.scenario,
      arrivals,
      people: options.people,
      seed: options.seed,
      limits: { ...(server === undefined ? {} : embeddedLimits), ...around.limits },
    },
    clock,
    timers,
  );
  const skuIds = sale.skus.map(({ skuId }) => skuId);
  const monitor = new Monitor(shop, office, crowd.witness, sale.activityId, skuIds, () =>
    crowd.now(),
  );
  monitor.start(timers);
  crowd.start();
  let peakRss = 0;
  let interrupted = false;
  void around.stopSignal?.().then(() => {
    interrupted = true;
  });
  try {
    const opensInMs = Math.max(0, sale.opensAtMs - clock.wallMs());
    const allHereMs = crowd.startMs + Math.max(options.overMs, opensInMs);
    const lastMs = allHereMs + patience.afterLastMs;
    let moved = -1;
    let movedMs = allHereMs;
    while (crowd.people.settled < options.people && crowd.now() < lastMs) {
      await pause(timers, 1_000);
      peakRss = Math.max(peakRss, process.memoryUsage.rss());
      progress.show(progressLine(crowd, crowd.now() - crowd.startMs));
      if (crowd.steps !== moved) {
        moved = crowd.steps;
        movedMs = Math.max(allHereMs, crowd.now());
      } else if (crowd.now() - movedMs > patience.quietMs) {
        progress.say(`Nothing has moved for ${Math.round(patience.quietMs / 1000)} s.`);
        break;
      }
      if (interrupted) {
        progress.say('Interrupted: nobody more comes, and whoever has not come voids the run.');
        break;
      }
      const death = server?.died();
      if (death !== undefined) {
        progress.say(death);
        break;
      }
    }
    progress.end();
    progress.say('The crowd has gone; asking what became of every request …');
    closeDoors(crowd);
    await sweep(crowd, timers, patience.sweepMs);
    await monitor.lastLooks(timers);
  } finally {
    monitor.stop();
    crowd.stop();
  }
  const findings = await lookBack(options, crowd, monitor, office, shop, server, sale, timers);
  shop.close();
  office?.close();
  const cpu = process.cpuUsage(cpuBefore);
  return compose(options, arrivals, crowd, findings, {
    target: shopUrl,
    activity: sale.activityId,
    startedAtMs,
    durationMs: crowd.now() - crowd.startMs,
    cpuS: Math.round((cpu.user + cpu.system) / 1e4) / 100,
    peakRssMib: Math.round(peakRss / 2 ** 20),
    priority,
  });
}

/** Waits until people may come: the embedded sale is timed to open two thirds into the arrivals. */
async function untilArrivals(
  sale: Sale,
  server: EmbeddedServer | undefined,
  options: RushOptions,
  progress: Progress,
  { clock, timers }: RushSurroundings,
): Promise<void> {
  const beginMs =
    server === undefined
      ? sale.lobbyOpensAtMs - (sale.serverTimeMs - clock.wallMs())
      : server.opensAtMs - options.overMs * lobbyShare;
  const waitMs = beginMs - clock.wallMs();
  if (waitMs <= 0) return;
  progress.say(`People come in ${Math.ceil(waitMs / 1000)} s`);
  await pause(timers, waitMs);
}

/** What the operator's side says once all is quiet. */
async function lookBack(
  options: RushOptions,
  crowd: Crowd,
  monitor: Monitor,
  office: BackOffice | undefined,
  shop: Asker,
  server: EmbeddedServer | undefined,
  sale: Sale,
  timers: Timers,
): Promise<Findings> {
  const troubles: string[] = [];
  const attempt = async <Value>(
    name: string,
    work: () => Promise<Value>,
  ): Promise<Value | undefined> => {
    try {
      return await work();
    } catch (error) {
      troubles.push(`${name}: ${messageOf(error)}`);
      return undefined;
    }
  };
  let stock;
  let residual;
  let reconciliation;
  let orders;
  let draw;
  if (office !== undefined) {
    // Requests cut off at the end may still be inside; a moment later they are not.
    for (let tries = 0; tries < 20; tries += 1) {
      stock = await attempt('stock', () => office.stock(sale.activityId));
      residual = await attempt('ledger', () => office.ledgerResidual());
      orders = await attempt('orders', () => office.orders(sale.activityId));
      const quiet = residual === 0 && stock?.held === 0;
      if (quiet && (orders === undefined || unitsLive(orders) === stock?.sold)) break;
      await pause(timers, 250);
    }
    const joined = crowd.people.entered;
    const { activityId, commitment } = sale;
    draw = await attempt('draw', async () => {
      const { checkpoint } = await findSale(shop, activityId);
      return checkDraw(office, activityId, { commitment, checkpoint }, joined);
    });
    reconciliation = await attempt('reconcile', () => office.findings());
  }
  return {
    crowd,
    monitor,
    operated: office !== undefined,
    stock,
    residual,
    orders,
    maxPerPerson: (skuId) => sale.skus.find((sku) => sku.skuId === skuId)?.maxPerPerson ?? 1,
    reconciliation,
    draw: draw ?? { kind: 'none', why: 'the audit of the draw was not read' },
    initialStock: server === undefined ? undefined : options.stock,
    admission: server?.admission,
    troubles: [...new Set(troubles)],
    peakServerMib: server?.peakMib(),
  };
}

interface RunFacts {
  readonly target: string;
  readonly activity: string;
  readonly startedAtMs: number;
  readonly durationMs: number;
  readonly cpuS: number;
  readonly peakRssMib: number;
  readonly priority: 'raised' | 'usual';
}

const quantiles = (histogram: Histogram): Quantiles => ({
  p50: histogram.quantile(0.5),
  p99: histogram.quantile(0.99),
});

function compose(
  options: RushOptions,
  arrivals: Arrivals,
  crowd: Crowd,
  findings: Findings,
  facts: RunFacts,
): RushReport {
  const { witness, series, people } = crowd;
  const invariants = judge(findings);
  const notStarted = options.people - crowd.arrivalsStarted;
  const isVoid = notStarted > voidShare * options.people;
  const held = invariants.every((invariant) => invariant.held);
  const outcomes = people.outcomes();
  const live = outcomes.paid + outcomes.ordered;
  const [cpu] = cpus();
  return {
    people: options.people,
    arrivals_planned: options.people,
    arrivals_started: crowd.arrivalsStarted,
    void: isVoid,
    outcomes,
    stock: {
      total: findings.stock?.total ?? null,
      sold: findings.stock?.sold ?? live,
      held: findings.stock?.held ?? 0,
      available: findings.stock?.available ?? null,
    },
    rates: {
      refused_per_s: series.rate('refused'),
      reserved_per_s: series.rate('reserved'),
      orders_per_s: series.rate('ordered'),
    },
    latency_ms: {
      admitted: quantiles(witness.admittedMs),
      refused: quantiles(witness.refusedMs),
    },
    ledger: { residual: findings.residual ?? null },
    invariants,
    verdict: !held ? 'broken' : isVoid ? 'void' : 'holds',
    seed: options.seed,
    machine: {
      cpus: cpus().length,
      model: cpu?.model ?? 'unknown',
      memory_mib: Math.round(totalmem() / 2 ** 20),
      platform: `${process.platform} ${process.arch}`,
      node: process.version,
    },
    run: {
      scenario: options.scenarioName,
      about: options.scenario.about,
      target: facts.target,
      activity: facts.activity,
      started_at: new Date(facts.startedAtMs).toISOString(),
      duration_ms: Math.round(facts.durationMs),
      over_ms: options.overMs,
      scale: options.scale,
      shares: {
        bots: options.scenario.bots,
        duplicates: options.scenario.duplicates,
        timeouts: options.scenario.timeouts,
      },
      arrivals_from: options.arrivalsFile ?? options.scenario.arrivals,
      households: arrivals.households,
      worst_lateness_ms: Math.round(crowd.worstLatenessMs * 10) / 10,
      answers: Object.fromEntries([...witness.answers].sort(([a], [b]) => (a < b ? -1 : 1))),
      attacks: {
        forged: witness.forged,
        replayed: witness.replays,
        conflicting: witness.conflicts,
      },
      retries_of_reserved: witness.retries,
      waves: witness.waves.size,
      generator: {
        cpu_s: facts.cpuS,
        peak_rss_mib: facts.peakRssMib,
        priority: facts.priority,
        worst_stall_ms: Math.round(crowd.worstTurnGapMs),
      },
      poll_ms: quantiles(witness.pollMs),
      series: Object.fromEntries(
        seriesNames.map((name) => [name, series.column(name)]),
      ) as RushReport['run']['series'],
      histograms: { admitted: witness.admittedMs.points(), refused: witness.refusedMs.points() },
    },
  };
}

/** @throws CannotStartError when the file cannot be written. */
function appendTo(file: string, text: string): void {
  try {
    appendFileSync(file, text);
  } catch (error) {
    throw new CannotStartError(`--report: ${messageOf(error)}`);
  }
}

/** Both forms of the report: `r.json` has `r.html` beside it, whichever of the two was named. */
function reportFiles(file: string): { readonly json: string; readonly html: string } {
  if (file.endsWith('.html')) return { json: `${file.slice(0, -5)}.json`, html: file };
  return { json: file, html: `${file.endsWith('.json') ? file.slice(0, -5) : file}.html` };
}

function writeReport(file: string, report: RushReport): void {
  const { json, html } = reportFiles(file);
  writeFileSync(json, `${JSON.stringify(report, undefined, 2)}\n`);
  writeFileSync(html, htmlReport(report));
}
