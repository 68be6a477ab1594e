// What people do in the console: talk, answer, stop, run a routine; in two tabs, and while the daemon restarts.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, times, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';

const ASK = { 'approvals.rules': '[{tool="calculate",ask="always"}]' };
/** A request that a dying or absent daemon does not answer. */
export const LOST = /ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_SOCKET_NOT_CONNECTED/;

/** The messages of a session that does not exist yet. */
export const NEW_SESSION = /status of 404 .*\/sessions\/[^/]*\/messages/;

/** A page that shows the conversation `session`, when its event stream is open. */
export async function talk(visitor, session) {
  visitor.expect(NEW_SESSION);
  const page = await visitor.open(`#/chat/${session}`);
  await page.locator('.talk .state.good', { hasText: 'live' }).waitFor();
  return page;
}

export async function say(page, text) {
  await page.getByRole('textbox', { name: 'Message' }).fill(text);
  await page.keyboard.press('Enter');
}

export const shown = (page) => page.locator('.messages').innerText();

group('work', async (browser) => {
  const daemon = await new Daemon(ASK).start();
  return { browser, daemon, visitor: await Visitor.signedIn(browser, daemon) };
}, async ({ visitor, daemon }) => {
  try { await visitor.close(); } finally { await daemon.close(); }
}, () => {
  check('an answer is shown while it is written', async ({ visitor }) => {
    const page = await talk(visitor, 'streamed');
    await say(page, 'rehearse stall 2');
    await page.locator('.message[aria-busy=true]', { hasText: '1 2 3' }).waitFor();
    times(await shown(page), 'nothing stopped me', 0);
    await page.locator('.message[aria-busy=true]').waitFor({ state: 'detached' });
    times(await shown(page), 'nothing stopped me', 1);
    times(await shown(page), 'rehearse stall 2', 1);
    await page.close();
  });

  check('a question is approved in the conversation, and its history names the answer', async ({ visitor, daemon }) => {
    const page = await talk(visitor, 'approved');
    await say(page, 'calculate 17*23');
    await page.getByRole('region', { name: 'Question' }).getByRole('button', { name: 'Approve' }).click();
    await page.getByText('17*23 = 391').waitFor();
    await page.getByRole('region', { name: 'Question' }).waitFor({ state: 'detached' });
    const { approvals: [question] } = await daemon.get('approvals?session=approved&all=true');
    assert.equal(question.state, 'used');
    await page.goto(`${daemon.url}/#/questions/${question.id}`);
    await page.getByText('Answered by').waitFor();
    await page.close();
  });

  check('a question is denied on its own page, and the tool does not run', async ({ visitor, daemon }) => {
    const { run_id: run } = await daemon.say('denied', 'calculate 6*7');
    const page = await visitor.open('#/questions');
    await page.getByRole('button', { name: 'Deny' }).first().click();
    const denied = await until('the run has ended', async () => {
      const state = await daemon.get(`runs/${run}`);
      return state.ended_at && state;
    });
    assert.ok(!denied.reply.includes('42'), denied.reply);
    const { approvals: [question] } = await daemon.get('approvals?session=denied&all=true');
    assert.equal(question.state, 'denied');
    await page.close();
  });

  check('Stop ends the run, and the page names the reason', async ({ visitor }) => {
    const page = await talk(visitor, 'stopped');
    await say(page, 'rehearse stall 60');
    await page.locator('.message[aria-busy=true]', { hasText: '1 2' }).waitFor();
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await page.locator('.message', { hasText: 'user_stop' }).waitFor();
    assert.equal(await page.locator('.message[aria-busy=true]').count(), 0);
    await page.close();
  });

  check('keys alone stop a run: Tab to Stop, then Enter', async ({ visitor, daemon }) => {
    const { run_id: run } = await daemon.say('by-keys', 'rehearse stall 60');
    const page = await visitor.open('#/now');
    await page.getByRole('cell', { name: 'by-keys' }).waitFor();
    const title = () => page.evaluate(() => document.activeElement.title);
    for (let i = 0; i < 100 && await title() !== 'Stop the run of by-keys'; i += 1) await page.keyboard.press('Tab');
    assert.equal(await title(), 'Stop the run of by-keys');
    await page.keyboard.press('Enter');
    await page.getByRole('cell', { name: 'by-keys' }).waitFor({ state: 'detached' });
    assert.equal((await daemon.get(`runs/${run}`)).reason, 'user_stop');
    await page.close();
  });

  check('a routine is made with the form, and is run now', async ({ visitor, daemon }) => {
    const page = await visitor.open('#/routines/new');
    await page.getByLabel('Name').fill('morning');
    await page.getByLabel('Starts').selectOption('manual');
    await page.getByLabel('Prompt').fill('what time is it');
    await page.getByRole('button', { name: 'Create the routine' }).click();
    await page.getByRole('heading', { name: 'morning' }).waitFor();
    await page.getByRole('button', { name: 'Run now' }).click();
    await page.getByRole('heading', { name: 'Runs' }).waitFor();
    await page.getByRole('table').last().getByRole('row').nth(1).waitFor();
    const { routine_runs: runs } = await daemon.get('routines/morning/runs');
    assert.equal(runs.length, 1);
    await page.close();
  });

  check('two tabs show the same, once, also after a reload', async ({ visitor }) => {
    const [one, other] = [await talk(visitor, 'twice'), await talk(visitor, 'twice')];
    await say(one, 'rehearse stall 3');
    for (const page of [one, other]) await page.locator('.message[aria-busy=true]', { hasText: '1 2 3' }).waitFor();
    await say(one, 'list files');
    for (const page of [one, other]) await page.getByText('waits for its turn').waitFor();
    await other.reload();
    await other.locator('.message[aria-busy=true]', { hasText: '1 2 3' }).waitFor();
    for (const page of [one, other]) {
      await until('both messages are answered', async () => (await page.locator('.message.assistant:not([aria-busy])').count()) === 2);
      const text = await shown(page);
      for (const part of ['nothing stopped me', 'rehearse stall 3', 'list files']) times(text, part, 1);
      assert.equal(await page.locator('.message').count(), 4);
      await page.close();
    }
  });

  check('a file is attached and named in the answer', async ({ visitor }) => {
    const page = await talk(visitor, 'attached');
    await page.locator('input[type=file]').setInputFiles({ name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('hi') });
    await page.locator('.chips', { hasText: 'note.txt' }).waitFor();
    await say(page, 'what is in the file');
    await page.locator('.message.assistant', { hasText: 'note.txt' }).waitFor();
    await page.close();
  });
});

group('restart', async (browser) => {
  const daemon = await new Daemon(ASK).start();
  return { daemon, visitor: await Visitor.signedIn(browser, daemon) };
}, async ({ visitor, daemon }) => {
  try { await visitor.close(); } finally { await daemon.close(); }
}, () => {
  check('a daemon that is killed and restarted under open pages: they reconnect, and nothing is doubled', async ({ visitor, daemon }) => {
    visitor.expect(LOST);
    const [page, now] = [await talk(visitor, 'crash'), await visitor.open('#/now')];
    await say(page, 'list files');
    await until('the first answer', async () => (await page.locator('.message.assistant:not([aria-busy])').count()) === 1);
    await say(page, 'rehearse stall 3');
    await page.locator('.message[aria-busy=true]', { hasText: '1 2 3' }).waitFor();
    await now.getByRole('cell', { name: 'crash' }).waitFor();
    await daemon.kill();
    for (const one of [page, now]) await one.getByText('no connection, trying again').waitFor();
    await say(page, 'what time is it');
    await page.getByText('It was not sent').waitFor();
    await daemon.start();
    for (const one of [page, now]) await one.locator('.state.good', { hasText: 'live' }).waitFor();
    await page.getByRole('button', { name: 'Send again' }).click();
    await until('all is answered', async () => (await page.locator('.message.assistant:not([aria-busy])').count()) === 3);
    const text = await shown(page);
    for (const part of ['list files', 'rehearse stall 3', 'nothing stopped me', 'what time is it']) times(text, part, 1);
    assert.equal(await page.locator('.message').count(), 6);
    await now.getByText('No run is running now.').waitFor();
    const { messages } = await daemon.get('sessions/crash/messages');
    assert.equal(messages.length, 6);
  });
});
