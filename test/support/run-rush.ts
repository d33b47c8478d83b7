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

/** Ids of the invariants that a run found broken. */
export function brokenIn({ report }: RushRun): readonly string[] {
  return report.invariants.filter(({ held }) => !held).map(({ id }) => id);
}

/** What a run says for itself, for the message of a failed assertion. */
export function storyOf({ report, err }: RushRun): string {
  const broken = (report.invariants ?? []).filter(({ held }) => !held);
  return `${JSON.stringify(broken)}\n${err.slice(-2_000)}`;
}
