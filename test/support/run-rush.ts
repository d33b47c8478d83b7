import { systemClock, systemTimers } from '../../src/app/system.ts';
import { rushCommand } from '../../src/lab/rush/command.ts';
import type { RushSurroundings } from '../../src/lab/rush/command.ts';
import type { RushReport } from '../../src/lab/rush/report.ts';

export interface RushRun {
  readonly code: number;
  /** Empty where the run could not be. */
  readonly report: RushReport;
  readonly err: string;
}

/** `sluice rush --json` in this process, on the real clock, with its words caught. */
export async function runRush(
  raw: Record<string, unknown>,
  around: Partial<RushSurroundings> = {},
): Promise<RushRun> {
  let out = '';
  let err = '';
  const code = await rushCommand(
    { json: true, ...raw },
    {
      out: (text) => {
        out += text;
      },
      err: (text) => {
        err += text;
      },
      isTty: false,
      clock: systemClock,
      timers: systemTimers,
      ...around,
    },
  );
  return { code, err, report: (out === '' ? {} : JSON.parse(out)) as RushReport };
}

/** Runs that a busy machine may spoil before a test gives up. */
const attemptsMax = 3;

/**
 * A run whose crowd came too late says nothing of the shop, and says so: it is void. Then it is run
 * again; what is tested is the shop, not how busy the machine is.
 */
export async function unlessVoid(run: () => Promise<RushRun>): Promise<RushRun> {
  for (let attempt = 1; ; attempt += 1) {
    const outcome = await run();
    if (outcome.report.void !== true || attempt === attemptsMax) return outcome;
  }
}

/** Ids of the invariants that a run found broken. */
export function brokenIn({ report }: RushRun): readonly string[] {
  return report.invariants.filter(({ held }) => !held).map(({ id }) => id);
}

/** What a run says for itself, for the message of a failed assertion. */
export function storyOf({ report, err }: RushRun): string {
  const broken = (report.invariants ?? []).filter(({ held }) => !held);
  return `${JSON.stringify(broken)}\n${err.slice(-2_000)}`;
}
