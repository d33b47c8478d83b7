import type { StageName } from '../decision.ts';

/**
 * The account in which every request that came in is found again.
 *
 * Over any window and at every layer:
 *
 *     arrivals + in system at start = handled + forwarded + rejected + failed + in system at end
 *
 * The trap is an account that closes by definition: if "in system" is computed as arrivals minus
 * exits, the residual is zero whatever happens and proves nothing. So the two sides come from
 * different hands. Arrivals and exits are counted here, by the pipeline, as it decides; what is in
 * the system at this moment is asked of whoever holds the requests (the server's open responses). A
 * request that was answered without an exit, counted twice, or swallowed by a stage shows as a
 * residual that is not zero, and `entered` says at which stage.
 *
 *     arrived ──▶ entered(receive) ──▶ entered(shed) ──▶ … ──▶ left(stage, decision, reason)
 *
 * Counting is on the hot path of every refusal: it is three map look-ups and an addition, and
 * allocates nothing once a (stage, decision, reason) has been seen.
 */

/**
 * How a request leaves a layer: `handle` answered by us, `forward` passed on to a shop behind us,
 * `reject` refused by a stage, `fail` given up because a needed part failed.
 */
export type Exit = 'handle' | 'forward' | 'reject' | 'fail';

export const exits: readonly Exit[] = ['handle', 'forward', 'reject', 'fail'];

/** What the pipeline needs of the ledger. */
export interface StageLedger {
  /** A request came in. */
  arrived(): void;
  /** It left at `stage`. `reason` is a short word from a closed set. */
  left(stage: string, decision: Exit, reason: string): void;
}

/** Stages beyond this many share one row, called `other`: a path has eleven. */
export const ledgerStagesMax = 64;

/** Reasons of one (stage, decision) beyond this many share one row, called `other`. */
export const ledgerReasonsMax = 64;

const overflow = 'other';

/** One row of the account. */
export interface LedgerRow {
  readonly stage: string;
  readonly decision: Exit;
  readonly reason: string;
  readonly count: number;
}

/** One stage's part of the account. */
export interface StageRow {
  readonly stage: string;
  /** How many got at least this far, of those that have left by now. */
  readonly entered: number;
  readonly left: number;
}

/** The path in its order; the compiler sees that no stage is forgotten. */
const submitPath = Object.keys({
  receive: true,
  shed: true,
  instance: true,
  source: true,
  sold_out: true,
  identify: true,
  person: true,
  budget: true,
  slot: true,
  reserve: true,
  enqueue: true,
} satisfies Record<StageName, true>);

export interface LedgerSnapshot {
  readonly arrivals: number;
  readonly inSystem: number;
  readonly totals: Readonly<Record<Exit, number>>;
  readonly rows: readonly LedgerRow[];
  readonly stages: readonly StageRow[];
}

interface Cell {
  count: number;
}

class StageCounts {
  readonly handle = new Map<string, Cell>();
  readonly forward = new Map<string, Cell>();
  readonly reject = new Map<string, Cell>();
  readonly fail = new Map<string, Cell>();
}

/** Counts one layer. Pure bookkeeping: no clock, no I/O. */
export class Ledger implements StageLedger {
  #arrivals = 0;
  readonly #stages = new Map<string, StageCounts>();
  readonly #inSystem: () => number;
  readonly #path: readonly string[];

  /**
   * @param inSystem how many requests the layer holds at this moment, from its own books (open
   *   responses, a queue's depth), never derived from this ledger.
   * @param path the stages of the layer in their order; what is not on it stands for itself.
   */
  constructor(inSystem: () => number, path: readonly string[] = submitPath) {
    this.#inSystem = inSystem;
    this.#path = path;
  }

  arrived(): void {
    this.#arrivals += 1;
  }

  left(stage: string, decision: Exit, reason: string): void {
    const reasons = this.#stage(stage)[decision];
    const cell = reasons.get(reason);
    if (cell === undefined) addCell(reasons, reason);
    else cell.count += 1;
  }

  /** Everything counted so far. O(rows). */
  snapshot(): LedgerSnapshot {
    const rows: LedgerRow[] = [];
    const left = new Map<string, number>();
    const totals = { handle: 0, forward: 0, reject: 0, fail: 0 };
    for (const [stage, counts] of this.#stages) {
      let sum = 0;
      for (const decision of exits) {
        for (const [reason, cell] of counts[decision]) {
          rows.push({ stage, decision, reason, count: cell.count });
          totals[decision] += cell.count;
          sum += cell.count;
        }
      }
      left.set(stage, sum);
    }
    const stages = stageRows(left, this.#path);
    return { arrivals: this.#arrivals, inSystem: this.#inSystem(), totals, rows, stages };
  }

  /** Since the start: 0 when every request that came in is found again. */
  residual(): number {
    return residualOf(this.snapshot());
  }

  #stage(name: string): StageCounts {
    const known = this.#stages.get(name);
    if (known !== undefined) return known;
    const key = this.#stages.size < ledgerStagesMax - 1 ? name : overflow;
    const shared = this.#stages.get(key);
    if (shared !== undefined) return shared;
    const fresh = new StageCounts();
    this.#stages.set(key, fresh);
    return fresh;
  }
}

/** Stages of the path first, in its order, seen or not; then the others. */
function stageRows(
  left: ReadonlyMap<string, number>,
  path: readonly string[],
): readonly StageRow[] {
  const rows: StageRow[] = [];
  let entered = 0;
  for (const stage of path.toReversed()) {
    const here = left.get(stage) ?? 0;
    entered += here;
    rows.unshift({ stage, entered, left: here });
  }
  for (const [stage, here] of left)
    if (!path.includes(stage)) rows.push({ stage, entered: here, left: here });
  return rows;
}

function addCell(reasons: Map<string, Cell>, reason: string): void {
  const key = reasons.size < ledgerReasonsMax - 1 ? reason : overflow;
  const shared = reasons.get(key);
  if (shared === undefined) reasons.set(key, { count: 1 });
  else shared.count += 1;
}

/**
 * What does not add up between two moments (or since the start). Positive: that many requests came
 * in and are not found. Negative: that many exits had no arrival.
 */
export function residualOf(end: LedgerSnapshot, start?: LedgerSnapshot): number {
  const before = start === undefined ? 0 : balance(start);
  return balance(end) - before;
}

function balance(snapshot: LedgerSnapshot): number {
  const { handle, forward, reject, fail } = snapshot.totals;
  return snapshot.arrivals - handle - forward - reject - fail - snapshot.inSystem;
}

/**
 * A queue's account over a window:
 *
 *     produced + backlog at start = consumed + expired + dead + backlog at end
 *
 * Retries are attempts, not messages: a message given out three times is consumed once.
 */
export interface QueueAccount {
  readonly produced: number;
  readonly backlogStart: number;
  /** Settled in time. */
  readonly consumed: number;
  /** Settled by release, past their deadline. */
  readonly expired: number;
  /** Put where an operator sees them. */
  readonly dead: number;
  readonly backlogEnd: number;
}

/** Positive: messages lost. Negative: messages that nobody produced. 0: all found. */
export function queueResidual(account: QueueAccount): number {
  const { produced, backlogStart, consumed, expired, dead, backlogEnd } = account;
  return produced + backlogStart - consumed - expired - dead - backlogEnd;
}

/** One moment of a queue, all totals counted since the queue began. */
export interface QueueMoment {
  readonly producedTotal: number;
  readonly consumedTotal: number;
  readonly expiredTotal: number;
  readonly deadTotal: number;
  readonly backlog: number;
}

/** A queue as its consumers' durable results show it: an order, or a release without one, for each message. */
export interface QueueLook {
  /** Of the queue, before and after the results were counted. */
  readonly before: QueueCounts;
  readonly after: QueueCounts;
  /** Messages whose fate is an order, and whose fate is a release. */
  readonly ordered: number;
  readonly released: number;
}

export interface QueueCounts {
  readonly producedTotal: number;
  readonly acknowledgedTotal: number;
  readonly buried: number;
  readonly depth: number;
}

export interface QueueVerdict {
  readonly account: QueueAccount;
  /** Messages that the queue does not know any more, found when nothing was on its way. */
  readonly forgotten: number;
  /** Positive: lost. Negative: fates of messages that nobody produced. 0: all found. */
  readonly residual: number;
  /** Nothing moved while it was looked at, and nothing was on its way: then `residual` is exact. */
  readonly atRest: boolean;
}

/**
 * Whether every message has a fate, by two hands that know nothing of each other: the queue's counters,
 * and the rows that its consumers committed.
 *
 * At rest both must say the same. While messages move, one may be committed and not yet acknowledged,
 * and counts on both sides; then only what cannot be so is told: more were acknowledged before the rows
 * were counted than there are rows, or there are more rows than were ever produced. A broker may keep a
 * message twice: what it acknowledged counts no further than what was produced and waits no more.
 *
 * `forgotten` as `forgottenBy` found it earlier: what the queue does not know any more by its nature.
 */
export function judgeQueue(look: QueueLook, forgotten: number): QueueVerdict {
  const { before, after, ordered, released } = look;
  const account: QueueAccount = {
    produced: after.producedTotal + forgotten,
    backlogStart: 0,
    consumed: ordered,
    expired: released,
    dead: after.buried,
    backlogEnd: after.depth,
  };
  const atRest = isAtRest(look);
  if (atRest) return { account, forgotten, residual: queueResidual(account), atRest };
  const fates = ordered + released;
  const { producedTotal, acknowledgedTotal, depth, buried } = before;
  const settled = Math.min(acknowledgedTotal, producedTotal - depth - buried);
  const lost = Math.max(0, settled + forgotten - fates);
  const invented = Math.max(0, fates - after.producedTotal - forgotten);
  return { account, forgotten, residual: lost - invented, atRest };
}

/** Fates of messages that the queue does not count any more; undefined where messages move. */
export function forgottenBy(look: QueueLook): number | undefined {
  if (!isAtRest(look)) return undefined;
  const { after, ordered, released } = look;
  return Math.max(0, ordered + released + after.buried - after.producedTotal);
}

function isAtRest({ before, after }: QueueLook): boolean {
  return (
    after.depth === 0 &&
    before.depth === 0 &&
    before.producedTotal === after.producedTotal &&
    before.acknowledgedTotal === after.acknowledgedTotal &&
    before.buried === after.buried
  );
}

/** The account between two moments of one queue. */
export function queueAccount(start: QueueMoment, end: QueueMoment): QueueAccount {
  return {
    produced: end.producedTotal - start.producedTotal,
    backlogStart: start.backlog,
    consumed: end.consumedTotal - start.consumedTotal,
    expired: end.expiredTotal - start.expiredTotal,
    dead: end.deadTotal - start.deadTotal,
    backlogEnd: end.backlog,
  };
}
