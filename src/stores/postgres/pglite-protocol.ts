import type { SqlErrorFields } from './errors.ts';

/** What the server's thread and the database's thread say to each other. */

export interface ThreadSettings {
  /** `init` makes a new database folder and ends; `serve` opens one and answers. */
  readonly mode: 'init' | 'serve';
  readonly folder: string;
  /** Whether a commit waits for the disk, or for the operating system alone. */
  readonly fsync: 'disk' | 'os';
}

export type ToThread =
  | {
      readonly kind: 'run';
      readonly id: number;
      readonly text: string;
      readonly values?: unknown[];
    }
  | { readonly kind: 'close' };

export type FromThread =
  | { readonly kind: 'ready' }
  | {
      readonly kind: 'rows';
      readonly id: number;
      readonly rows: readonly object[];
      /** Command tag of the last statement: `COMMIT`, `ROLLBACK`, `SELECT`, … */
      readonly tag: string;
    }
  | { readonly kind: 'error'; readonly id: number; readonly error: SqlErrorFields };
