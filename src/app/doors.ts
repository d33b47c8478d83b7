import type { OverloadLoop } from '../control/overload-loop.ts';
import type { DoorsWord } from './fleet.ts';

/** A word to open by the ramp is of its moment, ms. */
const rampWordMs = 10_000;

/** Does what an operator wants of the doors; a pin that has run out on its way is none. */
export function obeyDoors(
  overload: Pick<OverloadLoop, 'pin' | 'unpin' | 'ramp'>,
  word: DoorsWord,
  ageMs: number,
): void {
  switch (word.kind) {
    case 'pin': {
      const { mode, who, reason } = word;
      const forMs = word.forMs - ageMs;
      if (forMs > 0) overload.pin({ mode, who, reason, forMs });
      return;
    }
    case 'unpin':
      overload.unpin();
      return;
    case 'ramp':
      // Whoever starts later has a ramp of its own.
      if (ageMs <= rampWordMs) overload.ramp();
  }
}
