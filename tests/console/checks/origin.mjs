// Pages of other origins, and the clock of the browser.

import assert from 'node:assert/strict';
import http from 'node:http';
import { Visitor } from '../support/browser.mjs';
import { check, group } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';

const DAY_MS = 24 * 3600 * 1000;

/** A page of another origin, and of the same site: the browser sends the cookie to `target`, also with SameSite=Strict. */
async function foreignPage(body) {
  const server = http.createServer((_, answer) => { answer.setHeader('content-type', 'text/html'); answer.end(body); });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  return { url: `http://127.0.0.1:${server.address().port}/`, close: () => server.close() };
}

group('origin', async (browser) => {
  const daemon = await new Daemon({ 'approvals.rules': '[{tool="calculate",ask="always"}]' }).start();
  return { browser, daemon };
}, ({ daemon }) => daemon.close(), () => {
  check('a page of another origin cannot frame the console', async ({ browser, daemon }) => {
    const visitor = await Visitor.signedIn(browser, daemon);
    const foreign = await foreignPage(`<iframe src="${daemon.url}/"></iframe>`);
    const page = await visitor.context.newPage();
    const refused = page.waitForEvent('console', (message) => /frame-ancestors|X-Frame-Options/.test(message.text()));
    await page.goto(foreign.url);
    await refused;
    assert.equal(page.frames().length, 2);
    assert.equal(await page.frames()[1].locator('nav, form').count(), 0);
    foreign.close();
    await visitor.close();
  });

  check('a page of another origin freezes nothing with the cookie of an operator', async ({ browser, daemon }) => {
    const visitor = await Visitor.signedIn(browser, daemon);
    const foreign = await foreignPage(`<form method="post" enctype="text/plain" action="${daemon.url}/api/v1/freeze">
      <input name='{"detail":"' value='"}'><button>Win</button></form>`);
    const page = await visitor.context.newPage();
    await page.goto(foreign.url);
    const answered = page.waitForResponse(`${daemon.url}/api/v1/freeze`);
    await page.getByRole('button', { name: 'Win' }).click();
    const answer = await answered;
    assert.ok((await answer.request().allHeaders()).cookie, 'the browser is expected to send the cookie');
    assert.equal(answer.status(), 403);
    assert.deepEqual((await daemon.get('freeze')).freezes, []);
    foreign.close();
    await visitor.close();
  });

  for (const [words, by] of [['ahead', DAY_MS], ['behind', -DAY_MS]]) {
    check(`a clock of the browser a day ${words} shows the same ages`, async ({ browser, daemon }) => {
      await daemon.say(`clock-${words}`, 'calculate 1+1');
      const visitor = await Visitor.signedIn(browser, daemon);
      await visitor.context.clock.install({ time: Date.now() + by });
      const page = await visitor.open('#/now');
      const row = page.getByRole('row', { name: `clock-${words}` });
      await row.waitFor();
      assert.match(await row.getByRole('cell').nth(3).innerText(), /^(now|\d+ s ago)$/);
      const asked = await visitor.open(`#/chat/clock-${words}`);
      await asked.getByText('Without an answer it is denied: in ').waitFor();
      await visitor.close();
    });
  }
});
