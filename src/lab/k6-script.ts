import type { Arrivals } from './rush/arrivals.ts';
import type { RushOptions } from './rush/options.ts';

/**
 * The same crowd for k6 (https://k6.io), whose users may have load machines and dashboards already.
 *
 * k6 has no wheel of wake-ups: a virtual user sleeps while it waits, so it needs one for everybody
 * who is in the room at once. Arrivals are an open model there too (arrival-rate executors).
 * Behaviour is that of people: bots that attack and the witness's bookkeeping stay with `sluice rush`,
 * which is what judges a run; the script's own checks are those that one person can make.
 */
export function k6Script(options: RushOptions, arrivals: Arrivals, target: string): string {
  const { scenario, seed, people, overMs } = options;
  const stages = stagesOf(arrivals, people, overMs);
  const settings = {
    target,
    activity: options.activity ?? null,
    seed,
    duplicates: scenario.duplicates,
    timeouts: scenario.timeouts,
    abandons: scenario.abandons,
    cancels: scenario.cancels,
    impatient: scenario.impatient,
    hopeful: scenario.hopeful,
    retry: scenario.retry,
  };
  const executor = {
    executor: 'ramping-arrival-rate',
    timeUnit: '1s',
    startRate: stages[0]?.target ?? 0,
    preAllocatedVUs: Math.min(people, 1_000),
    maxVUs: people,
    gracefulStop: '180s',
    stages,
  };
  return `${header(options)}
import http from 'k6/http';
import { check, sleep } from 'k6';
import { Counter, Trend } from 'k6/metrics';

const settings = ${JSON.stringify(settings, undefined, 2)};

export const options = {
  scenarios: { crowd: ${JSON.stringify(executor, undefined, 2)} },
  thresholds: { checks: ['rate==1'], sluice_two_reservations: ['count==0'] },
};
${body}`;
}

interface Stage {
  readonly duration: string;
  readonly target: number;
}

/** Most stages in a script; a longer schedule gets coarser steps. */
const stagesMax = 120;

/**
 * The schedule as arrival rates. k6 ramps between targets, so each step is a jump and a hold; the sum
 * of arrivals is that of the schedule but for rounding.
 */
function stagesOf(arrivals: Arrivals, people: number, overMs: number): Stage[] {
  const steps = Math.max(1, Math.min(stagesMax / 2, Math.ceil(overMs / 1000)));
  const stepMs = overMs / steps;
  const counts = Array.from({ length: steps }, () => 0);
  for (let person = 0; person < people; person += 1) {
    const at = Math.min(steps - 1, Math.floor((arrivals.atMs[person] ?? 0) / stepMs));
    counts[at] = (counts[at] ?? 0) + 1;
  }
  return counts.flatMap((count) => {
    const target = Math.round((count * 1000) / stepMs);
    return [
      { duration: '0s', target },
      { duration: `${Math.round(stepMs)}ms`, target },
    ];
  });
}

function header(options: RushOptions): string {
  const { scenarioName, scenario, people, overMs, seed } = options;
  return `// Made by \`sluice export k6\`: ${people} people over ${overMs / 1000} s, scenario ${scenarioName} (${scenario.about}), seed ${seed}.
// Run it with: k6 run FILE     Another target: k6 run -e TARGET=https://shop.example FILE`;
}

/** The life of one person. Everything here runs inside k6: no Node, no dependencies. */
const body = String.raw`
const target = (__ENV.TARGET || settings.target).replace(/\/+$/, '');
const reservedMs = new Trend('sluice_admitted_submit', true);
const outcomes = new Counter('sluice_outcomes');
const twoReservations = new Counter('sluice_two_reservations');

// A person's character is a function of seed and person, as in sluice rush.
function roll(person, question) {
  let h = Math.imul(person ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(question, 0xc2b2ae35) ^ Math.imul(settings.seed + 1, 0x27d4eb2f);
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 4294967296;
}

function json(response) {
  try {
    return response.json() || {};
  } catch (error) {
    return {};
  }
}

// When to come back, in seconds: as told, or in the manner that the scenario is about.
function backOff(response, tries) {
  if (settings.retry === 'fixed_100ms') return 0.1;
  if (settings.retry === 'full_jitter') return Math.random() * Math.min(10, 0.2 * 2 ** tries);
  const told = json(response).retry_after_ms;
  const base = typeof told === 'number' ? told / 1000 : Math.min(10, 0.25 * 2 ** tries);
  return base * (1 + 0.3 * Math.random());
}

function end(outcome) {
  outcomes.add(1, { outcome });
}

export function setup() {
  const { activities } = json(http.get(target + '/v1/activities'));
  const sale = (activities || []).find((one) => !settings.activity || one.activity_id === settings.activity);
  if (!sale) throw new Error('no such activity at ' + target);
  return { activity: sale.activity_id, sku: sale.skus[0].sku_id };
}

export default function person(sale) {
  const number = (__VU - 1) * 100000 + __ITER;
  const address = '100.' + (64 + ((number >> 16) & 63)) + '.' + ((number >> 8) & 255) + '.' + (number & 255);
  const headers = { 'Content-Type': 'application/json', 'X-Forwarded-For': address };
  const room = target + '/v1/activities/' + sale.activity;
  const call = (method, url, body, name) => {
    for (let tries = 0; ; tries += 1) {
      const response = http.request(method, url, body === null ? null : JSON.stringify(body), {
        headers,
        tags: { name },
      });
      const again = response.status === 0 || response.status === 429 || response.status === 503;
      if (!again || tries >= 20) return response;
      sleep(backOff(response, tries));
    }
  };

  const session = json(call('POST', target + '/v1/session', {}, 'session'));
  if (!session.token) return end('rejected');
  headers.Authorization = 'Bearer ' + session.token;
  headers['Sluice-Device'] = 'k6-' + number;
  const joined = json(call('POST', room + '/entries', { sku_ids: [sale.sku] }, 'join'));
  if (joined.entry_token) headers['Sluice-Entry'] = joined.entry_token;

  // The room.
  let standing = joined;
  let waited = 0;
  const patience = roll(number, 1) < settings.impatient ? 2 + 18 * roll(number, 2) : 180;
  while (standing.state !== 'admitted' && standing.state !== 'claimed') {
    const gone = standing.state === 'sold_out' || standing.sell_through === 'gone_for_now';
    if (gone && roll(number, 3) >= settings.hopeful) return end('sold_out');
    if (standing.state === 'closed' || standing.state === 'not_drawn') return end('not_admitted');
    if (waited > patience) return end(gone ? 'sold_out' : 'gave_up');
    const pause = Math.max(0.1, (standing.next_poll_after_ms || 1000) / 1000);
    sleep(pause);
    waited += pause;
    standing = json(call('GET', room + '/entries/me', null, 'poll'));
  }

  const pass = json(call('POST', room + '/passes', { sku_id: sale.sku }, 'pass'));
  if (!pass.pass) return end('not_admitted');
  sleep(0.2 * Math.random());

  // The button, once or twice, always with one request id.
  const id = 'k6-' + settings.seed + '-' + number;
  const submit = () =>
    http.post(
      target + pass.submit_path,
      JSON.stringify({ request_id: id, activity_id: sale.activity, sku_id: sale.sku, quantity: 1 }),
      {
        headers: Object.assign({ 'Sluice-Pass': pass.pass, 'Idempotency-Key': id }, headers),
        tags: { name: 'submit' },
        timeout: '15s',
      },
    );
  const answers = [submit()];
  if (roll(number, 4) < settings.duplicates || roll(number, 5) < settings.timeouts) answers.push(submit());
  for (let tries = 0; answers.every((one) => one.status === 0 || one.status === 429 || one.status === 503); tries += 1) {
    if (tries >= 20) return end('rejected');
    sleep(backOff(answers[answers.length - 1], tries));
    answers.push(submit());
  }
  const reservations = {};
  for (const answer of answers) {
    const { reservation_id } = json(answer);
    if (reservation_id) reservations[reservation_id] = true;
    if (answer.status === 202) reservedMs.add(answer.timings.duration);
  }
  if (Object.keys(reservations).length > 1) twoReservations.add(1);
  const decisive = answers.map(json).find((one) => one.reservation_id) || json(answers[answers.length - 1]);
  if (!decisive.reservation_id) return end(decisive.state === 'SOLD_OUT' ? 'sold_out' : 'rejected');

  // What became of it.
  const where = target + '/v1/requests/' + id + '?activity_id=' + sale.activity + '&sku_id=' + sale.sku;
  let outcome = decisive;
  for (let asked = 0; asked < 200 && (outcome.state === 'QUEUED' || outcome.state === 'UNKNOWN'); asked += 1) {
    sleep((outcome.next_poll_after_ms || 500) / 1000);
    outcome = json(call('GET', where, null, 'status'));
  }
  check(outcome, { 'everyone told QUEUED is told an outcome': (o) => !!o.state && o.state !== 'QUEUED' && o.state !== 'UNKNOWN' });
  if (outcome.state !== 'ORDERED' || !outcome.order_id) return end(String(outcome.state || 'unknown').toLowerCase());
  const mood = roll(number, 6);
  if (mood < settings.abandons) return end('ordered');
  sleep(0.4);
  const order = target + '/v1/orders/' + outcome.order_id;
  if (mood < settings.abandons + settings.cancels) call('DELETE', order, null, 'cancel');
  else call('POST', order + '/pay', {}, 'pay');
  for (let asked = 0; asked < 40 && outcome.state === 'ORDERED'; asked += 1) {
    sleep(0.3);
    outcome = json(call('GET', where, null, 'status'));
  }
  end(String(outcome.state || 'unknown').toLowerCase());
}
`;
