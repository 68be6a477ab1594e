// Runs: the list with filters. With an id in the address, the page of one run.

import { html } from '../vendor/preact.js';
import { get } from '../lib/api.js';
import { money, number } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { ListTable, useList } from '../lib/list.js';
import { Subject, useNames } from '../lib/names.js';
import { Fold, Page, Span, State, Time } from '../lib/ui.js';
import { Judge } from '../lib/judge.js';
import { Run } from '../lib/run.js';

const PAGE = 100;
const STATUS = ['', 'accepted', 'queued', 'running', 'paused', 'completed', 'stopped', 'failed'];
const SINCE = [['', 'any time'], ['1h', 'last hour'], ['24h', 'last day'], ['7d', 'last 7 days'], ['30d', 'last 30 days']];
const FILTERS = ['status', 'reason', 'session', 'since'];

export default function Runs({ parts, query, role }) {
  return parts[0] ? html`<${Run} key=${parts[0]} id=${parts[0]} role=${role} />` : html`<${List} query=${query} role=${role} />`;
}

function List({ query, role }) {
  const filter = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? '']));
  const list = useList('runs', 'runs', filter, { page: PAGE });
  const name = useNames(list.rows.map((run) => run.session));
  return html`<${Page} title="Runs" aside=${html`<button onClick=${list.reload}>Reload</button>`}>
    <${Fold} set=${Object.values(filter).filter(Boolean).length}><${Filters} filter=${filter} /></${Fold}>
    <${ListTable} list=${list} lines columns=${columns(name, list.rows)} keyOf=${(run) => run.run_id}
      empty=${Object.values(filter).some(Boolean) ? 'No run matches these filters.'
        : 'There is no run yet. Write a message in the chat.'} />
    ${role === 'operator' && html`<${Judge} />`}
  </${Page}>`;
}

const took = (run) => (run.ended_at && run.started_at ? Date.parse(run.ended_at) - Date.parse(run.started_at) : undefined);
const TONE = { completed: 'good', failed: 'bad', stopped: 'muted' };

function columns(name, runs) {
  const most = runs.reduce((most, run) => Math.max(most, took(run) ?? 0), 0);
  return [
    ['Run', (run) => html`<${Subject} run=${run} name=${name} />`],
    ['Status', (run) => html`<span><${State} value=${run.status} />${run.reason && html` <small><code>${run.reason}</code></small>`}</span>`],
    ['Accepted', (run) => html`<${Time} at=${run.accepted_at} />`, 'nowrap'],
    ['Time', (run) => (took(run) === undefined ? '–' : html`<${Span} ms=${took(run)} most=${most} tone=${TONE[run.status]} />`), 'number'],
    ['Calls', (run) => html`<span title="model calls and tool calls">${run.usage.model_calls} + ${run.usage.tool_calls}</span>`, 'number wide'],
    ['Tokens', (run) => number(run.usage.input + run.usage.output), 'number wide'],
    ['Cost', (run) => money(run.cost_micro_usd), 'number'],
  ];
}

/** The filters are in the address, so that a link keeps them. */
function Filters({ filter }) {
  const reasons = useLoad((signal) => get('ends', { since: '30d' }, signal));
  const known = [...new Set(reasons.value?.ends.map((end) => end.reason) ?? [])].sort();
  const set = (name) => (event) => {
    const next = new URLSearchParams(Object.entries({
      ...filter, [name]: event.target.value.trim() }).filter(([, value]) => value));
    location.hash = next.size ? `/runs?${next}` : '/runs';
  };
  return html`<form class="filters row" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label>Status <select value=${filter.status} onChange=${set('status')}>
      ${STATUS.map((name) => html`<option value=${name}>${name || 'all'}</option>`)}</select></label>
    <label>Reason <input list="reasons" value=${filter.reason} onChange=${set('reason')} autocomplete="off"
      placeholder="all" /></label>
    <datalist id="reasons">${known.map((name) => html`<option value=${name} />`)}</datalist>
    <label>Session <input value=${filter.session} onChange=${set('session')} autocomplete="off" placeholder="all" /></label>
    <label>Since <select value=${filter.since} onChange=${set('since')}>
      ${SINCE.some(([value]) => value === filter.since) ? '' : html`<option value=${filter.since}>${filter.since}</option>`}
      ${SINCE.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select></label>
  </form>`;
}
