import type { SqlErrorFields } from './errors.ts';

/** What the server's thread and the database's thread say to each other. */

export type ThreadSettings =
  /** Opens a folder and answers. */
  | { readonly mode: 'serve'; readonly folder: string; readonly fsync: Fsync }
  /** Makes a new database folder, from a template where there is one, and ends. */
  | {
      readonly mode: 'init';
      readonly folder: string;
      readonly fsync: Fsync;
      readonly template: string | undefined;
    }
  /** Writes a template file and ends. */
  | { readonly mode: 'template'; readonly file: string };

/** Whether a commit waits for the disk, or for the operating system alone. */
export type Fsync = 'disk' | 'os';

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
