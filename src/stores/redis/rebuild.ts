import type { Rebuild } from '../../core/stock/model.ts';
import { SeatMap } from '../../core/stock/seats.ts';
import { checkRebuild } from '../../core/stock/validate.ts';
import { checkReservationId, fieldOf, personField, textOfRecord } from './records.ts';

/** Fields and values (or members) of each staged key, in the order of the stage script. */
export type Piece = readonly [
  requests: string[],
  nonces: string[],
  persons: string[],
  reservations: string[],
  order: string[],
  seatNames: string[],
  places: string[],
];

export interface RebuildParts {
  readonly pieces: readonly Piece[];
  readonly map: string;
  readonly held: number;
  readonly ordered: number;
}

/** Records per piece: one call stays around a millisecond. */
const pieceRecords = 500;
const pieceNames = 2_000;

/** The map of free seats, and both ways between names and offsets. Throws RangeError for a name twice. */
export function seatLayout(names: readonly string[] | undefined): {
  readonly map: string;
  readonly names: readonly string[];
  readonly offsets: ReadonlyMap<string, number>;
} {
  const offsets = new Map<string, number>();
  if (names === undefined) return { map: '', names: [], offsets };
  const seats = new SeatMap(names);
  let map = '';
  const pairs: string[] = [];
  for (const [at, name] of seats.names.entries()) {
    if (at > 0 && seats.beginsRow(at)) map += '|';
    offsets.set(name, map.length);
    pairs.push(`n${name}`, String(map.length), `p${map.length}`, name);
    map += '0';
  }
  return { map, names: pairs, offsets };
}

/** What to stage. Throws RangeError, as every store does, for a state that cannot be. */
export function rebuildParts(state: Rebuild, names: readonly string[] | undefined): RebuildParts {
  checkRebuild(state);
  if (names !== undefined && names.length !== state.total)
    throw new RangeError(`${names.length} seats for a total of ${state.total}`);
  const layout = seatLayout(names);
  const taken = names === undefined ? undefined : new SeatMap(names);
  const pieces: Piece[] = [];
  const persons = new Map<string, { units: number; fields: string[] }>();
  let held = 0;
  let ordered = 0;
  for (let from = 0; from < state.live.length; from += pieceRecords) {
    const piece: Piece = [[], [], [], [], [], [], []];
    const fields: string[] = [];
    for (const record of state.live.slice(from, from + pieceRecords)) {
      const { reservationId, quantity } = record;
      checkReservationId(reservationId);
      const field = fieldOf(record.userId, record.requestId);
      const state = record.state === 'held' ? 'h' : 'o';
      if (state === 'h') held += quantity;
      else ordered += quantity;
      fields.push(field);
      piece[0].push(field, textOfRecord(record));
      piece[1].push(record.nonce);
      piece[3].push(reservationId, state + field.slice(1));
      const person = persons.get(record.personId) ?? { units: 0, fields: [] };
      person.units += quantity;
      person.fields.push(field);
      persons.set(record.personId, person);
      if (record.seats === undefined) continue;
      if (taken === undefined)
        throw new RangeError(`Reservation ${reservationId} has seats, the SKU has none`);
      taken.take(record.seats);
      const offsets = record.seats.map((name) => layout.offsets.get(name) ?? 0);
      piece[6].push(reservationId, `${offsets.join(',')}\n${JSON.stringify(record.seats)}`);
    }
    piece[4].push(fields.join('\n'));
    pieces.push(piece);
  }
  const personPairs = [...persons].flatMap(([personId, of]) => [
    personField(personId),
    of.units === 1 ? (of.fields[0] ?? '') : JSON.stringify([of.units, ...of.fields]),
  ]);
  for (let from = 0; from < personPairs.length; from += pieceNames)
    pieces.push([[], [], personPairs.slice(from, from + pieceNames), [], [], [], []]);
  for (let from = 0; from < layout.names.length; from += pieceNames)
    pieces.push([[], [], [], [], [], layout.names.slice(from, from + pieceNames), []]);
  const map = layout.map.split('');
  for (const [name, offset] of layout.offsets)
    if ((taken?.unavailable([name]).length ?? 0) > 0) map[offset] = '1';
  return { pieces, map: map.join(''), held, ordered };
}
