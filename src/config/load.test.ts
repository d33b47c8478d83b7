import { readFileSync } from 'node:fs';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { fc } from '../../test/support/property.ts';
import { describe, expect, test } from 'vitest';
import { parse, stringify } from 'yaml';
import { activityOf, hasRelativeInstants } from './config.ts';
import type { Config } from './config.ts';
import { loadConfig } from './load.ts';
import type { LoadRequest } from './load.ts';
import { ConfigError, nearest, problemsMax, renderProblems } from './problems.ts';
import { publishedSchema } from './schema.ts';
import { hiddenSecret, settings, settingsTable, showYaml, showable } from './show.ts';
import { configMaxBytes } from './source.ts';

const nowMs = Date.UTC(2027, 0, 1);

function load(text: string, more: Partial<LoadRequest> = {}) {
  return loadConfig({ text, name: 'sale.yaml', environment: {}, nowMs, ...more });
}

function good(text: string, more: Partial<LoadRequest> = {}): Config {
  const loaded = load(text, more);
  if (!loaded.ok) throw new ConfigError(loaded.problems);
  return loaded.config;
}

function problemsOf(text: string, more: Partial<LoadRequest> = {}) {
  const loaded = load(text, more);
  return loaded.ok ? [] : loaded.problems;
}

const sale = `
activities:
  - id: a
    name: A
    lobby_opens_at: +0s
    opens_at: +30s
    closes_at: +1h
    skus:
      - { id: s, name: S, stock: 5, price: 1.00 EUR }
`;

describe('a configuration', () => {
  test('an empty file is a demo sale on the documented ports', () => {
    const config = good('');
    expect(config.server).toMatchObject({ host: '127.0.0.1', port: 8080, adminPort: 9090 });
    expect(config.stores.fsync).toBe('always');
    expect(config.activities).toHaveLength(1);
    expect(config.activities[0]).toMatchObject({ activityId: 'demo', paymentDeadlineMs: 900_000 });
    expect(good('# nothing but a comment')).toEqual(config);
  });

  test('the shipped examples are good, and the newcomer sees every phase', () => {
    const config = good(readFileSync('examples/concert.yaml', 'utf8'));
    const [plan] = config.activities;
    expect(plan && hasRelativeInstants(plan)).toBe(true);
    const activity = plan && activityOf(plan, nowMs);
    expect(activity).toMatchObject({ lobbyOpensAtMs: nowMs, opensAtMs: nowMs + 30_000 });
    expect(activity?.skus.length).toBeGreaterThan(1);
  });

  test('everything wrong is told at once, each with line, path, found and allowed', () => {
    const problems = problemsOf(`server: { prot: 80, port: 99999 }
identity: { mode: jwt }
activities:
  - id: a b
    name: A
    lobby_opens_at: +40s
    opens_at: +30s
    closes_at: +10s
    time_zone: Mars/Base
    skus:
      - { id: s, name: S, stock: -1, price: 1.00 EUR }
      - { id: s, name: S, stock: 1, price: 1 EURO }
    room: { mode: drw, max_admissions: 1/h }
    payment: { deadline: 3h }
`);
    expect(problems.map(({ line, path, found }) => `${line} ${path} ${found}`)).toEqual([
      '1 server.prot unknown key "prot"',
      '1 server.port 99999',
      '2 identity.mode jwt without keys',
      '4 activities[0].id "a b"',
      '9 activities[0].time_zone "Mars/Base"',
      '11 activities[0].skus[0].stock -1',
      '12 activities[0].skus[1].id "s" again',
      '12 activities[0].skus[1].price "1 EURO"',
      '13 activities[0].room.mode "drw"',
      '14 activities[0].payment.deadline "3h"',
    ]);
    for (const problem of problems) expect(problem.allowed).not.toBe('');
    expect(problems[0]).toMatchObject({ source: 'sale.yaml', column: 11 });
    expect(problems[0]?.allowed).toMatch(/^port\? Known here: host, port/);
  });

  test('the order of instants is checked, relative and absolute mixed', () => {
    const times = (lobby: string, opens: string, closes: string): string[] =>
      problemsOf(sale.replace('+0s', lobby).replace('+30s', opens).replace('+1h', closes)).map(
        (problem) => problem.path,
      );
    expect(times('+31s', '+30s', '+1h')).toEqual(['activities[0].lobby_opens_at']);
    expect(times('+0s', '+1h', '+1h')).toEqual(['activities[0].closes_at']);
    expect(times('+0s', '+30s', '2026-12-31T23:59:59Z')).toEqual(['activities[0].closes_at']);
    expect(times('+30s', '+30s', '2027-01-01T00:01:00Z')).toEqual([]);
  });

  test('seats and stock agree, lottery and its places belong together', () => {
    const seats = (text: string) => sale.replace('stock: 5', text);
    expect(good(seats('stock: 2, seats: [A1, A2]')).activities[0]?.skus[0]?.seats).toEqual([
      'A1',
      'A2',
    ]);
    expect(problemsOf(seats('stock: 5, seats: [A1, A1]'))).toMatchObject([
      { path: 'activities[0].skus[0].stock', allowed: '2, as many as there are seats' },
      { path: 'activities[0].skus[0].seats', found: '"A1" twice' },
    ]);
    expect(good(seats('stock: 5, shards: 4')).activities[0]?.skus[0]?.shards).toBe(4);
    expect(good(sale).activities[0]?.skus[0]?.shards).toBeUndefined();
    expect(problemsOf(seats('stock: 2, seats: [A1, A2], shards: 2'))).toMatchObject([
      { path: 'activities[0].skus[0].shards', found: '2' },
    ]);
    expect(problemsOf(seats('stock: 5, shards: 17'))).toMatchObject([
      { path: 'activities[0].skus[0].shards', found: '17' },
    ]);
    const room = (text: string) => `${sale}    room: ${text}`;
    const lottery = good(room('{ mode: lottery, lottery_places: 9, poll_budget: 50/s }'));
    expect(lottery.activities[0]?.room).toMatchObject({ lotteryPlaces: 9, pollsPerSecond: 50 });
    expect(problemsOf(room('{ mode: lottery }'))).toMatchObject([
      { path: 'activities[0].room.mode' },
    ]);
    expect(problemsOf(room('{ lottery_places: 9 }'))).toMatchObject([
      { path: 'activities[0].room.lottery_places', found: 'with mode: draw' },
    ]);
  });

  test('weights, quotas, beacon and challenge reach the room, and stand with their modes', () => {
    const room = (text: string) => `${sale}    room: ${text}`;
    expect(
      good(
        room('{ mode: weighted, weight_claim: tier, beacon: drand round 9, challenge_bits: 14 }'),
      ).activities[0]?.room,
    ).toMatchObject({
      mode: 'weighted',
      weightClaim: 'tier',
      beacon: 'drand round 9',
      challenge: { kind: 'proof_of_work', minBits: 14, maxBits: 20 },
    });
    expect(good(room('{ challenge: proof_of_work }')).activities[0]?.room.challenge).toEqual({
      kind: 'proof_of_work',
      minBits: 14,
      maxBits: 20,
    });
    const provider = `challenge_provider: { url: 'https://vouch.example/', secret: ${'s'.repeat(32)} }\n`;
    const vouched = good(`${provider}${room('{ challenge: callback }')}`);
    expect(vouched.activities[0]?.room.challenge).toEqual({ kind: 'callback' });
    expect(vouched.challengeProvider?.url).toBe('https://vouch.example/');
    expect(problemsOf(room('{ challenge: callback }'))).toMatchObject([
      { path: 'activities[0].room.challenge', found: 'callback without challenge_provider' },
    ]);
    expect(
      problemsOf(`${provider}${room('{ challenge: callback, challenge_bits: 9 }')}`),
    ).toMatchObject([{ path: 'activities[0].room.challenge_bits' }]);
    const quota = 'quota: [{ group: eu, places: 7 }, { group: us, places: 3 }]';
    expect(
      good(room(`{ mode: quota, group_claim: region, leftover: to_all, ${quota} }`)).activities[0]
        ?.room,
    ).toMatchObject({
      groupClaim: 'region',
      quota: { places: { eu: 7, us: 3 }, leftover: 'to_all' },
    });
    expect(problemsOf(room('{ mode: quota, group_claim: region }'))).toMatchObject([
      { path: 'activities[0].room.mode', found: 'quota without quota' },
    ]);
    expect(problemsOf(room('{ group_claim: region }'))).toMatchObject([
      { path: 'activities[0].room.group_claim', found: 'with mode: draw' },
    ]);
    expect(problemsOf(room('{ weight_claim: tier }'))).toMatchObject([
      { path: 'activities[0].room.weight_claim', allowed: 'mode: weighted' },
    ]);
    const twice = 'quota: [{ group: eu, places: 7 }, { group: eu, places: 3 }]';
    expect(problemsOf(room(`{ mode: quota, group_claim: region, ${twice} }`))).toMatchObject([
      { path: 'activities[0].room.quota[1].group', found: '"eu" twice' },
    ]);
  });

  test('one broken line is one problem; a key written twice is one', () => {
    expect(problemsOf('server: { port: 1\nactivities: []\n')).toHaveLength(1);
    expect(problemsOf('data: a\ndata: b\n- x\ndata: c\n')).toHaveLength(2);
    expect(problemsOf('data: a\ndata: b\n')).toMatchObject([{ line: 2, allowed: 'each key once' }]);
  });

  test('hostile files are refused, not suffered', () => {
    expect(problemsOf('#'.repeat(configMaxBytes + 1))[0]?.found).toContain('bytes');
    expect(problemsOf('['.repeat(20_000))).not.toEqual([]);
    const laugh = ['a: &a [x,x,x,x,x,x,x,x,x]'];
    for (let n = 1; n < 9; n += 1) {
      const last = String.fromCharCode(96 + n);
      const next = String.fromCharCode(97 + n);
      laugh.push(`${next}: &${next} [${Array.from({ length: 9 }, () => `*${last}`).join(',')}]`);
    }
    expect(problemsOf(laugh.join('\n'))).not.toEqual([]);
    expect(problemsOf('__proto__: { x: 1 }')).toMatchObject([{ path: '__proto__' }]);
    expect(problemsOf('\uE000')).toHaveLength(1);
    expect(problemsOf('? { a: ${A} }\n: 1')[0]?.found).toBe('a key that is no text');
    expect(problemsOf('data: ${A}\uE000')).toHaveLength(1);
  });

  test('nulls are nothing: the default where there is one, a problem where not', () => {
    expect(good('server:\nactivities: []\n').server.port).toBe(8080);
    expect(problemsOf(sale.replace('id: a', 'id:'))).toMatchObject([{ path: 'activities[0].id' }]);
  });

  test('a wall of problems is cut short', () => {
    const many = Array.from({ length: problemsMax + 10 }, (_, at) => `x${at}: 1`).join('\n');
    const text = renderProblems(problemsOf(many));
    expect(text).toContain('… and 10 more.');
    expect(text).toContain(`${problemsMax + 10} problems`);
  });

  test('property: never throws, whatever the file', () => {
    fc.assert(
      fc.property(fc.string({ maxLength: 200, unit: 'grapheme' }), (text) => {
        load(text);
      }),
    );
    const piece = fc.constantFrom(
      'server:',
      '- ',
      'port: ',
      '${',
      '}',
      '${A:-',
      '&a ',
      '*a',
      '\n',
      '  ',
      '[',
      ']',
      '{',
      '}',
      '"',
      'activities',
      '+1s',
      ': ',
      '!!binary ',
      '<<: ',
      '? ',
      '| ',
      '1',
    );
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 40 }), (pieces) => {
        load(pieces.join(''));
      }),
      { numRuns: 500 },
    );
  });
});

describe('the environment', () => {
  const environment = { PORT: '8181', NAME: 'x, y: {z}', EMPTY: '', SALE_SECRET: 'hunter2' };

  test('values come in after parsing, so that they cannot change the structure', () => {
    expect(good('server: { port: ${PORT} }', { environment }).server.port).toBe(8181);
    expect(good('data: ${NAME}', { environment }).dataFolder).toBe('x, y: {z}');
    expect(good('data: "d/${PORT}/$${x}"', { environment }).dataFolder).toBe('d/8181/${x}');
    expect(good('data: ${EMPTY:-here}', { environment }).dataFolder).toBe('here');
    expect(good('data: ${NONE:-a:b}', { environment }).dataFolder).toBe('a:b');
    expect(good('# ${NOT_SET} in a comment', { environment }).dataFolder).toBe('./data');
  });

  test('a missing variable is a problem at its place, and the rest is still judged', () => {
    expect(problemsOf('data: ${NOPE}\nserver: { port: x }', { environment })).toMatchObject([
      { line: 1, column: 7, path: 'data', found: '${NOPE}, and no NOPE in the environment' },
      { line: 2, path: 'server.port' },
    ]);
    expect(problemsOf('data: ${1x}', { environment })).toMatchObject([{ found: '"${1x}"' }]);
    expect(problemsOf('${PORT}: 1', { environment })[0]?.found).toBe('"${PORT}"');
  });

  test('what came from it is said, but never a secret', () => {
    expect(problemsOf('server: { region: ${NAME} }', { environment })[0]?.found).toBe(
      '"x, y: {z}" (from ${NAME})',
    );
    const misplaced = renderProblems(
      problemsOf(
        'server: { port: ${SALE_SECRET} }\nidentity: { mode: jwt, secret: ${SALE_SECRET} }',
        {
          environment,
        },
      ),
    );
    expect(misplaced).not.toContain('hunter2');
    expect(misplaced).toContain('a secret of 7 characters (from ${SALE_SECRET})');
  });
});

describe('the command line', () => {
  test('wins over the file', () => {
    const config = good(sale, {
      overrides: { port: '0', adminPort: '0', data: '/x', fsync: 'os', openIn: '5s', stock: '9' },
    });
    expect(config.server).toMatchObject({ port: 0, adminPort: 0 });
    expect(config.dataFolder).toBe('/x');
    expect(config.stores.fsync).toBe('os');
    const plan = config.activities[0]!;
    expect(activityOf(plan, nowMs).opensAtMs).toBe(nowMs + 5_000);
    expect(plan.skus.map((sku) => sku.stock)).toEqual([9]);
  });

  test('is checked like the file, and named by its flag', () => {
    const problems = problemsOf(sale, {
      overrides: { port: '70000', adminPort: 'x', fsync: 'never', openIn: '5', stock: '-1' },
    });
    expect(problems.map(({ source, path, found }) => `${source} ${path} ${found}`)).toEqual([
      'command line --port "70000"',
      'command line --admin-port "x"',
      'command line --fsync "never"',
      'command line --stock "-1"',
      'command line --open-in "5"',
    ]);
  });

  test('an opening after the close is refused', () => {
    expect(problemsOf(sale, { overrides: { openIn: '2h' } })).toMatchObject([
      { path: 'activities[0].closes_at' },
    ]);
  });
});

describe('relative instants', () => {
  test('count from the first start, however late they are resolved', () => {
    const plan = good(sale).activities[0]!;
    expect(activityOf(plan, nowMs).closesAtMs).toBe(nowMs + 3_600_000);
    expect(activityOf(plan, nowMs - 5_000).opensAtMs).toBe(nowMs + 25_000);
  });

  test('a mix that no longer fits at the true start says so', () => {
    const mixed = good(sale.replace('+1h', '2027-01-01T01:00:00Z')).activities[0]!;
    expect(() => activityOf(mixed, nowMs + 7_200_000)).toThrow(
      /opens_at .* is not before closes_at/,
    );
  });
});

describe('showing', () => {
  const secret = 'a-secret-of-at-least-thirty-two-bytes';

  test('never a secret, and the rest reads as it was meant', () => {
    const loaded = load(`identity: { mode: jwt, secret: ${secret} }${sale}`);
    if (!loaded.ok) throw new ConfigError(loaded.problems);
    const shown = showYaml(loaded.written);
    expect(shown).not.toContain(secret);
    expect(showable(loaded.written)).toMatchObject({ identity: { secret: hiddenSecret } });
    expect(shown).toContain('port: 8080');
  });

  test('what is shown is a configuration again', () => {
    const loaded = load(sale);
    if (!loaded.ok) throw new ConfigError(loaded.problems);
    expect(good(showYaml(loaded.written))).toEqual(loaded.config);
  });
});

describe('the schema', () => {
  const validate = new Ajv2020({ strict: false }).compile(publishedSchema());

  test('as JSON Schema it accepts the shipped example, and the example lists no unknown key', () => {
    expect(validate(parse(readFileSync('examples/concert.yaml', 'utf8')))).toBe(true);
    expect(validate({ unknown: 1 })).toBe(false);
  });

  test('docs/config.schema.json is this schema', () => {
    const written: unknown = JSON.parse(readFileSync('docs/config.schema.json', 'utf8'));
    expect(written).toEqual(publishedSchema());
  });

  test('docs/CONFIG.md lists every setting and no other', () => {
    const documented = readFileSync('docs/CONFIG.md', 'utf8');
    const rows = documented.split('\n').filter((line) => line.startsWith('| `'));
    const expected = settingsTable()
      .split('\n')
      .filter((line) => line.startsWith('| `'));
    expect(rows).toEqual(expected);
    expect(settings().length).toBe(rows.length);
    for (const setting of settings()) expect(setting.meaning).not.toBe('');
  });

  test('the example of docs/CONFIG.md is good', () => {
    const text = /```yaml\n([^]*?)```/.exec(readFileSync('docs/CONFIG.md', 'utf8'))?.[1] ?? '';
    expect(good(text).identity).toMatchObject({ mode: 'jwt' });
    expect(activityOf(good(text).activities[0]!, nowMs).lobbyOpensAtMs).toBe(
      Date.UTC(2027, 4, 1, 11, 30),
    );
  });

  test('property: the checker never accepts what the published schema refuses', () => {
    const base = parse(sale) as { activities: Record<string, unknown>[] };
    const value = fc.oneof(
      fc.integer({ min: -2, max: 70_000 }),
      fc.boolean(),
      fc.constantFrom(
        '',
        'draw',
        'fifo',
        '+5s',
        '10/s',
        'x',
        '10.0.0.0/8',
        'demo',
        'os',
        '1 EUR',
        'memory',
        'redis://h',
      ),
      fc.constant([]),
      fc.constant({}),
    );
    const places = settings().map((setting) => setting.path.split('.'));
    let accepted = 0;
    fc.assert(
      fc.property(fc.constantFrom(...places), value, (place, put) => {
        const config = structuredClone(base) as Record<string, unknown>;
        let at: Record<string, unknown> = config;
        for (const [depth, part] of place.entries()) {
          const key = part.replace('[]', '');
          if (depth === place.length - 1) at[key] = put;
          else if (part.endsWith('[]'))
            at = ((at[key] ??= [{}]) as Record<string, unknown>[])[0] ?? {};
          else at = (at[key] ??= {}) as Record<string, unknown>;
        }
        const ours = load(stringify(config)).ok;
        if (ours) {
          accepted += 1;
          expect(validate(config)).toBe(true);
        }
      }),
      { numRuns: 800 },
    );
    expect(accepted).toBeGreaterThan(20);
  });
});

test('a mistyped key finds its meaning, a strange one does not', () => {
  expect(nearest('prot', ['host', 'port'])).toBe('port');
  expect(nearest('lobby_open_at', ['lobby_opens_at', 'opens_at'])).toBe('lobby_opens_at');
  expect(nearest('zebra', ['host', 'port'])).toBeUndefined();
});

test('passes may be bound to devices, and keys fetched from private networks that are named', () => {
  const config = good(`
identity: { mode: jwt, jwks_url: https://keys.internal/jwks, allowed_private: [10.1.2.3/8] }
activities:
  - id: a
    name: A
    lobby_opens_at: +0s
    opens_at: +1s
    closes_at: +1h
    room: { bind_device: true }
    skus: [{ id: s, name: S, stock: 1, price: 1.00 EUR }]
`);
  expect(config.activities[0]?.room.bindDevice).toBe(true);
  expect(config.identity).toMatchObject({ allowedPrivate: ['10.0.0.0/8'] });
});
