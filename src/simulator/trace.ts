/** A history as two numbers: equal where everything happened in the same order at the same instants. */
export class Digest {
  #low = 0x811c9dc5;
  #high = 0x9e3779b9;
  readonly #labels = new Map<string, number>();

  event(label: string, nowUs: number): void {
    this.#mix(this.#of(label));
    this.#mix(nowUs | 0);
  }

  text(what: string): void {
    this.#mix(this.#of(what));
  }

  get hex(): string {
    return [this.#high, this.#low]
      .map((half) => (half >>> 0).toString(16).padStart(8, '0'))
      .join('');
  }

  #mix(value: number): void {
    this.#low = Math.imul(this.#low ^ value, 0x01000193);
    this.#high = Math.imul(this.#high ^ (this.#low >>> 7) ^ value, 0x85ebca6b);
  }

  #of(label: string): number {
    let hash = this.#labels.get(label);
    if (hash === undefined) {
      hash = hashOf(label);
      this.#labels.set(label, hash);
    }
    return hash;
  }
}

/** FNV-1a. */
export function hashOf(text: string): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  }
  return hash;
}

/** A history for people: one line for each event, and for each thing worth knowing. */
export class Trace {
  readonly lines: string[] = [];

  event(nowUs: number, label: string): void {
    this.lines.push(`${stamp(nowUs)}   ${label}`);
  }

  line(nowUs: number, what: string, detail: string): void {
    this.lines.push(`${stamp(nowUs)} ● ${what}${detail === '' ? '' : `: ${detail}`}`);
  }
}

function stamp(nowUs: number): string {
  return (nowUs / 1e6).toFixed(6).padStart(12);
}
