// What the Now page asks the daemon for, and when it renders.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';
import { gate, model } from '../support/model.mjs';

/** A daemon whose model stops in the middle of each answer until `release()`. */
async function world(browser) {
  const held = gate();
  const server = await model(() => ({ text: 'one two three', until: held.opened }));
  const daemon = await new Daemon(server.settings).start();
  return { server, daemon, visitor: await Visitor.signedIn(browser, daemon), release: held.open };
}

async function end({ visitor, daemon, server, release }) {
  release();
  try { await visitor.close(); } finally {
    server.close();
    await daemon.close();
  }
}

/** The cell of a session among the runs that have not ended. */
const session = (page, name) => page.locator('main > .scroll').getByRole('cell', { name });

/** A page at Now with its stream and its list, and the requests that it makes: `/api/v1/…` without the query of numbers. */
async function now(visitor) {
  const asked = [];
  const page = await visitor.open();
  page.on('request', (request) => asked.push(new URL(request.url())));
  await page.goto(`${visitor.daemon.url}/#/now`);
  await page.reload();
  await page.locator('.state.good', { hasText: 'live' }).waitFor();
  await page.getByRole('heading', { name: 'Running', exact: true }).waitFor();
  await until('the page has loaded', async () => (await page.locator('.loading').count()) === 0);
  return { page, asked: (path) => asked.filter(({ pathname }) => pathname === path) };
}

/** Pretends that the tab of the page is hidden, or shown again. */
const visibility = (page, state) => page.evaluate((state) => {
  Object.defineProperty(document, 'visibilityState', { value: state, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}, state);

group('now', world, end, () => {
  check('the page asks once for its runs, and moves them by facts', async ({ daemon, visitor }) => {
    const { page, asked } = await now(visitor);
    const open = () => asked('/api/v1/runs').filter(({ searchParams }) => searchParams.get('status').includes('queued')).length;
    const before = open();
    const { run_id: run } = await daemon.say('moved', 'write');
    await page.getByRole('row', { name: /moved.*model/ }).waitFor();
    await page.getByRole('row', { name: /moved/ }).getByText('running').waitFor();
    await daemon.post(`runs/${run}/stop?wait_ms=5000`);
    await session(page, 'moved').waitFor({ state: 'detached' });
    assert.equal(open(), before, 'no list is loaded for what the facts say');
    const lists = asked('/api/v1/runs').map(({ searchParams }) => searchParams.get('status'));
    assert.deepEqual([...new Set(lists)].sort(), ['completed,stopped,failed', 'running,paused,queued,accepted']);
    const streams = asked('/api/v1/events').filter(({ searchParams }) => !searchParams.has('since'));
    assert.ok(streams.every(({ searchParams }) => searchParams.get('every_ms') === '250'), String(streams));
    await page.close();
  });

  check('a hidden page renders nothing, and shows everything when it is shown again', async ({ daemon, visitor }) => {
    const { page: hidden } = await now(visitor);
    const { page: visible } = await now(visitor);
    await visibility(hidden, 'hidden');
    await hidden.evaluate(() => {
      window.changes = 0;
      new MutationObserver((all) => { window.changes += all.length; }).observe(document.body, { childList: true, characterData: true, subtree: true });
    });
    await daemon.say('unseen', 'write');
    await visible.getByRole('row', { name: /unseen.*model/ }).waitFor();
    assert.equal(await hidden.evaluate(() => window.changes), 0);
    assert.equal(await session(hidden, 'unseen').count(), 0);
    await visibility(hidden, 'visible');
    await hidden.getByRole('row', { name: /unseen.*model/ }).waitFor();
    await Promise.all([hidden.close(), visible.close()]);
  });

  check('the nodes are shown if there are any, and a daemon alone is asked once', async ({ daemon, visitor }) => {
    const { page: alone, asked } = await now(visitor);
    await until('the nodes are asked for', () => asked('/api/v1/nodes').length > 0);
    await alone.clock.install();
    await alone.reload();
    await alone.locator('.state.good', { hasText: 'live' }).waitFor();
    const before = asked('/api/v1/nodes').length;
    await alone.clock.runFor(60_000);
    assert.equal(asked('/api/v1/nodes').length, before, 'a daemon alone is not asked again');
    assert.equal(await alone.getByRole('heading', { name: 'Nodes' }).count(), 0);
    await alone.close();

    const page = await visitor.open('#/sign-in');
    const node = (boot, more) => ({
      boot, name: boot, version: '1', state: 'alive', started_at: '2026-01-01T00:00:00Z', ended_at: null, lease_ms: 12_000, lanes: 7,
      here: false, settings_differ: false, ...more,
    });
    const nodes = [node('a', { here: true }), node('b', { state: 'lost', ended_at: '2026-01-02T00:00:00Z', settings_differ: true })];
    await page.route('**/api/v1/nodes', (route) => route.fulfill({ json: { nodes, leases: [{ channel: 'telegram', boot: 'a', node: 'a', epoch: 1 }] } }));
    await page.goto(`${daemon.url}/#/now`);
    await page.reload();
    await page.getByRole('heading', { name: 'Nodes' }).waitFor();
    await page.getByRole('row', { name: /a \(this one\).*alive.*7.*telegram.*12 s/ }).waitFor();
    await page.getByRole('row', { name: /b.*its settings differ.*lost/ }).waitFor();
    nodes.pop();
    await page.getByRole('row', { name: /its settings differ/ }).waitFor({ state: 'detached' });
    await until('the route is free', () => page.unrouteAll({ behavior: 'wait' }).then(() => true));
    await page.close();
  });

  check('a loss of committed transactions is named, with what may come again', async ({ daemon, visitor }) => {
    const page = await visitor.open('#/sign-in');
    const status = await daemon.get('status');
    const loss = { noticed_at: '2026-01-01T12:00:00.000Z', kept_until: null, transactions: 3, detail: 'Replies may come <b>again</b>.' };
    await page.route(/\/api\/v1\/status/, (route) => route.fulfill({ json: { ...status, database_losses: [loss] } }));
    await page.goto(`${daemon.url}/#/now`);
    await page.reload();
    await page.locator('.notice', { hasText: 'Replies may come <b>again</b>. It was noticed at' }).waitFor();
    await until('the route is free', () => page.unrouteAll({ behavior: 'wait' }).then(() => true));
    await page.close();
  });

  check('running runs are shown however many are queued', async ({ daemon, visitor }) => {
    // The names of these sessions are asked for, and they do not exist.
    visitor.expect(/status of 404 .*\/sessions\/(waits|works)$/);
    const page = await visitor.open('#/sign-in');
    const { runs: [run] } = await daemon.get('runs?status=running&limit=1');
    await page.route(/\/api\/v1\/runs\?/, (route) => {
      const all = route.request().url().includes('queued');
      const queued = { ...run, run_id: `f${run.run_id.slice(1)}`, session: 'waits', status: 'queued' };
      return route.fulfill({ json: all ? { runs: [queued], next: queued.run_id } : { runs: [{ ...run, session: 'works' }] } });
    });
    await page.goto(`${daemon.url}/#/now`);
    await page.reload();
    await session(page, 'waits').waitFor();
    await session(page, 'works').waitFor();
    await page.getByRole('link', { name: 'All running runs' }).waitFor();
    await until('the route is free', () => page.unrouteAll({ behavior: 'wait' }).then(() => true));
    await page.close();
  });

  check('the runs that ended last are shown with their reasons', async ({ daemon, visitor }) => {
    const { page } = await now(visitor);
    const { run_id: run } = await daemon.say('ends soon', 'write');
    await session(page, 'ends soon').waitFor();
    await daemon.post(`runs/${run}/stop?wait_ms=5000`);
    await page.getByRole('region', { name: 'Ended last' }).getByRole('row', { name: /ends soon stopped user_stop/ }).waitFor();
    await page.close();
  });
});
