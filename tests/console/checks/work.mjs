// What people do in the console: talk, answer, stop, run a routine; in two tabs, and while the daemon restarts.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, times, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';
import { gate, model } from '../support/model.mjs';

/** The answers of the model: `write KEY` stops in the middle until the gate of `KEY` is opened. */
function script(gates) {
  return (text, step, messages) => {
    const [, word, what] = /^(write|calculate) (\S+)/.exec(text) ?? [];
    if (word === 'write') {
      if (!gates.has(what)) gates.set(what, gate());
      return { text: 'one two three', until: gates.get(what).opened, rest: ` and the end of ${what}` };
    }
    if (word === 'calculate' && !step) return { calls: [['calculate', { expression: what }]] };
    if (word === 'calculate') return { text: `It is ${messages.at(-1).content}.` };
    return { text: text.includes('note.txt') ? 'I have read note.txt' : 'hello to you' };
  };
}

/** A daemon, its model, and a person who is signed in. `open(KEY)` lets the model finish what it writes. */
async function world(browser) {
  const gates = new Map();
  const server = await model(script(gates));
  const daemon = await new Daemon({ ...server.settings, ...ASK }).start();
  return { server, daemon, visitor: await Visitor.signedIn(browser, daemon), open: (key) => gates.get(key).open() };
}

async function end({ visitor, daemon, server }) {
  try { await visitor.close(); } finally {
    server.close();
    await daemon.close();
  }
}

const ASK = { 'approvals.rules': '[{tool="calculate",ask="always"}]' };
/** A request that a dying or absent daemon does not answer. */
export const LOST = /ERR_CONNECTION_REFUSED|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_SOCKET_NOT_CONNECTED/;

/** An answer that is being written, and complete ones. */
const BUSY = '.message[aria-busy=true]';
const DONE = '.message.assistant:not([aria-busy])';
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

group('work', world, end, () => {
  check('an answer is shown while it is written', async ({ visitor, open }) => {
    const page = await talk(visitor, 'streamed');
    await say(page, 'write a');
    await page.locator(BUSY, { hasText: 'one two three' }).waitFor();
    times(await shown(page), 'the end of a', 0);
    open('a');
    await page.locator(BUSY).waitFor({ state: 'detached' });
    for (const part of ['write a', 'one two three', 'the end of a']) times(await shown(page), part, 1);
    await page.close();
  });

  check('a question is approved in the conversation, and its history names the answer', async ({ visitor, daemon }) => {
    const page = await talk(visitor, 'approved');
    await say(page, 'calculate 17*23');
    await page.getByRole('region', { name: 'Question' }).getByRole('button', { name: 'Approve' }).click();
    await page.getByText('It is 391').waitFor();
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
    await say(page, 'write b');
    await page.locator(BUSY, { hasText: 'one two three' }).waitFor();
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await page.locator('.message', { hasText: 'user_stop' }).waitFor();
    assert.equal(await page.locator(BUSY).count(), 0);
    await page.close();
  });

  check('keys alone stop a run: Tab to Stop, then Enter', async ({ visitor, daemon }) => {
    const { run_id: run } = await daemon.say('by-keys', 'write c');
    const page = await visitor.open('#/now');
    await page.locator('main > .scroll').getByRole('cell', { name: 'by-keys' }).waitFor();
    const title = () => page.evaluate(() => document.activeElement.title);
    for (let i = 0; i < 100 && await title() !== 'Stop the run of by-keys'; i += 1) await page.keyboard.press('Tab');
    assert.equal(await title(), 'Stop the run of by-keys');
    await page.keyboard.press('Enter');
    await page.locator('main > .scroll').getByRole('cell', { name: 'by-keys' }).waitFor({ state: 'detached' });
    assert.equal((await daemon.get(`runs/${run}`)).reason, 'user_stop');
    await page.close();
  });

  check('a freeze stops the runs, shows its reason as text, and ends with the thaw', async ({ visitor, daemon }) => {
    await daemon.say('frozen', 'write f');
    const page = await visitor.open('#/now');
    await page.locator('main > .scroll').getByRole('cell', { name: 'frozen' }).waitFor();
    await page.getByRole('button', { name: 'Freeze everything' }).click();
    await page.getByLabel('Reason').fill('a <b>reason</b>');
    await page.keyboard.press('Enter');
    await page.getByText('Everything is frozen', { exact: true }).waitFor();
    await page.getByText('a <b>reason</b>', { exact: true }).waitFor();
    await page.locator('main > .scroll').getByRole('cell', { name: 'frozen' }).waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Thaw' }).click();
    await page.getByText('Everything is frozen', { exact: true }).waitFor({ state: 'detached' });
    assert.deepEqual((await daemon.get('freeze')).freezes, []);
    await page.close();
  });

  check('a job is made with the form, and is cancelled', async ({ visitor, daemon }) => {
    const page = await visitor.open('#/jobs/new');
    await page.getByLabel(/^Task/).fill('write h');
    await page.getByLabel(/^Title/).fill('Greeting');
    await page.getByRole('button', { name: /^Create/ }).click();
    await page.getByRole('heading', { name: 'Greeting' }).waitFor();
    await page.locator('main .state', { hasText: 'in progress' }).waitFor();
    await page.getByRole('button', { name: 'Cancel the job' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel the job' }).click();
    await page.locator('main .state', { hasText: 'cancelled' }).waitFor();
    assert.equal((await daemon.get('jobs')).jobs[0].state, 'cancelled');
    await page.close();
  });

  check('a routine is made with the form, and is run now', async ({ visitor, daemon }) => {
    const page = await visitor.open('#/routines/new');
    await page.getByLabel('Name').fill('morning');
    await page.getByLabel('Starts').selectOption('manual');
    await page.getByLabel('Prompt').fill('say hello');
    await page.getByRole('button', { name: 'Create the routine' }).click();
    await page.getByRole('heading', { name: 'morning' }).waitFor();
    await page.getByRole('button', { name: 'Run now' }).click();
    await page.getByRole('heading', { name: 'Runs' }).waitFor();
    await page.getByRole('table').last().getByRole('row').nth(1).waitFor();
    const { routine_runs: runs } = await daemon.get('routines/morning/runs');
    assert.equal(runs.length, 1);
    await page.close();
  });

  check('the form of a routine shows the hidden characters of its fields', async ({ visitor, daemon }) => {
    const action = { mode: 'lightweight', prompt: 'say \u202eolleh' };
    await daemon.post('routines', { name: 'hidden', trigger: { kind: 'manual' }, action });
    const page = await visitor.open('#/routines/edit/hidden');
    await page.getByText('say \u27e8U+202E\u27e9olleh').waitFor();
    await page.getByRole('button', { name: 'Expert view' }).click();
    const json = await page.getByLabel('The whole specification as JSON').inputValue();
    assert.ok(json.includes('say \\u202eolleh'), json);
    await page.getByRole('button', { name: 'Save the routine' }).click();
    await page.getByRole('heading', { name: 'hidden' }).waitFor();
    assert.equal((await daemon.get('routines/hidden')).action.prompt, action.prompt);
    await page.close();
  });

  check('two tabs show the same, once, also after a reload', async ({ visitor, open }) => {
    const [one, other] = [await talk(visitor, 'twice'), await talk(visitor, 'twice')];
    await say(one, 'write d');
    for (const page of [one, other]) await page.locator(BUSY, { hasText: 'one two three' }).waitFor();
    await say(one, 'greet me');
    for (const page of [one, other]) await page.getByText('waits for its turn').waitFor();
    await other.reload();
    await other.locator(BUSY, { hasText: 'one two three' }).waitFor();
    open('d');
    for (const page of [one, other]) {
      await until('both messages are answered', async () => (await page.locator(DONE).count()) === 2);
      const text = await shown(page);
      for (const part of ['write d', 'one two three', 'the end of d', 'greet me', 'hello to you']) times(text, part, 1);
      assert.equal(await page.locator('.message').count(), 4);
      await page.close();
    }
  });

  check('a question is in view when its conversation is opened', async ({ visitor, daemon }) => {
    const { run_id: run } = await daemon.say('in-view', `write ${'g '.repeat(2000)}`);
    await daemon.post(`runs/${run}/stop?wait_ms=5000`);
    await daemon.say('in-view', 'calculate 2*2');
    const page = await talk(visitor, 'in-view');
    const approve = page.getByRole('region', { name: 'Question' }).getByRole('button', { name: 'Approve' });
    await approve.waitFor();
    await until('the button is inside the list', async () => {
      const [box, button] = [await page.locator('.messages').boundingBox(), await approve.boundingBox()];
      return button.y >= box.y && button.y + button.height <= box.y + box.height;
    });
    await page.close();
  });

  check('a run that has ended is not without events while they load', async ({ visitor, daemon }) => {
    const { run_id: run } = await daemon.say('ended', 'say hello');
    await daemon.get(`runs/${run}/wait`);
    const page = await visitor.open();
    const late = gate();
    await page.route(`**/api/v1/runs/${run}/events`, async (route) => { await late.opened; await route.continue(); });
    await page.evaluate((id) => { location.hash = `#/runs/${id}`; }, run);
    await page.getByRole('heading', { name: /Timeline/ }).waitFor();
    assert.match(await page.locator('main').innerText(), /Loading/);
    late.open();
    await page.getByRole('option', { name: /End/ }).waitFor();
    await page.close();
  });

  check('a file is attached and named in the answer', async ({ visitor }) => {
    const page = await talk(visitor, 'attached');
    await page.locator('input[type=file]').setInputFiles({ name: 'note.txt', mimeType: 'text/plain', buffer: Buffer.from('hi') });
    await page.locator('.chips', { hasText: 'note.txt 2 B' }).waitFor();
    await say(page, 'what is in the file');
    await page.locator('.message.assistant', { hasText: 'note.txt' }).waitFor();
    await page.close();
  });
});

group('restart', world, end, () => {
  check('a daemon that is killed and restarted under open pages: they reconnect, and nothing is doubled', async ({ visitor, daemon, open }) => {
    visitor.expect(LOST);
    const [page, now] = [await talk(visitor, 'crash'), await visitor.open('#/now')];
    await say(page, 'greet me');
    await until('the first answer', async () => (await page.locator(DONE).count()) === 1);
    await say(page, 'write e');
    await page.locator(BUSY, { hasText: 'one two three' }).waitFor();
    await now.locator('main > .scroll').getByRole('cell', { name: 'crash' }).waitFor();
    await daemon.kill();
    for (const one of [page, now]) await one.getByText('no connection, trying again').waitFor();
    await say(page, 'say hello');
    await page.getByText('It was not sent').waitFor();
    await daemon.start();
    for (const one of [page, now]) await one.locator('.state.good', { hasText: 'live' }).waitFor();
    await page.getByRole('button', { name: 'Send again' }).click();
    open('e');
    await until('all is answered', async () => (await page.locator(DONE).count()) === 3);
    const text = await shown(page);
    for (const part of ['greet me', 'write e', 'one two three', 'the end of e', 'say hello']) times(text, part, 1);
    assert.equal(await page.locator('.message').count(), 6);
    await now.getByText('No run is running now.').waitFor();
    const { messages } = await daemon.get('sessions/crash/messages');
    assert.equal(messages.length, 6);
  });
});
