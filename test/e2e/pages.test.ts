import type { Browser, BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { words } from '../../src/gateway/pages/words.ts';
import {
  seriousFindings,
  startBrowser,
  viewports,
  watchFaults,
  weightOf,
} from '../support/browser.ts';
import { type RunningSale, startSale } from '../support/running-sale.ts';

/**
 * People buy through the pages of the real command: in both languages, on both sizes, with and
 * without script, one of them through the lobby and its draw; the operator watches.
 */
let browser: Browser;
let sale: RunningSale;

beforeAll(async () => {
  browser = await startBrowser();
  sale = await startSale('--open-in', '30s');
});
afterAll(async () => {
  await browser.close();
  expect(await sale.stop()).toBe(0);
});

interface Buyer {
  readonly language: 'en' | 'zh';
  readonly script: boolean;
  readonly lobby?: boolean;
  readonly cancels?: boolean;
}

async function buy(context: BrowserContext, buyer: Buyer): Promise<Page> {
  const w = words[buyer.language];
  const page = await context.newPage();
  const faults = watchFaults(page);
  const look = async (place: string): Promise<void> => {
    if (buyer.script) expect([place, await seriousFindings(page)]).toEqual([place, []]);
  };
  await page.goto(sale.shop);
  await look('home');
  await page.getByRole('link', { name: 'Lantern Night' }).click();
  await look('activity');
  if (buyer.lobby === true) {
    await page.getByRole('button', { name: w.joinLobby }).click();
    await page.getByRole('heading', { name: w.lobbyHeading }).waitFor();
    await look('lobby');
  } else await page.getByRole('button', { name: w.joinLine }).click();
  await page.getByRole('heading', { name: w.turnHeading }).waitFor();
  await look('turn');
  await page.getByRole('button', { name: w.claim }).click();
  await page.getByRole('heading', { name: w.confirmHeading }).waitFor();
  await look('confirm');
  await page.getByRole('button', { name: w.confirm, exact: true }).click();
  await page.getByRole('heading', { name: w.orderPendingHeading }).waitFor();
  await look('order');
  if (buyer.cancels === true) {
    await page.getByText(w.cancel, { exact: true }).click();
    await page.getByRole('button', { name: w.cancelConfirm }).click();
    await page.getByRole('heading', { name: w.orderCancelledHeading }).waitFor();
  } else {
    await page.getByRole('button', { name: w.payDemo }).click();
    await page.getByRole('heading', { name: w.paidHeading }).waitFor();
  }
  await look('end');
  expect(faults).toEqual([]);
  return page;
}

function contextFor(
  size: keyof typeof viewports,
  { language, script }: Buyer,
): Promise<BrowserContext> {
  return browser.newContext({
    viewport: viewports[size],
    locale: language === 'zh' ? 'zh-CN' : 'en-GB',
    javaScriptEnabled: script,
  });
}

describe('buying one unit', () => {
  it.each([
    ['phone', { language: 'en', script: true, lobby: true }],
    ['phone', { language: 'zh', script: false }],
    ['desktop', { language: 'zh', script: true }],
    ['desktop', { language: 'en', script: false }],
    ['desktop', { language: 'en', script: true, cancels: true }],
  ] as const)('on a %s: %j', async (size, buyer) => {
    const context = await contextFor(size, buyer);
    const page = await buy(context, buyer);
    // The place is a person's: the same on the activity's page, and the order is theirs alone.
    const order = page.url();
    expect((await page.goto(order))?.status()).toBe(200);
    const stranger = await browser.newContext();
    expect((await (await stranger.newPage()).goto(order))?.status()).toBe(404);
    await stranger.close();
    await context.close();
  });

  it('weighs at most 60 KiB a page', async () => {
    const context = await browser.newContext();
    for (const path of ['/', '/a/lantern-night', '/a/nowhere']) {
      const bytes = await weightOf(context, sale.shop + path);
      expect([path, bytes <= 60 * 1024, bytes]).toEqual([path, true, bytes]);
    }
    await context.close();
  });
});

describe('the operator', () => {
  it('signs in by the printed link and sees stock that adds up, with what was sold', async () => {
    const context = await browser.newContext({ viewport: viewports.desktop, locale: 'en-GB' });
    const page = await context.newPage();
    const faults = watchFaults(page);
    await page.goto(sale.signIn);
    await page.locator('.uplot').first().waitFor();
    const rows = page.locator('.stocks .sku');
    await expect.poll(() => rows.count()).toBe(3);
    await expect
      .poll(async () => (await rows.allInnerTexts()).every((text) => text.includes('Adds up')))
      .toBe(true);
    await expect.poll(async () => (await rows.allInnerTexts()).join(' ')).toMatch(/Paid 4\b/);
    expect(await seriousFindings(page)).toEqual([]);
    expect(faults).toEqual([]);
    await context.close();
  });
});
