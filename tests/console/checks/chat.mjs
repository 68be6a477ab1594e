// What a conversation shows of the work behind an answer: tool calls, answered questions and reasoning, all folded.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';
import { gate, model } from '../support/model.mjs';
import { say, talk } from './work.mjs';

const EVIL = '<img src=x onerror="window.hacked=1">';

async function world(browser) {
  const held = gate();
  const server = await model((text, step) => {
    if (text.startsWith('calculate') && !step) return { thought: `I think ${EVIL}`, calls: [['calculate', { expression: '17*23' }]] };
    if (text.startsWith('list') && !step) return { calls: [['list_files', { path: '.' }], ['read_file', { path: EVIL }]] };
    if (text.startsWith('list')) return { text: 'one two', until: held.opened, rest: ' three' };
    return { text: 'It is done.' };
  });
  const daemon = await new Daemon({ ...server.settings, 'approvals.rules': '[{tool="calculate",ask="always"}]' }).start();
  return { server, daemon, release: held.open, visitor: await Visitor.signedIn(browser, daemon) };
}

async function end({ visitor, daemon, server, release }) {
  release();
  try { await visitor.close(); } finally {
    server.close();
    await daemon.close();
  }
}

const unhacked = async (page) => {
  assert.equal(await page.evaluate(() => window.hacked), undefined);
  assert.equal(await page.locator('main img').count(), 0);
};

group('chat', world, end, () => {
  check('an answered question is a line with who and when, between the messages', async ({ visitor, daemon }) => {
    const page = await talk(visitor, 'answered');
    await say(page, 'calculate 17*23');
    await page.getByRole('region', { name: 'Question' }).getByRole('button', { name: 'Deny' }).click();
    // Until its end is known, the working run shows its answer besides the message.
    await page.locator('.message.assistant:not([aria-busy])', { hasText: 'It is done.' }).waitFor();
    await page.locator('.message[aria-busy]').waitFor({ state: 'detached' });
    for (const again of [false, true]) {
      if (again) await page.reload();
      const line = page.locator('.answered', { hasText: 'denied' });
      await line.waitFor();
      assert.match(await line.innerText(), /denied\s+calculate .*17\*23.*\s+by operator-token\s+(now|\d+ s ago)/s);
      const tops = await Promise.all(['.message.user', '.answered', '.message.assistant'].map(async (part) => (await page.locator(part).boundingBox()).y));
      assert.deepEqual(tops, [...tops].sort((a, b) => a - b));
    }
    const { approvals: [question] } = await daemon.get('approvals?session=answered&all=true');
    assert.equal(await page.locator('.answered a').getAttribute('href'), `#/questions/${question.id}`);
    await page.close();
  });

  check('tool calls are rows with state and time while a run works, and folded after it', async ({ visitor, release }) => {
    const page = await talk(visitor, 'rows');
    await say(page, 'list the files');
    const live = page.locator('.message[aria-busy=true] .steps > li');
    await until('both calls have ended', async () => assert.deepEqual((await live.locator('.state').allInnerTexts()).sort(), ['error', 'success']) ?? true);
    for (const text of await live.locator('summary').allInnerTexts()) assert.match(text, /\d+ ms$/);
    await live.first().locator('summary').click();
    await live.first().getByText('Result').waitFor();
    release();
    const folded = page.locator('.message.assistant .work > details');
    await folded.getByText('2 tool calls').click();
    const rows = folded.locator('.steps > li');
    await rows.nth(1).waitFor();
    assert.equal(await rows.count(), 2);
    const bad = rows.filter({ hasText: 'read_file' });
    assert.equal(await bad.locator('pre').first().isVisible(), false);
    await bad.locator('summary').click();
    await bad.locator('pre').first().getByText(EVIL).waitFor();
    await unhacked(page);
    await page.close();
  });

  check('reasoning is folded, and is text', async ({ visitor }) => {
    const page = await talk(visitor, 'reasoned');
    await say(page, 'calculate 6*7');
    await page.getByRole('region', { name: 'Question' }).getByRole('button', { name: 'Approve' }).click();
    await page.locator('.message.assistant', { hasText: 'It is done.' }).waitFor();
    const folded = page.locator('.message.assistant:not([aria-busy]) .reasoning');
    assert.equal(await folded.locator('pre').isVisible(), false);
    await folded.locator('summary').click();
    await folded.getByText(`I think ${EVIL}`).waitFor();
    await unhacked(page);
    await page.close();
  });

  check('a conversation shows how full the context is, and is tried again, copied and deleted by a menu', async ({ visitor, daemon }) => {
    const page = await talk(visitor, 'whole');
    await say(page, 'hello');
    const answers = page.locator('.message.assistant:not([aria-busy])', { hasText: 'It is done.' });
    await answers.waitFor();
    await page.getByText(/^\d+ % of the context$/).waitFor();
    const { used_tokens: used, context_tokens: all } = await daemon.get('sessions/whole/context');
    assert.ok(Math.abs(Number(await page.getByRole('meter', { name: 'Used context' }).getAttribute('value')) - used / all) < 0.02);
    const menu = page.locator('.menu > summary');
    const again = page.getByRole('button', { name: 'Try the last message again' });
    assert.equal(await again.isVisible(), false);
    await menu.click();
    await again.waitFor();
    await page.keyboard.press('Escape');
    await again.waitFor({ state: 'hidden' });
    await menu.click();
    await again.click();
    await until('the message has another run', async () => (await daemon.get('runs?session=whole')).runs.filter(({ status }) => status === 'completed').length === 2);
    await answers.waitFor();
    await menu.click();
    await page.getByRole('button', { name: 'Rename' }).click();
    await page.getByRole('dialog').getByLabel('Title').fill(EVIL);
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await page.locator('.sessions li').getByText(EVIL).waitFor();
    await unhacked(page);
    await menu.click();
    await page.getByRole('button', { name: 'Go on in a copy' }).click();
    await until('there are two conversations', async () => (await daemon.get('sessions/whole/threads')).threads.length === 2);
    await until('nothing is open', async () => (await daemon.get('sessions/whole')).open_runs === 0);
    await menu.click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await until('the list is shown', () => page.url().endsWith('#/chat'));
    assert.ok(!(await daemon.get('sessions')).sessions.some(({ session }) => session === 'whole'));
    await page.close();
  });

  check('a conversation is hidden, listed among the hidden ones, and shown again', async ({ visitor, daemon }) => {
    await daemon.say('out of the way', 'hello');
    const page = await visitor.open('#/chat');
    const row = page.locator('.sessions li').filter({ hasText: 'hello' }).filter({ has: page.locator('a[title="out of the way"]') });
    await row.getByRole('button', { name: 'Hide' }).click();
    await row.waitFor({ state: 'detached' });
    assert.ok((await daemon.get('sessions/out%20of%20the%20way')).hidden);
    await page.getByRole('checkbox', { name: 'Hidden' }).check();
    await row.getByRole('button', { name: 'Show again' }).click();
    await page.getByText('No conversation is hidden.').waitFor();
    await page.getByRole('checkbox', { name: 'Hidden' }).uncheck();
    await row.waitFor();
    await page.close();
  });
});
