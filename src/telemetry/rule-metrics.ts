import type { RuleStats } from '../core/rules/engine.ts';
import type { FailPolicy } from '../core/rules/model.ts';
import type { Latency } from './latency.ts';
import type { Metrics, Tell } from './metrics.ts';

/** The rules at work in this process, and the shared budgets that they spend. */
export interface RuleNumbers {
  readonly version: number;
  /** For how long their source has not been seen to hold them, ms; undefined where they have none. */
  readonly ageMs: number | undefined;
  readonly stats: readonly RuleStats[];
  readonly failPolicies: ReadonlyMap<string, FailPolicy>;
  readonly ceilingRefused: number;
  readonly reloads: Readonly<Record<'applied' | 'refused', number>>;
  /** Calls to the shared store that failed; those of unknown outcome among them. */
  readonly budgetErrors: number;
  readonly budgetUnknown: number;
  /** Whole tokens. */
  readonly leaseRemaining: number;
  readonly leaseWasted: number;
  readonly emergencySpent: number;
  /** Of the limits of this instance as written: 1 but in a canary. */
  readonly instanceScale: number;
  /** Rules whose quota the instances that there are go past. */
  readonly quotaMisfits: readonly string[];
}

export function registerRules(
  metrics: Metrics,
  rules: () => RuleNumbers | undefined,
  budgetCalls: Latency,
): void {
  const from =
    (say: (numbers: RuleNumbers, tell: Tell) => void) =>
    (tell: Tell): void => {
      const numbers = rules();
      if (numbers !== undefined) say(numbers, tell);
    };
  metrics.counter(
    {
      name: 'sluice_rule_decisions_total',
      help: 'Decisions of each enforced rule; `ceiling` is the hard limit of the process.',
      labels: ['rule', 'decision'],
    },
    from(({ stats, ceilingRefused }, tell) => {
      tell(ceilingRefused, 'ceiling', 'refuse');
      for (const { ruleId, mode, admitted, refused } of stats) {
        if (mode !== 'enforce') continue;
        tell(admitted, ruleId, 'admit');
        tell(refused, ruleId, 'refuse');
      }
    }),
  );
  metrics.counter(
    {
      name: 'sluice_shadow_would_reject_total',
      help: 'Requests that a shadow rule would have refused.',
      labels: ['rule'],
    },
    from(({ stats }, tell) => {
      for (const { ruleId, mode, wouldRefuse } of stats) {
        if (mode === 'shadow') tell(wouldRefuse, ruleId);
      }
    }),
  );
  metrics.counter(
    {
      name: 'sluice_rule_penalties_total',
      help: 'Callers put out for a while because they ignored refusals.',
      labels: ['rule'],
    },
    from(({ stats }, tell) => {
      for (const { ruleId, penalties } of stats) if (penalties > 0) tell(penalties, ruleId);
    }),
  );
  metrics.gauge(
    { name: 'sluice_rule_version', help: 'Version of the rules in force here.', labels: [] },
    from(({ version }, tell) => tell(version)),
  );
  metrics.gauge(
    {
      name: 'sluice_rules_age_seconds',
      help: 'For how long the rules file has not been seen to hold the rules in force: it is looked at four times a second. Absent where the rules come from no file.',
      labels: [],
    },
    from(({ ageMs }, tell) => {
      if (ageMs !== undefined) tell(ageMs / 1000);
    }),
  );
  metrics.counter(
    {
      name: 'sluice_rule_reloads_total',
      help: 'Changes of the rules file: put in force, or refused with the old rules kept.',
      labels: ['result'],
    },
    from(({ reloads }, tell) => {
      tell(reloads.applied, 'applied');
      tell(reloads.refused, 'refused');
    }),
  );
  metrics.gauge(
    {
      name: 'sluice_instance_limit_scale',
      help: 'By how much the instance limits are scaled here: 1 but in a canary, whose share of the traffic it follows.',
      labels: [],
    },
    from(({ instanceScale }, tell) => tell(instanceScale)),
  );
  metrics.gauge(
    {
      name: 'sluice_quota_misfit',
      help: '1 for a rule with fail: instance whose budget the instances that there are go past together.',
      labels: ['rule'],
    },
    from(({ quotaMisfits }, tell) => {
      for (const ruleId of quotaMisfits) tell(1, ruleId);
    }),
  );
  registerBudgets(metrics, from, budgetCalls);
}

function registerBudgets(
  metrics: Metrics,
  from: (say: (numbers: RuleNumbers, tell: Tell) => void) => (tell: Tell) => void,
  budgetCalls: Latency,
): void {
  metrics.counter(
    {
      name: 'sluice_fail_policy_admissions_total',
      help: 'Requests that a fail policy let through while the store of shared limits was away.',
      labels: ['policy'],
    },
    from(({ stats, failPolicies, emergencySpent }, tell) => {
      for (const { ruleId, failAdmitted } of stats) {
        const policy = failPolicies.get(ruleId);
        if (policy !== undefined && failAdmitted > 0) tell(failAdmitted, policy);
      }
      tell(emergencySpent, 'local');
    }),
  );
  metrics.counter(
    {
      name: 'sluice_limiter_unknown_total',
      help: 'Calls to the store of shared limits of which nobody knows whether they were done: each counts as spent.',
      labels: [],
    },
    from(({ budgetUnknown }, tell) => tell(budgetUnknown)),
  );
  metrics.counter(
    {
      name: 'sluice_budget_errors_total',
      help: 'Calls to the store of shared limits that failed.',
      labels: [],
    },
    from(({ budgetErrors }, tell) => tell(budgetErrors)),
  );
  metrics.histogram(
    {
      name: 'sluice_budget_call_seconds',
      help: 'Round trip of one call to the store of shared limits.',
    },
    budgetCalls,
  );
  metrics.gauge(
    {
      name: 'sluice_lease_remaining',
      help: 'Unspent tokens of all leases that this process holds.',
      labels: [],
    },
    from(({ leaseRemaining }, tell) => tell(leaseRemaining)),
  );
  metrics.counter(
    {
      name: 'sluice_lease_wasted_total',
      help: 'Tokens that died unspent with their lease.',
      labels: [],
    },
    from(({ leaseWasted }, tell) => tell(leaseWasted)),
  );
}
