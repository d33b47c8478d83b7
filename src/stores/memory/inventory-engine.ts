import type { SnapshotLine } from '../../core/stock/snapshot.ts';
import { SnapshotReader, beginSnapshot, endSnapshot } from '../../core/stock/snapshot.ts';
import type { Outcome } from '../../core/stock/stock-machine.ts';
import { StockMachine } from '../../core/stock/stock-machine.ts';
import type { Step } from '../../core/stock/steps.ts';
import { parseStep } from '../../core/stock/steps.ts';
import { OutcomeUnknownError, UnavailableError } from '../../ports/errors.ts';
import type { Disk } from '../journal/disk.ts';
import { Journal } from '../journal/journal.ts';

/**
 * The stock machine and its journal, shared by the inventory store and the order queue over its
 * outbox. A change is made in memory at once and its step put in line in the same turn, so that
 * steps stand in the journal in the order in which they were taken; the answer waits until the
 * journal has promised it. A read waits too: it may have seen a change that is not yet safe, and
 * telling somebody of a reservation that a crash then undoes would be a lie.
 *
 * Once the journal has failed, what is in memory may be more than what is on disk. Nothing is
 * answered from it any more; only a new process, which reads what is really there, may go on.
 */
export interface StepLog {
  append(record: string): void;
  durable(): Promise<void>;
  /** Why it takes no more, if so. */
  readonly failure: Error | undefined;
  /** Characters in line and not yet written, where the log keeps any. */
  readonly pendingChars?: number;
}

export interface EngineOptions {
  /** Folder of the journal, inside the data folder; created. */
  readonly folder: string;
  readonly fsync: 'always' | 'os';
  /** Log bytes past which a snapshot replaces them. Default 16 MiB. */
  readonly compactAtBytes?: number;
  /** For tests that make the disk fail. */
  readonly disk?: Disk;
}

/** Characters in line past which nothing more is changed: the disk is slower than the sale. */
export const pendingCharsMax = 64 * 1024 * 1024;

const compactAtBytesDefault = 16 * 1024 * 1024;

/** Forgets everything with the process: for a simulated world that keeps its own log, and for trials. */
const volatileLog: StepLog = {
  append: () => undefined,
  durable: () => Promise.resolve(),
  failure: undefined,
};

export class InventoryEngine {
  readonly machine: StockMachine;
  readonly #log: StepLog;
  readonly #journal: Journal | undefined;
  readonly #compactAtBytes: number;
  /** Log bytes at which the next compaction is tried. */
  #compactFrom: number;
  #compacting = false;
  #compactionFailure: unknown;
  #rebuilding = 0;
  #closed = false;
  readonly #listeners = new Set<() => void>();

  private constructor(
    machine: StockMachine,
    log: StepLog,
    journal: Journal | undefined,
    compactAtBytes: number,
  ) {
    this.machine = machine;
    this.#log = log;
    this.#journal = journal;
    this.#compactAtBytes = compactAtBytes;
    this.#compactFrom = compactAtBytes;
  }

  /** Opens the journal and replays it. The caller holds the data folder's lock. */
  static async open(options: EngineOptions): Promise<InventoryEngine> {
    const machine = new StockMachine();
    const reader = new SnapshotReader(machine);
    const journal = await Journal.open({
      folder: options.folder,
      fsync: options.fsync,
      onSnapshot: (lines) => {
        for (const line of lines) reader.read(JSON.parse(line) as SnapshotLine);
      },
      onRecord: (record) => machine.apply(parseStep(record)),
      ...(options.disk === undefined ? {} : { disk: options.disk }),
    });
    return new InventoryEngine(
      machine,
      journal,
      journal,
      options.compactAtBytes ?? compactAtBytesDefault,
    );
  }

  /** Over a log of the caller's; `records` is what such a log has kept of an earlier life. */
  static over(log: StepLog = volatileLog, records: Iterable<string> = []): InventoryEngine {
    const machine = new StockMachine();
    for (const record of records) machine.apply(parseStep(record));
    return new InventoryEngine(machine, log, undefined, 0);
  }

  /** Why the journal takes nothing any more, until a restart. */
  get failure(): Error | undefined {
    return this.#log.failure;
  }

  /** Throws UnavailableError where nothing may be changed or answered, for ever or just now. */
  refuseIfEnded(): void {
    const { failure } = this.#log;
    if (failure !== undefined)
      throw new UnavailableError('The inventory journal has failed; restart to go on', {
        cause: failure,
      });
    if (this.#closed) throw new UnavailableError('The inventory store is closed');
    const { pendingChars = 0 } = this.#log;
    if (pendingChars > pendingCharsMax)
      throw new UnavailableError(
        `${pendingChars} characters wait for the inventory journal; at most ${pendingCharsMax} may`,
      );
  }

  /** Puts a step in line. Promised by the next `promised`. */
  record(step: Step | undefined): void {
    if (step === undefined) return;
    this.#log.append(JSON.stringify(step));
    this.#compactWhereDue();
  }

  /** Runs an operation now and answers once what it did, or saw, is safe. */
  async run<Reply>(operation: () => Outcome<Reply>): Promise<Reply> {
    this.refuseIfEnded();
    const { reply, step } = operation();
    this.record(step);
    await this.promised(step !== undefined);
    return reply;
  }

  /**
   * Resolves once everything recorded so far is safe. After a failure: OutcomeUnknownError where the
   * caller changed something, UnavailableError where it only looked.
   */
  async promised(changed: boolean): Promise<void> {
    try {
      await this.#log.durable();
    } catch (cause) {
      if (changed)
        throw new OutcomeUnknownError('The inventory journal failed during the step', { cause });
      throw new UnavailableError('The inventory journal has failed; restart to go on', { cause });
    }
  }

  /** No snapshot begins while `work` puts records aside for a rebuild. */
  async withoutSnapshots<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#rebuilding += 1;
    try {
      return await work();
    } finally {
      this.#rebuilding -= 1;
    }
  }

  /** Calls `listener` whenever messages may have come; returns how to stop. */
  listen(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  announceMessages(): void {
    for (const listener of this.#listeners) listener();
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** The last snapshot's failure, until one succeeds: the log only grows meanwhile. */
  get compactionFailure(): unknown {
    return this.#compactionFailure;
  }

  get journal(): Journal | undefined {
    return this.#journal;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.announceMessages();
    await this.#journal?.close();
  }

  #compactWhereDue(): void {
    const journal = this.#journal;
    if (journal === undefined || this.#compacting || this.#rebuilding > 0) return;
    const { logBytes, snapshotBytes } = journal.sizes;
    // A snapshot costs about its size, so it waits until it saves as much again.
    if (logBytes < Math.max(this.#compactFrom, 2 * snapshotBytes)) return;
    this.#compacting = true;
    void this.#compact(journal);
  }

  async #compact(journal: Journal): Promise<void> {
    try {
      await journal.compact(beginSnapshot(this.machine));
      this.#compactFrom = this.#compactAtBytes;
      this.#compactionFailure = undefined;
    } catch (error) {
      // The log still has everything. Tried again when it has grown by as much again.
      this.#compactionFailure = error;
      this.#compactFrom = journal.sizes.logBytes + this.#compactAtBytes;
    } finally {
      endSnapshot(this.machine);
      this.#compacting = false;
    }
  }
}
