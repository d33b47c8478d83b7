import type { RuleContext } from '../core/rules/judge.ts';
import { routeAnswers, routeNames } from '../core/rules/model.ts';
import type { Config } from './config.ts';

/** What rules are judged against in this deployment. */
export function ruleContext(
  config: Pick<Config, 'activities' | 'budgets' | 'server'>,
): RuleContext {
  return {
    routes: routeNames,
    answers: routeAnswers,
    activities: config.activities.map(({ activityId }) => activityId),
    skus: config.activities.flatMap(({ skus }) => skus.map(({ skuId }) => skuId)),
    maxInstances: config.budgets.maxInstances,
    ceiling: config.server.ceiling,
  };
}
