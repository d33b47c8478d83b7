import type { Standing } from '../wire/standing.ts';

/**
 * A standing as JSON, at a fraction of what a serializer takes that knows nothing of it: every text in
 * it is a word from a closed set or an instant, so nothing needs escaping and all of it is ASCII. Says
 * exactly what `JSON.stringify` says.
 */
export function standingText(standing: Standing): string {
  const { eta, claim_before: claimBefore } = standing;
  const range =
    eta === null
      ? 'null'
      : `{"low_ms":${eta.low_ms},"high_ms":${eta.high_ms},"held_ratio":${eta.held_ratio}}`;
  return `{"state":"${standing.state}","cohort":"${standing.cohort}","position":${standing.position},"ahead":${standing.ahead},"eta":${range},"sell_through":"${standing.sell_through}","claim_before":${claimBefore === null ? 'null' : `"${claimBefore}"`},"order_rule":"${standing.order_rule}","next_poll_after_ms":${standing.next_poll_after_ms},"server_time":"${standing.server_time}"}`;
}
