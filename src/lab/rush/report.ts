import type { Outcome } from './population.ts';
import type { SeriesName } from './series.ts';

/** How an invariant was looked at. `none` means that nothing in this run could have shown a breach. */
export type Evidence = 'crowd' | 'operator' | 'both' | 'none';

export interface InvariantResult {
  /** `1` to `13`. */
  readonly id: string;
  /** False when a breach was seen, or when what must be seen to hold it could not be read. */
  readonly held: boolean;
  readonly detail: string;
  readonly evidence: Evidence;
}

/** What a run found; the names are fixed, tools read them. */
export interface RushReport {
  readonly people: number;
  readonly arrivals_planned: number;
  readonly arrivals_started: number;
  /** The generator could not keep its own schedule: nothing here counts. */
  readonly void: boolean;
  readonly outcomes: Readonly<Record<Outcome, number>>;
  /** Null where no operator's credential was at hand. */
  readonly stock: {
    readonly total: number | null;
    readonly sold: number;
    readonly held: number;
    readonly available: number | null;
  };
  readonly rates: {
    readonly refused_per_s: number;
    readonly reserved_per_s: number;
    readonly orders_per_s: number;
  };
  readonly latency_ms: {
    readonly admitted: Quantiles;
    readonly refused: Quantiles;
  };
  readonly ledger: { readonly residual: number | null };
  readonly invariants: readonly InvariantResult[];
  readonly verdict: 'holds' | 'broken' | 'void';
  readonly seed: number;
  readonly machine: Machine;
  /** What was run and what was seen on the way, for people and plots. */
  readonly run: RunDetails;
}

export interface Quantiles {
  readonly p50: number | null;
  readonly p99: number | null;
}

export interface Machine {
  readonly cpus: number;
  readonly model: string;
  readonly memory_mib: number;
  readonly platform: string;
  readonly node: string;
}

export interface RunDetails {
  readonly scenario: string;
  readonly about: string;
  readonly target: string;
  readonly activity: string;
  readonly started_at: string;
  readonly duration_ms: number;
  readonly over_ms: number;
  readonly scale: number;
  readonly shares: {
    readonly bots: number;
    readonly duplicates: number;
    readonly timeouts: number;
  };
  readonly arrivals_from: string;
  readonly households: number;
  readonly worst_lateness_ms: number;
  readonly answers: Readonly<Record<string, number>>;
  readonly attacks: {
    readonly forged: number;
    readonly replayed: number;
    readonly conflicting: number;
  };
  readonly retries_of_reserved: number;
  readonly waves: number;
  readonly generator: {
    readonly cpu_s: number;
    readonly peak_rss_mib: number;
    readonly priority: 'raised' | 'usual';
    /** Longest time for which the generator did not run at all. */
    readonly worst_stall_ms: number;
  };
  readonly poll_ms: Quantiles;
  readonly series: Readonly<Record<SeriesName, readonly number[]>>;
  readonly histograms: {
    readonly admitted: readonly (readonly [number, number])[];
    readonly refused: readonly (readonly [number, number])[];
  };
}
