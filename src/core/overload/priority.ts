/**
 * Who gets in when not everybody can: an admission budget per window, filled by priority.
 *
 * Counting down one shared budget would give it to whoever asks first in the window, and the last
 * callers of every window, always the same ones behind the slowest network, would never be heard.
 * So the share of each priority is computed once per window from the demand of the last one, highest
 * priority first, and within a priority the share is taken by hash of (caller, rotation): the same
 * caller has the same fate for a few seconds, so that a retry at once is pointless, and another fate
 * after, so that nobody is always the one. The same idea, for whole call trees, is in DAGOR
 * (Zhou et al., "Overload Control for Scaling WeChat Microservices", 2018).
 */
export type Priority = 0 | 1 | 2 | 3 | 4;
const priorities = [0, 1, 2, 3, 4] as const;

/** Share of every window that P0 keeps even when the budget is nearly nothing. */
export const priorityZeroFloor = 0.05;

/** How long a caller keeps its place in the order of refusal, ms. */
export const rotationMs = 4_000;

/**
 * Admitted share (0…1) of each priority, given the demand per window and the budget. P0 takes first
 * and always keeps its floor of the full budget; each next priority shares what is left. O(1).
 */
export function fillByPriority(
  demand: readonly number[],
  budget: number,
  fullBudget: number,
): readonly number[] {
  let left = Math.max(budget, fullBudget * priorityZeroFloor);
  let open = budget;
  return priorities.map((priority) => {
    const wanted = demand[priority] ?? 0;
    const available = priority === 0 ? left : open;
    const share = wanted <= 0 ? (available > 0 ? 1 : 0) : Math.min(1, available / wanted);
    const taken = wanted * share;
    left -= taken;
    open = Math.max(0, open - taken);
    return share;
  });
}

/** FNV-1a over the caller and the rotation, as a number in [0, 1). */
export function rotationPoint(caller: string, rotation: number): number {
  let hash = 2166136261 ^ rotation;
  for (let at = 0; at < caller.length; at += 1) {
    hash = Math.imul(hash ^ caller.charCodeAt(at), 16777619);
  }
  // A final mix: neighbours in the input must not be neighbours in the order.
  hash ^= hash >>> 16;
  hash = Math.imul(hash, 2246822507);
  hash ^= hash >>> 13;
  hash = Math.imul(hash, 3266489909);
  return ((hash ^ (hash >>> 16)) >>> 0) / 2 ** 32;
}

/** How far repeated attempts may make the share look too small, and one window's step towards it. */
const correctionMax = 20;
const correctionStep = 1.25;

/** The admission budget of one instance. */
export class PriorityBudget {
  readonly #demand = [0, 0, 0, 0, 0];
  readonly #letIn = [0, 0, 0, 0, 0];
  readonly #corrections = [1, 1, 1, 1, 1];
  #shares: readonly number[] = [1, 1, 1, 1, 1];
  #rotation = 0;
  #admitted = 0;
  #cap = Number.POSITIVE_INFINITY;

  /** Whether this caller gets in during this window. Counts the demand either way. */
  admit(priority: Priority, caller: string): boolean {
    this.#demand[priority] = (this.#demand[priority] ?? 0) + 1;
    const share = this.#shares[priority] ?? 0;
    const fits = priority === 0 || this.#admitted < this.#cap;
    const chosen = share >= 1 || (share > 0 && rotationPoint(caller, this.#rotation) < share);
    if (!fits || !chosen) return false;
    this.#admitted += 1;
    this.#letIn[priority] = (this.#letIn[priority] ?? 0) + 1;
    return true;
  }

  /** Ends a window: shares for the next from the demand of this one. Budgets are per window. */
  tick(budget: number, fullBudget: number, nowMs: number): void {
    const wanted = fillByPriority(this.#demand, budget, fullBudget);
    this.#shares = wanted.map((share, at) => this.#corrected(share, at));
    this.#cap = budget;
    this.#demand.fill(0);
    this.#letIn.fill(0);
    this.#admitted = 0;
    this.#rotation = Math.floor(nowMs / rotationMs);
  }

  /** The share that would let in what the budget has room for, judged by what the last one let in. */
  #corrected(share: number, at: number): number {
    if (share >= 1 || share <= 0) {
      this.#corrections[at] = 1;
      return share;
    }
    const due = share * (this.#demand[at] ?? 0);
    const ratio = due / Math.max(1, this.#letIn[at] ?? 0);
    const step = Math.min(correctionStep, Math.max(1 / correctionStep, ratio));
    const next = (this.#corrections[at] ?? 1) * step;
    this.#corrections[at] = Math.min(correctionMax, Math.max(1, next));
    return Math.min(1, share * (this.#corrections[at] ?? 1));
  }

  get shares(): readonly number[] {
    return this.#shares;
  }
}
