/**
 * How likely something that has not happened to somebody so far still happens to them: that who was let
 * in comes for a pass, or that who took a pass buys.
 *
 * Whoever closed the page without a word looks, until their time ends, like somebody who is about to
 * come. Counted in full, a handful of them keeps returned units from people who wait; and a share taken
 * only of those whose case is settled is wrong both ways, because buyers are settled within seconds and
 * everybody else when their time ends. So what is learnt are hazards (as in Kaplan and Meier's
 * estimate): in each part of the time, of those to whom it had not happened before, the share to whom it
 * did. That asks of nobody how their case ends, and says at once what the time already passed means.
 *
 * Three things keep it honest. *Silence at the beginning proves nothing*: it may mean that nobody has
 * been told yet. Until a whole time has passed, something is concluded only once it has been seen to
 * happen, and then to stop. *The day changes*: those of the first minute are there, those of the tenth
 * have closed the page; so what was seen fades with time. *A few are only a few*: below eight
 * people nothing more is forgotten, and the first guess fades as slowly as it is outweighed.
 */
export const hazardParts = 24;

/** A part's neighbour before it counts as much as so many people. */
const neighbourWeight = 2;
/** The first guess counts as much as so many people. */
const guessWeight = 50;
/** People remembered in a part at most, so that a first wave of thousands does not outlive its day. */
const rememberedMax = 200;
/** Memory fades down to so many people, and no further. */
const rememberedMin = 8;
/** What was seen counts half after this share of the whole time. */
const fadeShare = 0.1;
/** It stopped: so many were to be expected at the best rate seen, and at most this share of them came. */
const expectedMin = 8;
const stoppedShare = 0.25;
/** A best rate is believed from so many on. */
const peakMin = 5;

/**
 * The part in which an instant `share` (0 to 1) of the time is. Parts grow with their number, since most
 * happens soon; from the end of the time on it is {@link hazardParts}.
 */
export function partAt(share: number): number {
  if (!(share > 0)) return 0;
  return share >= 1 ? hazardParts : Math.floor(hazardParts * Math.sqrt(share));
}

/** Length of a part, as a share of the time. */
const lengthOf = (part: number): number => (2 * part + 1) / hazardParts ** 2;

/** A hazard per part as one per whole time, which parts of other lengths can use; and back. */
const rateOf = (hazard: number, part: number): number =>
  -Math.log1p(-Math.min(hazard, 0.999_999)) / lengthOf(part);
const hazardOf = (rate: number, part: number): number => -Math.expm1(-rate * lengthOf(part));

export class Hazards {
  readonly #spanMs: number;
  readonly #firstRate: number;
  /** People who entered each part without its having happened, and those to whom it did in it. */
  readonly #entered = new Float64Array(hazardParts);
  readonly #happened = new Float64Array(hazardParts);
  #guess = guessWeight;
  /** A time has been seen to its end, or it was seen to stop before. */
  #concludes = false;
  /** Of those who entered the first part, who have decided against it. */
  #never = 0;
  /** The best rate seen so far. */
  #peak = 0;
  #fadedAtMs: number | undefined;
  #chances: Float64Array | undefined;

  /**
   * @param firstChance before anything is seen, the share to whom it happens; above 0, below 1.
   * @param spanMs the whole time that each person has; memory fades in proportion to it.
   */
  constructor(firstChance: number, spanMs: number) {
    this.#firstRate = -Math.log1p(-firstChance);
    this.#spanMs = spanMs;
  }

  /** One whole part is over for `entered` people; it happened to `happened` of them in it. */
  learn(part: number, entered: number, happened: number): void {
    if (part === hazardParts - 1) this.#concludes = true;
    if (entered <= 0 || part < 0 || part >= hazardParts) return;
    this.#chances = undefined;
    const all = (this.#entered[part] ?? 0) + entered;
    const share = Math.min(1, rememberedMax / all);
    this.#entered[part] = all * share;
    this.#happened[part] = ((this.#happened[part] ?? 0) + Math.min(entered, happened)) * share;
    this.#notePeak(part);
    this.#concludes ||= this.#hasStopped();
  }

  /** Somebody has decided in this part that it never will. */
  learnNever(part: number): void {
    this.#chances = undefined;
    this.#never += 1;
    for (let at = Math.max(0, part); at < hazardParts; at += 1) {
      this.#entered[at] = (this.#entered[at] ?? 0) + 1;
    }
  }

  /** Forgets by the clock; call with growing instants, as often as liked. */
  fade(nowMs: number): void {
    const sinceMs = nowMs - (this.#fadedAtMs ?? nowMs);
    this.#fadedAtMs = Math.max(this.#fadedAtMs ?? nowMs, nowMs);
    if (sinceMs <= 0) return;
    const kept = 2 ** (-sinceMs / (this.#spanMs * fadeShare));
    this.#chances = undefined;
    if (this.#concludes) this.#guess *= kept;
    for (let part = 0; part < hazardParts; part += 1) {
      const entered = this.#entered[part] ?? 0;
      if (entered <= rememberedMin) continue;
      const share = Math.max(kept, rememberedMin / entered);
      this.#entered[part] = entered * share;
      this.#happened[part] = (this.#happened[part] ?? 0) * share;
    }
  }

  /** That it still happens to somebody to whom it had not when this part began. From 0 to 1. */
  chanceFrom(part: number): number {
    if (part >= hazardParts) return 0;
    this.#chances ??= this.#allChances();
    return this.#chances[Math.max(0, part)] ?? 0;
  }

  #allChances(): Float64Array {
    const chances = new Float64Array(hazardParts);
    const seen = this.#seenHazards();
    if (!this.#concludes) {
      // Silence proves nothing yet; what has happened, or been decided against, does.
      let not = 1;
      for (const [part, entered] of this.#entered.entries()) {
        if (entered === 0) break;
        not *= 1 - (seen[part] ?? 0);
      }
      const few = this.#entered[0] ?? 0;
      const sure = ((1 - not) * few) / (few + guessWeight);
      const against = Math.min(few, this.#never) / (few + guessWeight);
      const guessed = -Math.expm1(-this.#firstRate);
      return chances.fill(Math.max(sure, guessed * (1 - against)));
    }
    const belief = (this.#entered[0] ?? 0) / ((this.#entered[0] ?? 0) + this.#guess);
    // Backwards: that it never happens is that it does not in each part that is left.
    let [not, notFirst] = [1, 1];
    for (let part = hazardParts - 1; part >= 0; part -= 1) {
      not *= 1 - (seen[part] ?? 0);
      notFirst *= 1 - hazardOf(this.#firstRate, part);
      chances[part] = 1 - belief * not - (1 - belief) * notFirst;
    }
    return chances;
  }

  /** Where few were left to learn from, the pace is that of the part before. */
  #seenHazards(): Float64Array {
    const hazards = new Float64Array(hazardParts);
    let rate = this.#firstRate;
    for (let part = 0; part < hazardParts; part += 1) {
      const before = hazardOf(rate, part);
      const entered = this.#entered[part] ?? 0;
      const happened = this.#happened[part] ?? 0;
      const hazard = (happened + neighbourWeight * before) / (entered + neighbourWeight);
      hazards[part] = hazard;
      rate = rateOf(hazard, part);
    }
    return hazards;
  }

  #notePeak(part: number): void {
    const happened = this.#happened[part] ?? 0;
    if (happened < peakMin) return;
    this.#peak = Math.max(this.#peak, rateOf(happened / (this.#entered[part] ?? 1), part));
  }

  /** It has been seen to happen, and of late hardly any more. */
  #hasStopped(): boolean {
    let [expected, happened] = [0, 0];
    for (let part = hazardParts - 1; part >= 0; part -= 1) {
      expected += (this.#entered[part] ?? 0) * hazardOf(this.#peak, part);
      happened += this.#happened[part] ?? 0;
      if (expected >= expectedMin && happened <= expected * stoppedShare) return true;
    }
    return false;
  }
}
