// Routines: rules that start work by themselves. The list, the next times, the history, one routine and its form.

import { html } from '../vendor/preact.js';
import { get } from '../lib/api.js';
import { Strip, counted } from '../lib/chart.js';
import { now } from '../lib/clock.js';
import { exact } from '../lib/format.js';
import { useLoad, useNow } from '../lib/hooks.js';
import { Connection, ListTable, Tabs, useList, useLive } from '../lib/list.js';
import { Go, Loaded, Page, State, Text, Time } from '../lib/ui.js';
import { EditRoutine, NewRoutine } from './routine-form.js';
import { Routine } from './routine-one.js';
import { Enabled, History, LastRuns, NextTable, RUN_EVENTS, RoutineRun, RunNow, TABS, routineLink,
  routineRunLink } from './routine-runs.js';
import { inZone, triggerText } from './routine-text.js';

/** A routine may have any name, so its name never stands where a word of a page stands. */
export default function Routines({ parts: [word, value], query }) {
  if (word === 'new') return html`<${NewRoutine} />`;
  if (word === 'edit' && value) return html`<${EditRoutine} key=${value} name=${value} />`;
  if (word === 'of' && value) return html`<${Routine} key=${value} name=${value} />`;
  if (word === 'run' && value) return html`<${RoutineRun} id=${value} />`;
  if (word === 'history') return html`<${History} key=${String(query)} query=${query} />`;
  return word === 'next' ? html`<${Next} />` : html`<${List} />`;
}

function List() {
  const list = useList('routines', 'routines', {}, { page: 100 });
  const trouble = useLoad(recentTrouble, []);
  const last = useLoad(lastRuns, []);
  const next = useLoad((signal) => get('routine-runs/next', { count: 100 }, signal), [], { every: 60000 });
  const live = useLive(RUN_EVENTS, () => { list.reload(); trouble.reload(); last.reload(); next.reload(); });
  const aside = html`<${Connection} state=${live} /><${Go} class="button" to="routines/new">New routine</${Go}>`;
  return html`<${Page} title="Routines" aside=${aside}>
    <${Tabs} at="routines" label="Routines" tabs=${TABS} />
    <${Trouble} runs=${trouble.value} />
    <${Around} routines=${list.rows} last=${last.value} next=${next.value?.next} />
    <${ListTable} list=${list} lines keyOf=${(routine) => routine.name}
      empty="There is no routine. A routine starts work at a time, at a message, or when another program calls."
      columns=${[...COLUMNS, ['Last runs', (routine) => html`<${LastRuns} runs=${last.value?.get(routine.name)} />`, 'wide'], ['', (routine) => html`<${RunNow} name=${routine.name}
        done=${list.reload} />`, 'actions']]} />
  </${Page}>`;
}

const COLUMNS = [
  ['Routine', (routine) => html`<span><${Go} to=${routineLink(routine.name)}><${Text} value=${routine.name} /></${Go}>
    ${routine.description && html`<br /><small><${Text} value=${routine.description} /></small>`}</span>`],
  ['State', (routine) => html`<${Enabled} routine=${routine} />`],
  ['Trigger', (routine) => html`<${Text} value=${triggerText(routine.trigger)} />`],
  ['Next', (routine) => (routine.next_at && routine.enabled ? html`<span><${Time} at=${routine.next_at} /><br />
    <small><${Text} value=${inZone(routine.next_at, routine.trigger.zone)} /></small></span>` : '–')],
  ['Last run', (routine) => html`<${Time} at=${routine.fired_at} />`, 'wide'],
  ['Runs', (routine) => routine.routine_runs, 'number wide'],
  ['Failures in a row', (routine) => routine.failures || '–', 'number wide'],
];

/** Hours before and after now that the strip shows, and its most lanes. */
const [HOURS, LANES] = [12, 20];
const MARKS = { ok: 'good', attention: 'ask', failed: 'bad', missed: 'missed', skipped: 'muted', running: 'live' };

/** The runs of the last hours, their missed times, and the next times, in a lane for each routine. */
function Around({ routines, last, next }) {
  const at = useNow(60_000);
  const [from, to] = [at - HOURS * 3600e3, at + HOURS * 3600e3];
  const rows = routines.map(({ name }) => {
    const past = (last?.get(name) ?? []).filter((run) => Date.parse(run.scheduled_at ?? run.claimed_at) > from);
    const times = (next ?? []).filter((one) => one.routine === name && Date.parse(one.at) < to);
    const words = [past.length ? `in the last ${HOURS} hours ${counted(past.map(({ status }) => status))}` : '', times.length
      ? `next at ${times.slice(0, 3).map((one) => exact(one.at)).join(', ')}${times.length > 3
        ? `, and ${times.length - 3} more` : ''}` : ''].filter(Boolean).join('; ');
    return { key: name, words: `${name}: ${words}`, name: html`<${Go} to=${routineLink(name)}><${Text} value=${name} /></${Go}>`,
      marks: [...past.map((run) => [Date.parse(run.scheduled_at ?? run.claimed_at), MARKS[run.status] ?? 'muted',
        `${run.status}, ${exact(run.scheduled_at ?? run.claimed_at)}`]),
        ...times.map((one) => [Date.parse(one.at), 'next', `next, ${exact(one.at)}`])] };
  }).filter(({ marks }) => marks.length);
  if (!rows.length) return null;
  return html`<${Strip} rows=${rows.slice(0, LANES)} from=${from} to=${to} now=${at} ends=${[`${HOURS} h ago`, 'now', `in ${HOURS} h`]} />
    ${rows.length > LANES && html`<p class="hint">${LANES} of ${rows.length} routines.</p>`}`;
}

/** The newest runs by routine, of all in one list: a routine that runs seldom beside frequent ones may have none here. */
async function lastRuns(signal) {
  const by = new Map();
  for (const run of (await get('routine-runs', { limit: 500 }, signal)).routine_runs) {
    if (!by.has(run.routine)) by.set(run.routine, []);
    by.get(run.routine).push(run);
  }
  return by;
}

const DAY_MS = 24 * 3600 * 1000;
/** The failed and missed runs of the last 24 hours, at most 20 of each. */
async function recentTrouble(signal) {
  const both = await Promise.all(['failed', 'missed'].map((status) => get('routine-runs', { status, limit: 20 }, signal)));
  return both.flatMap((answer) => answer.routine_runs).filter((run) => Date.parse(run.claimed_at) > now() - DAY_MS)
    .sort((a, b) => Date.parse(b.claimed_at) - Date.parse(a.claimed_at));
}

function Trouble({ runs }) {
  if (!runs?.length) return null;
  return html`<div class="notice"><p>Failed or missed in the last 24 hours:</p>
    <ul>${runs.slice(0, 5).map((run) => html`<li key=${run.routine_run_id}>
      <${Go} to=${routineRunLink(run.routine_run_id)}><${Text} value=${run.routine} /></${Go}> <${State} value=${run.status} />
      ${' '}<${Time} at=${run.claimed_at} /></li>`)}</ul>
    <p><${Go} to="routines/history?status=failed">All failed runs</${Go}>,${' '}
      <${Go} to="routines/history?status=missed">all missed runs</${Go}></p>
  </div>`;
}

const EACH = 5;
/** The next times: at most five of each routine, so that a frequent one does not hide the others. */
async function nextTimes(signal) {
  const [times, list] = await Promise.all([
    get('routine-runs/next', { count: 100 }, signal), get('routines', { limit: 500 }, signal)]);
  const seen = new Map();
  const some = times.next.filter(({ routine }) => {
    seen.set(routine, (seen.get(routine) ?? 0) + 1);
    return seen.get(routine) <= EACH;
  });
  const others = list.routines.filter((routine) => routine.enabled && routine.next_at && !seen.has(routine.name))
    .map(({ name, next_at: at, trigger: { zone } }) => ({ routine: name, at, zone, local: inZone(at, zone) }));
  return [...some, ...others].sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
}

function Next() {
  const load = useLoad(nextTimes, [], { every: 60000 });
  const live = useLive(RUN_EVENTS, load.reload);
  return html`<${Page} title="Routines" aside=${html`<${Connection} state=${live} />`}>
    <${Tabs} at="routines/next" label="Routines" tabs=${TABS} />
    <p class="hint">The next scheduled times, at most ${EACH} of each routine. Guardrails and freezes can prevent a run.</p>
    <${Loaded} load=${load}>${(next) => html`<${NextTable} next=${next} named />`}</${Loaded}>
  </${Page}>`;
}
