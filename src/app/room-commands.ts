import type { AdminCommand } from '../control/admin/deps.ts';
import { idPattern } from '../core/bounds.ts';

/** What an operator may do to a room beyond holding and pausing it. Each is false where it does not apply. */
export interface RoomActs {
  announceBeacon(activityId: string, value: string): Promise<boolean>;
  revokeWave(activityId: string, wave: number, context: Context): Promise<boolean>;
  revokeKey(activityId: string, kid: string, context: Context): Promise<boolean>;
  bypass(activityId: string, entryId: string, context: Context): Promise<boolean>;
}

interface Context {
  readonly who: string;
  readonly why: string;
}

/** Characters of a beacon's value: a hash or a signature, as text. */
const beaconMaxLength = 1_024;

/** `POST /admin/v1/commands/room-…`, with `activity_id` and what it is about. */
export function roomCommands(rooms: RoomActs): readonly AdminCommand[] {
  const command = (
    name: string,
    role: AdminCommand['role'],
    about: string,
    act: (activityId: string, value: string, context: Context) => Promise<boolean>,
  ): AdminCommand => ({
    name,
    role,
    changes: true,
    async run(input, { principal, why }) {
      const given = textsOf(input, ['activity_id', about]);
      const context = { who: principal.name, why };
      return { done: await act(given('activity_id', idPattern), given(about), context) };
    },
  });
  return [
    command('room-beacon', 'approver', 'value', (activityId, value) =>
      rooms.announceBeacon(activityId, value),
    ),
    command('room-revoke-wave', 'operator', 'wave', (activityId, wave, context) => {
      if (!/^[1-9][0-9]{0,8}$/.test(wave)) {
        throw new RangeError(`wave: found ${JSON.stringify(wave)}; allowed is a number from 1`);
      }
      return rooms.revokeWave(activityId, Number(wave), context);
    }),
    command('room-revoke-key', 'approver', 'kid', (activityId, kid, context) =>
      rooms.revokeKey(activityId, kid, context),
    ),
    command('room-bypass', 'approver', 'entry_id', (activityId, entryId, context) => {
      if (!/^[A-Za-z0-9_-]{22}$/.test(entryId)) {
        const found = JSON.stringify(entryId);
        throw new RangeError(
          `entry_id: found ${found}; allowed are 22 characters, as joining gave`,
        );
      }
      return rooms.bypass(activityId, entryId, context);
    }),
  ];
}

/** Reads the members of an object, all of them texts (a number counts as its digits). */
function textsOf(
  input: unknown,
  allowed: readonly string[],
): (name: string, pattern?: RegExp) => string {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) {
    throw new RangeError(`found ${JSON.stringify(input)}; allowed is an object`);
  }
  const members = new Map(Object.entries(input));
  for (const name of members.keys()) {
    if (name !== 'reason' && !allowed.includes(name)) {
      throw new RangeError(`found "${name}"; allowed: ${allowed.join(', ')}`);
    }
  }
  return (name, pattern) => {
    const value: unknown = members.get(name);
    const text = typeof value === 'number' ? String(value) : value;
    if (typeof text !== 'string' || text === '' || text.length > beaconMaxLength) {
      const found = JSON.stringify(value) ?? 'nothing';
      throw new RangeError(
        `${name}: found ${found.slice(0, 80)}; allowed are 1 to ${beaconMaxLength} characters`,
      );
    }
    if (pattern !== undefined && !pattern.test(text)) {
      throw new RangeError(`${name}: found ${JSON.stringify(text)}; allowed: ${pattern.source}`);
    }
    return text;
  };
}
