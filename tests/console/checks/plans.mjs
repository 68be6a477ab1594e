// Plans: their steps with states in the conversation and on the page of the run, and their changes between two steps.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';
import { gate, model } from '../support/model.mjs';
import { say, talk } from './work.mjs';

const EVIL = '<img src=x onerror="window.hacked=1">';
const STEPS = ['Look at what is there', `Do ${EVIL}`, 'Check the result'];

async function world(browser) {
  const held = gate();
  const server = await model((text, step, messages) => {
    const all = messages.map(({ content }) => (typeof content === 'string' ? content : JSON.stringify(content))).join('\n');
    const [, number] = /Your step is number (\d+)/.exec(all) ?? [];
    if (number !== undefined) {
      return { until: number === '0' || number === '1' ? held.opened : undefined, calls: [['terminate', { status: 'success', summary: `step ${number} is done` }]] };
    }
    if (text.includes('tidy') && !step && !all.includes('is done')) return { calls: [['planning', { command: 'create', title: 'The house', steps: STEPS }]] };
    return { text: 'The house is tidy.' };
  });
  const daemon = await new Daemon(server.settings).start();
  return { server, daemon, release: held.open, visitor: await Visitor.signedIn(browser, daemon) };
}

async function end({ visitor, daemon, server, release }) {
  release();
  try { await visitor.close(); } finally {
    server.close();
    await daemon.close();
  }
}

/** The steps as `[state, text]`. */
const steps = (page) => page.locator('.plan li').evaluateAll((all) => all.map((one) => [
  one.querySelector('.state').innerText, one.querySelector(':scope > .text').innerText]));
const shows = (page, expected) => until(`the plan is ${JSON.stringify(expected)}`, async () => assert.deepEqual(await steps(page), expected) ?? true);

group('plans', world, end, () => {
  check('the steps of a plan are shown with their states, are changed between steps, and stay after the end', async ({ visitor, daemon, release }) => {
    const page = await talk(visitor, 'planned');
    await say(page, '/plan tidy the house');
    await shows(page, [['in progress', STEPS[0]], ['not begun', STEPS[1]], ['not begun', STEPS[2]]]);
    await page.locator('.plan li').nth(2).getByRole('button', { name: 'Leave out' }).click();
    await shows(page, [['in progress', STEPS[0]], ['not begun', STEPS[1]], ['left out', STEPS[2]]]);
    await page.locator('.plan li').nth(1).getByRole('button', { name: 'Change' }).click();
    await page.getByRole('dialog').getByLabel('Text').fill('Sweep\nthe floor');
    await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
    await shows(page, [['in progress', STEPS[0]], ['not begun', 'Sweep the floor'], ['left out', STEPS[2]]]);
    // A page that is opened meanwhile has read the facts before it.
    const other = await talk(visitor, 'planned');
    await shows(other, await steps(page));
    await other.close();
    const { runs: [run] } = await daemon.get('runs?session=planned');
    release();
    await page.locator('.message.assistant:not([aria-busy])', { hasText: 'The house is tidy.' }).waitFor();
    await page.goto(`${daemon.url}/#/runs/${run.run_id}`);
    await shows(page, [['done', STEPS[0]], ['done', 'Sweep the floor'], ['left out', STEPS[2]]]);
    await page.locator('.plan').getByText('2 of 3 steps are done').waitFor();
    assert.equal(await page.evaluate(() => window.hacked), undefined);
    await page.close();
  });

  check('an event that both streams of a run bring is taken once', async ({ visitor }) => {
    const page = await visitor.open('#/chat');
    const seen = await page.evaluate(async () => {
      const { Talk } = await import('/console/assets/lib/talk.js');
      const talk = new Talk('late', () => {});
      const run = Object.assign(talk.of('r'), { late: true });
      const event = (stream, data) => talk.event({ type: 'agent', data: { runId: 'r', stream, data } });
      const added = { index: 0, steps: ['first', 'second'] };
      talk.fact(run, { type: 'plan_created', title: 'two', steps: ['second'] });
      talk.fact(run, { type: 'plan_step', index: 0, status: 'completed' });
      event('plan', { phase: 'added', ...added });
      talk.fact(run, { type: 'plan_changed', change: 'added', ...added });
      event('tool', { phase: 'result', toolCallId: 'c', name: 'calculate', status: 'success', tookMs: 5, result: '4' });
      talk.fact(run, { type: 'tool_started', call_id: 'c', name: 'calculate', arguments: '2+2' });
      talk.close();
      return { steps: run.plan.steps.map(({ text, status }) => [text, status]), call: run.tools.get('c') };
    });
    assert.deepEqual(seen, {
      steps: [['first', 'pending'], ['second', 'completed']],
      call: { id: 'c', name: 'calculate', status: 'success', took: 5, result: '4', arguments: '2+2' },
    });
    await page.close();
  });
});
