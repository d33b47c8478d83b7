/**
 * Chance without a stream. A crowd over real sockets never replays its order of events, so a shared
 * stream of random numbers would give each person another character in every run. Here each decision
 * is a pure function of (seed, person, question): the same seed makes the same people.
 */
export class Dice {
  readonly #seed: number;

  constructor(seed: number) {
    this.#seed = seed >>> 0;
  }

  /** Uniform in [0, 1), 32 bits: the answer to one question about one person. O(1). */
  roll(person: number, question: number): number {
    let h =
      Math.imul(person ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(question + this.#seed, 0xc2b2ae35);
    h = mix(h ^ this.#seed);
    h = mix(h + Math.imul(question, 0x27d4eb2f) + person);
    return (h >>> 0) / 4294967296;
  }

  /** Uniform integer in [0, bound). */
  below(person: number, question: number, bound: number): number {
    return Math.floor(this.roll(person, question) * bound);
  }

  /** Uniform in [low, high). */
  between(person: number, question: number, low: number, high: number): number {
    return low + this.roll(person, question) * (high - low);
  }

  /** Exponential with this mean: waiting times of people who know nothing of each other. */
  exponential(person: number, question: number, mean: number): number {
    return -Math.log(1 - this.roll(person, question)) * mean;
  }
}

/** The finalizer of MurmurHash3: every input bit reaches every output bit. */
function mix(value: number): number {
  let h = value | 0;
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return h ^ (h >>> 16);
}

/** Questions that dice are asked about a person; each decision has its own, so that none shifts another. */
export const question = {
  bot: 1,
  botKind: 2,
  duplicate: 3,
  duplicatePattern: 4,
  timeout: 5,
  timeoutAfter: 6,
  replyLost: 7,
  impatient: 8,
  patience: 9,
  pays: 10,
  staysAfterSoldOut: 11,
  household: 12,
  sku: 13,
  device: 14,
  arrival: 15,
  agent: 16,
  leavesPolitely: 17,
  /** Think times and back-offs: add a counter. */
  think: 1_000,
  backoff: 2_000_000,
} as const;
