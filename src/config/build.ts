import type { Sku } from '../core/activity.ts';
import { perSecond } from '../core/limit/rate.ts';
import { judgeRules } from '../core/rules/judge.ts';
import { readRules } from '../core/rules/read.ts';
import type { Report } from './check.ts';
import { instantMs } from './config.ts';
import type {
  ActivityPlan,
  BudgetOptions,
  Config,
  IdentityOptions,
  PlannedInstant,
  RulesChoice,
  ServerOptions,
  StoreOptions,
} from './config.ts';
import { quoted } from './problems.ts';
import { ruleContext } from './rule-context.ts';
import type { Written, WrittenActivity } from './schema.ts';
import type { Path } from './source.ts';
import {
  formatDuration,
  localInstantMs,
  parseDurationMs,
  parseInstant,
  parseNetwork,
  parsePrice,
  parseQueue,
  parseRedis,
  readRate,
  withoutLogin,
} from './values.ts';

/** Longest that stock may be locked without payment. */
const paymentMaxMs = 30 * 60_000;
const paymentGraceMaxMs = 15 * 60_000;
const claimWindowMaxMs = 30 * 60_000;
const passLifeMaxMs = 10 * 60_000;

/**
 * From texts to values, and the rules that hold between settings. A part that did not pass the
 * schema (`clean` says so) is left out, so that everything that can be judged is judged at once;
 * the result is whole only when nothing was reported. Where a text passed and does not parse, that
 * is a defect, and throws.
 * @param nowMs for sales that mix instants and times relative to the start
 */
export function buildConfig(
  written: Written,
  report: Report,
  clean: (path: Path) => boolean,
  nowMs: number,
): Config | undefined {
  const server = clean(['server']) ? buildServer(written, report) : undefined;
  const stores = clean(['stores']) ? buildStores(written, report) : undefined;
  const identity = clean(['identity']) ? buildIdentity(written, report) : undefined;
  const budgets = clean(['budgets']) ? buildBudgets(written) : undefined;
  reportRepeats(written.activities, ['activities'], report);
  const activities = written.activities.flatMap((one, at) => {
    const path = ['activities', at];
    reportRepeats(one.skus, [...path, 'skus'], report);
    return buildActivity(one, path, report, clean, nowMs) ?? [];
  });
  if (written.challenge_provider === undefined) {
    activities.forEach(({ room }, at) => {
      if (room.challenge?.kind !== 'callback') return;
      const path = ['activities', at, 'room', 'challenge'];
      report(path, 'callback without challenge_provider', 'challenge_provider with url and secret');
    });
  }
  if (!server || !stores || !identity || !budgets || !clean([])) return undefined;
  const rules = buildRules(written, { server, activities, budgets }, report);
  const { challenge_provider: challengeProvider } = written;
  return {
    server,
    dataFolder: written.data,
    stores,
    identity,
    activities,
    budgets,
    rules,
    ...(challengeProvider === undefined ? {} : { challengeProvider }),
    pages: written.pages.theme === undefined ? {} : { themeFile: written.pages.theme },
    overload: {
      adaptive: written.overload.adaptive,
      setpointMs: written.overload.setpoint_ms,
      start: written.overload.start,
      ceilings: written.overload.inflight,
    },
    telemetry: {
      logLevel: written.telemetry.log_level,
      ...(written.telemetry.otlp_endpoint === undefined
        ? {}
        : { otlpEndpoint: written.telemetry.otlp_endpoint }),
      traceRatio: written.telemetry.trace_per_mille / 1_000,
    },
  };
}

/** Two of the same id: the second is the one that is wrong. */
function reportRepeats(
  items: readonly { readonly id: string }[],
  path: Path,
  report: Report,
): void {
  const seen = new Map<string, number>();
  for (const [at, item] of items.entries()) {
    // An item that did not pass the schema may be anything.
    if (typeof item.id !== 'string') continue;
    const first = seen.get(item.id);
    if (first === undefined) seen.set(item.id, at);
    else
      report(
        [...path, at, 'id'],
        `${quoted(item.id)} again`,
        `an id of its own: ${String(path.at(-1))}[${first}] has this one`,
      );
  }
}

function buildServer({ server }: Written, report: Report): ServerOptions {
  if (server.port === server.admin_port && server.port !== 0 && server.host === server.admin_host)
    report(
      ['server', 'admin_port'],
      `${server.admin_port}, which is server.port too`,
      'another port, or 0 for any free one',
    );
  return {
    host: server.host,
    port: server.port,
    adminHost: server.admin_host,
    adminPort: server.admin_port,
    trustedProxies: server.trusted_proxies.map((text) => sure(parseNetwork(text), text)),
    region: server.region,
    ceiling: sure(readRate(server.ceiling), server.ceiling),
    canary: server.canary,
    maxConnections: server.max_connections,
  };
}

function buildStores({ stores }: Written, report: Report): StoreOptions {
  const place = (text: string): StoreOptions['admission'] =>
    text === 'memory' ? { kind: 'memory' } : sure(parseRedis(text), withoutLogin(text));
  const inventory = place(stores.inventory);
  const queue = sure(parseQueue(stores.queue), withoutLogin(stores.queue));
  if (inventory.kind === 'memory' && queue.kind !== 'memory')
    report(
      ['stores', 'queue'],
      `${withoutLogin(stores.queue)} with inventory: memory`,
      'memory, or an inventory in Redis: the message is written in the same step as the reservation, so both begin in one store',
    );
  if (inventory.kind === 'redis' && queue.kind === 'memory')
    report(
      ['stores', 'queue'],
      'memory with an inventory in Redis',
      'redis-streams, or a broker: the message is written in the same step as the reservation, so both begin in one store',
    );
  return {
    admission: place(stores.admission),
    inventory,
    orders:
      stores.orders === 'pglite' ? { kind: 'pglite' } : { kind: 'postgres', url: stores.orders },
    queue,
    prefix: stores.prefix,
    fsync: stores.fsync,
  };
}

function buildBudgets({ budgets }: Written): BudgetOptions {
  return {
    backlogMax: budgets.backlog,
    submit: sure(readRate(budgets.submit), budgets.submit),
    maxInstances: budgets.max_instances,
    emergency: budgets.emergency,
  };
}

/** Rules have a reader and a judge of their own; what they say is told as everything else is. */
function buildRules(
  written: Written,
  deployment: Pick<Config, 'server' | 'activities' | 'budgets'>,
  report: Report,
): RulesChoice {
  const { rules, rules_file: path } = written;
  if (rules !== undefined && rules !== null && path !== undefined)
    report(['rules_file'], 'rules_file beside rules', 'one of the two', 'key');
  if (path !== undefined) return { kind: 'file', path };
  if (rules === undefined || rules === null) return { kind: 'default' };
  const { set, problems } = readRules(rules, ['rules']);
  const list = Array.isArray(rules) ? ['rules'] : ['rules', 'rules'];
  const judged = judgeRules(set, ruleContext(deployment), list);
  for (const { path: at, found, allowed } of [...problems, ...judged.problems])
    report(at, found, allowed, found.startsWith('unknown key') ? 'key' : 'value');
  return { kind: 'written', set };
}

function sure<Value>(value: Value | undefined, text: string): Value {
  if (value === undefined) throw new Error(`passed the schema and does not parse: ${quoted(text)}`);
  return value;
}

function buildIdentity({ identity }: Written, report: Report): IdentityOptions {
  const claims = { userClaim: identity.user_claim, personClaim: identity.person_claim };
  const { jwks_url: jwksUrl, secret, issuer, audience } = identity;
  if (identity.mode === 'demo') {
    for (const key of ['jwks_url', 'secret', 'issuer', 'audience'] as const) {
      if (identity[key] !== undefined)
        report(['identity', key], `${key} with mode: demo`, 'mode: jwt, or leave it out', 'key');
    }
    return { mode: 'demo', demoAnywhere: identity.demo_anywhere, ...claims };
  }
  if (identity.demo_anywhere)
    report(['identity', 'demo_anywhere'], 'true with mode: jwt', 'mode: demo, or leave it out');
  if ((jwksUrl === undefined) === (secret === undefined))
    report(
      ['identity', 'mode'],
      jwksUrl === undefined ? 'jwt without keys' : 'jwt with both jwks_url and secret',
      'jwt with exactly one of jwks_url, secret',
    );
  return {
    mode: 'jwt',
    keys: secret === undefined ? { jwksUrl: jwksUrl ?? '' } : { secret },
    ...(issuer === undefined ? {} : { issuer }),
    ...(audience === undefined ? {} : { audience }),
    allowedPrivate: identity.allowed_private.map((text) => sure(parseNetwork(text), text)),
    ...claims,
  };
}

function buildActivity(
  written: WrittenActivity,
  path: Path,
  report: Report,
  clean: (path: Path) => boolean,
  nowMs: number,
): ActivityPlan | undefined {
  const within = (...keys: string[]): boolean => keys.every((key) => clean([...path, key]));
  const times = within('lobby_opens_at', 'opens_at', 'closes_at', 'time_zone')
    ? buildTimes(written, path, report, nowMs)
    : undefined;
  const room = within('room') ? buildRoom(written.room, [...path, 'room'], report) : undefined;
  const payment = within('payment')
    ? buildPayment(written.payment, [...path, 'payment'], report)
    : undefined;
  if (times === undefined || room === undefined || payment === undefined || !clean(path))
    return undefined;
  return {
    activityId: written.id,
    name: written.name,
    revision: written.revision,
    activityVersion: written.version,
    timeZone: written.time_zone,
    skus: written.skus.map((one, at) => skuOf(one, [...path, 'skus', at], report)),
    room,
    ...times,
    ...payment,
  };
}

function buildRoom(
  room: WrittenActivity['room'],
  path: Path,
  report: Report,
): ActivityPlan['room'] {
  const wholePerSecond = (key: 'max_admissions' | 'poll_budget', what: string): number => {
    const amount = perSecond(sure(readRate(room[key]), room[key]));
    if (!Number.isInteger(amount) || amount < 1)
      report(
        [...path, key],
        quoted(room[key]),
        `a whole number of ${what} per second, at least 1/s`,
      );
    return amount;
  };
  const { lottery_places: lotteryPlaces } = room;
  if ((room.mode === 'lottery') !== (lotteryPlaces !== undefined))
    report(
      [...path, lotteryPlaces === undefined ? 'mode' : 'lottery_places'],
      lotteryPlaces === undefined ? 'lottery without lottery_places' : `with mode: ${room.mode}`,
      'mode: lottery and lottery_places together, or neither',
      lotteryPlaces === undefined ? 'value' : 'key',
    );
  const quota = buildQuota(room, path, report);
  const { weight_claim: weightClaim, group_claim: groupClaim, beacon } = room;
  if (weightClaim !== undefined && room.mode !== 'weighted')
    report([...path, 'weight_claim'], `with mode: ${room.mode}`, 'mode: weighted', 'key');
  return {
    mode: room.mode,
    passLifeMs: boundedMs(room.pass_life, [...path, 'pass_life'], report, 1_000, passLifeMaxMs),
    claimWindowMs: boundedMs(
      room.claim_window,
      [...path, 'claim_window'],
      report,
      1_000,
      claimWindowMaxMs,
    ),
    maxAdmissionsPerSecond: wholePerSecond('max_admissions', 'people'),
    maxActive: room.max_active,
    pollsPerSecond: wholePerSecond('poll_budget', 'questions'),
    bindDevice: room.bind_device,
    ...(lotteryPlaces === undefined ? {} : { lotteryPlaces }),
    ...(weightClaim === undefined ? {} : { weightClaim }),
    ...(groupClaim === undefined ? {} : { groupClaim }),
    ...(quota === undefined ? {} : { quota }),
    ...(beacon === undefined ? {} : { beacon }),
    ...buildChallenge(room, path, report),
  };
}

/** How hard a proof of work is for whom nothing speaks against, and how much harder for others, bits. */
const challengeBitsDefault = 14;
const challengeSpreadBits = 6;

function buildChallenge(
  room: WrittenActivity['room'],
  path: Path,
  report: Report,
): Pick<ActivityPlan['room'], 'challenge'> {
  const { challenge_bits: bits } = room;
  const kind = room.challenge ?? (bits === undefined ? undefined : 'proof_of_work');
  if (kind === undefined) return {};
  if (kind === 'callback') {
    if (bits !== undefined)
      report(
        [...path, 'challenge_bits'],
        'challenge_bits with challenge: callback',
        'challenge: proof_of_work, or leave it out',
        'key',
      );
    return { challenge: { kind } };
  }
  const minBits = bits ?? challengeBitsDefault;
  return { challenge: { kind, minBits, maxBits: minBits + challengeSpreadBits } };
}

/** A quota needs its groups and the claim that names them, and nothing else does. */
function buildQuota(
  room: WrittenActivity['room'],
  path: Path,
  report: Report,
): ActivityPlan['room']['quota'] {
  const together = 'mode: quota, quota and group_claim together, or none of them';
  for (const key of ['quota', 'group_claim'] as const) {
    if (room.mode === 'quota' && room[key] === undefined)
      report([...path, 'mode'], `quota without ${key}`, together);
    if (room.mode !== 'quota' && room[key] !== undefined)
      report([...path, key], `with mode: ${room.mode}`, together, 'key');
  }
  if (room.quota === undefined) return undefined;
  const places: Record<string, number> = {};
  room.quota.forEach(({ group, places: count }, at) => {
    if (Object.hasOwn(places, group))
      report([...path, 'quota', at, 'group'], `${quoted(group)} twice`, 'each group once');
    places[group] = count;
  });
  return { places, leftover: room.leftover };
}

function buildPayment(
  { deadline, grace }: WrittenActivity['payment'],
  path: Path,
  report: Report,
): Pick<ActivityPlan, 'paymentDeadlineMs' | 'paymentGraceMs'> {
  return {
    paymentDeadlineMs: boundedMs(deadline, [...path, 'deadline'], report, 1_000, paymentMaxMs),
    paymentGraceMs: boundedMs(grace, [...path, 'grace'], report, 0, paymentGraceMaxMs),
  };
}

function boundedMs(
  text: string,
  path: Path,
  report: Report,
  leastMs: number,
  mostMs: number,
): number {
  const ms = sure(parseDurationMs(text), text);
  if (ms < leastMs || ms > mostMs)
    report(path, quoted(text), `${formatDuration(leastMs)} to ${formatDuration(mostMs)}`);
  return ms;
}

function skuOf(one: WrittenActivity['skus'][number], path: Path, report: Report): Sku {
  const { seats } = one;
  if (seats !== undefined) {
    const twice = repeatedOf(seats);
    if (twice !== undefined) report([...path, 'seats'], `${quoted(twice)} twice`, 'each seat once');
    if (seats.length !== one.stock)
      report([...path, 'stock'], String(one.stock), `${seats.length}, as many as there are seats`);
    if (one.shards > 1)
      report([...path, 'shards'], String(one.shards), '1 with seats: they lie in one place');
  }
  return {
    skuId: one.id,
    name: one.name,
    price: sure(parsePrice(one.price), one.price),
    stock: one.stock,
    maxPerPerson: one.max_per_person,
    ...(seats === undefined ? {} : { seats }),
    ...(one.shards === 1 ? {} : { shards: one.shards }),
  };
}

function repeatedOf(words: readonly string[]): string | undefined {
  const seen = new Set<string>();
  return words.find((word) => seen.size === seen.add(word).size);
}

/** Clock times become instants here; relative times stay relative. */
function readInstant(text: string, zone: string, path: Path, report: Report): PlannedInstant {
  const instant = sure(parseInstant(text), text);
  if (instant.kind !== 'local') return instant;
  const atMs = localInstantMs(instant.fields, zone);
  if (atMs === undefined)
    report(
      path,
      `${quoted(text)}, which clocks in ${zone} show twice or never`,
      'the same with its offset, such as +01:00 at the end',
    );
  return { kind: 'absolute', atMs: atMs ?? 0 };
}

function buildTimes(
  written: WrittenActivity,
  path: Path,
  report: Report,
  nowMs: number,
): Pick<ActivityPlan, 'lobbyOpensAt' | 'opensAt' | 'closesAt'> {
  const read = (key: 'lobby_opens_at' | 'opens_at' | 'closes_at'): PlannedInstant =>
    readInstant(written[key], written.time_zone, [...path, key], report);
  const times = {
    lobbyOpensAt: read('lobby_opens_at'),
    opensAt: read('opens_at'),
    closesAt: read('closes_at'),
  };
  const opensAtMs = instantMs(times.opensAt, nowMs);
  const opens = quoted(written.opens_at);
  if (instantMs(times.lobbyOpensAt, nowMs) > opensAtMs)
    report(
      [...path, 'lobby_opens_at'],
      quoted(written.lobby_opens_at),
      `not after opens_at, which is ${opens}`,
    );
  if (instantMs(times.closesAt, nowMs) <= opensAtMs)
    report([...path, 'closes_at'], quoted(written.closes_at), `after opens_at, which is ${opens}`);
  return times;
}
