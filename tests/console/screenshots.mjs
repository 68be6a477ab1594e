// Writes the pictures of the console in the documentation: docs/images/console-….png.
//
//     BELAY_BIN=target/debug/belay node tests/console/screenshots.mjs
//
// The daemon and its data are real; its model answers from a script.

import { spawnSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { launch, Visitor } from './support/browser.mjs';
import { until } from './support/check.mjs';
import { Daemon } from './support/daemon.mjs';
import { FOREVER, model } from './support/model.mjs';

const IMAGES = new URL('../../docs/images/', import.meta.url).pathname;
const REVIEW = `The queue grows because one worker waits for a lock. I have measured it:

| worker | messages | waits for |
|---|---|---|
| 1 | 412 | – |
| 2 | 398 | – |
| 3 | 7 | \`orders.lock\` |

1. Worker 3 holds its connection while it writes the **audit file**.
2. The file is on a network disk, so each write takes about *two seconds*.

\`\`\`toml
[audit]
path = "/var/lib/app/audit.log"   # a local disk
\`\`\`

I can move the file and restart the worker. May I?`;
const NOTES = 'Here is a first draft:\n\n- Questions can be answered in the browser.\n- Backups are verified after';

/** What the model does: by a part of the message, the answers in their order. The last one is repeated. */
const SCRIPT = {
  'Why does the queue grow': [{ calls: [['read_file', { path: 'worker.log' }]] }, { text: REVIEW }],
  'Move the audit file': [{ calls: [['run_command', { argv: ['systemctl', 'restart', 'worker@3'] }]] }],
  'Write the release notes': [{ calls: [['list_files', { path: '.' }]] }, { calls: [['read_file', { path: 'CHANGES.md' }]] }, { text: NOTES, until: FOREVER }],
  'Publish version 2.4': [{ calls: [['run_command', { argv: ['git', 'push', 'origin', 'v2.4.0'] }]] }],
  'Run the nightly tests': [{ calls: [['read_file', { path: 'CHANGES.md' }]] }, { calls: [['run_command', { argv: ['sleep', '300'] }]] }],
  'Compare the three offers': [{ calls: [['read_file', { path: 'offers.md' }]] }, { calls: [['calculate', { expression: '3*1290+480' }]] },
    { text: 'The second offer', until: FOREVER }],
  'Find the broken link': [{ calls: [['read_file', { path: 'offers.md' }], ['list_files', { path: '.' }]] }],
  'What is on today': [{ text: 'Three things: the review at 10:00, the release, and the offer of the printer.' }],
};
const FILES = {
  'worker.log': 'worker 3: waits for orders.lock\n', 'CHANGES.md': '# 2.4\n- Questions in the browser\n- Verified backups\n',
  'offers.md': '1. 1290 a month\n2. 1190 a month, 480 once\n',
};
const RULES = '[{tool="run_command",arguments={argv="sleep *"},ask="never",allow_untrusted=true},{tool="run_command",ask="always"}]';

function script(text, step) {
  const answers = Object.entries(SCRIPT).find(([part]) => text.includes(part))?.[1] ?? [{ text: 'Done.' }];
  return answers[Math.min(step, answers.length - 1)];
}

/** Fills the daemon. Returns the id of the run that a stop rule has ended. */
async function fill(daemon) {
  const ended = (run) => daemon.get(`runs/${run.run_id}/wait?timeout_ms=60000`);
  await ended(await daemon.say('today', 'What is on today?'));
  const loop = await daemon.say('website', 'Find the broken link on the site.');
  await ended(loop);
  await ended(await daemon.say('operations', 'Why does the queue grow?'));
  await ended(await daemon.say('operations', 'Move the audit file to the local disk.'));
  await ended(await daemon.say('release 2.4', 'Publish version 2.4.'));
  for (const [session, text] of [['release notes', 'Write the release notes of 2.4.'], ['nightly', 'Run the nightly tests.'],
    ['purchasing', 'Compare the three offers.'], ['nightly', 'Which tests are slow?']]) await daemon.say(session, text);
  await until('three runs are working', async () => {
    const { runs } = await daemon.get('runs?status=running');
    if (runs.length === 3 && runs.every((run) => run.usage.model_calls >= 2)) return true;
    throw new Error(JSON.stringify((await daemon.get('runs')).runs.map(({ session, status, usage, reply }) => [session, status, usage.model_calls, reply])));
  });
  await daemon.post('routines', { name: 'morning', description: 'News of the morning', trigger: { kind: 'schedule', when: '0 */2 * * *', zone: 'UTC', misfire: 'once' },
    action: { mode: 'lightweight', prompt: 'What is on today?' } });
  for (let i = 0; i < 3; i += 1) {
    const fired = await daemon.post('routines/morning/fire');
    await until('the routine has run', async () => (await daemon.get(`routine-runs/${fired.routine_run_id}`)).ended_at);
  }
  return loop.run_id;
}

async function pictures(browser, daemon, loop) {
  for (const colorScheme of ['light', 'dark']) {
    const visitor = await Visitor.signedIn(browser, daemon, undefined, { colorScheme });
    const picture = async (name, hash, shown, fullPage = false) => {
      const page = await visitor.open(hash);
      await page.locator('main').getByText(shown).first().waitFor();
      await until('the page has loaded', async () => (await page.locator('.loading').count()) === 0);
      const file = path.join(IMAGES, `console-${name}-${colorScheme}.png`);
      await page.screenshot({ path: file, fullPage });
      // A third of the size, where it is installed.
      spawnSync('pngquant', ['--force', '--ext', '.png', '--speed', '1', '64', file]);
      await page.close();
    };
    await picture('now', '#/now', 'Ended last', true);
    await picture('run', `#/runs/${loop}`, 'offers.md');
    await picture('chat', '#/chat/operations', 'Approve');
    await picture('questions', '#/questions', 'git');
    await picture('routines', '#/routines', 'News of the morning');
    await picture('ends', '#/ends', 'runs have ended');
    await picture('money', '#/money', 'in all');
    await picture('tools', '#/tools', 'By tool');
    await picture('log', '#/log', 'tokens read');
    await picture('settings', '#/settings', 'approvals.rules');
    await visitor.close();
  }
}

const server = await model(script);
const daemon = new Daemon({ ...server.settings, 'approvals.rules': RULES });
const workspace = path.join(daemon.home, 'data', 'belay', 'workspace');
fs.mkdirSync(workspace, { recursive: true });
Object.entries(FILES).forEach(([name, text]) => fs.writeFileSync(path.join(workspace, name), text));
const browser = await launch();
try {
  await daemon.start();
  fs.mkdirSync(IMAGES, { recursive: true });
  await pictures(browser, daemon, await fill(daemon));
} finally {
  await browser.close();
  await daemon.close();
  server.close();
}
console.log(fs.readdirSync(IMAGES).map((name) => `${name} ${fs.statSync(path.join(IMAGES, name)).size} bytes`).join('\n'));
