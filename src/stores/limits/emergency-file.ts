import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { EmergencyLedger } from '../../ports/emergency-ledger.ts';

/**
 * The emergency ledger in one small file of the data folder: written beside, synced, and renamed over,
 * so that it is always whole; every change waits for the one before.
 */
export class EmergencyFile implements EmergencyLedger {
  readonly #path: string;
  #records: Map<string, EmergencyRecord> | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(folder: string) {
    this.#path = join(folder, 'emergency-budgets.json');
  }

  arm(budget: string, epoch: number): Promise<void> {
    return this.#inOrder(async (records) => {
      const known = records.get(budget);
      if (known !== undefined && known.epoch >= epoch) return;
      await this.#write(records, budget, { epoch, unspent: true });
    });
  }

  spend(budget: string): Promise<boolean> {
    return this.#inOrder(async (records) => {
      const known = records.get(budget);
      if (known?.unspent !== true) return false;
      await this.#write(records, budget, { ...known, unspent: false });
      return true;
    });
  }

  rearm(budget: string): Promise<void> {
    return this.#inOrder(async (records) => {
      const known = records.get(budget) ?? { epoch: 0, unspent: false };
      await this.#write(records, budget, { ...known, unspent: true });
    });
  }

  #inOrder<Result>(
    work: (records: Map<string, EmergencyRecord>) => Promise<Result>,
  ): Promise<Result> {
    const next = this.#last.then(async () => {
      this.#records ??= await readRecords(this.#path);
      return work(this.#records);
    });
    // The next in line runs whether this one failed or not; its own caller hears of the failure.
    this.#last = next.catch(() => undefined);
    return next;
  }

  async #write(
    records: Map<string, EmergencyRecord>,
    budget: string,
    record: EmergencyRecord,
  ): Promise<void> {
    const next = new Map(records).set(budget, record);
    await mkdir(dirname(this.#path), { recursive: true });
    const beside = `${this.#path}.new`;
    const file = await open(beside, 'w', 0o600);
    try {
      await file.writeFile(JSON.stringify(Object.fromEntries(next)));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(beside, this.#path);
    const folder = await open(dirname(this.#path), 'r');
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
    // Known here only once it would survive: until then the old record is the true one.
    records.set(budget, record);
  }
}

interface EmergencyRecord {
  /** Highest epoch for which a marker was ever written. */
  readonly epoch: number;
  readonly unspent: boolean;
}

async function readRecords(path: string): Promise<Map<string, EmergencyRecord>> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return new Map();
    throw error;
  }
  const parsed: unknown = JSON.parse(text);
  if (typeof parsed !== 'object' || parsed === null) {
    throw new TypeError(`${path}: found ${text.slice(0, 60)}; allowed is a mapping of records`);
  }
  return new Map(
    Object.entries(parsed).map(([budget, record]: [string, unknown]) => {
      const { epoch, unspent } = Object(record) as Record<string, unknown>;
      if (typeof epoch !== 'number' || typeof unspent !== 'boolean') {
        throw new TypeError(`${path}: found no record of "${budget}"; allowed is {epoch, unspent}`);
      }
      return [budget, { epoch, unspent }];
    }),
  );
}
