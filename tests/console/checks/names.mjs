// Runs by what they are about: the first words of a conversation, the title of a job, the name of a routine.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';
import { gate, model } from '../support/model.mjs';

/** A run of each kind that has ended, and one of each that is at work. */
async function world(browser) {
  const held = gate();
  const server = await model((text) => (text.includes('slowly') ? { text: 'one', until: held.opened } : { text: 'Done.' }));
  const daemon = await new Daemon(server.settings).start();
  const ended = async ({ run_id: run }) => daemon.get(`runs/${run}/wait?timeout_ms=20000`);
  await ended(await daemon.say('kitchen', 'Which <b>oven</b> is the cheapest?'));
  const said = await ended(await daemon.say('kitchen', 'And the <b>fastest</b>?'));
  await daemon.say('garden', 'Count the trees slowly');
  const job = await daemon.post('jobs', { task: 'Work slowly on it', title: 'Weekly report' });
  await daemon.post('routines', { name: 'morning', trigger: { kind: 'manual' }, action: { mode: 'lightweight', prompt: 'Say hello' } });
  const fired = await daemon.post('routines/morning/fire', {});
  await until('the routine has run', async () => (await daemon.get(`routine-runs/${fired.routine_run_id}`)).ended_at);
  await until('the job is at work', async () => (await daemon.get('runs?status=running')).runs.length === 2);
  return { server, daemon, said, job, release: held.open, visitor: await Visitor.signedIn(browser, daemon) };
}

async function end({ visitor, daemon, server, release }) {
  release();
  try { await visitor.close(); } finally {
    server.close();
    await daemon.close();
  }
}

const subjects = async (page, where = 'main') => (await page.locator(where).locator('.subject > a').allInnerTexts()).sort();

group('names', world, end, () => {
  check('Now names the job and the first words of the conversation', async ({ visitor, job }) => {
    const page = await visitor.open('#/now');
    await until('both names', async () => assert.deepEqual(await subjects(page, 'main > .scroll'), ['Count the trees slowly', 'Weekly report']) ?? true);
    const oven = 'Which <b>oven</b> is the cheapest?';
    await until('those that have ended', async () => assert.deepEqual(await subjects(page, '.ended'), [oven, oven, 'morning']) ?? true);
    assert.equal(await page.getByRole('link', { name: 'job', exact: true }).getAttribute('href'), `#/jobs/${job.job_id}`);
    await page.close();
  });

  check('Runs names each run, and its conversation, job or routine run', async ({ visitor }) => {
    const page = await visitor.open('#/runs');
    const oven = 'Which <b>oven</b> is the cheapest?';
    const expected = ['Count the trees slowly', 'Weekly report', oven, oven, 'morning'];
    await until('all names', async () => assert.deepEqual(await subjects(page), expected) ?? true);
    assert.deepEqual((await page.locator('.subject small').allInnerTexts()).sort(), ['garden', 'job', 'kitchen', 'kitchen', 'routine']);
    await page.close();
  });

  check('the bars of durations have the shares of the longest one', async ({ visitor, daemon }) => {
    const page = await visitor.open('#/sign-in');
    const { runs: [run] } = await daemon.get('runs?status=completed&limit=1');
    const of = (id, ms) => ({ ...run, run_id: `${run.run_id.slice(0, -1)}${id}`, started_at: '2026-01-01T00:00:00.000Z',
      ended_at: new Date(Date.UTC(2026, 0, 1) + ms).toISOString() });
    await page.route(/\/api\/v1\/runs\?/, (route) => route.fulfill({ json: { runs: [of('a', 60_000), of('b', 15_000), of('c', 30_000)] } }));
    await page.goto(`${daemon.url}/#/runs`);
    await page.reload();
    await page.getByText('1 m 0 s').waitFor();
    const bars = await page.locator('td .span').evaluateAll((all) => all.map((one) => {
      const [bar, track] = ['.bar', '.track'].map((part) => one.querySelector(part).getBoundingClientRect());
      return [Math.round((bar.width / track.width) * 100), bar.left === track.left];
    }));
    assert.deepEqual(bars, [[100, true], [25, true], [50, true]]);
    await until('the route is free', () => page.unrouteAll({ behavior: 'wait' }).then(() => true));
    await page.close();
  });

  check('a run is headed by what was asked, and below it by its conversation', async ({ visitor, said }) => {
    const page = await visitor.open(`#/runs/${said.run_id}`);
    await page.locator('.asked .lead', { hasText: 'And the <b>fastest</b>?' }).waitFor();
    await page.locator('.asked', { hasText: 'In the conversation Which <b>oven</b> is the cheapest?' }).waitFor();
    await page.close();
  });
});
