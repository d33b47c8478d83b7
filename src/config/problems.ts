/** One thing that is wrong with a configuration: where it stands, what was found, what is allowed. */
export interface Problem {
  /** File name, or `command line`. */
  readonly source: string;
  /** From 1; 0 where there is no line (command line). */
  readonly line: number;
  readonly column: number;
  /** `activities[0].skus[1].stock`, or the flag. */
  readonly path: string;
  readonly found: string;
  readonly allowed: string;
}

/** Problems beyond this many are counted, not listed: a file of noise must not print a book. */
export const problemsMax = 50;

/** Thrown by commands that cannot start: its message lists every problem. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[]) {
    super(renderProblems(problems));
    this.problems = problems;
  }
}

/** As a person reads them: place first, so that terminals and editors can jump to it. */
export function renderProblems(problems: readonly Problem[]): string {
  const shown = problems.slice(0, problemsMax).map((problem) => {
    const place =
      problem.line === 0 ? problem.source : `${problem.source}:${problem.line}:${problem.column}`;
    const path = problem.path === '' ? '(the whole file)' : problem.path;
    return `${place}  ${path}\n    found    ${problem.found}\n    allowed  ${problem.allowed}`;
  });
  const rest = problems.length - shown.length;
  if (rest > 0) shown.push(`… and ${rest} more.`);
  const count = problems.length === 1 ? '1 problem' : `${problems.length} problems`;
  return `${shown.join('\n')}\n${count} in the configuration.`;
}

/** A value as it is quoted in a message: short, on one line, without control characters. */
export function quoted(value: unknown): string {
  if (Array.isArray(value)) return `a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return 'a mapping';
  const full: string | undefined = JSON.stringify(value);
  if (full === undefined) return 'nothing';
  return full.length > 80 ? `${full.slice(0, 76)}…"` : full;
}

/** The nearest of `known` to a mistyped word, when it is near enough to be meant. */
export function nearest(word: string, known: readonly string[]): string | undefined {
  let best: string | undefined;
  let least = Math.max(1, Math.floor(word.length / 3)) + 1;
  for (const candidate of known) {
    const distance = editDistance(word.toLowerCase(), candidate.toLowerCase());
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

/** Edits (insert, delete, replace, swap of neighbours) between two words; words over 64 are not compared. */
function editDistance(a: string, b: string): number {
  if (a.length > 64 || b.length > 64) return 64;
  const rows: number[][] = [Array.from({ length: b.length + 1 }, (_, at) => at)];
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= b.length; j += 1) {
      const same = a[i - 1] === b[j - 1] ? 0 : 1;
      let cost = Math.min(
        (rows[i - 1]?.[j] ?? 0) + 1,
        (row[j - 1] ?? 0) + 1,
        (rows[i - 1]?.[j - 1] ?? 0) + same,
      );
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        cost = Math.min(cost, (rows[i - 2]?.[j - 2] ?? 0) + 1);
      row.push(cost);
    }
    rows.push(row);
  }
  return rows[a.length]?.[b.length] ?? 64;
}
