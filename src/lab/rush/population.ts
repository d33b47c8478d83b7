import { Arena } from './arena.ts';
import { householdAddress } from './arrivals.ts';
import type { Arrivals } from './arrivals.ts';
import type { Dice } from './dice.ts';
import { question } from './dice.ts';
import type { BotKind, Scenario } from './scenarios.ts';
import { botKinds } from './scenarios.ts';

/** Where a person stands. `done` is final: the outcome is known. */
export const stage = {
  planned: 0,
  session: 1,
  joining: 2,
  waiting: 3,
  pass: 4,
  submit: 5,
  queued: 6,
  deciding: 7,
  paying: 8,
  done: 9,
  /** Bots that do not act as people. */
  attacking: 10,
} as const;
export type Stage = (typeof stage)[keyof typeof stage];

/** What became of a person; every person has exactly one. */
export const outcomeNames = [
  'paid',
  'ordered',
  'expired',
  'cancelled',
  'sold_out',
  'rejected',
  'not_admitted',
  'gave_up',
  'unknown',
] as const;
export type Outcome = (typeof outcomeNames)[number];

/** Traits, one bit each. */
export const trait = {
  duplicates: 1,
  timeouts: 2,
  impatient: 4,
  abandons: 8,
  cancels: 16,
  hopeful: 32,
  /** Was told at least once that it is sold out. */
  toldSoldOut: 64,
  /** Has missed a claim window and joined again. */
  rejoined: 128,
  /** The one lost answer of a person with `timeouts` has been. */
  lostOne: 256,
  /** Seen as admitted. */
  admitted: 512,
} as const;

const noOutcome = 255;
const human = 255;

/**
 * The crowd as columns: about 50 bytes a person and their tokens in an arena, so that a million
 * people fit where a million objects with timers would not.
 */
export class Population {
  readonly size: number;
  readonly stage: Uint8Array;
  /** Index into `botKinds`, 255 for people. */
  readonly #kind: Uint8Array;
  readonly traits: Uint16Array;
  readonly #outcome: Uint8Array;
  /** Refusals and failures in a row; resets on progress. */
  readonly tries: Uint8Array;
  /** Requests of a bot's budget used, or polls of a person. */
  readonly used: Uint16Array;
  /** When the person gives up, monotonic ms. */
  readonly quitAtMs: Float64Array;
  readonly #userToken: Uint32Array;
  readonly #entryToken: Uint32Array;
  readonly sku: Uint8Array;
  readonly #tokens = new Arena();
  readonly #arrivals: Arrivals;
  #settled = 0;

  constructor(people: number, scenario: Scenario, arrivals: Arrivals, dice: Dice) {
    this.size = people;
    this.#arrivals = arrivals;
    this.stage = new Uint8Array(people);
    this.#kind = new Uint8Array(people).fill(human);
    this.traits = new Uint16Array(people);
    this.#outcome = new Uint8Array(people).fill(noOutcome);
    this.tries = new Uint8Array(people);
    this.used = new Uint16Array(people);
    this.quitAtMs = new Float64Array(people).fill(Number.POSITIVE_INFINITY);
    this.#userToken = new Uint32Array(people);
    this.#entryToken = new Uint32Array(people);
    this.sku = new Uint8Array(people);
    this.#deal(scenario, dice);
  }

  /** Roles by selection sampling: exactly the asked share, every person equally likely. O(people). */
  #deal(scenario: Scenario, dice: Dice): void {
    const bots = choose(this.size, scenario.bots, (i) => dice.roll(i, question.bot));
    const kinds = weightedKinds(scenario);
    const humans: number[] | Uint32Array = new Uint32Array(this.size);
    let count = 0;
    for (let person = 0; person < this.size; person += 1) {
      if (bots[person] === 1 && kinds.length > 0) {
        const kind = kinds[dice.below(person, question.botKind, kinds.length)] ?? 'forger';
        this.#kind[person] = botKinds.indexOf(kind);
      } else {
        humans[count] = person;
        count += 1;
      }
    }
    const mark = (share: number, asked: number, bit: number): void => {
      const chosen = choose(count, share, (i) => dice.roll(humans[i] ?? 0, asked));
      for (let i = 0; i < count; i += 1) {
        if (chosen[i] === 1) this.set(humans[i] ?? 0, bit);
      }
    };
    mark(scenario.duplicates, question.duplicate, trait.duplicates);
    mark(scenario.timeouts, question.timeout, trait.timeouts);
    mark(scenario.impatient, question.impatient, trait.impatient);
    mark(scenario.hopeful, question.staysAfterSoldOut, trait.hopeful);
    for (let person = 0; person < this.size; person += 1) {
      const roll = dice.roll(person, question.pays);
      if (this.kind(person) === 'replayer') {
        if (roll < 0.5) this.set(person, trait.cancels);
      } else if (roll < scenario.abandons) this.set(person, trait.abandons);
      else if (roll < scenario.abandons + scenario.cancels) this.set(person, trait.cancels);
    }
  }

  kind(person: number): BotKind | 'person' {
    return botKinds[this.#kind[person] ?? human] ?? 'person';
  }

  has(person: number, bit: number): boolean {
    return ((this.traits[person] ?? 0) & bit) !== 0;
  }

  set(person: number, bit: number): void {
    this.traits[person] = (this.traits[person] ?? 0) | bit;
  }

  arrivalMs(person: number): number {
    return this.#arrivals.atMs[person] ?? 0;
  }

  /**
   * The address a person writes from: the household's; twenty bots of a farm share one; a rotator has
   * another at each request.
   */
  address(person: number): string {
    const kind = this.kind(person);
    if (kind === 'rotator') {
      return householdAddress(person + 1_000_000, (this.used[person] ?? 0) + 1);
    }
    if (kind === 'farm') return householdAddress(3_000_000 + Math.floor(person / 600), 0);
    const household = this.#arrivals.household[person] ?? 0;
    return this.#arrivals.addresses[household] ?? householdAddress(household, 0);
  }

  agent(person: number): string {
    const { agentOf, agents } = this.#arrivals;
    const logged = agents[agentOf[person] ?? -1];
    if (logged !== undefined && logged !== '') return logged.replaceAll(/[^\x20-\x7e]/g, '?');
    return phones[person % phones.length] ?? 'sluice-rush';
  }

  userToken(person: number): string {
    return this.#tokens.get(this.#userToken[person] ?? 0);
  }

  entryToken(person: number): string {
    return this.#tokens.get(this.#entryToken[person] ?? 0);
  }

  keepUserToken(person: number, token: string): void {
    this.#userToken[person] = this.#tokens.put(token);
  }

  keepEntryToken(person: number, token: string): void {
    // The same entry gives the same token on a repeated join; do not store it twice.
    if (this.entryToken(person) !== token) this.#entryToken[person] = this.#tokens.put(token);
  }

  /** People who were given an entry. O(people). */
  get entered(): number {
    let count = 0;
    for (const handle of this.#entryToken) if (handle !== 0) count += 1;
    return count;
  }

  outcome(person: number): Outcome | undefined {
    return outcomeNames[this.#outcome[person] ?? noOutcome];
  }

  /** Final. A later, truer outcome (found in the closing sweep) may replace it. */
  settle(person: number, outcome: Outcome): void {
    if (this.#outcome[person] === noOutcome) this.#settled += 1;
    this.#outcome[person] = outcomeNames.indexOf(outcome);
    this.stage[person] = stage.done;
  }

  get settled(): number {
    return this.#settled;
  }

  /** How many ended how; sums to the people settled. */
  outcomes(): Record<Outcome, number> {
    const counts = Object.fromEntries(outcomeNames.map((name) => [name, 0])) as Record<
      Outcome,
      number
    >;
    for (const code of this.#outcome) {
      const name = outcomeNames[code];
      if (name !== undefined) counts[name] += 1;
    }
    return counts;
  }
}

/** Marks exactly round(share × size) of `size` places, each subset as likely as any other of its size. */
function choose(size: number, share: number, roll: (index: number) => number): Uint8Array {
  const chosen = new Uint8Array(size);
  let left = Math.round(share * size);
  for (let i = 0; i < size && left > 0; i += 1) {
    if (roll(i) * (size - i) < left) {
      chosen[i] = 1;
      left -= 1;
    }
  }
  return chosen;
}

function weightedKinds(scenario: Scenario): BotKind[] {
  return botKinds.flatMap((kind) =>
    Array.from({ length: Math.round(scenario.botMix[kind]) }, () => kind),
  );
}

const phones = [
  'Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148',
  'Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/126.0 Mobile Safari/537.36',
  'Mozilla/5.0 (Linux; Android 13; SM-A546B) AppleWebKit/537.36 Chrome/125.0 Mobile Safari/537.36',
  'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.5 Safari/605.1.15',
] as const;
