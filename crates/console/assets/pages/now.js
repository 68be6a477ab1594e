// Now: the runs as they live, with a stop on each, and the stop and the freeze of everything.

import { html, useRef, useState } from '../vendor/preact.js';
import { get, path, post } from '../lib/api.js';
import { duration, goalText, money, number, seconds, visible } from '../lib/format.js';
import { useAction, useLoad, useNow } from '../lib/hooks.js';
import { useRunning } from '../lib/running.js';
import { StreamEnd } from '../lib/list.js';
import { Subject, useNames } from '../lib/names.js';
import { Act, Code, Dialog, Facts, Failure, Go, Loaded, Page, Span, State, Table, Text, Time } from '../lib/ui.js';

export const STOP_WAIT_MS = 2000;
/** The status is loaded so often after facts, and so often without one. */
const STATUS_MS = 5000;
const STATUS_AT_LEAST_MS = 60_000;

/** The time from `at` on, renewed every second. */
export function Since({ at }) {
  const now = useNow();
  return at ? html`<span>${seconds((now - Date.parse(at)) / 1000)}</span>` : html`<span>–</span>`;
}

/** The state of the event stream. */
export const Link = ({ state }) => html`<span role="status">${state instanceof Error ? html`<${StreamEnd} error=${state} />`
  : state === 'live' ? html`<span class="state good">live</span>`
    : state !== 'ended' && html`<span class="state ask">${state === 'waiting' ? 'no connection, trying again'
      : 'connecting'}</span>`}</span>`;

/** What a stop or a freeze has done. */
export function Receipt({ stopped, left = [] }) {
  return html`<p class=${left.length ? 'notice' : 'hint'} role="status">
    ${stopped.length === 1 ? '1 run has stopped.' : `${stopped.length} runs have stopped.`}
    ${left.length ? ` ${left.length} still end: ${left.map((one) => visible(one.what ?? one.run_id)).join(', ')}.`
      : ' Nothing is left running.'}</p>`;
}

export default function Now({ role }) {
  const live = useRunning();
  const loadedAt = useRef(0);
  const status = useLoad((signal) => {
    loadedAt.current = Date.now();
    return get('status', {}, signal);
  }, [], {
    every: STATUS_MS,
    // Times and amounts of a day change without a fact.
    when: () => live.takeNews() || Date.now() - loadedAt.current >= STATUS_AT_LEAST_MS,
  });
  const [receipt, setReceipt] = useState();
  const operator = role === 'operator';
  const reload = () => { live.reload(); status.reload(); };
  const running = live.runs.filter((run) => run.status === 'running');
  const waiting = ['paused', 'queued', 'accepted'].flatMap((status) => live.runs.filter((run) => run.status === status));
  const name = useNames([...running, ...waiting].map((run) => run.session));
  const aside = html`<${Link} state=${live.link} />
    ${operator && html`<${Act} kind="danger" confirm="Stop all runs of all sessions?"
      done=${(report) => { setReceipt(report); reload(); }}
      action=${() => post('stop', {}, { wait_ms: STOP_WAIT_MS })}>Stop everything</${Act}>
      <${Freeze} done=${reload} />`}`;
  return html`<${Page} title="Now" aside=${aside}>
    ${receipt && html`<${Receipt} stopped=${receipt.stopped} left=${receipt.still_running} />`}
    <${Loaded} load=${status}>${(value) => html`<${Status} status=${value} operator=${operator} reload=${reload} />`}</${Loaded}>
    <${Failure} error=${live.error} retry=${live.reload} />
    <h2>Running</h2>
    ${live.loaded ? html`<${Runs} runs=${running} doing=${live.doing} name=${name} cut=${live.cut} empty="No run is running now." />` : html`<p class="loading"
      role="status">Loading …</p>`}
    ${waiting.length > 0 && html`<h2>Waiting</h2><${Waiting} runs=${waiting} name=${name} cut=${live.cut} />`}
    <${Ended} live=${live} />
    <${Processes} processes=${status.value?.processes} />
    ${operator && html`<${Nodes} />`}
  </${Page}>`;
}

const LAST = 5;
const ENDED_MS = 10_000;
/** The runs that have ended last, and why: asked for after an end, but not more often than that. */
function Ended({ live }) {
  const load = useLoad((signal) => get('runs', { status: 'completed,stopped,failed', limit: LAST }, signal), [], { every: ENDED_MS, when: () => live.takeEnded() });
  const runs = load.value?.runs ?? [];
  const name = useNames(runs.map((run) => run.session));
  if (!runs.length) return html`<${Failure} error=${load.error} retry=${load.reload} />`;
  const took = (run) => Date.parse(run.ended_at) - Date.parse(run.started_at ?? run.accepted_at);
  const most = Math.max(...runs.map(took));
  return html`<section class="ended" aria-label="Ended last"><h2>Ended last</h2><${Table} rows=${runs} keyOf=${(run) => run.run_id} lines columns=${[
    which(name), state, ['Reason', (run) => html`<code>${run.reason}</code>`],
    ['Ended', (run) => html`<${Time} at=${run.ended_at} />`, 'nowrap'],
    ['Time', (run) => html`<${Span} ms=${took(run)} most=${most} tone=${ENDED_TONE[run.status]} />`, 'number'],
    ['Cost', (run) => money(run.cost_micro_usd), 'number'],
  ]} /></section>`;
}
const ENDED_TONE = { completed: 'good', failed: 'bad', stopped: 'muted' };

/** Commands that go on in the background. A stop of their session ends them. */
function Processes({ processes = [] }) {
  if (!processes.length) return null;
  return html`<h2>In the background</h2><${Table} rows=${processes} keyOf=${(process) => process.id} columns=${[
    ['Process', (process) => html`<${Code} value=${process.id} />`],
    ['Command', (process) => html`<${Text} value=${process.command} />`],
    ['Session', (process) => html`<${Text} value=${process.session} />`],
    ['Ends', (process) => (process.kept ? 'with its conversation' : 'with its run')],
    ['Time', (process) => seconds(process.for_ms / 1000), 'number'],
    ['Printed', (process) => `${number(process.printed_bytes)} bytes`, 'number wide'],
    ['', (process) => html`<${Act} kind="danger" title=${`Stop the session ${process.session}`}
      action=${() => post(path`sessions/${process.session}/stop`, {}, { wait_ms: STOP_WAIT_MS })}>Stop</${Act}>`, 'actions'],
  ]} />`;
}

const NODE_TONE = { alive: 'good', draining: 'wait', drained: 'muted', lost: 'bad' };
/** The daemons that share the database. A daemon that uses it alone is asked once, and shows nothing. */
function Nodes() {
  const shared = useRef(false);
  const load = useLoad((signal) => get('nodes', {}, signal), [], { every: STATUS_MS, when: () => shared.current });
  const { nodes = [], leases = [] } = load.value ?? {};
  shared.current = nodes.length > 0;
  if (!nodes.length && !load.error) return null;
  const work = (node) => leases.filter((lease) => lease.boot === node.boot).map((lease) => lease.channel ?? lease.task);
  return html`<h2>Nodes</h2><${Failure} error=${load.error} retry=${load.reload} />
    ${nodes.length > 0 && html`<${Table} rows=${nodes} keyOf=${(node) => node.boot} columns=${[
      ['Node', (node) => html`<span><${Text} value=${node.name} />${node.here && html` <small>(this one)</small>`}
        ${node.settings_differ && html`<br /><small class="state ask">its settings differ</small>`}</span>`],
      ['State', (node) => html`<${State} value=${node.state} tone=${NODE_TONE[node.state]} />`],
      ['Sessions', (node) => number(node.lanes), 'number'],
      ['Work', (node) => visible(work(node).join(', ')) || '–'],
      ['Lease', (node) => (node.ended_at ? '–' : duration(node.lease_ms)), 'number'],
      ['Version', (node) => visible(node.version)],
      ['Started', (node) => html`<${Time} at=${node.started_at} />`],
      ['Ended', (node) => html`<${Time} at=${node.ended_at} />`],
    ]} />`}`;
}

const which = (name) => ['Run', (run) => html`<${Subject} run=${run} name=${name} />`];
const state = ['Status', (run) => html`<${State} value=${run.status} />`, 'nowrap'];
const stop = ['', (run) => html`<${Act} kind="danger" title=${`Stop the run of ${run.session}`}
  action=${() => post(path`runs/${run.run_id}/stop`, {}, { wait_ms: STOP_WAIT_MS })}>Stop</${Act}>`, 'actions'];

/** The time that a run has taken so far, as a bar too: `most` is the start of the oldest one. */
function Worked({ run, oldest }) {
  const now = useNow();
  return html`<${Span} ms=${now - Date.parse(startOf(run))} most=${now - oldest} tone="live" />`;
}
const startOf = (run) => run.started_at ?? run.accepted_at;

function Runs({ runs, doing, name, cut, empty }) {
  const oldest = Math.min(...runs.map((run) => Date.parse(startOf(run))));
  const columns = [which(name), state,
    ['Step', (run) => doing(run.run_id)?.step ?? (run.usage.model_calls || '–'), 'number wide'],
    ['Doing', (run) => html`<${Doing} of=${doing(run.run_id)} />`],
    ['Time', (run) => html`<${Worked} run=${run} oldest=${oldest} />`, 'number'],
    ['Tokens', (run) => html`<span title="read and written">${number(run.usage.input)} + ${number(run.usage.output)}</span>`, 'number wide'],
    ['Cost', (run) => money(run.cost_micro_usd), 'number'], stop];
  return html`<${Table} lines columns=${columns} rows=${runs} keyOf=${(run) => run.run_id} empty=${empty} />
    ${cut && html`<p
      class="hint">The newest runs are shown. <${Go} to="runs?status=running">All running runs</${Go}></p>`}`;
}

function Doing({ of }) {
  const tools = [...(of?.tools.values() ?? [])];
  const goal = of?.goal && html`<br /><small>goal: <${Text} value=${goalText(of.goal)} /></small>`;
  if (!tools.length) return html`<span class="soft">model</span>${goal}`;
  return html`<span><${Code} value=${tools[0].name} /> <${Since} at=${tools[0].at} />${tools.length > 1
    ? ` and ${tools.length - 1} more` : ''}</span>${goal}`;
}

function Waiting({ runs, name, cut }) {
  const columns = [which(name), state,
    ['For', (run) => (run.waiting_for ? html`<${Go} to=${`questions/${run.waiting_for.approval}`}><${Text}
      value=${run.waiting_for.summary} /></${Go}>`
      : html`<span class="soft">its turn</span>`)],
    ['Since', (run) => html`<${Time} at=${run.accepted_at} />`], stop];
  return html`<${Table} lines columns=${columns} rows=${runs} keyOf=${(run) => run.run_id} />
    ${cut && html`<p class="hint">The list is cut. <${Go} to="runs?status=queued">All queued runs</${Go}></p>`}`;
}

function Status({ status, operator, reload }) {
  const { model, jobs, routines } = status;
  const limit = status.limit_today_micro_usd;
  return html`<${Degraded} troubles=${status.degraded} />
    ${status.draining && html`<p class="notice">The daemon is shutting down. It accepts no new message.</p>`}
    ${model.rehearsal && html`<p class="notice">No model is configured: a built-in rehearsal answers.${' '}
      Set a key or <code>llm.base_url</code>, or run${' '}
      <code>belay setup</code>.</p>`}
    ${status.database_losses?.map((loss) => html`<p class="notice" key=${loss.noticed_at}><${Text} value=${loss.detail} />${' '}
      It was noticed at <${Time} at=${loss.noticed_at} />.</p>`)}
    ${status.frozen?.map((freeze) => html`<${Frozen} key=${freeze.id} freeze=${freeze} operator=${operator} reload=${reload} />`)}
    <${Facts} of=${[
      ['Running', number(status.running.length)],
      ['Queued', number(status.queued)],
      ['Paused', status.paused ? html`<${Go} to="questions">${number(status.paused)}</${Go}>` : '0'],
      ['Jobs', jobs && html`<${Go} to="jobs">${jobs.in_progress} in progress, ${jobs.pending} pending</${Go}>`],
      ['Jobs stuck', jobs?.stuck || ''],
      ['Next routine', routines?.next_at && html`<${Go} to="routines"><${Time} at=${routines.next_at} /></${Go}>`],
      ['Spent today', html`<${Go} to="money">${money(status.spent_today_micro_usd)}${limit ? ` of ${money(limit)}`
        : ''}</${Go}>`],
      ['Open reservations', status.open_reservations.calls
        ? `${status.open_reservations.calls} calls, at most ${money(status.open_reservations.cost_micro_usd)}` : ''],
      ['Model', html`<${Text} value=${`${model.model} by ${model.provider}`} />`],
      ['Channels', visible(status.channels.join(', '))],
      ['Up', html`<${Since} at=${status.started_at} />`],
      ['Version', status.version]]} />`;
}

/** The parts that do not work as they should, a line each. */
function Degraded({ troubles = [] }) {
  if (!troubles.length) return null;
  const parts = [...new Set(troubles.map((trouble) => trouble.part))].join(', ');
  return html`<div class="failure" role="alert"><p><b>Degraded: ${visible(parts)}</b></p>
    <ul>${troubles.map((trouble) => html`<li><${Text} value=${`${trouble.part}: ${trouble.detail}`} />
      ${trouble.since && trouble.part !== 'freeze' && html` Since <${Time} at=${trouble.since} />.`}</li>`)}</ul></div>`;
}

/** A freeze in force, with its receipt. */
function Frozen({ freeze, operator, reload }) {
  const { scope, receipt } = freeze;
  const part = scope.kind === 'all' ? 'Everything' : `The ${scope.kind} ${scope.name ?? scope.id ?? scope.channel}`;
  const body = scope.kind === 'all' ? {} : scope.kind === 'routine' ? { routine: scope.name }
    : scope.kind === 'channel' ? { channel: scope.channel }
      : { person: scope.channel ? `${scope.channel}:${scope.id}` : scope.id };
  return html`<div class="notice" role="status">
    <p><b><${Text} value=${part} /> is frozen</b> since <${Time} at=${freeze.at} />, by <${Text} value=${freeze.actor} />.
      ${freeze.detail && html` Reason: <${Text} value=${freeze.detail} />`}</p>
    ${receipt && html`<p class="small">${receipt.acknowledged_ms === null ? 'The runs are being told to stop.'
      : `All runs were told to stop within ${receipt.acknowledged_ms} ms.`}
      ${` ${receipt.stopped.length} stopped. `}
      ${receipt.trees_empty_ms === null ? 'Some processes are still ending.'
        : `No process was left after ${receipt.trees_empty_ms} ms.`}
      ${receipt.outside?.length > 0 && ` Effects outside that may have happened: ${receipt.outside.length}.`}</p>
      ${receipt.outside?.length > 0 && html`<details><summary>Effects outside</summary><pre><${Text}
        value=${JSON.stringify(receipt.outside, null, 1)} /></pre></details>`}`}
    ${operator && html`<p><${Act} action=${() => post('thaw', body)} done=${reload}>Thaw</${Act}></p>`}
  </div>`;
}

/** Asks for the reason, then freezes everything. */
function Freeze({ done }) {
  const [open, setOpen] = useState(false);
  const [detail, setDetail] = useState('');
  const [freeze, { busy, error }] = useAction(async () => {
    await post('freeze', detail.trim() ? { detail: detail.trim() } : {});
    setOpen(false);
    done();
  });
  return html`<button class="danger" onClick=${() => setOpen(true)}>Freeze everything</button>
    ${open && html`<${Dialog} title="Freeze everything?" close=${() => setOpen(false)}>
      <form onSubmit=${(event) => { event.preventDefault(); freeze(); }}>
        <p>All runs stop, and nothing begins until the thaw. Messages are kept. A freeze outlives a restart.</p>
        <label>Reason (optional) <input autofocus maxlength="500" value=${detail}
          onInput=${(event) => setDetail(event.target.value)} /></label>
        <${Failure} error=${error} />
        <menu><button type="button" onClick=${() => setOpen(false)}>Cancel</button>
          <button class="danger plain" type="submit" disabled=${busy}>Freeze everything</button></menu>
      </form></${Dialog}>`}`;
}
