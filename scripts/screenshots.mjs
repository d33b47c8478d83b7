// `npm run screenshots`: the pictures of the guide, from the real pages in a real Chromium. Starts a
// server of its own on free ports, lets three hundred people join over the API, and looks at the shop
// through the eyes of some of them, in both languages.
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const target = process.argv[2] ?? join(root, 'docs', 'images');
const opensInMs = 50_000;
const people = 300;
const size = { width: 390, height: 760 };
const wide = { width: 1180, height: 760 };

const at = (ms) => new Date(Date.now() + ms).toISOString();
const folder = mkdtempSync(join(tmpdir(), 'sluice-shots-'));
const skus = [
  { id: 'floor', name: 'Floor', stock: 24, price: '68.00 EUR', max_per_person: 2 },
  { id: 'balcony', name: 'Balcony', stock: 12, price: '98.00 EUR' },
];
const times = { lobby_opens_at: at(-60_000), opens_at: at(opensInMs), closes_at: at(7_200_000) };
writeFileSync(
  join(folder, 'shots.yaml'),
  JSON.stringify({
    server: { port: 0, admin_port: 0 },
    data: join(folder, 'data'),
    stores: { fsync: 'os' },
    activities: [
      {
        id: 'harbour',
        name: 'Night at the Harbour',
        ...times,
        skus,
        room: { claim_window: '10m', pass_life: '5m' },
      },
      { id: 'encore', name: 'The Encore', ...times, skus, room: { challenge_bits: 20 } },
    ],
    telemetry: { log_level: 'error' },
  }),
);

const server = spawn(
  process.execPath,
  [join(root, 'dist', 'main.js'), 'up', '--config', join(folder, 'shots.yaml'), '--json'],
  { stdio: ['ignore', 'pipe', 'inherit'] },
);
let browser;
try {
  const shop = await listening();
  const members = [];
  while (members.length < people) {
    const joining = Array.from({ length: 20 }, async () => {
      const { token } = await ask(shop, 'POST', '/v1/session', undefined, {});
      const joined = await ask(shop, 'POST', '/v1/activities/harbour/entries', token, {});
      return { token, entry: joined.entry_token };
    });
    members.push(...(await Promise.all(joining)));
  }
  browser = await chromium.launch({
    executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu'],
  });
  const seen = [];
  for (const [index, language] of ['en', 'zh'].entries()) {
    seen.push(await shot(shop, members[0], language, '/a/harbour', 'sale'));
    seen.push(await shot(shop, members[0], language, '/a/harbour/room', 'lobby'));
    seen.push(await shot(shop, members[index], language, '/a/encore', 'work', joinButton));
  }
  const standing = ({ token }) => ask(shop, 'GET', '/v1/activities/harbour/entries/me', token);
  const admitted = [];
  let waiting;
  while (admitted.length < 2 || waiting === undefined) {
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    for (const member of members) {
      const { state, position } = await standing(member);
      if (state === 'admitted' && !admitted.includes(member)) admitted.push(member);
      if (state === 'waiting' && position > 100) waiting = member;
      if (admitted.length >= 2 && waiting !== undefined) break;
    }
  }
  for (const [index, language] of ['en', 'zh'].entries()) {
    seen.push(await shot(shop, waiting, language, '/a/harbour/room', 'place'));
    seen.push(await shot(shop, admitted[index], language, '/a/harbour/room', 'turn'));
    seen.push(
      await shot(shop, admitted[index], language, '/a/harbour/room', 'confirm', press('/claim')),
    );
    seen.push(
      await shot(
        shop,
        admitted[index],
        language,
        '/a/harbour/confirm',
        'order',
        press('/submit'),
        true,
      ),
    );
    seen.push(await shot(shop, waiting, language, '/nowhere', 'nothing'));
  }
  seen.push(
    await shot(shop, waiting, 'en', '/a/harbour/room', 'place-wide', undefined, false, wide),
  );
  console.log(seen.map(([name, bytes]) => `${name} ${Math.round(bytes / 1024)} KiB`).join('\n'));
} finally {
  await browser?.close();
  server.kill('SIGTERM');
  await new Promise((resolve) => server.once('exit', resolve));
  rmSync(folder, { recursive: true, force: true });
}

/** The line that says where the server listens. */
async function listening() {
  for await (const line of createInterface(server.stdout)) {
    if (line.includes('"listening"')) return JSON.parse(line).shop;
  }
  throw new Error('the server ended before it listened');
}

async function ask(shop, method, path, token, body) {
  const reply = await fetch(shop + path, {
    method,
    headers: {
      accept: 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  if (reply.status === 429) {
    const { retry_after_ms: waitMs } = await reply.json();
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    return ask(shop, method, path, token, body);
  }
  if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
  return reply.json();
}

function joinButton(page) {
  return page.locator('form[action$="/join"] button').click();
}

function press(form) {
  return (page) => page.locator(`form[action$="${form}"] button[type=submit]`).click();
}

/** One page as one person sees it, after what they do there; as WebP, a few KiB. */
async function shot(shop, member, language, path, name, act, order = false, viewport = size) {
  const context = await browser.newContext({
    viewport,
    locale: language === 'zh' ? 'zh-CN' : 'en-GB',
    timezoneId: 'Europe/Paris',
    reducedMotion: 'reduce',
  });
  const { hostname } = new URL(shop);
  const cookie = (key, value) => ({ name: key, value, domain: hostname, path: '/' });
  await context.addCookies([
    cookie('sluice-user', member.token),
    cookie('sluice-entry', member.entry),
    cookie('sluice-claim', 'harbour/floor'),
  ]);
  const page = await context.newPage();
  await page.goto(shop + path);
  if (act !== undefined) await act(page);
  if (order) await page.waitForURL('**/orders/**');
  await page.waitForTimeout(700);
  const session = await context.newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', { format: 'webp', quality: 82 });
  const bytes = Buffer.from(data, 'base64');
  mkdirSync(target, { recursive: true });
  const file = `room-${name}-${language}.webp`;
  writeFileSync(join(target, file), bytes);
  await context.close();
  return [file, bytes.length];
}
