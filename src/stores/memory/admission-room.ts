import type {
  AdmissionCounts,
  Entry,
  EntryChange,
  FinishOutcome,
  JoinRequest,
  LobbyMarker,
  Participant,
  TakePassReply,
  TakePassRequest,
} from '../../ports/admission-store.ts';
import { Column, EntryIds, Interned } from './admission-columns.ts';

/**
 * One activity's entries as a state machine: decide, then `apply` the fact that was decided. Only
 * facts are journaled, and a restart applies the same facts in the same order, so it cannot decide
 * anything differently than before.
 */

/** What can happen, as it is journaled: short names, because a million lines of it are written. */
export type RoomFact =
  | readonly ['r', entryId: string, atMs: number, skus: string, group: string, weight: number]
  | readonly ['m', lobbySize: number, atMs: number]
  | readonly ['l', sequence: number, atMs: number]
  | readonly [
      'c',
      sequence: number,
      skuId: string,
      wave: number,
      attempt: number,
      atMs: number,
      expiresAtMs: number,
    ]
  | readonly ['f', claim: number, outcome: FinishOutcome, atMs: number]
  | readonly ['e', claim: number, atMs: number];

/** Places in one room: far above any sale, below where a row number would stop being 32 bits. */
export const roomEntriesMax = 50_000_000;

const outcomes = ['bought', 'gave_up', 'failed'] as const satisfies readonly FinishOutcome[];
const missed: TakePassReply = { kind: 'missed' };
const flagLeft = 1;
const claimEnded = 1;
const claimFinished = 2;
const changeLeft = 0;
const changeClaimed = 1;
const changeFinished = 2;
const changeEnded = 3;
/** Interned profiles (choice of SKUs, and group) in one room. */
const profilesMax = 65_535;

export class AdmissionRoom {
  readonly #ids = new EntryIds();
  readonly #joinedAt = new Column('f64');
  readonly #skus = new Column('u16');
  readonly #groups = new Column('u16');
  readonly #weights = new Column('f64', 1);
  readonly #flags = new Column('u8');
  /** Newest claim of an entry, plus one; a place taken again inherits it. */
  readonly #lastClaim = new Column('u32');
  #rows = 0;
  #left = 0;

  readonly #claimRow = new Column('u32');
  readonly #claimSku = new Column('u16');
  readonly #claimWave = new Column('u32');
  readonly #claimAttempt = new Column('u32');
  readonly #claimAt = new Column('f64');
  readonly #claimExpires = new Column('f64');
  readonly #claimFlags = new Column('u8');
  /** The claim of the same entry before this one, plus one. */
  readonly #claimBefore = new Column('u32');
  #claims = 0;
  #finished = 0;

  readonly #changeKind = new Column('u8');
  readonly #changeOf = new Column('u32');
  readonly #changeOutcome = new Column('u8');
  readonly #changeAt = new Column('f64');
  #changes = 0;

  readonly #skuSets = new Interned('choices of SKUs', profilesMax);
  readonly #groupNames = new Interned('groups', profilesMax);
  readonly #skuIds = new Interned('SKUs', profilesMax);
  #marker: LobbyMarker | undefined;

  get marker(): LobbyMarker | undefined {
    return this.#marker;
  }

  counts(): AdmissionCounts {
    return {
      joined: this.#rows,
      lobby: this.#marker?.lobbySize ?? this.#rows,
      left: this.#left,
      claimed: this.#claims,
      finished: this.#finished,
    };
  }

  find(entryId: string): Entry | undefined {
    const row = this.#ids.find(entryId);
    return row < 0 ? undefined : this.#entry(row);
  }

  /** The fact that a join needs, or undefined where the entry is there already. */
  decideJoin(request: JoinRequest, nowMs: number): RoomFact | undefined {
    const row = this.#ids.find(request.entryId);
    if (row >= 0 && (this.#flags.get(row) & flagLeft) === 0) return undefined;
    return ['r', request.entryId, nowMs, request.skuIds.join(','), request.group, request.weight];
  }

  /** Why a join cannot be taken at all, if so. */
  full(request: JoinRequest): string | undefined {
    if (this.#rows >= roomEntriesMax) return `room holds ${roomEntriesMax} places, all taken`;
    if (!this.#skuSets.fits(request.skuIds.join(','))) return 'too many distinct choices of SKUs';
    if (!this.#groupNames.fits(request.group)) return 'too many distinct groups';
    return undefined;
  }

  decideLeave(entryId: string, nowMs: number): RoomFact | undefined {
    const row = this.#ids.find(entryId);
    if (row < 0 || (this.#flags.get(row) & flagLeft) !== 0) return undefined;
    return ['l', row, nowMs];
  }

  decideClose(nowMs: number): RoomFact | undefined {
    return this.#marker === undefined ? ['m', this.#rows, nowMs] : undefined;
  }

  decidePass(request: TakePassRequest, nowMs: number): RoomFact | TakePassReply {
    const row = this.#ids.find(request.entryId);
    if (row < 0) return { kind: 'unknown_entry' };
    if ((this.#flags.get(row) & flagLeft) !== 0) return { kind: 'left' };
    const claim = this.#lastClaim.get(row) - 1;
    // Another wave than the claim's: the entry was released again, and the old pass no longer counts.
    if (claim >= 0 && this.#claimWave.get(claim) === request.wave && this.#isOpen(claim)) {
      if (nowMs >= this.#claimExpires.get(claim)) {
        return request.renewable === true ? this.#newClaim(row, claim, request, nowMs) : missed;
      }
      const skuId = this.#skuIds.textOf(this.#claimSku.get(claim));
      return skuId === request.skuId ? this.taken(claim, false) : { kind: 'other_sku', skuId };
    }
    return this.#newClaim(row, claim, request, nowMs);
  }

  #newClaim(
    row: number,
    before: number,
    request: TakePassRequest,
    nowMs: number,
  ): RoomFact | TakePassReply {
    if (nowMs >= request.claimBeforeMs) return missed;
    return [
      'c',
      row,
      request.skuId,
      request.wave,
      this.#lastAttempt(before, request.skuId) + 1,
      nowMs,
      Math.ceil((nowMs + request.passLifeMs) / 1000) * 1000,
    ];
  }

  /** The answer for the newest claim after its fact was applied, or for an older one repeated. */
  taken(claim = this.#claims - 1, fresh = true): TakePassReply {
    const atMs = this.#claimAt.get(claim);
    return {
      kind: 'taken',
      attempt: this.#claimAttempt.get(claim),
      wave: this.#claimWave.get(claim),
      issuedAtMs: atMs,
      notBeforeMs: Math.floor(atMs / 1000) * 1000,
      expiresAtMs: this.#claimExpires.get(claim),
      fresh,
    };
  }

  decideEnd(entryId: string, skuId: string, attempt: number, nowMs: number): RoomFact | undefined {
    for (let claim = this.#newestClaim(entryId); claim >= 0; claim = this.#before(claim)) {
      if (this.#claimAttempt.get(claim) !== attempt) continue;
      if (this.#skuIds.textOf(this.#claimSku.get(claim)) !== skuId) continue;
      return this.#isOpen(claim) ? ['e', claim, nowMs] : undefined;
    }
    return undefined;
  }

  decideFinish(entryId: string, outcome: FinishOutcome, nowMs: number): RoomFact | undefined {
    const claim = this.#newestClaim(entryId);
    if (claim < 0 || (this.#claimFlags.get(claim) & claimFinished) !== 0) return undefined;
    return ['f', claim, outcome, nowMs];
  }

  apply(fact: RoomFact): void {
    switch (fact[0]) {
      case 'r': {
        const [, entryId, atMs, skus, group, weight] = fact;
        const row = this.#rows++;
        const before = this.#ids.find(entryId);
        if (before >= 0) this.#lastClaim.set(row, this.#lastClaim.get(before));
        this.#ids.put(row, entryId);
        this.#joinedAt.set(row, atMs);
        this.#skus.set(row, this.#skuSets.numberOf(skus));
        this.#groups.set(row, this.#groupNames.numberOf(group));
        this.#weights.set(row, weight);
        return;
      }
      case 'm':
        this.#marker = { lobbySize: fact[1], closedAtMs: fact[2] };
        return;
      case 'l':
        this.#flags.set(fact[1], this.#flags.get(fact[1]) | flagLeft);
        this.#left += 1;
        this.#change(changeLeft, fact[1], 0, fact[2]);
        return;
      case 'c': {
        const [, row, skuId, wave, attempt, atMs, expiresAtMs] = fact;
        const claim = this.#claims++;
        this.#claimRow.set(claim, row);
        this.#claimSku.set(claim, this.#skuIds.numberOf(skuId));
        this.#claimWave.set(claim, wave);
        this.#claimAttempt.set(claim, attempt);
        this.#claimAt.set(claim, atMs);
        this.#claimExpires.set(claim, expiresAtMs);
        // Chained at the id's newest row: a snapshot writes all rows before all claims.
        const newest = this.#ids.find(this.#ids.at(row));
        this.#claimBefore.set(claim, this.#lastClaim.get(newest));
        this.#lastClaim.set(newest, claim + 1);
        this.#change(changeClaimed, claim, 0, atMs);
        return;
      }
      case 'f':
        this.#claimFlags.set(fact[1], this.#claimFlags.get(fact[1]) | claimFinished);
        this.#finished += 1;
        this.#change(changeFinished, fact[1], outcomes.indexOf(fact[2]), fact[3]);
        return;
      case 'e':
        this.#claimFlags.set(fact[1], this.#claimFlags.get(fact[1]) | claimEnded);
        this.#change(changeEnded, fact[1], 0, fact[2]);
        return;
    }
  }

  participants(from: number, limit: number): readonly Participant[] {
    const page: Participant[] = [];
    for (let row = Math.max(0, from); row < this.#rows && page.length < limit; row += 1) {
      page.push({
        entryId: this.#ids.at(row),
        sequence: row,
        skuIds: this.#skuSet(row),
        weight: this.#weights.get(row),
        group: this.#groupNames.textOf(this.#groups.get(row)),
      });
    }
    return page;
  }

  changes(from: number, limit: number): readonly EntryChange[] {
    const page: EntryChange[] = [];
    for (let at = Math.max(0, from); at < this.#changes && page.length < limit; at += 1) {
      page.push(this.#changeAtIndex(at));
    }
    return page;
  }

  /**
   * Facts that make this room again, of what is there at the call: later rows and changes are not
   * seen.
   */
  *facts(): Generator<RoomFact> {
    const [rows, changes, marker] = [this.#rows, this.#changes, this.#marker];
    for (let row = 0; row < rows; row += 1) {
      yield [
        'r',
        this.#ids.at(row),
        this.#joinedAt.get(row),
        this.#skuSets.textOf(this.#skus.get(row)),
        this.#groupNames.textOf(this.#groups.get(row)),
        this.#weights.get(row),
      ];
    }
    if (marker !== undefined) yield ['m', marker.lobbySize, marker.closedAtMs];
    for (let at = 0; at < changes; at += 1) yield this.#factOfChange(at);
  }

  #factOfChange(at: number): RoomFact {
    const of = this.#changeOf.get(at);
    const atMs = this.#changeAt.get(at);
    switch (this.#changeKind.get(at)) {
      case changeClaimed:
        return [
          'c',
          this.#claimRow.get(of),
          this.#skuIds.textOf(this.#claimSku.get(of)),
          this.#claimWave.get(of),
          this.#claimAttempt.get(of),
          atMs,
          this.#claimExpires.get(of),
        ];
      case changeFinished:
        return ['f', of, outcomes[this.#changeOutcome.get(at)] ?? 'failed', atMs];
      case changeEnded:
        return ['e', of, atMs];
      default:
        return ['l', of, atMs];
    }
  }

  #changeAtIndex(at: number): EntryChange {
    const fact = this.#factOfChange(at);
    if (fact[0] === 'l') {
      return { kind: 'left', entryId: this.#ids.at(fact[1]), sequence: fact[1], atMs: fact[2] };
    }
    const claim = this.#changeOf.get(at);
    const sequence = this.#claimRow.get(claim);
    const entryId = this.#ids.at(sequence);
    if (fact[0] === 'f') {
      return { kind: 'finished', entryId, sequence, outcome: fact[2], atMs: fact[3] };
    }
    const skuId = this.#skuIds.textOf(this.#claimSku.get(claim));
    const attempt = this.#claimAttempt.get(claim);
    if (fact[0] === 'e') {
      return { kind: 'ended', entryId, sequence, skuId, attempt, atMs: fact[2] };
    }
    return {
      kind: 'claimed',
      entryId,
      sequence,
      skuId,
      wave: this.#claimWave.get(claim),
      attempt,
      atMs: this.#claimAt.get(claim),
      expiresAtMs: this.#claimExpires.get(claim),
    };
  }

  #change(kind: number, of: number, outcome: number, atMs: number): void {
    const at = this.#changes++;
    this.#changeKind.set(at, kind);
    this.#changeOf.set(at, of);
    this.#changeOutcome.set(at, outcome);
    this.#changeAt.set(at, atMs);
  }

  #entry(row: number): Entry {
    return {
      entryId: this.#ids.at(row),
      cohort: this.#marker === undefined || row < this.#marker.lobbySize ? 'lobby' : 'late',
      sequence: row,
      joinedAtMs: this.#joinedAt.get(row),
      skuIds: this.#skuSet(row),
      weight: this.#weights.get(row),
      group: this.#groupNames.textOf(this.#groups.get(row)),
      left: (this.#flags.get(row) & flagLeft) !== 0,
    };
  }

  #skuSet(row: number): readonly string[] {
    const text = this.#skuSets.textOf(this.#skus.get(row));
    return text === '' ? [] : text.split(',');
  }

  #isOpen(claim: number): boolean {
    return (this.#claimFlags.get(claim) & claimEnded) === 0;
  }

  #newestClaim(entryId: string): number {
    const row = this.#ids.find(entryId);
    return row < 0 ? -1 : this.#lastClaim.get(row) - 1;
  }

  #before(claim: number): number {
    return this.#claimBefore.get(claim) - 1;
  }

  /** The entry's highest attempt for this SKU; 0 where there was none. */
  #lastAttempt(newest: number, skuId: string): number {
    for (let claim = newest; claim >= 0; claim = this.#before(claim)) {
      if (this.#skuIds.textOf(this.#claimSku.get(claim)) === skuId) {
        return this.#claimAttempt.get(claim);
      }
    }
    return 0;
  }
}
