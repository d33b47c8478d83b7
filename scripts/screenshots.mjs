// `npm run screenshots`: the pictures of the guide, from the real pages in a real Chromium. Starts a
// server of its own on free ports with one sale for each thing that may happen, lets people join over
// the API, and looks at the shop through the eyes of some of them: on a phone in both languages, on a
// desktop, with and without JavaScript. One sheet each, and a few of the pictures alone.
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const target = process.argv[2] ?? join(root, 'docs', 'images');
const opensInMs = 75_000;
const phone = { width: 390, height: 844 };
const desktop = { width: 1180, height: 760 };
/** Alone beside the text of the guide. */
const alone = ['lobby', 'place', 'turn', 'work'];

const at = (ms) => new Date(Date.now() + ms).toISOString();
const folder = mkdtempSync(join(tmpdir(), 'sluice-shots-'));
const skus = [
  { id: 'floor', name: 'Floor', stock: 24, price: '68.00 EUR', max_per_person: 2 },
  { id: 'balcony', name: 'Balcony', stock: 12, price: '98.00 EUR' },
];
const few = (stock) => [{ id: 'floor', name: 'Floor', stock, price: '68.00 EUR' }];
const times = { lobby_opens_at: at(-60_000), opens_at: at(opensInMs), closes_at: at(7_200_000) };
const calm = { claim_window: '10m', pass_life: '5m' };
const sales = [
  { id: 'harbour', name: 'Night at the Harbour', ...times, skus, room: calm },
  { id: 'encore', name: 'The Encore', ...times, skus, room: { challenge_bits: 20 } },
  {
    id: 'soon',
    name: 'Winter Lights',
    lobby_opens_at: at(3_600_000),
    opens_at: at(7_200_000),
    closes_at: at(9_000_000),
    skus,
  },
  { id: 'gone', name: 'One Night Only', ...times, skus: few(2), room: calm },
  {
    id: 'drawn',
    name: 'Members’ Evening',
    ...times,
    skus: few(40),
    room: { ...calm, mode: 'lottery', lottery_places: 4 },
  },
  {
    id: 'swift',
    name: 'Rooftop Session',
    ...times,
    skus: few(30),
    room: { claim_window: '5s', max_admissions: '3/s' },
  },
  { id: 'over', name: 'Last Summer', ...times, closes_at: at(opensInMs + 4_000), skus: few(9) },
  { id: 'halted', name: 'Open Air', ...times, skus: few(3), room: calm },
];
writeFileSync(
  join(folder, 'shots.yaml'),
  JSON.stringify({
    server: { port: 0, admin_port: 0 },
    data: join(folder, 'data'),
    stores: { fsync: 'os' },
    activities: sales,
    telemetry: { log_level: 'error' },
  }),
);

const server = spawn(
  process.execPath,
  [join(root, 'dist', 'main.js'), 'up', '--config', join(folder, 'shots.yaml'), '--json'],
  { stdio: ['ignore', 'pipe', 'inherit'] },
);
/** Sheet → its pictures, in order. */
const sheets = new Map();
let browser;
let shop;
try {
  const urls = await listening();
  ({ shop } = urls);
  const rooms = {};
  for (const [id, people] of Object.entries({
    harbour: 60,
    gone: 30,
    drawn: 30,
    swift: 400,
    over: 3,
    halted: 30,
  }))
    rooms[id] = await crowd(id, people);
  browser = await chromium.launch({
    executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu'],
  });
  const [first, second] = rooms.harbour;
  const each = async (look) => {
    for (const [index, language] of ['en', 'zh'].entries()) await look(language, index);
  };
  const stranger = { token: (await ask('POST', '/v1/session', undefined, {})).token };

  await each(async (language, index) => {
    await shot(language, stranger, '/a/soon', 'before');
    await shot(language, stranger, '/a/harbour', 'sale');
    await shot(language, [stranger, second][index], '/a/encore', 'work', {
      act: press('/join'),
      joins: 1,
    });
    await shot(language, first, '/a/harbour/room', 'lobby');
    await shot(language, first, '/a/harbour/room', 'plain', { script: false });
  });
  await shot('en', stranger, '/a/harbour', 'sale', { size: desktop });
  await shot('en', first, '/a/harbour/room', 'lobby', { size: desktop });

  await new Promise((resolve) => setTimeout(resolve, Date.parse(times.opens_at) - Date.now()));
  const admitted = await those('harbour', rooms.harbour, ({ state }) => state === 'admitted', 4);
  const [waiting] = await those(
    'swift',
    rooms.swift.slice(-200),
    ({ state, position, eta }) => state === 'waiting' && position > 100 && eta !== null,
    1,
  );
  const [undrawn] = await those('drawn', rooms.drawn, ({ state }) => state === 'not_drawn', 1);
  await sellOut('gone', rooms.gone);
  const [late] = await those('gone', rooms.gone, ({ state }) => state === 'sold_out', 1);
  const [missed] = await those('swift', rooms.swift, ({ state }) => state === 'missed', 1);
  const [closed] = await those('over', rooms.over, ({ state }) => state === 'closed', 1);
  const [gone] = rooms.halted;
  await ask('DELETE', '/v1/activities/halted/entries/me', gone.token);
  await operate(urls.operator, { action: 'pause', activity_id: 'halted', reason: 'a picture' });
  const [held] = await those(
    'halted',
    rooms.halted.slice(1),
    ({ state, position, eta }) => state === 'waiting' && position > 3 && eta === null,
    1,
  );

  await each(async (language, index) => {
    const buyer = admitted[index];
    await shot(language, waiting, '/a/swift/room', 'place');
    await shot(language, waiting, '/a/swift/room', 'lost', { offline: true });
    await shot(language, held, '/a/halted/room', 'paused');
    await shot(language, buyer, '/a/harbour/room', 'turn');
    await shot(language, buyer, '/a/harbour/room', 'confirm', { act: press('/claim') });
    await shot(language, buyer, '/a/harbour/room', 'claimed');
    const order = { act: press('/submit'), until: '**/orders/**', claim: 'harbour/floor' };
    await shot(language, buyer, '/a/harbour/confirm', 'order', order);
    await shot(language, missed, '/a/swift/room', 'missed');
    await shot(language, late, '/a/gone/room', 'soldout');
    await shot(language, undrawn, '/a/drawn/room', 'undrawn');
    await shot(language, gone, '/a/halted/room', 'left');
    await shot(language, closed, '/a/over/room', 'closed');
    await shot(language, waiting, '/nowhere', 'nothing');
  });
  await shot('en', waiting, '/a/swift/room', 'place', { size: desktop });
  await shot('en', admitted[2], '/a/harbour/room', 'turn', { size: desktop });
  await shot('en', admitted[2], '/a/harbour/room', 'confirm', {
    size: desktop,
    act: press('/claim'),
  });
  await shot('en', late, '/a/gone/room', 'soldout', { size: desktop });

  mkdirSync(target, { recursive: true });
  const written = [];
  for (const [name, shots] of sheets) written.push(await sheet(name, shots));
  console.log(written.flat().join('\n'));
} finally {
  await browser?.close();
  server.kill('SIGTERM');
  await new Promise((resolve) => server.once('exit', resolve));
  rmSync(folder, { recursive: true, force: true });
}

/** The line that says where the server listens. */
async function listening() {
  for await (const line of createInterface(server.stdout)) {
    if (line.includes('"listening"')) return JSON.parse(line);
  }
  throw new Error('the server ended before it listened');
}

async function ask(method, path, token, body) {
  const reply = await fetch(shop + path, {
    method,
    headers: {
      accept: 'application/json',
      ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(body?.pass === undefined ? {} : { 'sluice-pass': body.pass }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify({ ...body, pass: undefined }) }),
  });
  if (reply.status === 429 || reply.status === 503) {
    const { retry_after_ms: waitMs } = await reply.json();
    await new Promise((resolve) => setTimeout(resolve, waitMs));
    return ask(method, path, token, body);
  }
  if (!reply.ok) throw new Error(`${method} ${path}: ${reply.status} ${await reply.text()}`);
  return reply.status === 204 ? undefined : reply.json();
}

async function operate(operator, body) {
  const token = readFileSync(join(folder, 'data', 'admin-token'), 'utf8').trim();
  const reply = await fetch(`${operator}/admin/v1/actions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ action_id: 'picture-1', ...body }),
  });
  if (!reply.ok) throw new Error(`${body.action}: ${reply.status} ${await reply.text()}`);
}

async function crowd(id, people) {
  const members = [];
  while (members.length < people) {
    const joining = Array.from({ length: Math.min(20, people - members.length) }, async () => {
      const { token } = await ask('POST', '/v1/session', undefined, {});
      const joined = await ask('POST', `/v1/activities/${id}/entries`, token, {});
      return { token, entry: joined.entry_token };
    });
    members.push(...(await Promise.all(joining)));
  }
  return members;
}

/** The first `count` members whose standing is as wanted; looks until there are so many. */
async function those(id, members, wanted, count) {
  const untilMs = Date.now() + 60_000;
  for (;;) {
    if (Date.now() > untilMs) throw new Error(`${id}: nobody stands as wanted: ${wanted}`);
    const found = [];
    for (const member of members) {
      if (found.length === count) return found;
      const standing = await ask('GET', `/v1/activities/${id}/entries/me`, member.token);
      if (wanted(standing)) found.push(member);
    }
    if (found.length === count) return found;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

/** Whoever is let in buys and pays, until nothing is left. */
async function sellOut(id, members) {
  const bought = new Set();
  const untilMs = Date.now() + 60_000;
  for (;;) {
    if (Date.now() > untilMs) throw new Error(`${id}: not sold out`);
    const { availability } = await ask(
      'GET',
      `/v1/activities/${id}/skus/floor/availability`,
      undefined,
    );
    if (availability === 'sold_out') return;
    for (const { token } of members) {
      const standing = await ask('GET', `/v1/activities/${id}/entries/me`, token);
      if (standing.state !== 'admitted' || bought.has(token)) continue;
      bought.add(token);
      const given = await ask('POST', `/v1/activities/${id}/passes`, token, { sku_id: 'floor' });
      const request = `req_${bought.size}`;
      await ask('POST', given.submit_path, token, {
        pass: given.pass,
        request_id: request,
        activity_id: id,
        sku_id: 'floor',
        quantity: 1,
      });
      for (;;) {
        const path = `/v1/requests/${request}?activity_id=${id}&sku_id=floor`;
        const { state, order_id: order } = await ask('GET', path, token);
        if (state === 'QUEUED') await new Promise((resolve) => setTimeout(resolve, 200));
        else if (order === null) break;
        else {
          await ask('POST', `/v1/orders/${order}/pay`, token, {});
          break;
        }
      }
    }
    await new Promise((resolve) => setTimeout(resolve, 300));
  }
}

function press(form) {
  return (page) => page.locator(`form[action$="${form}"] button[type=submit]`).click();
}

/** One page as one person sees it, after what they do there; put on its sheet. */
async function shot(language, member, path, name, how = {}) {
  const { act, until, size = phone, script = true, offline = false, claim, joins } = how;
  const context = await browser.newContext({
    viewport: size,
    locale: language === 'zh' ? 'zh-CN' : 'en-GB',
    timezoneId: 'Europe/Paris',
    reducedMotion: 'reduce',
    javaScriptEnabled: script,
  });
  const { hostname } = new URL(shop);
  const cookie = (key, value) => ({ name: key, value, domain: hostname, path: '/' });
  await context.addCookies([
    cookie('sluice-user', member.token),
    ...(member.entry === undefined ? [] : [cookie('sluice-entry', member.entry)]),
    ...(claim === undefined ? [] : [cookie('sluice-claim', claim)]),
  ]);
  const page = await context.newPage();
  // The answer that was found is not sent: the picture is of the search.
  let joined = 0;
  if (joins !== undefined)
    await page.route('**/join', (route) => {
      joined += 1;
      return joined > joins ? route.fulfill({ status: 204 }) : route.continue();
    });
  if (offline) await page.route('**/v1/**', (route) => route.abort());
  await page.goto(shop + path);
  if (act !== undefined) await act(page);
  if (until !== undefined) await page.waitForURL(until);
  if (offline) {
    await page.waitForFunction(() => {
      const link = document.getElementById('link');
      return link !== null && link.textContent === link.dataset.lost;
    });
    await page.locator('#link').scrollIntoViewIfNeeded();
  }
  await page.waitForTimeout(700);
  const png = await page.screenshot({ animations: 'disabled' });
  const sheetName = size === desktop ? 'desktop' : language;
  const shots = sheets.get(sheetName) ?? [];
  shots.push({ name, png, size });
  sheets.set(sheetName, shots);
  if (process.env['SHOTS'] !== undefined)
    writeFileSync(join(process.env['SHOTS'], `${sheetName}-${name}.png`), png);
  await context.close();
}

/** All pictures of a sheet side by side, and some of them alone; as WebP, names and sizes returned. */
async function sheet(name, shots) {
  const columns = name === 'desktop' ? 2 : 6;
  const width = name === 'desktop' ? 560 : 190;
  const cells = shots.map(
    (one) => `<img width="${width}" src="data:image/png;base64,${one.png.toString('base64')}">`,
  );
  const page = await browser.newPage({
    viewport: { width: columns * (width + 12) + 12, height: 400 },
    deviceScaleFactor: 1.25,
  });
  await page.setContent(
    `<style>body{margin:0;padding:12px;background:#d9dde3;display:grid;gap:12px;grid-template-columns:repeat(${columns},${width}px)}img{display:block;border-radius:8px}</style>${cells.join('')}`,
  );
  const written = [await asWebp(page, `room-states-${name}.webp`, 72)];
  await page.close();
  for (const { name: of, png, size } of shots.filter((one) => alone.includes(one.name))) {
    if (size === desktop) continue;
    const single = await browser.newPage({ viewport: size });
    await single.setContent(
      `<style>body{margin:0}img{display:block}</style><img width="${size.width}" src="data:image/png;base64,${png.toString('base64')}">`,
    );
    written.push(await asWebp(single, `room-${of}-${name}.webp`, 76));
    await single.close();
  }
  return written;
}

async function asWebp(page, file, quality) {
  const session = await page.context().newCDPSession(page);
  const { data } = await session.send('Page.captureScreenshot', {
    format: 'webp',
    quality,
    captureBeyondViewport: true,
    clip: { x: 0, y: 0, scale: 1, ...(await contentSize(page)) },
  });
  const bytes = Buffer.from(data, 'base64');
  writeFileSync(join(target, file), bytes);
  return `${file} ${Math.round(bytes.length / 1024)} KiB`;
}

function contentSize(page) {
  return page.evaluate(() => ({
    width: document.documentElement.scrollWidth,
    height: document.body.scrollHeight,
  }));
}
