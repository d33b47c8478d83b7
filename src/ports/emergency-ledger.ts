/**
 * Remembers, durably, whether an instance may still spend its one emergency budget. The marker is
 * written when a lease of a new epoch arrives, and is removed *before* the first token of it is
 * spent; a marker that is not there means spent. So a process that dies, restarts or reloads can
 * never spend it twice, and only a higher epoch (or an operator who removes the record) gives it back.
 */
export interface EmergencyLedger {
  /** Writes the marker for this epoch, unless one of it or of a higher epoch was ever written. */
  arm(budget: string, epoch: number): Promise<void>;
  /** Removes the marker; true only for the one caller who found it, once that would survive a crash. */
  spend(budget: string): Promise<boolean>;
  /** An operator gives it back, for the present epoch. */
  rearm(budget: string): Promise<void>;
}
