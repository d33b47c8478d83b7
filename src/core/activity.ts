/** One sale as the rest of the system sees it: facts only, already validated, instants in ms UTC. */

export type RoomMode =
  | 'draw'
  | 'fifo'
  | 'weighted'
  | 'quota'
  | 'lottery'
  | 'passthrough'
  | 'reject';

export type Phase = 'scheduled' | 'lobby' | 'open' | 'sold_out' | 'closed';

export interface Price {
  /** Minor units (cents, fen). */
  readonly amountMinor: number;
  /** ISO 4217. */
  readonly currency: string;
}

export interface Sku {
  readonly skuId: string;
  readonly name: string;
  readonly price: Price;
  /** Units on sale at preload; later adjustments are recorded apart. */
  readonly stock: number;
  /** Units that one person may hold live (reserved, ordered, paid) at a time. At least 1. */
  readonly maxPerPerson: number;
  readonly seats?: readonly string[];
  /** Parts that its stock is loaded in, where one place is not enough for it; 1 when absent. */
  readonly shards?: number;
}

export interface RoomSettings {
  readonly mode: RoomMode;
  /** Life of a pass. */
  readonly passLifeMs: number;
  /** How long an admitted entry may wait before it takes its pass. */
  readonly claimWindowMs: number;
  /** New admissions per second, strict. */
  readonly maxAdmissionsPerSecond: number;
  /** Admitted people who have not finished, strict. */
  readonly maxActive: number;
  /** `weighted`: claim of the user token that holds the entry's weight. */
  readonly weightClaim?: string;
  /** `quota`: claim of the user token that names the group. */
  readonly groupClaim?: string;
  /** `quota`: places of each group; a group not named here has none of its own. */
  readonly quota?: {
    readonly places: Readonly<Record<string, number>>;
    /** Places a group leaves unused once its line is empty: kept, or open to all in draw order. */
    readonly leftover: 'kept' | 'to_all';
  };
  /** `lottery`: how many are drawn. */
  readonly lotteryPlaces?: number;
  /** Names a public value, known only after the lobby has closed, that is mixed into the draw. */
  readonly beacon?: string;
  /** Polls per second that the whole room may cause; intervals follow from it. */
  readonly pollsPerSecond?: number;
  /** Passes are good only with the device that they were taken with. */
  readonly bindDevice?: boolean;
  /** Demanded on joining: work of so many zero bits, more where the risk is higher, or a voucher. */
  readonly challenge?: {
    readonly kind: 'proof_of_work' | 'callback';
    readonly minBits?: number;
    readonly maxBits?: number;
  };
}

export interface Activity {
  readonly activityId: string;
  readonly name: string;
  /** Counts every edit. */
  readonly revision: number;
  /** Grows only when passes already given out are to lose their validity. */
  readonly activityVersion: number;
  readonly lobbyOpensAtMs: number;
  readonly opensAtMs: number;
  readonly closesAtMs: number;
  /** IANA name, for display only; every decision uses UTC instants. */
  readonly timeZone: string;
  readonly skus: readonly Sku[];
  readonly room: RoomSettings;
  readonly paymentDeadlineMs: number;
  /** A copy of this sale, for a rehearsal: on no list, and marked wherever it is shown. */
  readonly rehearsalOf?: string;
}

export interface SkuKey {
  readonly activityId: string;
  readonly skuId: string;
}

/** Phase by the server's clock alone; `sold_out` is decided by stock and laid over `open` by the caller. */
export function phaseAt(activity: Activity, nowMs: number): Exclude<Phase, 'sold_out'> {
  if (nowMs >= activity.closesAtMs) return 'closed';
  if (nowMs >= activity.opensAtMs) return 'open';
  if (nowMs >= activity.lobbyOpensAtMs) return 'lobby';
  return 'scheduled';
}
