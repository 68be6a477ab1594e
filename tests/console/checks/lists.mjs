// Ten thousand sessions and runs.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';

const COUNT = 10_000;
const MANY = new URL('../support/many.py', import.meta.url).pathname;

group('lists', async (browser) => {
  const daemon = await new Daemon().start();
  const { run_id: run } = await daemon.say('first', 'hello');
  await daemon.get(`runs/${run}/wait`);
  await daemon.stop();
  execFileSync('python3', [MANY, path.join(daemon.home, 'data', 'belay', 'belay.db'), String(COUNT)]);
  await daemon.start();
  return { daemon, visitor: await Visitor.signedIn(browser, daemon) };
}, async ({ visitor, daemon }) => {
  try { await visitor.close(); } finally { await daemon.close(); }
}, () => {
  check('the chat shows the newest of ten thousand sessions, and opens each by its name', async ({ visitor, daemon }) => {
    const page = await visitor.open('#/chat');
    const sessions = page.locator('.sessions li');
    await sessions.nth(99).waitFor();
    assert.equal(await sessions.count(), 100);
    await page.locator('.sessions').getByRole('button', { name: 'Show more' }).click();
    await sessions.nth(299).waitFor();
    assert.equal(await sessions.count(), 300);
    await page.getByRole('searchbox', { name: 'Find a conversation' }).fill('many-09999');
    await page.keyboard.press('Enter');
    await until('the conversation is open', () => page.url().endsWith('#/chat/many-09999'));
    await page.locator('.talk .title', { hasText: 'many-09999' }).waitFor();
    assert.equal((await daemon.get('sessions/many-09999')).session, 'many-09999');
    await page.close();
  });

  check('the list of ten thousand runs goes on without gap and double', async ({ visitor }) => {
    const page = await visitor.open('#/runs');
    const rows = page.locator('main tbody tr');
    await rows.nth(99).waitFor();
    for (const expected of [299, 498, 697]) {
      await page.getByRole('button', { name: 'Show more' }).click();
      await rows.nth(expected - 1).waitFor();
    }
    const names = await rows.locator('td[data-name=Run] small').allInnerTexts();
    const numbers = names.map((name) => Number(name.replace('many-', '')));
    numbers.forEach((number, i) => assert.equal(number, COUNT - i));
    await page.close();
  });

  check('on a phone a run has two lines, and a hundred of them are at most 8,000 px', async ({ visitor }) => {
    const page = await visitor.open('#/sign-in');
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(`${visitor.daemon.url}/#/runs`);
    const rows = page.locator('main tbody tr');
    await rows.nth(99).waitFor();
    assert.equal(await rows.count(), 100);
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    assert.ok(height <= 8000, `${height} px`);
    const tops = await rows.first().locator('td').evaluateAll((cells) => cells.map((cell) => cell.getBoundingClientRect())
      .filter(({ height }) => height > 0).map(({ top, height }) => Math.round(top + height / 2)));
    const [title, ...others] = tops;
    assert.ok(others.length >= 3 && others.every((middle) => middle > title && Math.abs(middle - others[0]) < 12), String(tops));
    await page.close();
  });

  check('on a phone the pages are in a menu and the filters are folded', async ({ visitor }) => {
    const page = await visitor.open('#/sign-in');
    await page.setViewportSize({ width: 390, height: 844 });
    await page.goto(`${visitor.daemon.url}/#/runs?status=completed`);
    await page.getByLabel('Status').waitFor({ state: 'hidden' });
    await page.getByText('Filters, 1 set').click();
    await page.getByLabel('Status').waitFor();
    const menu = page.getByRole('button', { name: 'Menu' });
    const money = page.getByRole('link', { name: 'Money', exact: true });
    assert.equal(await money.isVisible(), false);
    await menu.click();
    await money.waitFor();
    await page.keyboard.press('Escape');
    await money.waitFor({ state: 'hidden' });
    await page.keyboard.press('Enter');
    await money.click();
    await page.getByRole('heading', { name: 'Money', level: 1 }).waitFor();
    await money.waitFor({ state: 'hidden' });
    assert.equal(await page.locator('nav .here').innerText(), 'Money');
    await page.setViewportSize({ width: 1280, height: 844 });
    await money.waitFor();
    assert.equal(await menu.isVisible(), false);
    await page.close();
  });
});
