// The log of events: those before the page was opened, those that come, and the filters.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';

async function world(browser) {
  const daemon = await new Daemon().start();
  await daemon.get(`runs/${(await daemon.say('before', 'list files')).run_id}/wait`);
  return { daemon, visitor: await Visitor.signedIn(browser, daemon) };
}

group('log', world, async ({ visitor, daemon }) => {
  try { await visitor.close(); } finally { await daemon.close(); }
}, () => {
  check('the log has the events before it was opened and those that come, in their order, and filters them', async ({ visitor, daemon }) => {
    const page = await visitor.open('#/log');
    const rows = page.getByRole('listbox', { name: 'Events' }).getByRole('option');
    await rows.filter({ hasText: 'before: list_files' }).or(rows.filter({ hasText: 'list_files' })).first().waitFor();
    const { run_id: run } = await daemon.say('after', 'list files');
    await rows.filter({ hasText: 'after: completed: final_text' }).waitFor();
    const tops = await rows.evaluateAll((all) => all.map((one) => one.getBoundingClientRect().top));
    assert.deepEqual(tops, [...tops].sort((a, b) => a - b));
    await page.getByLabel('Kind').selectOption('tools');
    await until('only tool calls are shown', async () => {
      const texts = await rows.allInnerTexts();
      return texts.length >= 4 && texts.every((text) => text.includes('list_files'));
    });
    await page.getByLabel('Filter').fill('after');
    await until('only those of one session are shown', async () => (await rows.allInnerTexts()).every((text) => text.includes('after')));
    await rows.first().click();
    assert.equal(await page.locator('.detail').getByRole('link', { name: 'run', exact: true }).getAttribute('href'), `#/runs/${run}`);
    await page.getByRole('button', { name: 'Hold' }).click();
    const count = await rows.count();
    await daemon.get(`runs/${(await daemon.say('after', 'list files')).run_id}/wait`);
    await page.getByRole('button', { name: 'Go on' }).waitFor();
    assert.equal(await rows.count(), count);
    await page.getByRole('button', { name: 'Go on' }).click();
    await until('the events in between are shown', async () => (await rows.count()) > count);
    await page.close();
  });
});
