/**
 * Signs of risk that only show over time: accounts seen on one device, and addresses that sent a pass
 * which nobody here signed. Bounded: two generations that take turns, each with so many entries; what
 * does not fit is not noticed, which is the lenient side, and limits hold without it.
 */
const lifeUs = 600_000_000;
const entriesMax = 50_000;

export class Suspicions {
  readonly #devices = new Generations<Set<string>>();
  readonly #forgers = new Generations<true>();

  /** @param most accounts counted on one device: more make it no riskier. */
  account(device: string, user: string, most: number, nowUs: number): void {
    const known = this.#devices.get(device, nowUs);
    if (known === undefined) this.#devices.set(device, new Set([user]), nowUs);
    else if (known.size < most) known.add(user);
  }

  accountsOf(device: string, nowUs: number): number {
    return this.#devices.get(device, nowUs)?.size ?? 0;
  }

  forged(address: string, nowUs: number): void {
    this.#forgers.set(address, true, nowUs);
  }

  hasForged(address: string, nowUs: number): boolean {
    return this.#forgers.get(address, nowUs) !== undefined;
  }
}

/** Remembers for one to two lives. */
class Generations<Value> {
  #young = new Map<string, Value>();
  #old = new Map<string, Value>();
  #turnedUs: number | undefined;

  get(key: string, nowUs: number): Value | undefined {
    this.#turn(nowUs);
    return this.#young.get(key) ?? this.#old.get(key);
  }

  set(key: string, value: Value, nowUs: number): void {
    this.#turn(nowUs);
    if (this.#young.size < entriesMax || this.#young.has(key)) this.#young.set(key, value);
  }

  #turn(nowUs: number): void {
    this.#turnedUs ??= nowUs;
    if (nowUs - this.#turnedUs < lifeUs) return;
    const gone = nowUs - this.#turnedUs >= 2 * lifeUs;
    this.#old = gone ? new Map() : this.#young;
    this.#young = new Map();
    this.#turnedUs = nowUs;
  }
}
