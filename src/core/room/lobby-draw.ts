import type { RoomMode } from '../activity.ts';
import type { Drawer } from './draw.ts';
import type { Ties } from './line.ts';

/** A line of the participant log. */
export interface RoomParticipant {
  readonly entryId: string;
  readonly sequence: number;
  readonly weight: number;
  readonly group: string;
  readonly skuIds: readonly string[];
}

/** Keys sorted at once natively, and merged at once: a slice stays at a few milliseconds. */
const runLength = 32_768;
const mergeSlice = 131_072;

/**
 * Turns the lobby into sorted lines, in slices, so that a process that also answers people never
 * stands still for long. Feed it the lobby's living entries in any order, run `sort`, and, where it
 * `hasTies`, feed them all to `addTied` once more.
 */
export class LobbyDraw {
  readonly #drawer: Pick<Drawer, 'keyOf'> | undefined;
  readonly #weighted: boolean;
  readonly #lanes = new Map<
    string,
    { keys: Float64Array; size: number; readonly tied: Map<number, string[]> }
  >();
  #done = false;

  /** Without a drawer the order is that of arrival. */
  constructor(mode: RoomMode, drawer: Pick<Drawer, 'keyOf'> | undefined) {
    this.#drawer = drawer;
    this.#weighted = mode === 'weighted';
  }

  add(lane: string, entry: RoomParticipant): void {
    let line = this.#lanes.get(lane);
    if (line === undefined) {
      line = { keys: new Float64Array(1024), size: 0, tied: new Map() };
      this.#lanes.set(lane, line);
    }
    if (line.size === line.keys.length) {
      const grown = new Float64Array(line.keys.length * 2);
      grown.set(line.keys);
      line.keys = grown;
    }
    line.keys[line.size] = this.keyOf(entry);
    line.size += 1;
  }

  keyOf(entry: RoomParticipant): number {
    return this.#drawer === undefined
      ? entry.sequence
      : this.#drawer.keyOf(entry.entryId, entry.weight, this.#weighted);
  }

  /** Yields between slices; all lanes are sorted when it ends. */
  *sort(): Generator<undefined> {
    for (const line of this.#lanes.values()) {
      line.keys = yield* sortSliced(line.keys.slice(0, line.size));
      for (let at = 1; at < line.size; at += 1) {
        const key = line.keys[at];
        if (key !== undefined && key === line.keys[at - 1]) line.tied.set(key, []);
        if (at % mergeSlice === 0) yield;
      }
    }
    this.#done = true;
  }

  /** Does any key stand for more than one entry? Next to never, since values have 53 bits. */
  get hasTies(): boolean {
    return [...this.#lanes.values()].some((line) => line.tied.size > 0);
  }

  addTied(lane: string, entry: RoomParticipant): void {
    this.#lanes.get(lane)?.tied.get(this.keyOf(entry))?.push(entry.entryId);
  }

  lines(): ReadonlyMap<string, { readonly sorted: Float64Array; readonly ties: Ties }> {
    if (!this.#done) throw new Error('the lobby is not sorted yet');
    const lines = new Map<string, { readonly sorted: Float64Array; readonly ties: Ties }>();
    for (const [lane, { keys, tied }] of this.#lanes) {
      for (const ids of tied.values()) ids.sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));
      lines.set(lane, { sorted: keys, ties: tied });
    }
    return lines;
  }
}

/** Merge sort over natively sorted runs; yields after each slice of work. Doubles memory meanwhile. */
export function* sortSliced(keys: Float64Array): Generator<undefined, Float64Array> {
  for (let from = 0; from < keys.length; from += runLength) {
    keys.subarray(from, from + runLength).sort();
    yield;
  }
  let source: Float64Array = keys;
  let target: Float64Array = new Float64Array(keys.length);
  for (let width = runLength; width < keys.length; width *= 2) {
    let done = 0;
    for (let from = 0; from < keys.length; from += 2 * width) {
      const middle = Math.min(from + width, keys.length);
      const end = Math.min(from + 2 * width, keys.length);
      let left = from;
      let right = middle;
      for (let at = from; at < end; at += 1) {
        const a = source[left] ?? Infinity;
        const b = source[right] ?? Infinity;
        if (left < middle && (right >= end || a <= b)) {
          target[at] = a;
          left += 1;
        } else {
          target[at] = b;
          right += 1;
        }
        done += 1;
        if (done % mergeSlice === 0) yield;
      }
    }
    [source, target] = [target, source];
  }
  return source;
}
