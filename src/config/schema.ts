import { Type } from 'typebox';
import type { Static } from 'typebox';
import { backlogCeilingDefault, quantityMax } from '../core/bounds.ts';
import { shardsMax } from '../core/stock/shards.ts';
import { choice, closed, port, text } from './schema-parts.ts';
import { room } from './schema-room.ts';
import type { KindName } from './values.ts';

/**
 * The configuration file, as data: what may stand where, what it means, and what holds when it is
 * left out. One description serves the checker, `sluice config schema` for editors, and
 * docs/CONFIG.md (compared by a test, both ways).
 *
 * A property with a `default` may be left out, and is present after checking; one that is `Optional`
 * may be absent; any other must be written. `x-kind` names a language of values.ts; `x-secret` marks
 * what is never shown, `x-url` what is shown without its password.
 */

const server = Type.Object(
  {
    host: text('host', 'Where the shop listens.', { default: '127.0.0.1' }),
    port: port('Port of the shop; 0 takes any free one.', 8080),
    admin_host: text('host', 'Where the operator page and `/metrics` listen.', {
      default: '127.0.0.1',
    }),
    admin_port: port('Port of the operator page; 0 takes any free one.', 9090),
    trusted_proxies: Type.Array(text('network', 'A proxy, or a network of proxies.'), {
      maxItems: 64,
      default: [],
      description:
        'Whose `X-Forwarded-For` is believed, hop by hop from the nearest; from anybody else it is ignored.',
    }),
    region: text('id', 'Name of this region; stands in passes.', { default: 'default' }),
    ceiling: text(
      'rate',
      'Hard limit of this process, before anything else is looked at. No rule can raise it.',
      { default: '20000/s' },
    ),
    canary: Type.Boolean({
      default: false,
      description:
        'This process runs beside the others for a while, with another share of the traffic: its instance limits follow that share, and its refusals say `gray: true`.',
    }),
    max_connections: Type.Integer({
      minimum: 16,
      maximum: 1_000_000,
      default: 20_000,
      description: 'Open connections in total; more are closed at once.',
    }),
  },
  { ...closed, default: {}, description: 'Listening, and the limits of this process.' },
);

const stores = Type.Object(
  {
    admission: text(
      'memory_or_redis',
      'Entries, claims, limits, and what processes tell each other. `memory` is journaled in the data folder, and of one process alone.',
      { default: 'memory', 'x-url': true },
    ),
    inventory: text(
      'memory_or_redis',
      'Stock and reservations; its server must not evict (`maxmemory-policy noeviction`). `memory` is journaled in the data folder, and of one process alone.',
      { default: 'memory', 'x-url': true },
    ),
    orders: text(
      'pglite_or_postgres',
      'Orders, payments, audit, and who leads. `pglite` is PostgreSQL in the data folder, and of one process alone.',
      { default: 'pglite', 'x-url': true },
    ),
    queue: text(
      'queue',
      'From reservation to order. The message is written in the same step as the reservation, so it begins where the inventory lies: `memory` with `memory`; with Redis it stays there (`redis-streams`), or workers move it on to a broker.',
      { default: 'memory', 'x-url': true },
    ),
    prefix: text(
      'id',
      'First part of every key in Redis: two deployments on one server need two.',
      {
        default: 'sluice',
      },
    ),
    fsync: choice(
      ['always', 'os'],
      '`always`: on disk before the answer, so that even a power cut loses nothing answered. `os`: handed to the operating system, so that a killed process loses nothing.',
      'always',
    ),
  },
  { ...closed, default: {}, description: 'Where things are kept.' },
);

const identity = Type.Object(
  {
    mode: choice(
      ['demo', 'jwt'],
      '`demo`: the shop hands out its own users. `jwt`: users bring a token of yours.',
      'demo',
    ),
    demo_anywhere: Type.Boolean({
      default: false,
      description: 'Hand out demo users to other machines than this one too.',
    }),
    jwks_url: Type.Optional(text('url', 'Where your public keys are, for `jwt`.')),
    secret: Type.Optional(
      Type.String({
        minLength: 32,
        maxLength: 1024,
        'x-secret': true,
        description: 'Shared secret (HS256) for `jwt`, in place of `jwks_url`.',
      }),
    ),
    issuer: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 255,
        description: 'The `iss` that tokens must name.',
      }),
    ),
    audience: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 255,
        description: 'The `aud` that tokens must name.',
      }),
    ),
    allowed_private: Type.Array(text('network', 'A private address, or a network of them.'), {
      maxItems: 64,
      default: [],
      description:
        'Private networks in which `jwks_url` may lie; without an entry here none is called, whatever its name resolves to.',
    }),
    user_claim: Type.String({
      minLength: 1,
      maxLength: 64,
      default: 'sub',
      description: 'Claim that names the user.',
    }),
    person_claim: Type.String({
      minLength: 1,
      maxLength: 64,
      default: 'sub',
      description:
        'Claim that purchase limits count, such as the digest of an identity document; one person, one place, one limit.',
    }),
  },
  { ...closed, default: {}, description: 'Who is asking.' },
);

const sku = Type.Object(
  {
    id: text('id', 'Id of the SKU, unique in its activity.'),
    name: Type.String({ minLength: 1, maxLength: 120, description: 'What buyers read.' }),
    stock: Type.Integer({
      minimum: 0,
      maximum: 100_000_000,
      description: 'Units on sale when the sale is loaded first; later changes are restocks.',
    }),
    price: text('price', 'Price of one unit.'),
    max_per_person: Type.Integer({
      minimum: 1,
      maximum: quantityMax,
      default: 1,
      description: 'Units that one person may hold at a time, reserved, ordered and paid together.',
    }),
    seats: Type.Optional(
      Type.Array(text('id', 'A seat.'), {
        minItems: 1,
        maxItems: 100_000,
        description: 'Named places, each sold once; as many as `stock`, from front to back.',
      }),
    ),
    shards: Type.Integer({
      minimum: 1,
      maximum: shardsMax,
      default: 1,
      description:
        'Parts that the stock is cut into when it is loaded first, for a SKU so hot that one place in the store is not enough; fixed from then on. Not with `seats`.',
    }),
  },
  closed,
);

const payment = Type.Object(
  {
    deadline: text('duration', 'How long an order may stay unpaid; 1s to 30m.', { default: '15m' }),
    grace: text(
      'duration',
      'How much longer it is kept while a payment is being processed, at most 15m; the longest of all activities holds for all.',
      { default: '2m' },
    ),
  },
  { ...closed, default: {}, description: 'Paying.' },
);

const activity = Type.Object(
  {
    id: text('id', 'Id of the activity.'),
    name: Type.String({ minLength: 1, maxLength: 120, description: 'What buyers read.' }),
    revision: Type.Integer({
      minimum: 1,
      maximum: 1_000_000_000,
      default: 1,
      description: 'Count it up with every edit.',
    }),
    version: Type.Integer({
      minimum: 1,
      maximum: 1_000_000_000,
      default: 1,
      description: 'Count it up only to make every pass already given out invalid.',
    }),
    lobby_opens_at: text(
      'instant',
      'From when people may join; the same as `opens_at` for no lobby.',
    ),
    opens_at: text('instant', 'When the draw is made and the sale begins.'),
    closes_at: text('instant', 'When it ends.'),
    time_zone: text('zone', 'Zone of clock times written without an offset, and shown to buyers.', {
      default: 'UTC',
    }),
    skus: Type.Array(sku, { minItems: 1, maxItems: 64, description: 'What is on sale.' }),
    room,
    payment,
  },
  closed,
);

const budgets = Type.Object(
  {
    backlog: Type.Integer({
      minimum: 1,
      maximum: 10_000_000,
      default: backlogCeilingDefault,
      description: 'Reservations that wait to become orders; past it new submits are refused.',
    }),
    submit: text(
      'rate',
      'Submits that one activity may ask of the stock, over all instances: the budget of the built-in rules.',
      { default: '40000/s' },
    ),
    max_instances: Type.Integer({
      minimum: 1,
      maximum: 1_000,
      default: 8,
      description:
        'Instances that will run at a time, at most. Rules with `fail: instance` are judged by it.',
    }),
    emergency: Type.Integer({
      minimum: 0,
      maximum: 1_000_000,
      default: 100,
      description:
        'Tokens that an instance may spend of a budget under `fail: local`, once per outage of the shared store.',
    }),
  },
  { ...closed, default: {}, description: 'What the whole can take.' },
);

/** Requests of one resource in progress, at most. */
const inflight = (fallback: number, what: string) =>
  Type.Integer({ minimum: 1, maximum: 100_000, default: fallback, description: what });

const overload = Type.Object(
  {
    adaptive: choice(
      ['on', 'shadow', 'off'],
      'Whether limits of requests in progress follow the wait inside their ceilings. `shadow`: only computed.',
      'on',
    ),
    setpoint_ms: Type.Integer({
      minimum: 1,
      maximum: 10_000,
      default: 20,
      description:
        'Wait for a place in the event loop and for a batch that limits are steered to, ms.',
    }),
    start: choice(
      ['ramp', 'full'],
      'How an instance comes up: by the ramp, from 5 % of its budget to all of it in steps of three clean seconds, or with all of it at once.',
      'ramp',
    ),
    inflight: Type.Object(
      {
        submit: inflight(2_000, 'Submits in progress, at most.'),
        status: inflight(1_000, 'Questions about own requests in progress, at most.'),
        payment: inflight(500, 'Payments and their callbacks in progress, at most.'),
        admin: inflight(50, 'Operators’ requests in progress, at most.'),
      },
      { ...closed, default: {}, description: 'Static ceilings; each resource has its own.' },
    ),
  },
  {
    ...closed,
    default: {},
    description: 'How an instance keeps itself from being asked too much.',
  },
);

const telemetry = Type.Object(
  {
    log_level: choice(
      ['error', 'warn', 'info', 'debug'],
      'Least important log line that is written.',
      'info',
    ),
    otlp_endpoint: Type.Optional(
      text(
        'url',
        'Base URL of an OTLP/HTTP collector, such as `http://localhost:4318`. Absent: no traces, at no cost.',
      ),
    ),
    trace_per_mille: Type.Integer({
      minimum: 0,
      maximum: 1_000,
      default: 10,
      description:
        'Of a thousand submits, how many are traced besides those whose sender asks for it (a `traceparent` that is sampled).',
    }),
  },
  { ...closed, default: {}, description: 'What it tells about itself.' },
);

const challengeProvider = Type.Object(
  {
    url: text(
      'url',
      'Page that people are sent to, with `challenge` and `return_to` in its query.',
    ),
    secret: Type.String({
      minLength: 32,
      maxLength: 1024,
      'x-secret': true,
      description:
        'Key that the provider signs with: it sends people back with `challenge` followed by `~` and its HMAC-SHA-256 in base64url.',
    }),
  },
  { ...closed, description: 'Who vouches for people, for rooms with `challenge: callback`.' },
);

const pages = Type.Object(
  {
    theme: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1024,
        description: 'File with the branding of the pages (YAML or JSON).',
      }),
    ),
  },
  { ...closed, default: {}, description: 'How the shop looks.' },
);

/** What `sluice up` sells when no activities are written: enough to see every phase. */
const demoSale = {
  id: 'demo',
  name: 'Demo sale',
  lobby_opens_at: '+0s',
  opens_at: '+30s',
  closes_at: '+1d',
  skus: [{ id: 'ticket', name: 'Ticket', stock: 100, price: '20.00 EUR' }],
};

export const configSchema = Type.Object(
  {
    server,
    data: Type.String({
      minLength: 1,
      maxLength: 1024,
      default: './data',
      description:
        'Folder of journals, orders, keys and credentials; relative to where `sluice` is started. One server at a time.',
    }),
    stores,
    identity,
    activities: Type.Array(activity, {
      maxItems: 256,
      default: [demoSale],
      description: 'The sales. `[]` for none.',
    }),
    rules: Type.Optional(
      Type.Unsafe<unknown>({
        'x-language': 'rules',
        description:
          'Limits, in place of the built-in ones: a list of rules, or `{version, groups, risk, rules}`.',
      }),
    ),
    rules_file: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1024,
        description:
          'File of rules in place of `rules`; relative to where `sluice` is started. Changes are in force within a second.',
      }),
    ),
    budgets,
    challenge_provider: Type.Optional(challengeProvider),
    pages,
    overload,
    telemetry,
  },
  { ...closed, title: 'Configuration of Sluice' },
);

/** The file after checking: every default filled in, texts still as written. */
export type Written = Static<typeof configSchema>;
export type WrittenActivity = Written['activities'][number];

/** The parts of JSON Schema that this file uses: what the checker walks. */
export interface Node {
  readonly type?: 'object' | 'array' | 'string' | 'integer' | 'boolean';
  readonly enum?: readonly string[];
  readonly description?: string;
  readonly default?: unknown;
  readonly properties?: Readonly<Record<string, Node>>;
  readonly required?: readonly string[];
  readonly items?: Node;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly 'x-kind'?: KindName;
  readonly 'x-secret'?: boolean;
  /** A value in a language of its own, which its own reader checks. */
  readonly 'x-language'?: 'rules';
  /** A URL that may hold a password: shown without it. */
  readonly 'x-url'?: boolean;
}

/** The schema as plain JSON. */
export const schemaNode = JSON.parse(JSON.stringify(configSchema)) as Node;

/** JSON Schema (draft 2020-12) for editors: what has a default need not be written. */
export function publishedSchema(): Readonly<Record<string, unknown>> {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    ...published(schemaNode),
  };
}

function published(node: Node): Record<string, unknown> {
  const copy: Record<string, unknown> = { ...node };
  if (node.items !== undefined) copy['items'] = published(node.items);
  if (node.properties !== undefined) {
    const properties = Object.entries(node.properties);
    copy['properties'] = Object.fromEntries(properties.map(([key, of]) => [key, published(of)]));
    copy['required'] = (node.required ?? []).filter(
      (key) => node.properties?.[key]?.default === undefined,
    );
  }
  return copy;
}
