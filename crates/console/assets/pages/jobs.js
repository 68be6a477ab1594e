// Jobs: work that outlives the message that asked for it. The list, one job, and the form of a new one.

import { html, useMemo, useState } from '../vendor/preact.js';
import { get, newId, path, post } from '../lib/api.js';
import { exact, money, number, seconds } from '../lib/format.js';
import { Grants } from '../lib/grants.js';
import { useAction, useLoad } from '../lib/hooks.js';
import { Choice, Connection, ListTable, useList, useLive } from '../lib/list.js';
import { Markdown } from '../lib/markdown.js';
import { Act, Code, Facts, Failure, Fold, Go, Loaded, Page, State, Text, Time, chatLink, runLink } from '../lib/ui.js';
import { NewJob } from './job-new.js';
import { OpenQuestions, Steps, useJobEvents } from './job-steps.js';

const OPEN = 'pending,in_progress,stuck';
const STATES = [['', 'All'], [OPEN, 'Not over'], ['pending', 'Pending'], ['in_progress', 'In progress'], ['stuck', 'Stuck'],
  ['completed,submitted', 'Completed'], ['accepted', 'Accepted'], ['failed', 'Failed'], ['cancelled', 'Cancelled']];

const jobLink = (id) => `jobs/${encodeURIComponent(id)}`;
/** A run that is `accepted` waits; a job that is `accepted` is over. */
const JobState = ({ value }) => html`<${State} value=${value} tone=${value === 'accepted' ? 'good' : undefined} />`;
const took = (job) => (job.started_at
  ? seconds((Date.parse(job.ended_at ?? job.changed_at) - Date.parse(job.started_at)) / 1000) : '–');

export default function Jobs({ parts }) {
  if (parts[0] === 'new') return html`<${NewJob} />`;
  return parts[0] ? html`<${Job} key=${parts[0]} id=${parts[0]} />` : html`<${List} />`;
}

function List() {
  const [state, filter] = useState('');
  const list = useList('jobs', 'jobs', { state });
  const live = useLive(['job_changed', 'tool_finished'], list.reload);
  const aside = html`<${Connection} state=${live} /><${Go} class="button" to="jobs/new">New job</${Go}>`;
  return html`<${Page} title="Jobs" aside=${aside}>
    <${Fold} set=${state ? 1 : 0}><form class="filters row"><${Choice} label="State" value=${state} options=${STATES}
      set=${filter} /></form></${Fold}>
    <${ListTable} list=${list} lines keyOf=${(job) => job.job_id} columns=${COLUMNS}
      empty=${state ? 'There is no such job.' : 'There is no job. A job is work that outlives the message that asked for it.'} />
  </${Page}>`;
}

const COLUMNS = [
  ['Job', (job) => html`<${Go} to=${jobLink(job.job_id)}><${Text} value=${job.title} /></${Go}>`],
  ['State', (job) => html`<span><${JobState} value=${job.state} />
    ${job.detail && html`<br /><small><${Text} value=${job.detail} /></small>`}</span>`],
  ['Newest call', (job) => (job.last_action
    ? html`<span><${Code} value=${job.last_action.tool} /> <${Text} value=${job.last_action.status} /></span>` : '–'), 'wide'],
  ['Created', (job) => html`<${Time} at=${job.created_at} />`, 'wide'],
  ['Changed', (job) => html`<${Time} at=${job.changed_at} />`],
  ['Tokens', (job) => number(job.usage.input + job.usage.output), 'number wide'],
  ['Cost', (job) => money(job.cost_micro_usd), 'number'],
];

function Job({ id }) {
  const load = useLoad((signal) => get(path`jobs/${id}`, {}, signal), [id]);
  const [progress, live] = useJobEvents(id, load.value, load.reload);
  return html`<${Page} title="Job" aside=${html`<${Connection} state=${live} />`}>
    <p><${Go} to="jobs">All jobs</${Go}></p>
    <${Loaded} load=${load}>${(job) => html`<${View} job=${job} progress=${progress} reload=${load.reload} />`}</${Loaded}>
  </${Page}>`;
}

function View({ job, progress, reload }) {
  const open = OPEN.split(',').includes(job.state);
  const does = (word, body) => () => post(`${path`jobs/${job.job_id}`}/${word}`, body);
  return html`
    <h2><${Text} value=${job.title} /></h2>
    <p class="row"><${JobState} value=${job.state} />
      ${open && html`<${Act} kind="danger" action=${does('cancel')} done=${reload}
        confirm="Cancel this job?">Cancel the job</${Act}>`}
      ${['completed', 'submitted'].includes(job.state)
        && html`<${Act} kind="primary" action=${does('accept')} done=${reload}>Accept the result</${Act}>`}</p>
    ${job.detail && html`<${Text} of="p" value=${job.detail} />`}
    ${open && html`<${OpenQuestions} progress=${progress} />`}
    ${job.result && html`<h2>Result</h2><div class="card"><${Markdown} text=${job.result} /></div>`}
    ${job.state === 'in_progress' && html`<${Tell} id=${job.job_id} />`}
    <h2>Task</h2><${Text} of="pre" value=${job.task} />
    <${Facts} of=${facts(job)} />
    <${Grants} grants=${job.grants} kind="jobs" id=${job.job_id} done=${reload} fixed=${!open} />
    <${Steps} progress=${progress} />`;
}

const limit = (value, text) => (value ? text(value) : undefined);
const facts = (job) => [
  ['Id', html`<${Code} value=${job.job_id} />`],
  ['Run', job.run_id && html`<${Go} to=${runLink(job.run_id)}><${Code} value=${job.run_id} /></${Go}>`],
  ['Conversation of the job', html`<${Go} to=${chatLink(job.session)}>open</${Go}>`],
  ['Asked for by', html`<${Text} value=${`${job.creator.principal} (${job.channel})`} />`],
  ['Asked in', html`<${Text} value=${job.asked_in} />`],
  ['Routine run', job.routine_run && html`<${Go} to=${`routines/run/${encodeURIComponent(job.routine_run)}`}>open</${Go}>`],
  ['Created', html`<${Time} at=${job.created_at} /> (${exact(job.created_at)})`],
  ['Worked', took(job)],
  ['Ended', job.ended_at && html`<${Time} at=${job.ended_at} />`],
  ['Attempt', `${job.attempt}${job.crashes ? `, after ${job.crashes} crashes` : ''}`],
  ['Steps', job.steps],
  ['Tokens', `${number(job.usage.input)} in, ${number(job.usage.output)} out`],
  ['Calls', `${number(job.usage.model_calls)} of models, ${number(job.usage.tool_calls)} of tools`],
  ['Cost', money(job.cost_micro_usd)],
  ['Plan', job.plan ? 'made first' : 'none'],
  ['Runs in', job.runs_in === 'worker' ? 'a sandboxed worker' : 'the daemon'],
  ['Most steps', limit(job.budget.max_steps, number)],
  ['Most tokens', limit(job.budget.max_tokens, number)],
  ['Most money', limit(job.budget.max_micro_usd, money)],
  ['Most time', limit(job.budget.max_time_ms, (ms) => seconds(ms / 1000))],
];

/** A message to the running job. A text that is sent again, after an answer was lost, keeps its key. */
function Tell({ id }) {
  const [text, set] = useState('');
  const [reply, answer] = useState();
  const key = useMemo(newId, [text]);
  const [send, { busy, error }] = useAction(async () => {
    answer(await post(path`jobs/${id}/messages`, { text, idempotency_key: key }));
    set('');
  });
  return html`<form onSubmit=${(event) => { event.preventDefault(); send(); }}>
    <label>Message to the job
      <textarea required rows="2" value=${text} onInput=${(event) => set(event.currentTarget.value)}></textarea>
      <span class="hint">The job reads it with its next step.</span></label>
    <button type="submit" disabled=${busy || !text.trim()}>Send</button>
    <${Failure} error=${error} />
    ${reply && html`<${Text} of="p" value=${reply.reply} />`}
  </form>`;
}
