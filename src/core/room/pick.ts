import type { RoomSettings } from '../activity.ts';
import type { WaveLane } from './events.ts';
import { compareHeads } from './lane-model.ts';
import type { LaneModel, LanePicker } from './lane-model.ts';
import type { WaveBook } from './wave-book.ts';

export interface SkuStock {
  readonly skuId: string;
  readonly available: number;
  readonly held: number;
  readonly total: number;
}

/** What calls for less than half a person calls for nobody. */
const wholePerson = 0.5;

/**
 * Whether a lane may give one more entry to a wave: stock of some SKU it waits for that is not spoken
 * for by those on their way, and a place of its group or of the lottery. Asking `admit` takes it.
 */
export class WaveGate {
  /** People that each SKU's stock still calls for. */
  readonly #calls = new Map<string, number>();
  readonly #reach: readonly Reach[];
  readonly #groupPlaces = new Map<string, number>();
  #pool = 0;
  #lottery = Infinity;
  readonly #hasGroups: boolean;

  constructor(
    room: RoomSettings,
    lanes: readonly LaneModel[],
    book: WaveBook,
    stock: readonly SkuStock[],
    unitsPerBuyer: number,
  ) {
    const units = Math.max(1, unitsPerBuyer);
    const buyersPerPerson = book.yield * units;
    const { bySku, byLane } = book.onTheWay();
    this.#reach = reachOf(lanes, stock, book.yield, units, { bySku, byLane });
    for (const { skuId, available } of stock) {
      this.#calls.set(skuId, available / buyersPerPerson - (bySku.get(skuId) ?? 0));
    }
    for (const lane of lanes) this.#speakFor(lane, byLane.get(lane.lane) ?? 0);

    this.#hasGroups = room.mode === 'quota';
    if (room.mode === 'quota') this.#shareOut(room, lanes, book);
    if (room.mode === 'lottery') {
      const used = lanes.reduce((sum, lane) => sum + book.usedBy(lane.lane), 0);
      this.#lottery = Math.max(0, (room.lotteryPlaces ?? 0) - used);
    }
  }

  /** People that the stock calls for, over all SKUs. */
  get wanted(): number {
    let sum = 0;
    for (const calls of this.#calls.values()) sum += Math.max(0, Math.round(calls));
    return sum;
  }

  /** Further people of a lane whom the stock is likely to reach, and whom it may reach at best. */
  reach(lane: LaneModel): { readonly likely: number; readonly atBest: number } {
    const found = this.#reach.find((each) => each.lane === lane);
    return found ?? { likely: 0, atBest: 0 };
  }

  get lotteryPlacesLeft(): number {
    return this.#lottery;
  }

  isOpen(lane: LaneModel): boolean {
    return this.#sku(lane) !== undefined && this.#hasPlace(lane);
  }

  /** True where the lane's group has places, whatever its stock. */
  hasPlace(lane: LaneModel): boolean {
    return this.#hasPlace(lane);
  }

  /** Takes one person's share of stock and place, if there is one. */
  admit(lane: LaneModel): boolean {
    const skuId = this.#sku(lane);
    if (skuId === undefined || !this.#hasPlace(lane)) return false;
    this.#calls.set(skuId, (this.#calls.get(skuId) ?? 0) - 1);
    this.#lottery -= 1;
    if (this.#hasGroups) {
      const own = this.#groupPlaces.get(lane.parts.group) ?? 0;
      if (own > 0) this.#groupPlaces.set(lane.parts.group, own - 1);
      else this.#pool -= 1;
    }
    return true;
  }

  #hasPlace(lane: LaneModel): boolean {
    if (this.#lottery <= 0) return false;
    if (!this.#hasGroups) return true;
    return (this.#groupPlaces.get(lane.parts.group) ?? 0) > 0 || this.#pool > 0;
  }

  /** The lane's SKU that calls for most people, or undefined where none calls for `least`. */
  #sku(lane: LaneModel, least = wholePerson): string | undefined {
    let best: string | undefined;
    let most = least;
    const wanted = lane.parts.skuIds;
    for (const [skuId, calls] of this.#calls) {
      if (calls >= most && (wanted.length === 0 || wanted.includes(skuId))) {
        best = skuId;
        most = calls;
      }
    }
    return best;
  }

  /** Those let in who have not chosen yet speak for whichever of their SKUs calls most. */
  #speakFor(lane: LaneModel, people: number): void {
    let left = people;
    while (left > 0) {
      const skuId = this.#sku(lane, Number.MIN_VALUE);
      if (skuId === undefined) return;
      const calls = this.#calls.get(skuId) ?? 0;
      const step = lane.parts.skuIds.length === 1 ? left : Math.min(left, Math.max(1, calls / 2));
      this.#calls.set(skuId, calls - step);
      left -= step;
    }
  }

  #shareOut(room: RoomSettings, lanes: readonly LaneModel[], book: WaveBook): void {
    const places = room.quota?.places ?? {};
    const used = new Map<string, number>();
    const waiting = new Map<string, number>();
    for (const lane of lanes) {
      const { group } = lane.parts;
      used.set(group, (used.get(group) ?? 0) + book.usedBy(lane.lane));
      waiting.set(group, (waiting.get(group) ?? 0) + lane.waiting);
    }
    let pool = 0;
    for (const [group, own] of Object.entries(places)) {
      const left = own - (used.get(group) ?? 0);
      this.#groupPlaces.set(group, Math.max(0, left));
      if ((waiting.get(group) ?? 0) === 0) pool += Math.max(0, left);
    }
    // Places that a group uses beyond its own came out of the pool before.
    for (const [group, taken] of used) pool -= Math.max(0, taken - (places[group] ?? 0));
    this.#pool = room.quota?.leftover === 'to_all' ? Math.max(0, pool) : 0;
  }
}

interface Reach {
  readonly lane: LaneModel;
  readonly likely: number;
  readonly atBest: number;
}

/** How far the measured yield may be off, as a factor, before a promise breaks or a hope is lost. */
const yieldMargin = { likely: 1.15, atBest: 0.7 } as const;

/**
 * How many more people of each lane the stock reaches: pessimistic, with a better yield than measured
 * and no unit coming back; and optimistic, with a worse one and every held unit coming back. A SKU's
 * people are shared out among the lanes that wait for it, by how many wait.
 */
function reachOf(
  lanes: readonly LaneModel[],
  stock: readonly SkuStock[],
  measured: number,
  units: number,
  onTheWay: ReturnType<WaveBook['onTheWay']>,
): readonly Reach[] {
  const reach = lanes.map((lane) => ({ lane, waiting: lane.waiting, likely: 0, atBest: 0 }));
  for (const { skuId, available, held } of stock) {
    const wanting = reach.filter(
      ({ lane: { parts } }) => parts.skuIds.length === 0 || parts.skuIds.includes(skuId),
    );
    const waiting = wanting.reduce((sum, each) => sum + each.waiting, 0);
    if (waiting === 0) continue;
    let coming = onTheWay.bySku.get(skuId) ?? 0;
    for (const { lane } of wanting) {
      const open = onTheWay.byLane.get(lane.lane) ?? 0;
      coming += open / Math.max(1, lane.parts.skuIds.length || stock.length);
    }
    const likelyYield = Math.min(1, measured * yieldMargin.likely) * units;
    const bestYield = Math.max(0.05, measured * yieldMargin.atBest) * units;
    const likely = Math.max(0, available / likelyYield - coming);
    const atBest = Math.max(0, (available + held) / bestYield - coming);
    for (const each of wanting) {
      each.likely += (likely * each.waiting) / waiting;
      each.atBest += (atBest * each.waiting) / waiting;
    }
  }
  return reach;
}

/** The next `size` living entries over all lanes, in the order of release, as far as the gate lets. */
export function pickWave(
  lanes: readonly LaneModel[],
  size: number,
  gate: WaveGate,
): readonly WaveLane[] {
  if (size <= 0) return [];
  const going = new Set<LanePicker>(lanes.map((lane) => lane.picker()));
  const all = [...going];
  for (let taken = 0; taken < size; ) {
    let first: LanePicker | undefined;
    let firstHead: LanePicker['head'];
    for (const picker of going) {
      const { head } = picker;
      if (head === undefined) going.delete(picker);
      else if (firstHead === undefined || compareHeads(head, firstHead) < 0) {
        first = picker;
        firstHead = head;
      }
    }
    if (first === undefined) break;
    if (gate.admit(first.lane)) {
      first.take();
      taken += 1;
    } else going.delete(first);
  }
  return all.filter((picker) => picker.count > 0).map((picker) => picker.share());
}
