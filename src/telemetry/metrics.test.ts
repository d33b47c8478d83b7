import { readFileSync } from 'node:fs';
import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { World } from '../../test/support/world.ts';
import type { Activity } from '../core/activity.ts';
import { Ledger } from '../core/ledger/ledger.ts';
import { RoomMeasures, networkOf } from '../core/room/measures.ts';
import { Admitted } from './admitted.ts';
import { metricsTable, registerMetrics } from './catalogue.ts';
import type { MetricSources } from './catalogue.ts';
import { Latency } from './latency.ts';
import type { RuleNumbers } from './rule-metrics.ts';
import type { RuleStats } from '../core/rules/engine.ts';
import { Metrics, labelValue, seriesMax } from './metrics.ts';
import type { RoomsReading } from './room-metrics.ts';
import { Sampler, sampleStaleMs, takeSample } from './sale-sample.ts';
import type { SaleSample } from './sale-sample.ts';

const sample: SaleSample = {
  takenAtMs: 0,
  activities: [
    {
      activityId: 'a',
      room: { joined: 9, lobby: 5, left: 1, claimed: 3, finished: 2 },
      orders: { pending: 1, paid: 2, expired: 3, cancelled: 4, refunded: 5, released: 6 },
      skus: [
        { skuId: 's', total: 10, available: 4, held: 1, pending: 2, paid: 3, stockEpoch: 2 },
        { skuId: 't', total: 5, available: 0, held: 0, pending: 0, paid: 5, stockEpoch: 3 },
      ],
    },
  ],
  queue: {
    depth: 7,
    oldestAgeMs: 1_500,
    buried: 1,
    producedTotal: 20,
    acknowledgedTotal: 12,
    outboxOldestAgeMs: 900,
  },
};

function rooms(): RoomsReading {
  const measures = new RoomMeasures();
  const origin = { device: 'phone', ...networkOf('203.0.113.9') } as const;
  measures.joined(origin, 'ab'.repeat(32), 0.05);
  measures.joined(origin, 'ab'.repeat(32), 2);
  measures.passTaken(origin, 0.05, 1, 45_000);
  const people = { released: 2, waiting: 3, active: 1, missed: 1 };
  return { measures: measures.snapshot(), heldRatios: [0.9, 0.8], ...people };
}

const rule = (ruleId: string, more: Partial<RuleStats> = {}): RuleStats => ({
  ruleId,
  mode: 'enforce',
  admitted: 0,
  refused: 0,
  wouldRefuse: 0,
  entries: 0,
  bytes: 0,
  overflow: 0,
  penalties: 0,
  failAdmitted: 0,
  ...more,
});

const rules: RuleNumbers = {
  version: 7,
  ageMs: 250,
  stats: [
    rule('per-user', { admitted: 90, refused: 10, penalties: 1 }),
    rule('tighter', { mode: 'shadow', wouldRefuse: 4 }),
    rule('shared', { failAdmitted: 3 }),
  ],
  failPolicies: new Map([['shared', 'instance']]),
  ceilingRefused: 2,
  reloads: { applied: 5, refused: 1 },
  budgetErrors: 6,
  budgetUnknown: 1,
  leaseRemaining: 40,
  leaseWasted: 8,
  instanceScale: 1,
  quotaMisfits: ['wide'],
  emergencySpent: 9,
};

const outbound = {
  breakerState: 'half_open',
  inflight: 2,
  numbers: { attempts: 50, failures: 4, refused: { deadline: 1, rate: 0, slots: 0, breaker: 7 } },
} as const;

function scene(current: () => SaleSample | undefined = () => sample) {
  const metrics = new Metrics();
  const ledger = new Ledger(() => 0);
  const reserve = new Latency();
  const admitted = new Admitted();
  for (const skuId of ['s', 's', 't']) admitted.record({ activityId: 'a', skuId });
  const sources: MetricSources = {
    ledger: () => ledger.snapshot(),
    mode: () => 'DEGRADED',
    admitted: () => admitted.rows(),
    divergenceMs: () => 1_200,
    clockSkewMs: () => 40,
    slots: { submit: { inflight: 3, limitInForce: 100 } },
    limiters: { user: { entries: 12, overflowTotal: 1 } },
    admissionPerSecond: () => 500,
    dependencies: () => new Map([['identity_keys', outbound]]),
    retryAmplification: () => 1.05,
    repairs: () => ({ findings: new Map([['overbooked', 2]]), paymentsStuck: 3 }),
    traces: () => ({ exported: 5, failed: 1, dropped: 0 }),
    sample: current,
    rooms: () => (current() === undefined ? undefined : rooms()),
    rules: () => rules,
    budgetCalls: new Latency(),
    reserve,
  };
  registerMetrics(metrics, sources);
  return { metrics, ledger, reserve };
}

/** The text format, read back: name{labels} → value. */
function scraped(metrics: Metrics): ReadonlyMap<string, number> {
  const values = new Map<string, number>();
  for (const line of metrics.text().split('\n')) {
    if (line === '' || line.startsWith('# HELP ') || line.startsWith('# TYPE ')) continue;
    const match = /^([a-z_]+(?:\{(?:[a-z]+="[A-Za-z0-9_+.-]*",?)*\})?) (\S+)$/.exec(line);
    if (match === null) throw new Error(`no sample line: ${line}`);
    const key = match[1] ?? '';
    if (values.has(key)) throw new Error(`twice: ${key}`);
    values.set(key, Number(match[2]));
  }
  return values;
}

describe('the catalogue', () => {
  test('every metric is fed, and says what its source says', () => {
    const { metrics, ledger, reserve } = scene();
    ledger.left('shed', 'reject', 'mode');
    ledger.left('source', 'reject', 'rate_limited');
    ledger.left('sold_out', 'handle', 'flag');
    ledger.left('identify', 'reject', 'pass_expired');
    ledger.left('identify', 'reject', 'user_token_missing');
    ledger.left('reserve', 'reject', 'nonce_used');
    ledger.left('reserve', 'handle', 'replayed');
    ledger.left('reserve', 'fail', 'outcome_unknown');
    ledger.left('enqueue', 'handle', 'queued');
    ledger.left('enqueue', 'handle', 'queued');
    ledger.left('slot', 'reject', 'slots');
    reserve.record(1_000);
    const values = scraped(metrics);
    const fed = (name: string) => [...values.keys()].some((key) => key.startsWith(name));
    for (const { name } of metrics.catalogue()) expect([name, fed(name)]).toEqual([name, true]);
    expect(Object.fromEntries(values)).toMatchObject({
      'sluice_rule_decisions_total{rule="per-user",decision="admit"}': 90,
      'sluice_rule_decisions_total{rule="per-user",decision="refuse"}': 10,
      'sluice_rule_decisions_total{rule="ceiling",decision="refuse"}': 2,
      'sluice_shadow_would_reject_total{rule="tighter"}': 4,
      sluice_rule_version: 7,
      'sluice_rule_reloads_total{result="refused"}': 1,
      'sluice_fail_policy_admissions_total{policy="instance"}': 3,
      'sluice_fail_policy_admissions_total{policy="local"}': 9,
      sluice_limiter_unknown_total: 1,
      'sluice_ingress_requests_total{stage="enqueue",decision="handle",reason="queued"}': 2,
      'sluice_rejected_requests_total{stage="reserve",reason="outcome_unknown"}': 1,
      'sluice_load_shed_total{reason="mode"}': 1,
      'sluice_local_limiter_reject_total{dimension="source"}': 1,
      sluice_soldout_hits_total: 1,
      'sluice_admitted_requests_total{activity="a",sku="s"}': 2,
      'sluice_admitted_requests_total{activity="a",sku="t"}': 1,
      // Of six with a good pass, one found no slot and one no answer; what was wrong with the request is no such refusal.
      sluice_room_released_then_refused_ratio: 2 / 6,
      sluice_soldout_divergence_seconds: 1.2,
      sluice_clock_skew_seconds: 0.04,
      sluice_rules_age_seconds: 0.25,
      sluice_outbox_age_seconds: 0.9,
      'sluice_pass_verify_total{result="valid"}': 6,
      'sluice_pass_verify_total{result="expired"}': 1,
      'sluice_replay_claim_total{result="claimed"}': 2,
      'sluice_replay_claim_total{result="refused"}': 1,
      'sluice_replay_claim_total{result="repeated"}': 1,
      sluice_mode: 1,
      sluice_admission_rate_limit: 500,
      'sluice_breaker_state{dependency="identity_keys"}': 1,
      'sluice_outbound_inflight{dependency="identity_keys"}': 2,
      'sluice_outbound_attempts_total{dependency="identity_keys"}': 50,
      'sluice_outbound_failures_total{dependency="identity_keys"}': 4,
      'sluice_outbound_refused_total{dependency="identity_keys",reason="breaker"}': 7,
      sluice_retry_amplification: 1.05,
      'sluice_reconcile_findings{class="overbooked"}': 2,
      sluice_payments_stuck: 3,
      'sluice_trace_spans_total{result="failed"}': 1,
      'sluice_inflight_requests{resource="submit"}': 3,
      'sluice_inflight_limit{resource="submit"}': 100,
      'sluice_local_limiter_entries{dimension="user"}': 12,
      'sluice_local_limiter_overflow_total{dimension="user"}': 1,
      'sluice_room_entries{state="joined"}': 9,
      'sluice_room_people{state="waiting"}': 3,
      sluice_pass_issued_total: 1,
      'sluice_admission_rate_by_network_class{class="ipv4"}': 0.5,
      'sluice_admission_rate_by_device_class{class="phone"}': 0.5,
      'sluice_admission_rate_by_arrival{tenth="first"}': 1,
      'sluice_admission_rate_by_arrival{tenth="late"}': 0,
      'sluice_passes_per_user{pass="one"}': 1,
      'sluice_accounts_per_device{accounts="two"}': 1,
      sluice_success_concentration: 0,
      'sluice_room_wait_seconds_bucket{le="30"}': 0,
      'sluice_room_wait_seconds_bucket{le="60"}': 1,
      sluice_room_wait_seconds_sum: 45,
      sluice_eta_held_ratio: 0.8,
      sluice_requests_per_released_person: 0,
      'sluice_stock{state="total"}': 15,
      'sluice_stock{state="paid"}': 8,
      sluice_stock_epoch: 5,
      sluice_stock_reopened_total: 2,
      'sluice_orders_total{state="released"}': 6,
      sluice_queue_depth: 7,
      sluice_queue_age_seconds: 1.5,
      'sluice_queue_consumed_total{result="settled"}': 12,
      'sluice_queue_consumed_total{result="buried"}': 1,
      sluice_reserve_seconds_count: 1,
      sluice_reserve_seconds_sum: 0.001,
      'sluice_reserve_seconds_bucket{le="0.000512"}': 0,
      'sluice_reserve_seconds_bucket{le="0.001024"}': 1,
      'sluice_reserve_seconds_bucket{le="+Inf"}': 1,
    });
  });

  test('no data is absent, not zero', () => {
    const metrics = scene(() => undefined).metrics;
    const values = scraped(metrics);
    expect(
      [...values.keys()].filter(
        (key) =>
          !/fail_policy|rate_limit|admitted_requests|divergence/.test(key) &&
          /room|stock|orders|queue|admission|eta|passes/.test(key),
      ),
    ).toEqual([]);
    expect(metrics.text()).toContain('# TYPE sluice_queue_depth gauge');
  });

  test('docs/METRICS.md lists every metric with its kind and labels, and no other', () => {
    const rows = readFileSync('docs/METRICS.md', 'utf8')
      .split('\n')
      .filter((line) => line.startsWith('| `sluice_'));
    const expected = metricsTable()
      .split('\n')
      .filter((line) => line.startsWith('| `sluice_'));
    expect(expected).toHaveLength(scene().metrics.catalogue().length);
    expect(rows).toEqual(expected);
  });
});

describe('labels', () => {
  test('property: nothing that looks like an id, a token, an address or a sentence becomes one', () => {
    const strange = fc.oneof(
      fc.ipV4(),
      fc.ipV6(),
      fc.emailAddress(),
      fc.string({ minLength: 65 }),
      fc.constantFrom('a b', '', 'x"y', 'x\n', 'a.b.c', 'rsv_0123456789abcdefghijkl', '7up', '名'),
    );
    fc.assert(
      fc.property(strange, (text) => {
        expect(labelValue(text)).toBe('other');
      }),
    );
    for (const word of ['sold_out', 'REJECT', 'pass-1']) expect(labelValue(word)).toBe(word);
  });

  test('an attack on the number of series ends in `other`, and no count is lost', () => {
    const metrics = new Metrics();
    metrics.counter({ name: 'sluice_x_total', help: 'x', labels: ['a'] }, (tell) => {
      for (let n = 0; n < 100_000; n += 1) tell(1, `word${n}`);
    });
    const values = scraped(metrics);
    expect(values.size).toBe(seriesMax);
    expect(values.get('sluice_x_total{a="other"}')).toBe(100_000 - (seriesMax - 1));
  });

  test('an endless row of SKUs is counted apart up to its bound, and no admission is lost', () => {
    const admitted = new Admitted(3);
    for (let n = 0; n < 10; n += 1) admitted.record({ activityId: 'a', skuId: `s${n}` });
    admitted.record({ activityId: 'a', skuId: 's1' });
    const rows = [...admitted.rows()];
    expect(rows.map(({ skuId, count }) => [skuId, count])).toEqual([
      ['s0', 1],
      ['s1', 2],
      ['s2', 1],
      ['other', 7],
    ]);
  });

  test('labels that were not declared are a defect', () => {
    const metrics = new Metrics();
    metrics.gauge({ name: 'sluice_y', help: 'y', labels: ['a'] }, (tell) => tell(1, 'b', 'c'));
    expect(() => metrics.text()).toThrow('2 labels given, 1 declared');
  });

  test('names are ours and registered once', () => {
    const metrics = new Metrics();
    const read = () => undefined;
    metrics.gauge({ name: 'sluice_y', help: 'a\nb', labels: [] }, read);
    expect(metrics.text()).toBe('# HELP sluice_y a\\nb\n# TYPE sluice_y gauge\n');
    expect(() => metrics.gauge({ name: 'sluice_y', help: '', labels: [] }, read)).toThrow('twice');
    expect(() => metrics.gauge({ name: 'Y y', help: '', labels: [] }, read)).toThrow('"Y y"');
  });
});

describe('the sampler', () => {
  const activity = { activityId: 'a', skus: [{ skuId: 's' }, { skuId: 'gone' }] };
  const stores = {
    admission: { counts: () => Promise.resolve(sample.activities[0]!.room) },
    orders: {
      counts: () => Promise.resolve(sample.activities[0]!.orders),
      stock: () => Promise.resolve({ total: 10, sold: 5, paid: 3, generation: 1, stopped: false }),
    },
    queue: { backlog: () => Promise.resolve(sample.queue) },
    inventory: {
      mark: ({ skuId }: { skuId: string }) =>
        Promise.resolve(
          skuId === 'gone'
            ? undefined
            : {
                total: 10,
                available: 4,
                held: 1,
                ordered: 5,
                sequence: 1,
                generation: 1,
                stockEpoch: 2,
                paused: false,
              },
        ),
    },
  };

  test('asks every store; what is not loaded is not told', async () => {
    const taken = await takeSample(stores, [activity as unknown as Activity], 5);
    expect(taken.activities[0]?.skus).toEqual([
      { skuId: 's', total: 10, available: 4, held: 1, pending: 2, paid: 3, stockEpoch: 2 },
    ]);
    expect(taken.takenAtMs).toBe(5);
  });

  function sampler(take: () => Promise<SaleSample>) {
    const world = new World();
    const errors: unknown[] = [];
    const made = new Sampler({
      take,
      clock: world,
      timers: world,
      periodMs: 1_000,
      onError: (error) => errors.push(error),
    });
    return { world, errors, sampler: made };
  }

  test('keeps the last one, and forgets it when it is stale', async () => {
    let fail = false;
    const {
      world,
      errors,
      sampler: one,
    } = sampler(() => (fail ? Promise.reject(new Error('away')) : Promise.resolve(sample)));
    expect(one.current).toBeUndefined();
    await world.advance(1_000);
    expect(one.current).toBe(sample);
    fail = true;
    await world.advance(sampleStaleMs);
    expect(one.current).toBe(sample);
    await world.advance(1);
    expect(one.current).toBeUndefined();
    expect(errors.length).toBeGreaterThan(5);
    await one.close();
  });

  test('a store that hangs is asked once, and closing waits for its answer', async () => {
    let asked = 0;
    let answer: (taken: SaleSample) => void = () => undefined;
    const { world, sampler: one } = sampler(() => {
      asked += 1;
      return new Promise((resolve) => {
        answer = resolve;
      });
    });
    await world.advance(5_000);
    expect(asked).toBe(1);
    let closed = false;
    const closing = one.close().then(() => {
      closed = true;
    });
    await world.advance(1_000);
    expect(closed).toBe(false);
    answer(sample);
    await closing;
    expect(asked).toBe(1);
  });
});
