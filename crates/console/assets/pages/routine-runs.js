// The runs of routines: their columns, one of them, and the history of all.

import { html, useRef, useState } from '../vendor/preact.js';
import { get, newId, path, post } from '../lib/api.js';
import { Squares, counted } from '../lib/chart.js';
import { exact, money, number, seconds } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Choice, Connection, ListTable, Tabs, useList, useLive } from '../lib/list.js';
import { Markdown } from '../lib/markdown.js';
import { Act, Code, Facts, Fold, Go, Loaded, Page, State, Table, Text, Time, runLink } from '../lib/ui.js';

export const TABS = [['routines', 'Routines'], ['routines/next', 'Next times'], ['routines/history', 'History']];
export const RUN_EVENTS = ['routine_run_started', 'routine_run_ended'];
export const routineLink = (name) => `routines/of/${encodeURIComponent(name)}`;
export const routineRunLink = (id) => `routines/run/${encodeURIComponent(id)}`;
const STATUS = [['', 'All'], ['running', 'Running'], ['ok', 'Nothing to report'], ['attention', 'Reports'], ['failed', 'Failed'],
  ['missed', 'Missed'], ['skipped', 'Skipped']];

/** Starts a run by hand. The key stays until a start has succeeded: a click after a lost answer starts no second run. */
export function RunNow({ name, kind, done }) {
  const key = useRef(newId());
  const fire = async () => {
    const run = await post(path`routines/${name}/fire`, { idempotency_key: key.current });
    key.current = newId();
    return run;
  };
  return html`<${Act} kind=${kind} title="Start a run of it now" action=${fire} done=${done}>Run now</${Act}>`;
}

/** The work of a routine run: its run or its job. */
const Work = ({ run }) => (run.run_id ? html`<${Go} to=${runLink(run.run_id)}>Run</${Go}>`
  : run.job_id ? html`<${Go} to=${`jobs/${encodeURIComponent(run.job_id)}`}>Job</${Go}>` : '–');
const tookOf = (run) => (run.ended_at ? seconds((Date.parse(run.ended_at) - Date.parse(run.claimed_at)) / 1000) : '–');
const briefly = (text) => (text?.length > 300 ? `${text.slice(0, 300)}…` : text);

export const RUN_COLUMNS = [
  ['Began', (run) => html`<${Go} to=${routineRunLink(run.routine_run_id)}><${Time} at=${run.claimed_at} /></${Go}>`],
  ['Scheduled', (run) => (run.scheduled_at ? html`<${Time} at=${run.scheduled_at} />` : '–'), 'wide'],
  ['Trigger', (run) => html`<${Text} value=${`${run.trigger} ${run.detail}`} />`, 'wide'],
  ['Status', (run) => html`<${State} value=${run.status} />`],
  ['Report', (run) => html`<${Text} value=${briefly(run.summary)} />`, 'wide'],
  ['Took', tookOf, 'number'],
  ['Cost', (run) => money(run.cost_micro_usd), 'number wide'],
  ['Work', (run) => html`<${Work} run=${run} />`],
];

const SQUARES = 20;
const TONES = { ok: 'good', attention: 'ask', failed: 'bad', missed: 'bad', skipped: 'muted', running: 'live' };
/** The last runs of a routine as squares, the newest at the right; `runs` has the newest first. */
export function LastRuns({ runs = [] }) {
  if (!runs.length) return '–';
  const last = runs.slice(0, SQUARES).reverse();
  return html`<${Squares} label=${`The last ${last.length} runs, oldest first: ${counted(last.map((run) => run.status))}`}
    squares=${last.map((run) => [TONES[run.status] ?? 'muted', `${run.status}, ${exact(run.claimed_at)}`])} />`;
}

export const Enabled = ({ routine }) => html`<span>
  <${State} value=${routine.enabled ? 'enabled' : 'disabled'} tone=${routine.enabled ? 'good' : 'muted'} />
  ${routine.disabled_detail && html`<br /><small><${Text} value=${routine.disabled_detail} /></small>`}</span>`;

const NAME = ['Routine', (row) => html`<${Go} to=${routineLink(row.routine)}><${Text} value=${row.routine} /></${Go}>`];

export const NextTable = ({ next, named }) => html`<${Table} rows=${next} keyOf=${(row) => `${row.routine} ${row.at}`}
  empty="No time is scheduled." columns=${[
    ...(named ? [NAME] : []),
    ['In its zone', (row) => html`<${Text} value=${row.local} />`],
    ['Zone', (row) => html`<${Text} value=${row.zone} />`],
    ['In your zone', (row) => exact(row.at)],
    ['When', (row) => html`<${Time} at=${row.at} />`],
  ]} />`;

export function History({ query }) {
  const [status, filter] = useState(query.get('status') ?? '');
  const [routine, choose] = useState(query.get('routine') ?? '');
  const list = useList('routine-runs', 'routine_runs', { status, routine });
  const live = useLive(RUN_EVENTS, list.reload);
  return html`<${Page} title="Routines" aside=${html`<${Connection} state=${live} />`}>
    <${Tabs} at="routines/history" label="Routines" tabs=${TABS} />
    <${Fold} set=${[status, routine].filter(Boolean).length}><form class="filters row" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label="Status" value=${status} options=${STATUS} set=${filter} />
      <label>Routine
        <input type="search" value=${routine} onChange=${(event) => choose(event.currentTarget.value.trim())} /></label>
    </form></${Fold}>
    <${ListTable} list=${list} lines keyOf=${(run) => run.routine_run_id} empty="There is no such run."
      columns=${[NAME, ...RUN_COLUMNS]} />
  </${Page}>`;
}

export function RoutineRun({ id }) {
  const load = useLoad((signal) => get(path`routine-runs/${id}`, {}, signal), [id]);
  const live = useLive(RUN_EVENTS, load.reload);
  return html`<${Page} title="Routine run" aside=${html`<${Connection} state=${live} />`}>
    <${Tabs} label="Routines" tabs=${TABS} />
    <${Loaded} load=${load}>${(run) => html`
      <h2><${Go} to=${routineLink(run.routine)}><${Text} value=${run.routine} /></${Go}></h2>
      <p><${State} value=${run.status} /></p>
      ${run.summary && html`<div class="card"><${Markdown} text=${run.summary} /></div>`}
      <${Facts} of=${[
        ['Id', html`<${Code} value=${run.routine_run_id} />`],
        ['Trigger', html`<${Text} value=${`${run.trigger} ${run.detail}`} />`],
        ['Scheduled', run.scheduled_at && html`<${Time} at=${run.scheduled_at} /> (${exact(run.scheduled_at)})`],
        ['Began', html`<${Time} at=${run.claimed_at} /> (${exact(run.claimed_at)})`],
        ['Ended', run.ended_at && html`<${Time} at=${run.ended_at} /> (${exact(run.ended_at)})`],
        ['Took', tookOf(run)],
        ['Work', html`<${Work} run=${run} />`],
        ['Tokens', `${number(run.usage.input)} in, ${number(run.usage.output)} out`],
        ['Cost', money(run.cost_micro_usd)],
        ['Revision of the routine', run.revision],
        ['Key', html`<${Code} value=${run.key} />`],
      ]} />`}</${Loaded}>
  </${Page}>`;
}
