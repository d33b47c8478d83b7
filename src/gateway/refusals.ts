import type { FixedRefusal } from '../core/decision.ts';

/** Refusals that more than one route gives. */

export const noSuchActivity: FixedRefusal = {
  decision: 'reject',
  stage: 'reserve',
  code: 'NOT_FOUND',
  reason: 'activity',
  detail: 'no such activity',
};

export const noSuchEntry: FixedRefusal = {
  ...noSuchActivity,
  reason: 'entry',
  detail: 'you have no place in this room; join to get one',
  nextAction: 'REJOIN',
};
