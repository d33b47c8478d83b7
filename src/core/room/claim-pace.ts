/**
 * How likely somebody who was let in, and has not come so far, still comes.
 *
 * Whoever was let in and closed the page without a word looks, until their window ends, like somebody
 * who is about to come. Counted in full, a handful of them keeps returned units from people who wait.
 * So the share that came in each part of the window is learnt, of those who had not come before it
 * (hazards, as in Kaplan and Meier's estimate, which asks of nobody how their case ends): who comes
 * comes soon in one sale, and all through the window in another. Until a whole window has passed nothing
 * is concluded: that nobody has come in its first seconds may mean that nobody has been told yet.
 */
export const windowParts = 24;

/** Where nobody was left to learn from: of those who have not come, the share that comes in each part. */
const firstHazard = 1 / 6;
/** A part's neighbour before it counts as much as so many people. */
const neighbourWeight = 4;
/** Past so many people what was learnt counts half: the pace follows the day. */
const halveAt = 2_000;

export class ClaimPace {
  /** People who entered each part without having come, and those of them who came in it. */
  readonly #entered = new Float64Array(windowParts);
  readonly #came = new Float64Array(windowParts);
  #weights: Float64Array | undefined;
  /** A window has been seen to its end. */
  #whole = false;

  /** One whole part of a wave's window is over. */
  learn(part: number, entered: number, came: number): void {
    if (part === windowParts - 1) this.#whole = true;
    if (entered <= 0 || part < 0 || part >= windowParts) return;
    this.#weights = undefined;
    this.#entered[part] = (this.#entered[part] ?? 0) + entered;
    this.#came[part] = (this.#came[part] ?? 0) + Math.min(entered, came);
    if ((this.#entered[part] ?? 0) <= halveAt) return;
    for (const counts of [this.#entered, this.#came])
      counts.forEach((n, at) => (counts[at] = n / 2));
  }

  /**
   * What somebody who has not come by this part of their window counts, where somebody just let in
   * counts 1. From 0 to 1.
   */
  weightIn(part: number): number {
    if (!this.#whole) return 1;
    this.#weights ??= this.#allWeights();
    return this.#weights[Math.min(windowParts - 1, Math.max(0, part))] ?? 1;
  }

  #allWeights(): Float64Array {
    const hazards = new Float64Array(windowParts);
    let hazard = firstHazard;
    for (let part = 0; part < windowParts; part += 1) {
      hazard =
        ((this.#came[part] ?? 0) + neighbourWeight * hazard) /
        ((this.#entered[part] ?? 0) + neighbourWeight);
      hazards[part] = hazard;
    }
    // Backwards: the share that never comes is the product of not coming in each part that is left.
    const weights = new Float64Array(windowParts);
    let never = 1;
    for (let part = windowParts - 1; part >= 0; part -= 1) {
      never *= 1 - Math.min(1, hazards[part] ?? 0);
      weights[part] = 1 - never;
    }
    const all = weights[0] ?? 0;
    return weights.map((comes) => (all > 0 ? Math.min(1, comes / all) : 1));
  }
}
