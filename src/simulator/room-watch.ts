import type { RoomEvent } from '../core/room/events.ts';
import { wavePeople } from '../core/room/events.ts';
import type { AdmissionStore } from '../ports/admission-store.ts';
import type { Oracle } from './oracle.ts';
import type { World } from './world.ts';

/** What the room has decided, as it was written: who was let in, when, and within which caps. */
export class RoomWatch {
  readonly #world: World;
  readonly #oracle: Oracle;
  /** Let in, by the instant of the decision. */
  readonly #waves: { readonly atMs: number; readonly people: number }[] = [];
  #numbers = 0;
  /** Places that each entry was given, less those it left. */
  readonly #places = new Map<string, number>();
  /** (Entry, wave) → attempt of its newest pass. */
  readonly #passes = new Map<string, number>();
  readonly #ended = new Set<string>();

  constructor(world: World, oracle: Oracle) {
    this.#world = world;
    this.#oracle = oracle;
  }

  /** Decisions so far. */
  get decisions(): number {
    return this.#numbers;
  }

  /** One person, one place. */
  joined(
    [, { entryId }]: Parameters<AdmissionStore['join']>,
    reply: Awaited<ReturnType<AdmissionStore['join']>>,
  ): void {
    if (!reply.created) return;
    const places = (this.#places.get(entryId) ?? 0) + 1;
    this.#places.set(entryId, places);
    if (places === 1) return;
    this.#soon('look at a place', () =>
      this.#oracle.check(
        (this.#places.get(entryId) ?? 0) <= 1,
        'one place',
        () => `entry ${entryId} has a place, and was given another`,
      ),
    );
  }

  /** A journal that stalled answers what was done in it at one instant, in any order. */
  #soon(label: string, look: () => void): void {
    this.#world.time.after(1_000, label, look);
  }

  left(entryId: string): void {
    this.#places.set(entryId, Math.max(0, (this.#places.get(entryId) ?? 0) - 1));
  }

  /** One pass for each release, inside its window, until what it was used for has ended. */
  taken(
    [, request, nowMs]: Parameters<AdmissionStore['takePass']>,
    reply: Awaited<ReturnType<AdmissionStore['takePass']>>,
  ): void {
    if (reply.kind !== 'taken' || !reply.fresh || request.renewable === true) return;
    const { entryId, wave, claimBeforeMs } = request;
    this.#oracle.check(
      nowMs < claimBeforeMs,
      'claim window',
      () => `entry ${entryId} took a pass ${nowMs - claimBeforeMs} ms after its window`,
    );
    const key = `${entryId} ${wave}`;
    const before = this.#passes.get(key);
    this.#passes.set(key, reply.attempt);
    if (before === undefined) return;
    this.#soon('look at a pass', () =>
      this.#oracle.check(
        this.#ended.has(`${entryId} ${before}`),
        'one pass',
        () => `entry ${entryId} has a pass of wave ${wave}, and took another`,
      ),
    );
  }

  ended(entryId: string, attempt: number): void {
    this.#ended.add(`${entryId} ${attempt}`);
  }

  saved(name: string, value: string, done: boolean): void {
    const match = /^room\/[^/]+\/e\/(\d+)$/.exec(name);
    if (match === null) return;
    if (!done) {
      this.#oracle.edge('a decision of a deposed leader');
      return;
    }
    const event = JSON.parse(value) as RoomEvent;
    this.#oracle.edge(`room ${event.e}`);
    const before = this.#numbers;
    this.#numbers = Number(match[1]);
    // What was in a journal when its process died, and had not been answered, was not seen here.
    const unseen = this.#world.plan.shape.deployment === 'embedded';
    this.#oracle.check(
      this.#numbers === before + 1 || (unseen && this.#numbers > before),
      'room log',
      () => `decision ${this.#numbers} follows ${before}`,
    );
    if (event.e === 'wave' || event.e === 'bypassed') this.#letIn(event);
  }

  #letIn(event: Extract<RoomEvent, { e: 'wave' | 'bypassed' }>): void {
    const { room } = this.#world.plan.shape;
    if (room.mode === 'passthrough') return;
    const people = event.e === 'wave' ? wavePeople(event) : 1;
    this.#waves.push({ atMs: event.atMs, people });
    // Once it is published, which follows at once.
    this.#world.time.after(20_000, 'look at the room', () => this.#lookAtActive());
    // Clocks of several leaders, or one that is set, cannot be compared this closely.
    if (!this.#steadyClocks()) return;
    let within = 0;
    for (const wave of this.#waves) if (wave.atMs > event.atMs - 1_000) within += wave.people;
    this.#oracle.check(
      within <= room.maxAdmissionsPerSecond,
      'admission cap',
      () => `${within} were let in within a second; allowed ${room.maxAdmissionsPerSecond}`,
    );
  }

  /** Admitted people who have not finished, as whoever leads counts them. */
  #lookAtActive(): void {
    const { maxActive } = this.#world.plan.shape.room;
    for (const { name, running } of this.#world.processes) {
      if (running?.sale.leads !== true || !running.sale.rooms.leads) continue;
      const { active } = running.sale.rooms.reading();
      this.#oracle.check(
        active <= maxActive,
        'active cap',
        () => `${name}: ${active} people are in; allowed ${maxActive}`,
      );
    }
  }

  #steadyClocks(): boolean {
    const { skewMs, drift } = this.#world.plan.shape;
    const leaps = this.#world.plan.items.some(
      (item) => item.kind === 'fault' && item.fault === 'leap',
    );
    return skewMs === 0 && drift === 0 && !leaps;
  }
}
