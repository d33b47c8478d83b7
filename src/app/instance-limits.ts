import type { Rate } from '../core/limit/rate.ts';
import {
  evenQuarters,
  type InstanceTraffic,
  type QuotaMisfit,
  quartersFor,
  quotaMisfits,
  TrafficShares,
} from '../core/rules/instances.ts';
import type { RuleSet } from '../core/rules/model.ts';
import type { EventLog } from '../telemetry/log.ts';

/** Gateways of the deployment as this one knows them, itself included. */
export interface FleetTraffic {
  readonly own: string;
  readonly all: readonly InstanceTraffic[];
}

export interface InstanceLimitsParts {
  /** Holds another share of the traffic than the others, for a while. */
  readonly canary: boolean;
  readonly ceiling: Rate;
  readonly traffic: () => FleetTraffic;
  readonly log: EventLog;
}

/** Watches whether limits that were written for each of several instances still fit these. */
export class InstanceLimits {
  readonly #parts: InstanceLimitsParts;
  readonly #shares = new TrafficShares();
  #quarters = evenQuarters;
  #misfits: readonly QuotaMisfit[] = [];

  constructor(parts: InstanceLimitsParts) {
    this.#parts = parts;
  }

  /** Of the limits as written, in quarters. */
  get quarters(): number {
    return this.#quarters;
  }

  get misfits(): readonly QuotaMisfit[] {
    return this.#misfits;
  }

  /** Once a second. @param set as written. True when the limits are to be scaled anew. */
  look(set: RuleSet, nowUs: number): boolean {
    const { canary, ceiling, traffic, log } = this.#parts;
    const { own, all } = traffic();
    this.#shares.feed(all, nowUs);
    const instances = Math.max(1, this.#shares.count);
    this.#report(quotaMisfits(set, instances, ceiling));
    if (!canary) return false;
    const quarters = quartersFor(this.#shares.shareOf(own), instances, this.#quarters);
    if (quarters === this.#quarters) return false;
    this.#quarters = quarters;
    log.info('instance_limits_scaled', { detail: `${quarters / evenQuarters} of what is written` });
    return true;
  }

  /** Told when it begins and when it changes, not every second. */
  #report(misfits: readonly QuotaMisfit[]): void {
    const before = new Map(this.#misfits.map((one) => [one.ruleId, one.fitsPerSecond]));
    this.#misfits = misfits;
    for (const misfit of misfits) {
      const { ruleId, instances, eachPerSecond, budgetPerSecond, fitsPerSecond } = misfit;
      if (before.get(ruleId) === fitsPerSecond) continue;
      this.#parts.log.warn('quota_misfit', {
        rule_id: ruleId,
        detail: `fail: instance was declared for fewer: ${instances} instances of ${eachPerSecond}/s are more than its ${budgetPerSecond}/s; an instance limit of ${fitsPerSecond}/s fits`,
      });
    }
  }
}
