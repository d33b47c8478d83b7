import { hazardParts, Hazards, partAt } from './hazards.ts';
import { laneParts } from './lanes.ts';
import type { WaveWindow } from './release.ts';
import { SequenceSet } from './sequence-set.ts';
import { believedYield, firstYield } from './sizing.ts';
import type { SaleMode } from './sizing.ts';

/**
 * The account of everybody who was let in: who may still claim, who holds a living pass, who is done.
 * Both caps and the yield are read from it. Waiting people are not in it; a released person costs a
 * few bytes until the wave's window closes, a claimant one small record until its pass is history.
 *
 * Windows and passes end by the clock, claims and outcomes by news, and news may come after the clock
 * has concluded without it; each method below undoes what was concluded where the news says better. A
 * book read again from its logs must come to the same sums, so the clock is moved on before each piece
 * of news, to when that happened: see {@link WaveBook.settle}.
 */

interface LaneCount {
  released: number;
  claimed: number;
  left: number;
}

interface WaveRecord {
  readonly atMs: number;
  claimBeforeMs: number;
  readonly lanes: Map<string, LaneCount>;
  /** Claims of this wave that ended inside its window: free to claim again, and no no-shows. */
  ended: number;
  /** Whose pass of this wave expired while its window was still open. */
  readonly lapsed: Set<number>;
  /** The part of its window that this wave is in, who entered it unclaimed, and who came in it. */
  part: number;
  entered: number;
  came: number;
  state: 'open' | 'closed' | 'revoked';
}

interface ClaimRecord {
  readonly entryId: string;
  readonly wave: number;
  readonly lane: string;
  readonly skuId: string;
  readonly expiresAtMs: number;
  /** The part of its life that the pass is in. */
  part: number;
  state: 'live' | 'bought' | 'done' | 'no_show' | 'ended';
}

/** A pass's request may still be on its way this long after the pass expired, ms. */
const lateRequestMs = 3_000;
/**
 * Its holder is told so much sooner that the turn is over: the pass opens nothing any more, and whoever
 * sent their request in its last moment hears of that request, ms.
 */
const toldOverMs = 500;
/**
 * Waves are told apart, and claims remembered, this long past a pass's life: late news finds them, a
 * pass asked for again names its wave, and a wave can still be revoked, ms.
 */
const historyMs = 120_000;

export interface BookTotals {
  readonly released: number;
  readonly missed: number;
  readonly finished: number;
  readonly bought: number;
}

export class WaveBook {
  readonly claimed = new SequenceSet();
  /**
   * No-shows whose claim window is still open. Their turn is over all the same: the place has been
   * offered again, so neither a pass nor the word that it is their turn may follow.
   */
  readonly lapsed = new SequenceSet();
  /** SKUs with stock: only where there is some is it people's own decision not to come. All, if absent. */
  onSale: ReadonlySet<string> | undefined;
  /** That somebody let in comes for a pass, and that somebody with a pass buys. */
  readonly #comes: Hazards;
  readonly #buys: Hazards;
  /** In the order of release, which is that of closing too. */
  readonly #waves = new Map<number, WaveRecord>();
  /** Those of them whose window is open. */
  readonly #open = new Map<number, WaveRecord>();
  /**
   * The newest claim of each entry, oldest first. All passes of an activity live equally long, so this
   * is the order in which they expire too, and settling looks only at those that are due; where clocks
   * of gateways differ, one is settled late by the difference at most.
   */
  readonly #claims = new Map<number, ClaimRecord>();
  /** Those of them whose pass lives, in the same order. */
  readonly #living = new Map<number, ClaimRecord>();
  readonly #boughtByLane = new Map<string, number>();
  readonly #passLifeMs: number;
  #claimsMovedAtMs = -Infinity;
  #released = 0;
  #missed = 0;
  #finished = 0;
  #bought = 0;

  constructor(passLifeMs: number, claimWindowMs: number) {
    this.#passLifeMs = passLifeMs;
    // Together they are the first guess at the yield.
    this.#comes = new Hazards(Math.sqrt(firstYield), claimWindowMs);
    this.#buys = new Hazards(Math.sqrt(firstYield), passLifeMs + lateRequestMs);
  }

  /** Share of people let in who buy, as far as it is believed: see {@link believedYield}. */
  get yield(): number {
    return believedYield(this.#comes.chanceFrom(0) * this.#buys.chanceFrom(0));
  }

  get totals(): BookTotals {
    return {
      released: this.#released,
      missed: this.#missed,
      finished: this.#finished,
      bought: this.#bought,
    };
  }

  /** Admitted people who have not finished: those who may still claim, and those with a living pass. */
  get active(): number {
    let active = this.#living.size;
    for (const wave of this.#open.values()) active += unclaimed(wave);
    return active;
  }

  release(
    wave: number,
    atMs: number,
    claimBeforeMs: number,
    lanes: readonly { readonly lane: string; readonly people: number }[],
  ): void {
    const counts = new Map<string, LaneCount>();
    for (const { lane, people } of lanes) {
      counts.set(lane, { released: people, claimed: 0, left: 0 });
      this.#released += people;
    }
    const made: WaveRecord = {
      atMs,
      claimBeforeMs,
      lanes: counts,
      ended: 0,
      lapsed: new Set(),
      part: 0,
      entered: 0,
      came: 0,
      state: 'open',
    };
    made.entered = this.#mayCome(made);
    this.#waves.set(wave, made);
    this.#open.set(wave, made);
  }

  claim(
    sequence: number,
    lane: string,
    claim: {
      readonly entryId: string;
      readonly wave: number;
      readonly skuId: string;
      readonly expiresAtMs: number;
    },
  ): void {
    const wave = this.#waves.get(claim.wave);
    if (wave?.state === 'revoked') return;
    const before = this.#claims.get(sequence);
    this.#unlapse(sequence, before?.wave);
    const counted = before?.wave === claim.wave && before.state !== 'ended';
    if (!counted) {
      this.#count(wave, lane).claimed += 1;
      if (before?.wave === claim.wave && wave !== undefined) wave.ended -= 1;
      else if (wave !== undefined && this.#sells(lane)) wave.came += 1;
      // The window was closed here already, but on the store's clock it was not.
      if (wave?.state === 'closed') this.#missed -= 1;
    } else if (before.state === 'no_show') this.#missed -= 1;
    this.#claims.delete(sequence);
    this.#living.delete(sequence);
    const { entryId, skuId, expiresAtMs } = claim;
    const made: ClaimRecord = {
      entryId,
      wave: claim.wave,
      lane,
      skuId,
      expiresAtMs,
      part: 0,
      state: 'live',
    };
    this.#claims.set(sequence, made);
    this.#living.set(sequence, made);
    this.claimed.add(sequence);
  }

  finish(
    sequence: number,
    lane: string,
    outcome: 'bought' | 'gave_up' | 'failed',
    mode: SaleMode,
  ): void {
    const claim = this.#claims.get(sequence);
    if (claim === undefined && outcome !== 'bought') return;
    const lives = this.#living.delete(sequence);
    this.#unlapse(sequence, claim?.wave);
    if (claim?.state === 'no_show') this.#missed -= 1;
    this.#finished += 1;
    // A failure says nothing about what people want.
    if (lives && claim !== undefined && mode === 'NORMAL') {
      if (outcome === 'bought') this.#buys.learn(claim.part, 1, 1);
      if (outcome === 'gave_up') this.#buys.learnNever(claim.part);
    }
    if (outcome === 'bought') {
      // Ended before it was told bought: who may buy more was given another try, and counts once.
      if (claim?.state === 'ended') {
        const wave = this.#waves.get(claim.wave);
        if (wave !== undefined) {
          this.#count(wave, lane).claimed += 1;
          wave.ended -= 1;
          if (wave.state === 'closed') this.#missed -= 1;
        }
      }
      this.#bought += 1;
      this.#boughtByLane.set(lane, (this.#boughtByLane.get(lane) ?? 0) + 1);
      this.claimed.add(sequence);
    } else this.claimed.delete(sequence);
    if (claim !== undefined) claim.state = outcome === 'bought' ? 'bought' : 'done';
  }

  /** The bound request has ended: inside the window the entry may claim again. */
  end(sequence: number, lane: string): void {
    const claim = this.#claims.get(sequence);
    this.claimed.delete(sequence);
    if (claim === undefined || claim.state === 'ended') return;
    this.#unlapse(sequence, claim.wave);
    this.#living.delete(sequence);
    if (claim.state === 'bought') {
      this.#bought -= 1;
      this.#boughtByLane.set(lane, (this.#boughtByLane.get(lane) ?? 0) - 1);
    }
    if (claim.state === 'no_show') this.#missed -= 1;
    const wave = this.#waves.get(claim.wave);
    if (wave !== undefined) {
      this.#count(wave, lane).claimed -= 1;
      wave.ended += 1;
      if (wave.state === 'closed') this.#missed += 1;
    }
    claim.state = 'ended';
  }

  /** Somebody who was let in has left. `wave` is theirs; undefined where they were still waiting. */
  leave(
    sequence: number,
    lane: string,
    wave: number | undefined,
    atMs: number,
    mode: SaleMode,
  ): void {
    this.claimed.delete(sequence);
    const claim = this.#claims.get(sequence);
    if (claim !== undefined && claim.wave === wave) {
      if (claim.state === 'live' && mode === 'NORMAL') this.#buys.learnNever(claim.part);
      if (claim.state === 'no_show') this.#missed -= 1;
      if (claim.state === 'live' || claim.state === 'no_show') {
        this.#living.delete(sequence);
        this.#unlapse(sequence, wave);
        claim.state = 'done';
      }
      if (claim.state !== 'ended') return;
    }
    const record = wave === undefined ? undefined : this.#waves.get(wave);
    // Past the window they had missed it already, and are counted so.
    if (record === undefined || record.state === 'revoked' || atMs >= record.claimBeforeMs) return;
    this.#count(record, lane).left += 1;
    if (record.state === 'closed') this.#missed -= 1;
    if (claim?.state === 'ended' && claim.wave === wave) record.ended -= 1;
  }

  /**
   * Closes windows and passes that are over. `knownAtMs`: everything that happened up to then has been
   * told to this book. Costs as much as there is to close; and now and then a look at every living pass.
   */
  settle(knownAtMs: number, mode: SaleMode): void {
    const learns = mode === 'NORMAL';
    for (const hazards of [this.#comes, this.#buys]) hazards.fade(knownAtMs);
    for (const wave of this.#open.values()) this.#moveOn(wave, knownAtMs, learns);
    this.#moveClaims(knownAtMs, learns);
    for (const [number, wave] of this.#open) {
      if (knownAtMs < wave.claimBeforeMs) break;
      wave.state = 'closed';
      this.#open.delete(number);
      this.#forgetLapsed(wave);
      this.#missed += unclaimed(wave);
    }
    for (const [number, wave] of this.#waves) {
      const oldAtMs = wave.claimBeforeMs + this.#passLifeMs + historyMs;
      if (wave.state === 'open' || knownAtMs < oldAtMs) break;
      this.#waves.delete(number);
    }
    for (const [sequence, claim] of this.#living) {
      if (knownAtMs < claim.expiresAtMs + toldOverMs) break;
      this.claimed.delete(sequence);
      const wave = this.#waves.get(claim.wave);
      if (wave?.state === 'open') {
        wave.lapsed.add(sequence);
        this.lapsed.add(sequence);
      }
      // Until news of a late request can no longer come, they count as on their way.
      if (knownAtMs < claim.expiresAtMs + lateRequestMs) continue;
      claim.state = 'no_show';
      this.#living.delete(sequence);
      this.#missed += 1;
    }
    for (const [sequence, claim] of this.#claims) {
      if (claim.state === 'live' || knownAtMs < claim.expiresAtMs + historyMs) break;
      this.#claims.delete(sequence);
    }
  }

  /** Into the part of its window that the clock is in by now. Nobody came since the last call. */
  #moveOn(wave: WaveRecord, knownAtMs: number, learns: boolean): void {
    const spanMs = Math.max(1, wave.claimBeforeMs - wave.atMs);
    const part = partAt((knownAtMs - wave.atMs) / spanMs);
    for (; wave.part < part; wave.part += 1) {
      // What a failing sale shows is not what people want.
      if (learns) this.#comes.learn(wave.part, wave.entered, wave.came);
      wave.entered = this.#mayCome(wave);
      wave.came = 0;
    }
  }

  /** Every claim into its part; not more often than the shortest part is long, whatever is told between. */
  #moveClaims(knownAtMs: number, learns: boolean): void {
    const spanMs = this.#passLifeMs + lateRequestMs;
    if (knownAtMs - this.#claimsMovedAtMs < spanMs / hazardParts ** 2) return;
    this.#claimsMovedAtMs = knownAtMs;
    for (const claim of this.#living.values()) this.#moveClaim(claim, knownAtMs, learns);
  }

  #moveClaim(claim: ClaimRecord, knownAtMs: number, learns: boolean): void {
    const spanMs = this.#passLifeMs + lateRequestMs;
    const part = partAt(1 - (claim.expiresAtMs + lateRequestMs - knownAtMs) / spanMs);
    const sells = learns && this.onSale?.has(claim.skuId) !== false;
    for (; claim.part < part; claim.part += 1) if (sells) this.#buys.learn(claim.part, 1, 0);
  }

  /** Some SKU that the lane waits for has stock. */
  #sells(lane: string): boolean {
    const { onSale } = this;
    if (onSale === undefined) return true;
    const { skuIds } = laneParts(lane);
    return skuIds.length === 0 ? onSale.size > 0 : skuIds.some((skuId) => onSale.has(skuId));
  }

  /**
   * Who of the wave has not come, where there is something to come for; those who have left count as
   * people who never will.
   */
  #mayCome(wave: WaveRecord): number {
    let people = 0;
    for (const [lane, { released, claimed }] of wave.lanes) {
      if (this.#sells(lane)) people += released - claimed;
    }
    return Math.max(0, people - wave.ended);
  }

  /** Waves in whose name somebody may still come: an open window, or a living pass. */
  livingWaves(): readonly number[] {
    const living = new Set(this.#open.keys());
    for (const claim of this.#living.values()) living.add(claim.wave);
    return [...living].sort((one, other) => one - other);
  }

  /** Its passes die; returns who of it has bought and so does not wait again. */
  revoke(
    wave: number,
  ): readonly { readonly sequence: number; readonly entryId: string }[] | undefined {
    const record = this.#waves.get(wave);
    if (record === undefined || record.state === 'revoked') return undefined;
    if (record.state === 'closed') this.#missed -= unclaimed(record);
    record.state = 'revoked';
    this.#open.delete(wave);
    this.#forgetLapsed(record);
    const buyers: { readonly sequence: number; readonly entryId: string }[] = [];
    for (const [sequence, claim] of this.#claims) {
      if (claim.wave !== wave) continue;
      if (claim.state === 'bought') buyers.push({ sequence, entryId: claim.entryId });
      else {
        this.#living.delete(sequence);
        if (claim.state === 'no_show') this.#missed -= 1;
        this.claimed.delete(sequence);
        this.#claims.delete(sequence);
      }
    }
    return buyers;
  }

  /** A wave that cannot be told apart any more. */
  isOld(wave: number): boolean {
    return wave !== 0 && !this.#waves.has(wave);
  }

  /** Windows that gateways still need: open ones, and those whose passes may live. */
  windows(): readonly WaveWindow[] {
    const windows: WaveWindow[] = [];
    for (const [wave, record] of this.#waves) {
      if (record.state === 'revoked') continue;
      windows.push({ wave, releasedAtMs: record.atMs, claimBeforeMs: record.claimBeforeMs });
    }
    return windows;
  }

  get revokedWaves(): readonly number[] {
    return [...this.#waves].filter(([, each]) => each.state === 'revoked').map(([wave]) => wave);
  }

  /**
   * People on their way to the stock: by the SKU they chose, and by lane while they have not. Counted as
   * so many who have just been let in: who has not come for long counts for less, and who has just taken
   * a pass for a little more.
   */
  onTheWay(): {
    readonly bySku: ReadonlyMap<string, number>;
    readonly byLane: ReadonlyMap<string, number>;
  } {
    const bySku = new Map<string, number>();
    const byLane = new Map<string, number>();
    const whole = this.yield;
    const buys = this.#buys.chanceFrom(0);
    for (const { skuId, part } of this.#living.values()) {
      bySku.set(skuId, (bySku.get(skuId) ?? 0) + this.#buys.chanceFrom(part) / whole);
    }
    for (const wave of this.#open.values()) {
      for (const [lane, count] of wave.lanes) {
        const open = count.released - count.claimed - count.left;
        const weight = (this.#comes.chanceFrom(wave.part) * buys) / whole;
        byLane.set(lane, (byLane.get(lane) ?? 0) + open * weight);
      }
    }
    return { bySku, byLane };
  }

  /** Places that a lane uses: on the way, with a pass, or bought. */
  usedBy(lane: string): number {
    let used = this.#boughtByLane.get(lane) ?? 0;
    for (const claim of this.#living.values()) if (claim.lane === lane) used += 1;
    for (const wave of this.#open.values()) {
      const count = wave.lanes.get(lane);
      if (count !== undefined) used += count.released - count.claimed - count.left;
    }
    return used;
  }

  #unlapse(sequence: number, wave: number | undefined): void {
    if (!this.lapsed.delete(sequence) || wave === undefined) return;
    this.#waves.get(wave)?.lapsed.delete(sequence);
  }

  /** Past the window the wave itself says that the turn is over. */
  #forgetLapsed(wave: WaveRecord): void {
    for (const sequence of wave.lapsed) this.lapsed.delete(sequence);
    wave.lapsed.clear();
  }

  #count(wave: WaveRecord | undefined, lane: string): LaneCount {
    const known = wave?.lanes.get(lane);
    if (known !== undefined) return known;
    const fresh = { released: 0, claimed: 0, left: 0 };
    wave?.lanes.set(lane, fresh);
    return fresh;
  }
}

function unclaimed(wave: WaveRecord): number {
  return unclaimedOf(wave.lanes);
}

function unclaimedOf(lanes: ReadonlyMap<string, LaneCount>): number {
  let sum = 0;
  for (const { released, claimed, left } of lanes.values()) sum += released - claimed - left;
  return sum;
}
