// Sign-in by token and by link, sign-out, and what the roles see.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { CLIENT, Daemon, OPERATOR } from '../support/daemon.mjs';

/** Chromium names each answer with an error status in its console. */
const REFUSED = /Failed to load resource: .* (401|403)/;

group('sign-in', async (browser) => ({ browser, daemon: await new Daemon().start() }), ({ daemon }) => daemon.close(), () => {
  check('a wrong token is refused with words, and the right one opens the page', async ({ browser, daemon }) => {
    const visitor = await Visitor.of(browser, daemon);
    visitor.expect(REFUSED);
    const page = await visitor.open();
    await page.getByLabel('Token').fill('wrong');
    await page.keyboard.press('Enter');
    await page.getByText('This token is not the one of the daemon').waitFor();
    await page.getByLabel('Token').fill(OPERATOR);
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { name: 'Now' }).waitFor();
    const [cookie] = await visitor.context.cookies();
    assert.ok(cookie.httpOnly && cookie.sameSite === 'Strict', JSON.stringify(cookie));
    await visitor.close();
  });

  check('a link of `belay console` signs in once, and its secret leaves the address', async ({ browser, daemon }) => {
    const link = /http\S+#link=\S+/.exec(await daemon.belay('console'))[0];
    const visitor = await Visitor.of(browser, daemon);
    visitor.expect(REFUSED);
    const hash = link.slice(link.indexOf('#'));
    const page = await visitor.open(hash);
    await page.getByRole('heading', { name: 'Now' }).waitFor();
    assert.ok(!page.url().includes('link='), page.url());
    const second = await Visitor.of(browser, daemon);
    second.expect(REFUSED);
    const replayed = await second.open(hash);
    await replayed.getByText('This link is not valid').waitFor();
    assert.ok(!replayed.url().includes('link='), replayed.url());
    await visitor.close();
    await second.close();
  });

  check('a sign-out ends the streams, and the other tab shows the form', async ({ browser, daemon }) => {
    const visitor = await Visitor.signedIn(browser, daemon);
    visitor.expect(REFUSED);
    const [one, other] = [await visitor.open('#/now'), await visitor.open('#/now')];
    for (const page of [one, other]) await page.locator('main .state', { hasText: 'live' }).waitFor();
    await one.getByRole('button', { name: 'Sign out' }).click();
    for (const page of [one, other]) await page.getByLabel('Token').waitFor();
    await until('the streams have ended', async () => (await one.locator('nav').count()) === 0);
    await visitor.close();
  });

  check('a stolen cookie is worth nothing after the sign-out', async ({ browser, daemon }) => {
    const visitor = await Visitor.signedIn(browser, daemon);
    const [{ name, value }] = await visitor.context.cookies();
    const ask = () => fetch(`${daemon.url}/api/v1/status`, { headers: { cookie: `${name}=${value}` } });
    assert.equal((await ask()).status, 200);
    const page = await visitor.open('#/access');
    await page.getByRole('button', { name: 'Sign out everywhere' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Sign out everywhere' }).click();
    await page.getByLabel('Token').waitFor();
    assert.equal((await ask()).status, 401);
    visitor.expect(REFUSED);
    await visitor.close();
  });

  check('a client sees no page and no button of operators', async ({ browser, daemon }) => {
    const visitor = await Visitor.signedIn(browser, daemon, CLIENT);
    const page = await visitor.open('#/now');
    await page.locator('main .state', { hasText: 'live' }).waitFor();
    const names = await page.getByRole('navigation').getByRole('link').allInnerTexts();
    assert.ok(names.some((name) => name.includes('Chat')), String(names));
    for (const hidden of ['People', 'Backups', 'Settings']) assert.ok(!names.some((name) => name.includes(hidden)), String(names));
    for (const hidden of ['Freeze everything', 'Stop everything']) assert.equal(await page.getByRole('button', { name: hidden }).count(), 0);
    await page.goto(`${daemon.url}/#/settings`);
    await page.getByText('Only operators see this page').waitFor();
    await visitor.close();
  });
});

group('no token', async (browser) => {
  const daemon = await new Daemon({}, { tokens: false }).start();
  return { daemon, visitor: await Visitor.of(browser, daemon) };
}, async ({ visitor, daemon }) => {
  try { await visitor.close(); } finally { await daemon.close(); }
}, () => {
  check('without a token the address of `belay console` opens at once, and the page says what that means', async ({ visitor, daemon }) => {
    const [link] = /http\S+/.exec(await daemon.belay('console'));
    assert.equal(link, `${daemon.url}/`);
    const page = await visitor.open();
    await page.getByRole('heading', { name: 'Now' }).waitFor();
    assert.equal(await page.getByRole('button', { name: 'Sign out' }).count(), 0);
    await page.getByRole('link', { name: 'Access' }).click();
    await page.getByText('No token is configured').waitFor();
  });

  check('an address that changes while the page begins is followed', async ({ visitor, daemon }) => {
    const page = await visitor.context.newPage();
    await page.addInitScript(() => new MutationObserver((_, observer) => {
      if (!document.querySelector('nav')) return;
      observer.disconnect();
      location.hash = '#/money';
    }).observe(document, { childList: true, subtree: true }));
    await page.goto(`${daemon.url}/`);
    await page.getByRole('heading', { name: 'Money' }).waitFor();
    await page.close();
  });
});
