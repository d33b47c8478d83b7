/**
 * What a process does. `gateway` serves buyers, `worker` turns reservations into orders and ends
 * them, `control` runs the rooms and the operator's page. One process may hold any set.
 */
export type Role = 'gateway' | 'worker' | 'control';

export const allRoles: readonly Role[] = ['gateway', 'worker', 'control'];

export function isRole(word: string): word is Role {
  return allRoles.some((role) => role === word);
}
