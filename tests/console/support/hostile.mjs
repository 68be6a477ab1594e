// A daemon in which people, models and tools have written hostile text in every field that takes text.

import fs from 'node:fs';
import path from 'node:path';
import { until } from './check.mjs';
import { Daemon } from './daemon.mjs';

/** U+202E turns the direction of the text after it. */
export const BIDI = '\u202e';
export const EVIL = `${BIDI}evil <img src=x onerror="window.hacked=1"><script>window.hacked=1</script> [x](javascript:window.hacked=1) `
  + '![p](http://evil.example/p.png) <a href="javascript:window.hacked=1">y</a>';
export const EVIL_NAME = `${BIDI}evil <img src=x onerror=hacked=1>`;

/** Resolves with the run when it has ended or waits for an answer. */
const settled = (daemon, { run_id: run }) => daemon.get(`runs/${run}/wait?timeout_ms=20000`);

const at = encodeURIComponent;
/** `[address, title, text that the page shows]` of every page; the addresses depend on the ids. */
export const PAGES = [
  ['now', 'Now', 'evil <img'], ['chat', 'Chat', 'evil <img'], [({ session }) => `chat/${at(session)}`, 'Chat', 'img src=x onerror=hacked=1>.txt'],
  ['chat/answered', 'Chat', 'denied'],
  ['questions', 'Questions', 'evil <img'], [({ question }) => `questions/${question}`, 'Question', 'evil <img'],
  ['questions/history', 'Questions', 'evil <img'],
  ['runs', 'Runs', 'evil <img'], [({ read }) => `runs/${read}`, 'Run', 'evil <img'], [({ asked }) => `runs/${asked}`, 'Run', 'evil <img'],
  ['jobs', 'Jobs', 'evil <img'], [({ job }) => `jobs/${job}`, 'Job', 'evil <img'], ['jobs/new', 'New job', 'Task'],
  ['routines', 'Routines', 'evil <img'], ['routines/of/evil', 'Routine', 'evil <img'], ['routines/edit/evil', 'Edit routine', 'Prompt'],
  ['routines/new', 'New routine', 'Prompt'], ['routines/history', 'Routines', 'evil'], ['routines/next', 'Routines', 'evil'],
  [({ fired }) => `routines/run/${fired}`, 'Routine run', 'evil'], ['ends', 'Ends', 'final text'], ['money', 'Money', 'in all'],
  ['log', 'Log', 'evil <img'], ['tools', 'Tools and models', 'evil <img'], ['people', 'People', 'evil <img'], ['backups', 'Backups', 'evil <img'],
  ['settings', 'Settings', 'gateway'], ['access', 'Access', 'evil <img'],
];

/** Answers of the API that a daemon without channels and servers does not give. */
export const ANSWERS = {
  people: ({ people, pending }) => ({
    people: [...people, { channel: 'telegram', id: '41', name: EVIL_NAME, role: 'client',
      admitted: { by: 'pairing', operator: EVIL_NAME, through: 'console', at: new Date().toISOString() } }],
    pending: [...pending, { channel: 'telegram', id: EVIL_NAME, name: EVIL_NAME, expires_at: new Date(Date.now() + 60_000).toISOString() }],
  }),
  principals: (answer) => ({ ...answer, principals: answer.principals.map((one) => ({ ...one, id: EVIL_NAME, name: EVIL_NAME })) }),
  backups: (answer) => ({ ...answer, last_failure: { at: new Date().toISOString(), detail: EVIL } }),
};

/** Begins a daemon and fills it. Returns it, and the ids that the addresses of its pages need. */
export async function hostileDaemon() {
  const daemon = new Daemon({ 'approvals.rules': '[{tool="calculate",ask="always"}]' });
  const workspace = path.join(daemon.home, 'data', 'belay', 'workspace');
  fs.mkdirSync(workspace, { recursive: true });
  fs.writeFileSync(path.join(workspace, 'evil.txt'), EVIL);
  fs.writeFileSync(path.join(workspace, '<img src=x onerror=hacked=1>.txt'), EVIL);
  await daemon.start();
  const session = EVIL_NAME.replace(BIDI, '');
  await settled(daemon, await daemon.say(session, EVIL));
  const read = await daemon.say(session, 'call read_file {"path": "evil.txt"}');
  await settled(daemon, read);
  await settled(daemon, await daemon.say(session, 'list files'));
  const asked = await daemon.say('asked', `call calculate ${JSON.stringify({ expression: EVIL })}`);
  await settled(daemon, asked);
  const { approvals: [question] } = await daemon.get('approvals?session=asked');
  const answered = await daemon.say('answered', `call calculate ${JSON.stringify({ expression: `${EVIL} 2` })}`);
  await settled(daemon, answered);
  const { approvals: [other] } = await daemon.get('approvals?session=answered');
  await daemon.post(`approvals/${other.id}`, { decision: 'deny' });
  const job = await daemon.post('jobs', { task: EVIL, title: EVIL_NAME, allow: [{ tool: 'run_command', arguments: { argv: EVIL_NAME } }] });
  await until('the job has ended', async () => (await daemon.get(`jobs/${job.job_id}`)).ended_at);
  await daemon.post('routines', {
    name: 'evil', description: EVIL_NAME, trigger: { kind: 'schedule', when: '0 9 * * *', zone: 'UTC', misfire: 'once' },
    action: { mode: 'lightweight', prompt: EVIL },
  });
  const fired = await daemon.post('routines/evil/fire', { payload: EVIL });
  await until('the routine has run', async () => (await daemon.get(`routine-runs/${fired.routine_run_id}`)).ended_at);
  await daemon.post('tools/read_file/disable', { detail: EVIL });
  await daemon.post('freeze', { routine: 'evil', detail: EVIL });
  return { daemon, ids: { session, read: read.run_id, asked: asked.run_id, question: question.id, job: job.job_id, fired: fired.routine_run_id } };
}
