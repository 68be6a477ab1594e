// What the console costs: printed as a table, not asserted.
//
//     BELAY_BIN=target/release/belay node tests/console/speed.mjs
//
// SECONDS (20) is how long each processor share is measured.

import fs from 'node:fs';
import { execFileSync } from 'node:child_process';
import os from 'node:os';
import { assetsSent } from './checks/assets.mjs';
import { launch, Visitor } from './support/browser.mjs';
import { until } from './support/check.mjs';
import { Daemon, OPERATOR } from './support/daemon.mjs';
import { model } from './support/model.mjs';

const SECONDS = Number(process.env.SECONDS ?? 20);
const [CONSOLES, RUNS, EVENTS, ROUNDS] = [50, 200, 5000, 10];
/** What a Now page asks for, and how often: see lib/running.js and pages/now.js of the console. */
const LIST = 'runs?status=running,paused,queued,accepted&limit=500';
const [EVERY_MS, COSTS_MS, STATUS_MS] = [250, 10_000, 5000];
/** Ticks of the processor times in /proc in a second. */
const TICKS = Number(execFileSync('getconf', ['CLK_TCK']));

const median = (values) => [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
const row = (name, value) => console.log(`${name.padEnd(64)} ${value}`);

/** ms from the request of the page to the first text on it, and to the list of runs: for a browser without copies of the files. */
async function firstPaint(browser, daemon) {
  const [paint, list] = [[], []];
  for (let i = 0; i < ROUNDS; i += 1) {
    const visitor = await Visitor.signedIn(browser, daemon);
    await visitor.context.addInitScript(() => {
      new MutationObserver((_, observer) => {
        if (![...document.querySelectorAll('h2 + .empty, h2 + .scroll')].length) return;
        observer.disconnect();
        requestAnimationFrame(() => { window.listedAt = performance.now(); });
      }).observe(document, { childList: true, subtree: true });
    });
    const page = await visitor.open('#/now');
    paint.push(await until('the first paint', () => page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime)));
    list.push(await until('the list of runs', () => page.evaluate(() => window.listedAt)));
    await visitor.close();
  }
  return { paint: median(paint), list: median(list) };
}

/** ms from the click on a run of 5,000 events to its whole timeline; and the longest frame while it scrolls. */
async function longRun(browser, daemon, id) {
  const visitor = await Visitor.signedIn(browser, daemon);
  const page = await visitor.open('#/runs');
  const all = [];
  for (let i = 0; i < ROUNDS; i += 1) {
    await page.evaluate(() => { location.hash = '#/runs'; });
    await page.getByRole('heading', { name: 'Runs', exact: true }).waitFor();
    all.push(await page.evaluate(async (id) => {
      const begin = performance.now();
      location.hash = `#/runs/${id}`;
      const frame = () => new Promise((next) => requestAnimationFrame(next));
      // The last event of a run is its end; the list has all rows when its last one is known.
      for (let rows = 0, same = 0; same < 3;) {
        await frame();
        const now = Number(document.querySelector('.event')?.ariaSetSize ?? 0);
        same = now && now === rows ? same + 1 : 0;
        rows = now;
        if (!same) window.shownAt = performance.now() - begin;
      }
      return window.shownAt;
    }, id));
  }
  const scroll = await page.evaluate(async () => {
    const box = document.querySelector('.timeline');
    let [worst, last] = [0, performance.now()];
    for (let i = 0; i < 60; i += 1) {
      box.scrollTop = i * 1500;
      const at = await new Promise((next) => requestAnimationFrame(next));
      worst = Math.max(worst, at - last);
      last = at;
    }
    return worst;
  });
  const rows = await page.locator('.event').first().getAttribute('aria-setsize');
  await visitor.close();
  return { open: median(all), scroll, rows };
}

/** Seconds of a processor that a process has used. */
function used(pid) {
  const fields = fs.readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\) /, '').split(' ');
  return (Number(fields[11]) + Number(fields[12])) / TICKS;
}

/** The share of one processor that the daemon uses in `SECONDS`. */
async function share(daemon) {
  const [begin, at] = [used(daemon.process.pid), performance.now()];
  await new Promise((done) => setTimeout(done, SECONDS * 1000));
  return (used(daemon.process.pid) - begin) / ((performance.now() - at) / 1000);
}

/** Does what the Now page does: it reads the facts, the list of runs after model calls, and the status after facts. */
function follower(daemon, stop) {
  const headers = { authorization: `Bearer ${OPERATOR}` };
  const get = async (where) => (await fetch(`${daemon.url}/api/v1/${where}`, { headers, signal: stop })).text();
  let timer;
  let news = false;
  const soon = () => {
    timer ??= setTimeout(() => {
      timer = undefined;
      get(LIST).catch(() => {});
    }, COSTS_MS);
  };
  const every = setInterval(() => {
    if (news) get('status').catch(() => {});
    news = false;
  }, STATUS_MS);
  stop.addEventListener('abort', () => { clearInterval(every); clearTimeout(timer); });
  return (async () => {
    const answer = await fetch(`${daemon.url}/api/v1/events?every_ms=${EVERY_MS}`, { headers, signal: stop });
    await get(LIST);
    for await (const bytes of answer.body) {
      if (bytes.includes('event: ')) news = true;
      if (bytes.includes('event: model_called')) soon();
    }
  })().catch(() => {});
}

async function consoles(daemon) {
  for (let i = 0; i < RUNS; i += 1) await daemon.say(`busy-${i}`, BUSY);
  await until('all runs are busy', async () => (await daemon.get('status')).running.length >= RUNS);
  const without = await share(daemon);
  const stop = new AbortController();
  const all = Array.from({ length: CONSOLES }, () => follower(daemon, stop.signal));
  const together = await share(daemon);
  stop.abort();
  await Promise.all(all);
  await daemon.post('stop?wait_ms=10000');
  return { without, together };
}

const BUSY = 'keep busy';
const CALLS = 20;
const STEP_MS = 4000;
const calculate = (step, count) => Array.from({ length: count }, (_, i) => ['calculate', { expression: `${step}*${i}+1` }]);

/** A long run has a model call, twenty tool calls and their results in each step; a busy one calls a tool every four seconds. */
function script(text, step) {
  if (text.includes(BUSY)) return { text: 'I go on.', until: new Promise((done) => setTimeout(done, STEP_MS)), calls: calculate(step, 1) };
  return text.includes('long') && step < EVENTS / (2 * CALLS + 1) ? { calls: calculate(step, CALLS) } : { text: 'Done.' };
}

const server = await model(script);
const daemon = await new Daemon({
  ...server.settings, 'agent.max_tool_iterations': '1000', 'agent.max_concurrent_turns': '256', 'stops.enabled': 'false',
  'llm.context_tokens': '4000000',
}).start();
const browser = await launch();
try {
  const { bytes, files } = await assetsSent(daemon.url);
  row(`files of the console with gzip (${files})`, `${(bytes / 1000).toFixed(1)} KB`);
  const { paint, list } = await firstPaint(browser, daemon);
  row(`first paint of the Now page, median of ${ROUNDS}`, `${Math.round(paint)} ms`);
  row('its list of runs', `${Math.round(list)} ms`);
  const { run_id: long } = await daemon.say('long', 'a long run');
  await until('the long run has ended', async () => (await daemon.get(`runs/${long}/wait?timeout_ms=5000`)).ended_at);
  const { open, scroll, rows } = await longRun(browser, daemon, long);
  row(`a run of ${rows} rows opens, median of ${ROUNDS}`, `${Math.round(open)} ms`);
  row('its longest frame while it scrolls', `${Math.round(scroll)} ms`);
  await browser.close();
  const { without, together } = await consoles(daemon);
  row(`processor share of the daemon: ${RUNS} busy runs`, `${(100 * without).toFixed(1)} %`);
  row(`the same, and ${CONSOLES} consoles on the Now page`, `${(100 * together).toFixed(1)} %`);
  row('the consoles, of all processors', `${((100 * (together - without)) / os.cpus().length).toFixed(1)} %`);
  row(`machine: ${os.cpus().length} processors, load`, os.loadavg().map((load) => load.toFixed(1)).join(' '));
} finally {
  await browser.close();
  await daemon.close();
  server.close();
}
