/**
 * Who leads: one lease, kept in one place. Promises of every implementation:
 *
 * - At most one holder at a time, on the place's own clock.
 * - Each change of holder raises the epoch; renewing does not.
 */
export interface LeaderLease {
  /** Takes the lease where it is free, or lengthens it where it is the caller's. */
  renew(holder: string, leaseMs: number): Promise<LeaseReply>;
  /** Gives it back; nothing happens where it is somebody else's by now. */
  release(holder: string): Promise<void>;
}

export type LeaseReply =
  | { readonly kind: 'held'; readonly epoch: number }
  | { readonly kind: 'taken'; readonly by: string };
