/** What a waiting person is told; on the wire as it stands here, in snake_case. */
export interface Standing {
  readonly state:
    | 'waiting'
    | 'admitted'
    | 'claimed'
    | 'left'
    | 'missed'
    | 'not_drawn'
    | 'sold_out'
    | 'closed';
  readonly cohort: 'lobby' | 'late';
  /** Estimated place in the order of release, from 1; null before the draw. */
  readonly position: number | null;
  /** Upper bound of the entries still ahead; null before the draw. */
  readonly ahead: number | null;
  readonly eta: {
    readonly low_ms: number;
    readonly high_ms: number;
    readonly held_ratio: number | null;
  } | null;
  readonly sell_through: 'likely' | 'uncertain' | 'unlikely' | 'gone_for_now';
  /** RFC 3339, until when an admitted entry may take its pass. */
  readonly claim_before: string | null;
  /** How the order is made, as a word from a closed set: `draw`, `fifo`, … */
  readonly order_rule: string;
  readonly next_poll_after_ms: number;
  readonly server_time: string;
}
