/**
 * Requests that were let through lately, so that their repetition can be told from a new one: a rule
 * may set a part of its budget aside for retries. A hint, of this process alone: who is not remembered
 * counts as new, and finds the budget that everybody finds.
 *
 * Two sets that take turns: a request is remembered for one to two lives, and never more than `most`
 * in each.
 */
const lifeUs = 60_000_000;
const most = 100_000;

export class RetryBook {
  #young = new Set<string>();
  #old = new Set<string>();
  #turnedUs: number | undefined;

  note(user: string, requestId: string, nowUs: number): void {
    this.#turnedUs ??= nowUs;
    if (nowUs - this.#turnedUs >= lifeUs || this.#young.size >= most) {
      this.#old = this.#young;
      this.#young = new Set();
      this.#turnedUs = nowUs;
    }
    this.#young.add(nameOf(user, requestId));
  }

  knows(user: string, requestId: string): boolean {
    const name = nameOf(user, requestId);
    return this.#young.has(name) || this.#old.has(name);
  }
}

/** A request id has no space in it. */
function nameOf(user: string, requestId: string): string {
  return `${requestId} ${user}`;
}
