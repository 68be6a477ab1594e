// The run as a picture: its lanes over time, its subagents, and the same as a table.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';
import { model } from '../support/model.mjs';

const TASK = 'Read <img src=x onerror="window.hacked=1"> the log';
const ANSWERS = {
  'Do the work': [{ text: 'I calculate.', calls: [['calculate', { expression: '17*23' }]] }, { calls: [['spawn_subagent', { task: TASK }]] }, { text: 'Done.' }],
  'the log': [{ text: 'It is empty.' }],
};

/** A run with a question, a tool call, a subagent and its own model calls. */
async function world(browser) {
  const server = await model((text, step) => {
    const answers = Object.entries(ANSWERS).find(([part]) => text.includes(part))?.[1] ?? [{ text: 'Done.' }];
    return answers[Math.min(step, answers.length - 1)];
  });
  const daemon = await new Daemon({ ...server.settings, 'approvals.rules': '[{tool="calculate",ask="always"}]' }).start();
  const { run_id: run } = await daemon.say('pictured', 'Do the work');
  await daemon.get(`runs/${run}/wait?timeout_ms=20000`);
  const { approvals: [question] } = await daemon.get('approvals?session=pictured');
  await daemon.post(`approvals/${question.id}`, { decision: 'approve' });
  const { status } = await daemon.get(`runs/${run}/wait?timeout_ms=20000`);
  assert.equal(status, 'completed');
  return { server, daemon, run, visitor: await Visitor.signedIn(browser, daemon) };
}

async function end({ visitor, daemon, server }) {
  try { await visitor.close(); } finally {
    server.close();
    await daemon.close();
  }
}

const AT = Date.UTC(2026, 0, 1);
/** Facts as a stream: `[ms after the acceptance, type, fields]`. */
const stream = (facts) => facts.map(([after, type, fields], i) => `id: ${i + 1}\nevent: ${type}\ndata: ${JSON.stringify({
  seq: i + 1, at: new Date(AT + after).toISOString(), type, ...fields })}\n\n`).join('');
const FACTS = [[0, 'run_accepted'], [1000, 'run_started', { attempt: 1 }], [4000, 'model_called', { step: 1, attempts: 1, input: 900, output: 100, took_ms: 3000 }],
  [4000, 'approval_requested', { approval: 'a', summary: 'git push' }], [6000, 'approval_resolved', { approval: 'a', state: 'approved', actor: 'Ann' }],
  [6000, 'tool_started', { call_id: '1', name: 'run_command' }], [6000, 'tool_started', { call_id: '2', name: 'read_file' }],
  [8000, 'tool_finished', { call_id: '1', name: 'run_command', status: 'success', took_ms: 2000 }],
  [7000, 'tool_finished', { call_id: '2', name: 'read_file', status: 'error', took_ms: 1000 }],
  [10_000, 'model_called', { step: 2, attempts: 1, input: 1900, output: 100, took_ms: 2000 }], [12_500, 'run_ended', { status: 'completed', reason: 'final_text' }]];

/** Each block in hundredths of its lane: `[lane, left, right, row]`. */
const boxes = (page) => page.locator('.lanes svg').evaluateAll((all) => all.flatMap((svg) => [...svg.querySelectorAll('rect')].map((rect) => {
  const [lane, block] = [svg, rect].map((one) => one.getBoundingClientRect());
  const share = (x) => Math.round(((x - lane.left) / lane.width) * 100);
  return [rect.classList[1], share(block.left), share(block.right), Math.floor((block.top - lane.top) / 18)];
})));

group('picture', world, end, () => {
  check('each span of a run stands at its time in its lane', async ({ visitor, daemon, run }) => {
    for (const width of [1280, 390]) {
      const page = await visitor.open('#/sign-in');
      await page.setViewportSize({ width, height: 800 });
      await page.route(`**/api/v1/runs/${run}/events`, (route) => route.fulfill({ contentType: 'text/event-stream', body: stream(FACTS) }));
      await page.goto(`${daemon.url}/#/runs/${run}`);
      await page.reload();
      await page.locator('.lanes').waitFor();
      assert.deepEqual(await boxes(page), [['waiting', 0, 8, 0], ['model', 8, 32, 0], ['model', 64, 80, 0], ['tool', 48, 64, 0],
        ['tool', 48, 56, 1], ['person', 32, 48, 0]], `${width} px`);
      const text = await page.locator('.picture').innerText();
      assert.match(text, /12 s in all: waiting 1 s \(8 %\), model 5 s \(40 %\), tools 2 s \(16 %\), person 2 s \(16 %\)\./);
      assert.match(text, /The longest part: the model call of step 1, 3 s\./);
      assert.equal(await page.locator('rect.bad').count(), 1, 'the failed call');
      await page.close();
    }
  });

  check('the table has the same spans, and leads to the entries of the timeline', async ({ visitor, run }) => {
    const page = await visitor.open(`#/runs/${run}`);
    await page.getByText(/^The same as a table/).click();
    const table = page.locator('.picture table');
    await table.getByRole('row').nth(6).waitFor();
    await table.getByText(/approved by/).waitFor();
    const lanes = await table.locator('td[data-name=Part]').allInnerTexts();
    assert.deepEqual([...new Set(lanes)].sort(), ['Model', 'Person', 'Subagents', 'Tools']);
    const costs = async () => (await table.locator('td[data-name="Cost, about"]').allInnerTexts()).filter((text) => text.startsWith('$'));
    await until('each model call has its share of the cost', async () => (await costs()).length === 4);
    await table.getByRole('button', { name: 'calculate', exact: true }).click();
    await page.locator('.detail').getByText('17*23').waitFor();
    await until('the timeline has the focus', () => page.evaluate(() => document.activeElement.classList.contains('timeline')));
    await page.locator('rect.model').first().click();
    await page.locator('.detail').getByText('I calculate.').waitFor();
    await page.close();
  });

  check('the calls beside the work have names of their own', async ({ visitor, daemon, run }) => {
    const [page, call] = [await visitor.open('#/sign-in'), { call_id: `goal-${run.split('-').at(-1)}-0`, name: 'run_command', run_id: run }];
    const asked = { step: 1, attempts: 1, input: 9, output: 1, took_ms: 1000 };
    const facts = [[0, 'run_accepted'], [0, 'run_started', { attempt: 1 }], [1000, 'model_called', asked], [1000, 'tool_started', call],
      [2000, 'tool_finished', { ...call, status: 'success', took_ms: 1000 }], [3000, 'model_called', { ...asked, purpose: 'goal' }],
      [3000, 'run_ended', { status: 'completed', reason: 'final_text' }]];
    await page.route(`**/api/v1/runs/${run}/events`, (route) => route.fulfill({ contentType: 'text/event-stream', body: stream(facts) }));
    await page.goto(`${daemon.url}/#/runs/${run}`);
    await page.reload();
    await page.getByText(/^The same as a table/).click();
    const names = page.locator('.picture table td[data-name=What]');
    await names.nth(2).waitFor();
    assert.deepEqual((await names.allInnerTexts()).map((name) => name.trim()), ['Step 1', 'Check: run_command', 'Judge of the goal']);
    await page.close();
  });

  check('the task of a subagent is text', async ({ visitor, run }) => {
    const page = await visitor.open(`#/runs/${run}`);
    await page.locator('.tree').getByText(TASK).waitFor();
    assert.equal(await page.locator('main img').count(), 0);
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await page.close();
  });
});
