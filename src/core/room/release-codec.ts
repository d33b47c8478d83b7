import type { LaneState, ReleaseState } from './release.ts';
import { SequenceSet } from './sequence-set.ts';
import type { Sketch } from './line.ts';

/**
 * Release states as text, for gateways in other processes. Plain JSON, but for the sets (see
 * {@link SequenceSet}) and the sketches (arrays of numbers). A million people with a few thousand
 * leavers make some 60 KiB, of which most is the sketch.
 */
export function encodeRelease(state: ReleaseState): string {
  return JSON.stringify({
    ...state,
    left: state.left.encode(),
    claimed: state.claimed.encode(),
    lapsed: state.lapsed.encode(),
    lanes: state.lanes.map((lane) => ({
      ...lane,
      lobby: encodeSketch(lane.lobby),
      late: encodeSketch(lane.late),
    })),
  });
}

interface WireSketch {
  readonly keys: readonly number[];
  readonly living: readonly number[];
}

const encodeSketch = ({ keys, living }: Sketch): WireSketch => ({
  keys: [...keys],
  living: [...living],
});

// A typed array of an array is copied at once; `from` would go through an iterator.
const decodeSketch = ({ keys, living }: WireSketch): Sketch => ({
  keys: new Float64Array(keys),
  living: new Float64Array(living),
});

/** What was read last: last words are asked for every second, and are mostly the one that was heard. */
let last: { readonly text: string; readonly state: ReleaseState } | undefined;

/**
 * The state that {@link encodeRelease} wrote. Throws on anything else, and on a version that this
 * program does not know: acting on half an understanding would let the wrong people in. The same text
 * read twice in a row is the same object, which nobody writes to.
 */
export function decodeRelease(text: string): ReleaseState {
  if (last?.text !== text) last = { text, state: read(text) };
  return last.state;
}

function read(text: string): ReleaseState {
  const raw = JSON.parse(text) as Omit<ReleaseState, 'left' | 'claimed' | 'lapsed' | 'lanes'> & {
    readonly left: string;
    readonly claimed: string;
    readonly lapsed: string;
    readonly lanes: readonly (Omit<LaneState, 'lobby' | 'late'> & {
      readonly lobby: WireSketch;
      readonly late: WireSketch;
    })[];
  };
  if (raw.schemaVersion !== 1) {
    throw new Error(`release state of version ${String(raw.schemaVersion)}; known: 1`);
  }
  const left = SequenceSet.decode(raw.left);
  const claimed = SequenceSet.decode(raw.claimed);
  const lapsed = SequenceSet.decode(raw.lapsed);
  if (left === undefined || claimed === undefined || lapsed === undefined) {
    throw new Error(`release state ${raw.epoch}.${raw.version} has a set that cannot be read`);
  }
  return {
    ...raw,
    left,
    claimed,
    lapsed,
    lanes: raw.lanes.map((lane) => ({
      ...lane,
      lobby: decodeSketch(lane.lobby),
      late: decodeSketch(lane.late),
    })),
  };
}
