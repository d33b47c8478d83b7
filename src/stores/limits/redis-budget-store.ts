import { createHash } from 'node:crypto';
import type { Algorithm, LimitSpec } from '../../core/limit/algorithm.ts';
import { createAlgorithm } from '../../core/limit/algorithms/create.ts';
import type { RenewReply, RenewRequest } from '../../core/limit/budget.ts';
import { renewBounds } from '../../core/limit/budget.ts';
import { encodeKey } from '../../core/limit/key.ts';
import { assertCost, tokenBucket } from '../../core/limit/token-bucket.ts';
import type {
  BudgetStore,
  ExactCheck,
  ExactReply,
  SharedBudget,
} from '../../ports/budget-store.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { RedisLink } from '../redis/client.ts';
import type { Keys } from '../redis/keys.ts';
import { scripts } from '../redis/scripts.ts';

/**
 * Shared budgets in Redis, a cluster of it, or Valkey. One script per operation, on the server's own
 * clock; the connection is the admission store's, never the inventory's.
 *
 * Limits of one slot are charged by one script, all or none. Across slots no script can be atomic: the
 * slots are asked one after the other, and a refusal gives back what the earlier ones charged. Whoever
 * asks in between sees the charge; that is an error on the strict side, and it is said here instead of
 * hidden.
 */
export interface RedisBudgetOptions {
  readonly link: RedisLink;
  readonly keys: Keys;
  /** Tests pass a virtual clock; without it the server's own decides. */
  readonly nowUs?: () => number;
  /** Told of charges that could not be given back. */
  readonly onTrouble?: (error: unknown) => void;
}

/** No key lives longer without being used: twice the longest period a rate may have. */
const lifeMaxMs = 2 * 366 * 86_400_000;
const budgetLifeLeastMs = 600_000;
/** Characters of a slot's digest: it only has to spread, the key's own digest tells keys apart. */
const slotLength = 12;

export class RedisBudgetStore implements BudgetStore {
  readonly #options: RedisBudgetOptions;
  /** Algorithms by their spec's identity: rules hand the same objects in again and again. */
  readonly #algorithms = new WeakMap<LimitSpec, Algorithm>();

  constructor(options: RedisBudgetOptions) {
    this.#options = options;
  }

  async renew(budget: SharedBudget, request: RenewRequest): Promise<RenewReply> {
    const bucket = tokenBucket(budget.rate, budget.burstMilli);
    const perSecond = (budget.rate.tokensMilli * 1e6) / budget.rate.periodUs;
    const { tickUs, unitsPerTick, unitsPerMilli, capacityUnits, initialUnits, fillUs } = bucket;
    const reply = await this.#options.link.run(
      scripts.budgetRenew,
      [this.#options.keys.budget(budget.name)],
      [
        this.#now(),
        JSON.stringify([
          tickUs,
          unitsPerTick,
          unitsPerMilli,
          capacityUnits,
          initialUnits,
          fillUs,
          budget.burstMilli,
          perSecond,
          budgetLifeMs(budget),
        ]),
        JSON.stringify([
          request.instance,
          request.sequence,
          request.epoch,
          request.leaseId,
          request.keepMilli,
          request.returnMilli,
          request.demandMilliPerSecond,
          request.roundTripUs,
          request.leaving ? 1 : 0,
        ]),
        JSON.stringify(renewBounds),
      ],
    );
    const [epoch, leaseId, grantedMilli, keptMilli, leaseUs, scarce, instances] = numbers(reply, 7);
    return {
      epoch: epoch ?? 0,
      leaseId: leaseId ?? 0,
      grantedMilli: grantedMilli ?? 0,
      keptMilli: keptMilli ?? 0,
      leaseUs: leaseUs ?? 0,
      scarce: scarce === 1,
      instances: instances ?? 0,
    };
  }

  async raiseEpoch(budget: SharedBudget): Promise<number> {
    const { link, keys } = this.#options;
    const life = String(budgetLifeMs(budget));
    const reply = await link.run(scripts.budgetRaise, [keys.budget(budget.name)], [life]);
    return Number(String(reply));
  }

  async take(checks: readonly ExactCheck[]): Promise<ExactReply> {
    for (const check of checks) {
      assertCost(this.#algorithm(check.limit).capacityMilli, check.costMilli);
    }
    const leftMilli = checks.map(() => 0);
    const charged: (readonly number[])[] = [];
    for (const places of bySlot(checks)) {
      const said = await this.#ask('take', checks, places);
      for (const [n, place] of places.entries()) leftMilli[place] = said.leftMilli[n] ?? 0;
      if (said.waitUs > 0) {
        await this.#undo(checks, charged);
        return { waitUs: said.waitUs, refusedBy: places[said.refusedBy] ?? 0, leftMilli };
      }
      charged.push(places);
    }
    return { waitUs: 0, refusedBy: -1, leftMilli };
  }

  async giveBack(checks: readonly ExactCheck[]): Promise<void> {
    for (const places of bySlot(checks)) await this.#ask('give', checks, places);
  }

  async close(): Promise<void> {
    await this.#options.link.close();
  }

  /** What cannot be given back stays charged: the answer is a refusal all the same. */
  async #undo(
    checks: readonly ExactCheck[],
    charged: readonly (readonly number[])[],
  ): Promise<void> {
    for (const places of charged) {
      try {
        await this.#ask('give', checks, places);
      } catch (error) {
        const known = error instanceof UnavailableError || error instanceof OutcomeUnknownError;
        if (!known) throw error;
        this.#options.onTrouble?.(error);
      }
    }
  }

  async #ask(
    mode: 'take' | 'give',
    checks: readonly ExactCheck[],
    places: readonly number[],
  ): Promise<ExactReply> {
    const { link, keys } = this.#options;
    const names: string[] = [];
    const asked: unknown[] = [];
    for (const place of places) {
      const check = checks[place];
      if (check === undefined) continue;
      const algorithm = this.#algorithm(check.limit);
      names.push(keys.limit(digestOf(check.slot).slice(0, slotLength), keyDigestOf(check)));
      asked.push([parametersOf(algorithm), check.costMilli, check.keepMilli, lifeMs(algorithm)]);
    }
    const reply = await link.run(scripts.limitTake, names, [
      this.#now(),
      mode,
      JSON.stringify(asked),
    ]);
    const [waitUs = 0, by = 0, ...leftMilli] = numbers(reply, 2 + names.length);
    return { waitUs, refusedBy: by - 1, leftMilli };
  }

  #now(): string {
    return this.#options.nowUs === undefined ? '' : String(this.#options.nowUs());
  }

  #algorithm(limit: LimitSpec): Algorithm {
    const known = this.#algorithms.get(limit);
    if (known !== undefined) return known;
    if (limit.algorithm === 'concurrency') {
      throw new RangeError('found concurrency in a shared store; allowed is scope instance');
    }
    const made = createAlgorithm(limit);
    this.#algorithms.set(limit, made);
    return made;
  }
}

/** Places of the checks, those of one slot together, in the order of their first. */
function bySlot(checks: readonly ExactCheck[]): Iterable<readonly number[]> {
  const slots = new Map<string, number[]>();
  for (const [at, { slot }] of checks.entries()) slots.set(slot, [...(slots.get(slot) ?? []), at]);
  return slots.values();
}

/** Callers' values do not become key names: they are bounded in length and unreadable in the store. */
function keyDigestOf(check: ExactCheck): string {
  return digestOf(encodeKey([check.ruleId, ...check.parts]));
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('base64url');
}

function parametersOf(algorithm: Algorithm): string {
  return `${algorithm.spec.algorithm} ${algorithm.parameters.join(' ')}`;
}

function lifeMs(algorithm: Algorithm): number {
  return Math.min(lifeMaxMs, Math.ceil(algorithm.idleUs / 1000) + 1000);
}

function budgetLifeMs(budget: SharedBudget): number {
  const bucket = tokenBucket(budget.rate, budget.burstMilli);
  return Math.min(lifeMaxMs, Math.max(budgetLifeLeastMs, Math.ceil((2 * bucket.fillUs) / 1000)));
}

/** A reply of `least` numbers as text, or more. */
function numbers(reply: unknown, least: number): number[] {
  if (!Array.isArray(reply) || reply.length < least) {
    throw new TypeError(`Redis answered ${JSON.stringify(reply)}; ${least} numbers are expected`);
  }
  return reply.map((one: unknown) => {
    const value = Number(String(one));
    if (!Number.isFinite(value)) throw new TypeError(`Redis answered "${String(one)}", no number`);
    return value;
  });
}
