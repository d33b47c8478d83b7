import type { Activity } from '../core/activity.ts';
import type { Config } from '../config/config.ts';
import { ruleContext } from '../config/rule-context.ts';
import { perSecond, type Rate } from '../core/limit/rate.ts';
import { defaultRuleSet } from '../core/rules/default-set.ts';
import { type ApplyResult, RuleEngine } from '../core/rules/engine.ts';
import { evenQuarters, scaledSet } from '../core/rules/instances.ts';
import { type KeyPart, routeNames, type Rule, type RuleSet } from '../core/rules/model.ts';
import type { LimitDesk } from '../pipeline/limit-desk.ts';
import { RuleLimits } from '../pipeline/rule-limits.ts';
import type { BudgetStore } from '../ports/budget-store.ts';
import type { Clock, TimerHandle, Timers } from '../ports/clock.ts';
import type { EmergencyLedger } from '../ports/emergency-ledger.ts';
import type { Random } from '../ports/random.ts';
import { SharedBudgets } from '../stores/limits/shared-budgets.ts';
import type { Latency } from '../telemetry/latency.ts';
import type { EventLog } from '../telemetry/log.ts';
import type { RuleNumbers } from '../telemetry/rule-metrics.ts';
import { type FleetTraffic, InstanceLimits } from './instance-limits.ts';
import { MeasuredBudgets } from './measured-budgets.ts';
import { RulesFile } from './rules-file.ts';

export interface LiveRulesParts {
  readonly config: Config;
  /** What is on sale at the moment, where that is more than the configuration says. */
  readonly activities?: () => readonly Pick<Activity, 'activityId' | 'skus'>[];
  /** Where shared budgets lie. Closed with the rules. */
  readonly budgets: BudgetStore;
  /** The gateways that there are, where there may be several. */
  readonly traffic?: () => FleetTraffic;
  /** Gives out tickets and challenges. */
  readonly desk: LimitDesk;
  /** Durable memory of emergency budgets spent. */
  readonly ledger: EmergencyLedger;
  /** When everything of the rules has ended. */
  readonly onClosed?: () => Promise<void>;
  /** For `${NAME}` in the rules file. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly timers: Timers;
  readonly random: Random;
  readonly log: EventLog;
  /** Round trips of the calls to `budgets` are recorded here. */
  readonly budgetCalls: Latency;
}

/** How long a burst at the ceiling lasts, s: a spike of 20 ms, doubled many times over. */
const ceilingBurstSeconds = 0.5;
/** Slots looked at per rule and tick, and rules per tick: well below a millisecond in all. */
const sweepSlots = 2_000;
const sweepRules = 8;
/** Between two touches of the leases that a sale will need: below the time after which one is handed back. */
const warmEveryMs = 5_000;
/** Between two looks at how many gateways there are and what each has to do. */
const sizeEveryMs = 1_000;
/** Leases of known activities kept ready; more are made when they are asked for. */
const warmMax = 1_000;
/** How long a start waits for its first leases, ms. */
const firstLeasesMs = 1_000;
/** And new rules for theirs, ms: they are to be in force within a second of being written. */
const reloadLeasesMs = 300;
const leasesLookMs = 10;

/**
 * The rules of a running server: the engine, what it shares with other instances, and the file from
 * which new rules come. A reload changes the set at once; every counter keeps its balance.
 */
export class LiveRules {
  readonly limits: RuleLimits;
  readonly engine: RuleEngine;
  readonly #parts: LiveRulesParts;
  readonly #measured: MeasuredBudgets;
  readonly #shared: SharedBudgets;
  #turn = 0;
  readonly #reloads = { applied: 0, refused: 0 };
  #file: RulesFile | undefined;
  #warming: TimerHandle | undefined;
  #sizing: TimerHandle | undefined;
  readonly #sizes: InstanceLimits | undefined;
  /** As written; the engine may have its instance limits scaled. */
  #written: RuleSet | undefined;

  constructor(parts: LiveRulesParts) {
    this.#parts = parts;
    const { config, clock, timers, random, log } = parts;
    this.#measured = new MeasuredBudgets(parts.budgets, clock, parts.budgetCalls);
    this.#shared = new SharedBudgets({
      store: this.#measured,
      clock,
      timers,
      random,
      ledger: parts.ledger,
      emergencyTokens: config.budgets.emergency,
      onTrouble: (error) => log.error('limiter_error', error),
    });
    this.engine = new RuleEngine(
      {
        hashSeed: new Uint32Array(new Uint8Array(random.bytes(16)).buffer),
        ceiling: { rate: config.server.ceiling, burstMilli: burstOf(config.server.ceiling) },
        shared: this.#shared,
        // Never who: the key of a penalty is a person, a device or an address.
        onPenalty: (rule) => log.warn('penalty', { rule_id: rule.id, reason: 'penalty' }),
      },
      clock.monoUs(),
    );
    const { desk, traffic } = parts;
    const { canary, ceiling } = config.server;
    if (traffic !== undefined) this.#sizes = new InstanceLimits({ canary, ceiling, traffic, log });
    this.limits = new RuleLimits({ engine: this.engine, clock, random, desk });
  }

  /**
   * Puts the first rules in force, gets the first leases, and begins to watch.
   * @throws RulesFileError when the rules file cannot be used.
   */
  async start(): Promise<void> {
    const { config, clock, timers, log, environment } = this.#parts;
    const { rules } = config;
    if (rules.kind === 'file') {
      const file = new RulesFile({
        path: rules.path,
        context: ruleContext(config),
        environment,
        clock,
        timers,
        onSet: (set) => this.#reload(set),
        onRefused: (why) => {
          this.#reloads.refused += 1;
          log.error('rules_refused', undefined, { detail: why });
        },
      });
      this.#inForce(await file.first());
      file.watch();
      this.#file = file;
    } else {
      const set =
        rules.kind === 'written' ? rules.set : defaultRuleSet({ submit: config.budgets.submit });
      this.#inForce(set);
    }
    this.#sizing = timers.every(sizeEveryMs, () => this.#resize());
    this.#warming = timers.every(warmEveryMs, () => this.#warm(this.engine.set));
    await this.#held(this.engine.set, firstLeasesMs);
  }

  /** Forgets idle keys, in bounded slices; call from one timer. */
  sweep(): void {
    const nowUs = this.#parts.clock.monoUs();
    for (let count = 0; count < sweepRules; count += 1) this.engine.sweep(nowUs, sweepSlots);
  }

  get numbers(): RuleNumbers {
    const { remainingMilli, wastedMilli } = this.#shared.totals();
    return {
      version: this.engine.version,
      ageMs: this.#file?.ageMs,
      stats: this.engine.stats(),
      failPolicies: new Map(this.engine.set.rules.map(({ id, fail }) => [id, fail])),
      ceilingRefused: this.engine.ceilingRefused,
      reloads: { ...this.#reloads },
      instanceScale: (this.#sizes?.quarters ?? evenQuarters) / evenQuarters,
      quotaMisfits: this.#sizes?.misfits.map(({ ruleId }) => ruleId) ?? [],
      budgetErrors: this.#measured.errors,
      budgetUnknown: this.#measured.unknown,
      leaseRemaining: remainingMilli / 1000,
      leaseWasted: wastedMilli / 1000,
      emergencySpent: this.#shared.emergencyTotalMilli / 1000,
    };
  }

  /** Tokens left in all leases; undefined where none is held. */
  get leaseTokens(): number | undefined {
    const { leases, remainingMilli } = this.#shared.totals();
    return leases === 0 ? undefined : remainingMilli / 1000;
  }

  /** Keys remembered and decisions of overflow buckets so far, by what the keys are. */
  table(dimension: Dimension): { readonly entries: number; readonly overflowTotal: number } {
    const of = new Map(this.engine.set.rules.map((rule) => [rule.id, dimensionOf(rule)]));
    let entries = 0;
    let overflowTotal = 0;
    for (const row of this.engine.stats()) {
      if (of.get(row.ruleId) !== dimension) continue;
      entries += row.entries;
      overflowTotal += row.overflow;
    }
    return { entries, overflowTotal };
  }

  /** Stops watching, hands every lease back, and closes the store of budgets. */
  async close(): Promise<void> {
    this.#turn += 1;
    this.#warming?.cancel();
    this.#sizing?.cancel();
    await this.#file?.close();
    await this.#shared.close();
    await this.#parts.budgets.close();
    await this.#parts.onClosed?.();
  }

  /** The leases that new rules spend from come first: their first caller is not to be refused for that. */
  #reload(set: RuleSet): void {
    this.#turn += 1;
    const turn = this.#turn;
    this.#held(set, reloadLeasesMs).then(
      () => {
        // Of two that came shortly one after the other, the later one holds.
        if (turn === this.#turn) this.#put(set);
      },
      (error: unknown) => this.#parts.log.error('limiter_error', error),
    );
  }

  #put(set: RuleSet): void {
    const { log } = this.#parts;
    const result = this.#inForce(set);
    if (result.applied) {
      this.#reloads.applied += 1;
      log.info('rules_applied', { rule_version: set.version });
      return;
    }
    this.#reloads.refused += 1;
    this.#file?.notInForce();
    log.error('rules_refused', undefined, {
      rule_version: set.version,
      detail: `rules_file: found version ${set.version}; allowed is ${result.live} or higher, the version in force`,
    });
  }

  #inForce(set: RuleSet): ApplyResult {
    const quarters = this.#sizes?.quarters ?? evenQuarters;
    const result = this.engine.apply(scaledSet(set, quarters), this.#parts.clock.monoUs());
    if (result.applied) this.#written = set;
    return result;
  }

  /** A canary's own limits follow its share of the traffic; balances follow in proportion. */
  #resize(): void {
    const set = this.#written;
    if (set === undefined || this.#sizes === undefined) return;
    if (this.#sizes.look(set, this.#parts.clock.monoUs())) this.#inForce(set);
  }

  /** Keeps the leases that a sale will need, before its first buyer comes; true once all are held. */
  #warm(set: RuleSet): boolean {
    const nowUs = this.#parts.clock.monoUs();
    let all = true;
    for (const [rule, parts] of this.#leasesToCome(set)) {
      if (this.#shared.lease(rule, parts).remainingMilli(nowUs) === 0) all = false;
    }
    return all;
  }

  /** Only where the store answers in time: without it the fail policies speak, and it goes on. */
  async #held(set: RuleSet, mostMs: number): Promise<void> {
    const { timers } = this.#parts;
    for (let waitedMs = 0; waitedMs < mostMs && !this.#warm(set); waitedMs += leasesLookMs) {
      await new Promise<void>((resolve) => {
        timers.after(leasesLookMs, resolve);
      });
    }
  }

  #leasesToCome(set: RuleSet): (readonly [rule: Rule, parts: readonly string[]])[] {
    const { config } = this.#parts;
    const activities = this.#parts.activities?.() ?? config.activities;
    const found: (readonly [Rule, readonly string[]])[] = [];
    for (const rule of set.rules) {
      if (rule.scope !== 'lease' || rule.mode === 'off') continue;
      for (const parts of partsOf(rule, activities)) {
        if (found.length >= warmMax) return found;
        found.push([rule, parts]);
      }
    }
    return found;
  }
}

/** What the keys of a table are, coarsely. */
export type Dimension = 'address' | 'prefix' | 'user' | 'device' | 'other';

function dimensionOf({ key }: Rule): Dimension {
  const has = (kind: KeyPart['kind']): boolean => key.some((part) => part.kind === kind);
  if (has('user')) return 'user';
  if (has('device')) return 'device';
  if (has('ip')) return 'address';
  return has('ip_prefix') ? 'prefix' : 'other';
}

/** The keys of a leased rule over what is known before anybody asks; none where a part is not. */
function partsOf(
  { key, match }: Rule,
  activities: readonly Pick<Activity, 'activityId' | 'skus'>[],
): readonly (readonly string[])[] {
  const routes = routeNames.filter(
    (name) => match.route?.some((pattern) => pattern.matches(name)) ?? true,
  );
  let rows: readonly Known[] = [{}];
  if (key.some(({ kind }) => kind === 'activity' || kind === 'sku')) {
    rows = activities.flatMap(({ activityId, skus }) =>
      skus.map(({ skuId }) => ({ activity: activityId, sku: skuId })),
    );
  }
  if (key.some(({ kind }) => kind === 'route')) {
    rows = rows.flatMap((row) => routes.map((route) => ({ ...row, route })));
  }
  const named = rows.map((row) => key.map(({ kind }) => (row as Record<string, string>)[kind]));
  const known = named.filter((parts): parts is string[] => !parts.includes(undefined));
  return [...new Map(known.map((parts) => [parts.join('\n'), parts])).values()];
}

interface Known {
  readonly activity?: string;
  readonly sku?: string;
  readonly route?: string;
}

function burstOf(rate: Rate): number {
  return Math.max(1000, Math.ceil(perSecond(rate) * ceilingBurstSeconds * 1000));
}
