// The charts of the pages: where their columns and lines stand, and the same figures as tables and texts.

import assert from 'node:assert/strict';
import { Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';

const DAY_MS = 86400e3;
const SINCE = Date.UTC(2026, 0, 1);
const day = (i) => new Date(SINCE + i * DAY_MS);
const end = (i, reason, status, count) => ({ at: day(i).toISOString(), reason, layer: 'natural', status, count });
const ENDS = { by: 'day', since: day(0).toISOString(), until: new Date(SINCE + 14 * DAY_MS - 1).toISOString(),
  ends: [end(0, 'final_text', 'completed', 10), end(6, 'final_text', 'completed', 20), end(13, 'final_text', 'completed', 30), end(13, '<b>evil</b>', 'failed', 10)] };
const cost = (i, cost_micro_usd) => ({ key: day(i).toISOString().slice(0, 10), cost_micro_usd, input_tokens: 10, output_tokens: 1, calls: 1 });
const COSTS = { by: 'day', first_day: '2025-12-02', last_day: '2026-01-14', rows: [cost(13, 2_000_000), cost(12, 3_500_000)],
  today: { day: '2026-01-14', cost_micro_usd: 2_000_000, by_purpose: { chat: 1_500_000, job: 500_000 } },
  caps: [{ purpose: null, limit_micro_usd: 4_000_000, spent_micro_usd: 2_000_000 }], open_reservations: { calls: 0, cost_micro_usd: 0 } };

const PURPOSES = { ...COSTS, by: 'day_purpose', rows: [['2026-01-14 chat', 1_500_000], ['2026-01-14 job', 500_000], ['2026-01-13 job', 3_500_000]]
  .map(([key, cost_micro_usd]) => ({ ...cost(0, cost_micro_usd), key })) };
const CHANNELS = { ...ENDS, ends: ENDS.ends.map((one, i) => ({ ...one, channel: i === 1 ? 'telegram' : 'http' })) };
const MODELS = { ...ENDS, ends: ENDS.ends.map((one, i) => ({ ...one, model: i === 1 ? '' : '<i>large</i>' })) };
const HOUR_MS = 3600e3;

async function world(browser) {
  const daemon = await new Daemon({ 'backup.every_hours': '24' }).start();
  await daemon.get(`runs/${(await daemon.say('charted', 'list files')).run_id}/wait`);
  await daemon.post('routines', { name: 'morning', trigger: { kind: 'manual' }, action: { mode: 'lightweight', prompt: 'Say hello' } });
  for (let i = 0; i < 3; i += 1) {
    const { routine_run_id: fired } = await daemon.post('routines/morning/fire', {});
    await until('the routine has run', async () => (await daemon.get(`routine-runs/${fired}`)).ended_at);
  }
  await daemon.post('backups');
  return { daemon, visitor: await Visitor.signedIn(browser, daemon) };
}

/** A page at this width whose list `name` of the API is `json`. */
async function given(visitor, width, name, json) {
  const page = await visitor.open('#/sign-in');
  await page.setViewportSize({ width, height: 800 });
  await page.route(new RegExp(`/api/v1/${name}\\?`), (route) => route.fulfill({ json: typeof json === 'function' ? json(new URL(route.request().url()).searchParams) : json }));
  await page.goto(`${visitor.daemon.url}/#/${name === 'costs' ? 'money' : name}`);
  await page.reload();
  await page.locator('figure .plot').waitFor();
  return page;
}

/** The columns: `[class, middle in slots, bottom and height in hundredths of the plot]`. */
const columns = (page, slots) => page.locator('.plot svg').evaluate((svg, slots) => {
  const plot = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('.column rect:not(.slot)')].map((rect) => {
    const box = rect.getBoundingClientRect();
    const share = (px) => Math.round((px / svg.height.baseVal.value) * 100);
    return [rect.getAttribute('class'), Math.round(((box.left + box.width / 2 - plot.left) / plot.width) * slots * 10) / 10,
      share(plot.top + svg.height.baseVal.value - box.bottom), share(box.height)];
  });
}, slots);

group('charts', world, async ({ visitor, daemon }) => {
  try { await visitor.close(); } finally { await daemon.close(); }
}, () => {
  check('each column of Ends stands in the slot of its day, above its label', async ({ visitor }) => {
    for (const width of [1280, 390]) {
      const page = await given(visitor, width, 'ends', ENDS);
      assert.deepEqual(await columns(page, 14), [['c1', 0.5, 0, 20], ['c1', 6.5, 0, 40], ['c1', 13.5, 0, 60], ['c2', 13.5, 60, 20]], `${width} px`);
      const [plot, first, last] = await Promise.all(['.plot svg', '.ends > :first-child', '.ends > :last-child'].map((part) => page.locator(part).boundingBox()));
      assert.ok(Math.abs(first.x - plot.x) < 3 && Math.abs(last.x + last.width - plot.x - plot.width) < 3, 'the labels stand at the ends of the plot');
      assert.equal(await page.locator('.plot .axis > :first-child').innerText(), '50');
      await page.locator('.legend').getByText('<b>evil</b> (failed)').waitFor();
      await page.getByText('The figures as a table').click();
      await page.locator('.figures').getByRole('row', { name: /2026-01-14.*40/ }).waitFor();
      await page.close();
    }
  });

  check('the budget is a line at its height, also across the money of today by purpose', async ({ visitor }) => {
    const page = await given(visitor, 1280, 'costs', (query) => (query.get('by') === 'day_purpose' ? PURPOSES : COSTS));
    // Jobs cost most, and are the first series: below.
    await until('the purposes are there', async () => assert.deepEqual(await columns(page, 8), [['c1', 6.5, 0, 70], ['c1', 7.5, 0, 10], ['c2', 7.5, 10, 30]]) ?? true);
    await page.locator('.figures summary').click();
    await page.locator('.figures').getByRole('row', { name: '2026-01-14 $0.50 $1.50 $2.00' }).waitFor();
    const line = await page.locator('.plot line.limit').evaluate((one) => one.getAttribute('y1') / one.ownerSVGElement.height.baseVal.value);
    assert.ok(Math.abs(1 - line - 0.8) < 0.01, `${line}`);
    const parts = await page.locator('.parts').evaluate((svg) => [...svg.querySelectorAll('rect')].map((rect) =>
      Math.round((rect.getBoundingClientRect().width / svg.getBoundingClientRect().width) * 1000)));
    assert.deepEqual(parts, [375, 125]);
    await page.getByRole('img', { name: 'Spent today by purpose: chat: $1.50, job: $0.50. Budget of the day: $4.00' }).waitFor();
    await page.getByText('at this pace 30 days cost $15.00').waitFor();
    await page.close();
  });

  check('the ends are stacked by channel too', async ({ visitor }) => {
    const page = await given(visitor, 1280, 'ends', (query) => (query.get('channels') ? CHANNELS : ENDS));
    await page.getByRole('combobox', { name: 'By' }).selectOption('channel');
    await page.getByRole('heading', { name: 'Channels' }).waitFor();
    assert.deepEqual(await columns(page, 14), [['c1', 0.5, 0, 20], ['c2', 6.5, 0, 40], ['c1', 13.5, 0, 80]]);
    await page.getByRole('row', { name: 'http 50 40 10 71.4 %' }).waitFor();
    await page.close();
  });

  check('the ends are stacked by model too', async ({ visitor }) => {
    const page = await given(visitor, 1280, 'ends', (query) => (query.get('models') ? MODELS : ENDS));
    await page.getByRole('combobox', { name: 'By' }).selectOption('model');
    await page.getByRole('heading', { name: 'Models' }).waitFor();
    assert.deepEqual(await columns(page, 14), [['c1', 0.5, 0, 20], ['c2', 6.5, 0, 40], ['c1', 13.5, 0, 80]]);
    await page.getByRole('row', { name: '<i>large</i> 50 40 10 71.4 %' }).waitFor();
    await page.getByRole('row', { name: 'no model 20 20 0 28.6 %' }).waitFor();
    await page.close();
  });

  check('the latencies of a day are lines whose points stand at their times and heights', async ({ visitor }) => {
    for (const width of [1280, 390]) {
      const page = await visitor.open('#/sign-in');
      await page.setViewportSize({ width, height: 800 });
      const at = (hours) => new Date(Date.now() - hours * HOUR_MS).toISOString();
      const periods = [[18, 200, 1000], [12, 400, 500], [11.5, 500, 800]].map(([hours, p50_ms, p95_ms]) => ({ at: at(hours), count: 3, p50_ms, p95_ms }));
      await page.route('**/api/v1/latency', (route) => route.fulfill({ json: { latencies: [{ kind: 'first_token', periods }] } }));
      await page.goto(`${visitor.daemon.url}/#/tools`);
      await page.reload();
      await page.locator('.dot').nth(5).waitFor();
      const dots = await page.locator('.lines-plot').evaluate((plot) => {
        const box = plot.getBoundingClientRect();
        return [...plot.querySelectorAll('.dot')].map((dot) => {
          const one = dot.getBoundingClientRect();
          return [dot.className, Math.round(((one.left + one.width / 2 - box.left) / box.width) * 100), Math.round(((box.bottom - one.top - one.height / 2) / 150) * 100)];
        });
      });
      const expected = [['dot c1', 25, 20], ['dot c1', 50, 40], ['dot c1', 52, 50], ['dot c3', 25, 100], ['dot c3', 50, 50], ['dot c3', 52, 80]];
      dots.forEach(([name, x, y], i) => assert.ok(name === expected[i][0] && Math.abs(x - expected[i][1]) <= 1 && Math.abs(y - expected[i][2]) <= 1, `${width}: ${dots}`));
      // The first point is six hours before the second one: no line joins them.
      assert.equal((await page.locator('path.line.c1').getAttribute('d')).split('M').length - 1, 2);
      await page.getByText('The figures as a table').click();
      await page.locator('.figures').getByRole('row', { name: /3 200 ms 1 s$/ }).waitFor();
      await page.getByLabel('What').selectOption('stop');
      await page.getByText('Nothing of this kind was measured in the last day.').waitFor();
      await page.close();
    }
  });

  check('the page of the tools has the calls and failures of each tool', async ({ visitor, daemon }) => {
    await daemon.get(`runs/${(await daemon.say('failing', 'call read_file {"path": "none.txt"}')).run_id}/wait`);
    const page = await visitor.open('#/tools');
    const rows = page.locator('.by-tool > div');
    await rows.filter({ hasText: /list_files\s*1$/ }).waitFor();
    await rows.filter({ hasText: 'read_file' }).waitFor();
    await page.getByRole('row', { name: /^list_files ok .* 1 – / }).waitFor();
    await page.close();
  });

  check('a strip has a mark for each run of a routine and each next time, at its place', async ({ visitor, daemon }) => {
    await daemon.post('routines', { name: 'hourly', trigger: { kind: 'schedule', when: '0 * * * *', zone: 'UTC', misfire: 'once' },
      action: { mode: 'lightweight', prompt: 'Say hello' } });
    const page = await visitor.open('#/routines');
    const lane = page.getByRole('img', { name: /^hourly: .*next at / });
    await lane.waitFor();
    const marks = await lane.evaluate((line) => [...line.querySelectorAll('.mark.next')].map((mark) => {
      const [box, one] = [line.getBoundingClientRect(), mark.getBoundingClientRect()];
      return (one.left + one.width / 2 - box.left) / box.width;
    }));
    assert.ok(marks.length >= 11 && marks.every((share, i) => share > 0.49 && (!i || Math.abs(share - marks[i - 1] - 1 / 24) < 0.005)), String(marks));
    const ran = page.getByRole('img', { name: 'morning: in the last 12 hours 3 attention' });
    assert.equal(await ran.locator('.mark.ask').count(), 3);
    await daemon.api('DELETE', 'routines/hourly');
    await page.close();
  });

  check('the page of the tools has the latencies and the ends of tool calls', async ({ visitor }) => {
    const page = await visitor.open('#/tools');
    await page.getByRole('row', { name: /^Model call \d+ .* m?s .* m?s$/ }).waitFor();
    await page.getByRole('row', { name: /^Run \d+/ }).waitFor();
    await page.locator('.bars', { hasText: 'success' }).waitFor();
    await page.close();
  });

  check('the last runs of a routine and the days of backups are squares with words', async ({ visitor }) => {
    const page = await visitor.open('#/routines');
    const runs = page.getByRole('img', { name: 'The last 3 runs, oldest first: 3 attention' });
    await runs.waitFor();
    assert.equal(await runs.locator('.bar.ask').count(), 3);
    await page.goto(`${visitor.daemon.url}/#/backups`);
    await page.getByRole('img', { name: 'The last 14 days: 13 without one, 1 with a backup' }).waitFor();
    const boxes = await page.locator('.squares .bar').evaluateAll((all) => all.map((one) => one.getBoundingClientRect().left));
    assert.deepEqual(boxes, [...boxes].sort((a, b) => a - b));
    await page.close();
  });
});
