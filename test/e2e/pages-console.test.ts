import { join } from 'node:path';
import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { systemClock, systemRandom, systemTimers } from '../../src/app/system.ts';
import { type AdminServer, createAdminServer } from '../../src/control/admin/server.ts';
import type { OperatorAction, Overview } from '../../src/control/admin/source.ts';
import type { AuditRow } from '../../src/ports/order-store.ts';
import { seriousFindings, startBrowser, viewports, watchFaults } from '../support/browser.ts';
import { saleAt } from '../support/console-source.ts';

/** The operator's page in a real browser, over a sale drawn from a formula. */
let browser: Browser;
let server: AdminServer;
let context: BrowserContext;
let actions: OperatorAction[];
let rows: AuditRow[];
let spoil: (overview: Overview) => Overview;

beforeAll(async () => {
  browser = await startBrowser();
});
afterAll(() => browser.close());
beforeEach(async () => {
  actions = [];
  rows = [];
  spoil = (overview) => overview;
  let second = 100;
  server = createAdminServer({
    settings: { host: '127.0.0.1', port: 0 },
    clock: systemClock,
    timers: systemTimers,
    random: systemRandom,
    log: { warn: () => undefined, error: () => undefined },
    adminToken: 'x'.repeat(43),
    source: { overview: () => spoil(saleAt(systemClock.wallMs(), (second += 1))) },
    actions: {
      offered: ['pause', 'resume', 'stop', 'restock'],
      perform: async (action) => {
        actions.push(action);
        return { kind: 'done', detail: '' };
      },
    },
    audit: {
      append: async (row) => void rows.unshift(row),
      list: async (_subject, limit) => rows.slice(0, limit),
    },
    orders: {
      search: async () => ({ orders: [] }),
      find: async () => undefined,
      payments: async () => [],
    },
    consoleFolder: join(import.meta.dirname, '../../dist/web/console'),
  });
  await server.start();
});
afterEach(async () => {
  await context.close();
  await server.close();
});

async function open(options: object = {}): Promise<{ page: Page; faults: string[] }> {
  context = await browser.newContext({ viewport: viewports.desktop, locale: 'en-GB', ...options });
  const page = await context.newPage();
  const faults = watchFaults(page);
  await page.goto(server.signInUrl({ name: 'alice', role: 'admin' }).url);
  await page.locator('.uplot').first().waitFor();
  return { page, faults };
}

describe('console', () => {
  it.each([
    ['desktop', 'en-GB', 'light'],
    ['desktop', 'zh-CN', 'dark'],
    ['phone', 'en-GB', 'dark'],
    ['phone', 'zh-CN', 'light'],
  ] as const)(
    'shows the sale on a %s in %s, %s, with nothing serious for axe',
    async (size, locale, colorScheme) => {
      const { page, faults } = await open({ viewport: viewports[size], locale, colorScheme });
      await page.locator('.verdict.good').waitFor();
      expect(await page.locator('.uplot canvas').count()).toBeGreaterThanOrEqual(5);
      expect(await page.locator('.funnel li').count()).toBe(8);
      expect(await seriousFindings(page)).toEqual([]);
      expect(
        await page.evaluate(
          () => document.documentElement.scrollWidth <= document.documentElement.clientWidth,
        ),
      ).toBe(true);
      expect(faults).toEqual([]);
    },
  );

  it('takes the secret out of the address at once, and out of the history', async () => {
    const { page } = await open();
    expect(page.url()).not.toContain('sign-in');
    await page.reload();
    await page.locator('.tiles').waitFor();
  });

  it('asks for a link when there is no session, and says when one is used up', async () => {
    const { page } = await open();
    const { url } = server.signInUrl({ name: 'bob', role: 'viewer' });
    const other = await browser.newContext({ locale: 'en-GB' });
    const first = await other.newPage();
    await first.goto(url);
    await first.locator('.tiles').waitFor();
    await other.clearCookies();
    const second = await other.newPage();
    await second.goto(url);
    await second.getByRole('alert').waitFor();
    expect(await second.getByRole('alert').textContent()).toContain('used up');
    expect(await seriousFindings(second)).toEqual([]);
    await other.close();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  });

  it('says when stock does not add up', async () => {
    const { page } = await open();
    await page.locator('.verdict.good').waitFor();
    spoil = (overview) => ({
      ...overview,
      stock: overview.stock.map((row) => ({ ...row, paid: row.paid + 3 })),
    });
    await page.locator('.verdict.bad', { hasText: '-3' }).waitFor();
  });

  it('carries out an action with a reason, by keyboard, and shows it in the audit', async () => {
    const { page } = await open();
    await page.getByRole('button', { name: 'Restock' }).focus();
    await page.keyboard.press('Enter');
    await page.getByLabel('Units (').fill('25');
    await page.getByLabel('Reason (').fill('balcony opened');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Tab');
    await page.keyboard.press('Enter');
    await expect
      .poll(() => actions)
      .toEqual([{ kind: 'restock', activityId: 'night-tide', skuId: 'floor', delta: 25 }]);
    await page.getByRole('button', { name: 'Audit', exact: true }).click();
    await page.getByText('restock:done').waitFor();
    expect(await seriousFindings(page)).toEqual([]);
    await page.getByRole('button', { name: 'Orders', exact: true }).click();
    await page.getByText('Nothing found.').waitFor();
    expect(await seriousFindings(page)).toEqual([]);
  });

  it('shows plots at once after a reload, from the server’s history', async () => {
    for (let count = 0; count < 3; count += 1) {
      server.feed.tick();
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    const { page } = await open();
    await page.reload();
    await page.locator('.uplot').first().waitFor();
    await expect.poll(() => page.locator('.plot .legend b').first().textContent()).not.toBe('–');
  });

  it('goes back to signing in when the session is over', async () => {
    const { page } = await open();
    await context.clearCookies();
    server.app.server.closeAllConnections();
    await page.getByRole('heading', { name: 'Sign in' }).waitFor();
  });
});
