/** What a command sees of the world outside: handed in by main, so that tests can look on. */
export interface Surroundings {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Standard output: results. */
  readonly out: (text: string) => void;
  /** Standard error: progress and complaints. */
  readonly err: (text: string) => void;
  /** Is standard output a terminal? Decoration is for people, never for pipes. */
  readonly isTty: boolean;
  /** Is standard error one? Progress is rewritten in place there. */
  readonly errIsTty: boolean;
  readonly nowMs: () => number;
  /** Resolves with the name of the first signal to stop; the second ends the process by itself. */
  readonly stopSignal: () => Promise<string>;
}

/** Exit codes: the verdict holds, it does not, the command could not be run as asked. */
export const exitOk = 0;
export const exitNo = 1;
export const exitUsage = 2;

/** Asked for in a way that cannot be: told on standard error, exit code 2. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
}

/** Marks for terminals that show them; plain text for everything else. */
export interface Paint {
  readonly bold: (text: string) => string;
  readonly faint: (text: string) => string;
  readonly good: (text: string) => string;
  readonly bad: (text: string) => string;
}

const plain = (text: string): string => text;

/** `NO_COLOR` (no-color.org) and pipes get plain text. */
export function paintFor(surroundings: Pick<Surroundings, 'isTty' | 'environment'>): Paint {
  const wanted = surroundings.isTty && !surroundings.environment['NO_COLOR'];
  if (!wanted) return { bold: plain, faint: plain, good: plain, bad: plain };
  const wrap = (open: number, close: number) => (text: string) =>
    `\u001B[${open}m${text}\u001B[${close}m`;
  return { bold: wrap(1, 22), faint: wrap(2, 22), good: wrap(32, 39), bad: wrap(31, 39) };
}
