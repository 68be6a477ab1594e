// One run: its facts, its end with the rule and the evidence, its reply, and its timeline, live while it runs.

import { html, useEffect, useMemo, useState } from '../vendor/preact.js';
import { fileUrl, get, lines, path, post } from './api.js';
import { fields, isCut, recordedCall, recordingRows } from './facts.js';
import { duration, goalText, money, number } from './format.js';
import { useLoad } from './hooks.js';
import { Evidence, Judge } from './judge.js';
import { Markdown } from './markdown.js';
import { Asked } from './names.js';
import { Picture } from './picture.js';
import { Plan, planAfter } from './plan.js';
import { isOpen, useRecording, useRunEvents } from './run-events.js';
import { Timeline } from './timeline.js';
import { Act, Code, Empty, Facts, Failure, Go, Loaded, Page, State, Text, Time, chatLink } from './ui.js';
import { Link, Since, STOP_WAIT_MS } from '../pages/now.js';

export function Run({ id, role }) {
  const [every, setEvery] = useState(0);
  const load = useLoad((signal) => get(path`runs/${id}`, {}, signal), [id], { every });
  const run = load.value;
  useEffect(() => setEvery(isOpen(run) ? 3000 : 0), [run?.status]);
  const stop = isOpen(run) && html`<${Act} kind="danger" done=${load.reload}
    action=${() => post(path`runs/${id}/stop`, {}, { wait_ms: STOP_WAIT_MS })}>Stop</${Act}>`;
  return html`<${Page} title="Run" aside=${stop}>
    <${Loaded} load=${load}>${(run) => html`<${Asked} run=${run} /><${Story} run=${run} changed=${load.reload} />
      ${role === 'operator' && !isOpen(run) && html`<${Judge} id=${id} />`}`}</${Loaded}>
  </${Page}>`;
}

const About = ({ run }) => html`<${Facts} of=${[
  ['Status', html`<${State} value=${run.status} />`],
  ['Session', html`<${Go} to=${chatLink(run.session)}><${Text} value=${run.session} /></${Go}>`],
  ['Accepted', html`<${Time} at=${run.accepted_at} />`],
  ['Waited', run.started_at && duration(Date.parse(run.started_at) - Date.parse(run.accepted_at))],
  ['Time', run.ended_at && run.started_at ? duration(Date.parse(run.ended_at) - Date.parse(run.started_at))
    : run.started_at && html`<${Since} at=${run.started_at} />`],
  ['Model calls', number(run.usage.model_calls)],
  ['Tool calls', number(run.usage.tool_calls)],
  ['Tokens', html`<span title="read and written">${number(run.usage.input)} + ${number(run.usage.output)}</span>`],
  ['Cost', money(run.cost_micro_usd)],
  ['Attempts', run.attempt > 1 ? run.attempt : ''],
  ['Id', html`<${Code} value=${run.run_id} />`]]} />`;

function End({ run }) {
  if (run.waiting_for?.kind === 'client_calls') {
    return html`<div class="notice"><p><b>It waits for its client:</b> <${Text} value=${run.waiting_for.summary} /></p>
      <p>Until <${Time} at=${run.waiting_for.expires_at} />; without results it ends then.</p></div>`;
  }
  if (run.waiting_for) {
    return html`<div class="notice"><p><b>It waits for an answer:</b> <${Text} value=${run.waiting_for.summary} /></p>
      <p><${Go} to=${`questions/${run.waiting_for.approval}`}>Answer the question</${Go}>, until <${Time} at=${run.waiting_for.expires_at} /></p></div>`;
  }
  if (!run.ended_at) return null;
  const { explanation, ...rest } = run.evidence ?? {};
  return html`<h2>End</h2><div class="card"><p>Reason: <code>${run.reason}</code></p>
    ${explanation && html`<${Text} of="p" value=${explanation} />`}<${Evidence} of=${rest} /></div>`;
}

const Reply = ({ run }) => run.ended_at && html`${run.reply && html`<h2>Reply</h2><div class="card"><${Markdown} text=${run.reply} /></div>`}
    ${run.files?.length > 0 && html`<ul>${run.files.map((file) => html`<li key=${file.id}>
      <a href=${fileUrl(file.url)} download><${Text} value=${file.name} /></a> ${file.caption && html`<${Text}
        value=${file.caption} />`}</li>`)}</ul>`}`;

/** The parts of the page that need the events: the picture above the reply, and the timeline below it. */
function Story({ run, changed }) {
  const { rows, link, writing } = useRunEvents(run, changed);
  const [at, setAt] = useState();
  const go = (key) => setAt({ key });
  const plan = useMemo(() => rows.reduce((plan, { fact }) => (fact ? planAfter(plan, fact) : plan), undefined), [rows.length]);
  const goal = rows.findLast((row) => row.fact?.type === 'goal_checked');
  return html`<${About} run=${run} /><${End} run=${run} />
    ${(isOpen(run) || link === 'ended') && html`<${Picture} run=${run} rows=${rows} open=${isOpen(run)} go=${go} />`}
    ${plan && html`<h2>Plan</h2><${Plan} plan=${plan} />`}
    <${Reply} run=${run} />
    ${goal && html`<p>Goal: <${Text} value=${goalText(goal.fact)} /></p>`}
    <h2>Timeline <span class="soft small">${number(rows.length)} entries</span> ${isOpen(run)
    && html`<${Link} state=${link} />`}</h2>
    <${Events} run=${run} rows=${rows} link=${link} at=${at} />
    ${writing && html`<h3>Writing now <span class="soft small">since this page was opened</span></h3><pre><${Text}
      value=${writing} /></pre>`}
    <${Messages} id=${run.run_id} />`;
}

function Events({ run, rows, link, at }) {
  // The recording is read when the first row is opened.
  const [recording, read] = useRecording(run, rows.length);
  if (!rows.length) return html`<${NoEvent} link=${link} open=${isOpen(run)} />`;
  return html`<${Timeline} rows=${rows} label="Events of the run" tail=${isOpen(run)} at=${at}
    detail=${(row) => html`<${Detail} key=${row.key} row=${row} recording=${recording} read=${read} />`} />`;
}

function NoEvent({ link, open }) {
  if (link === 'ended' && !open) return html`<${Empty}>Its events are not kept any more.</${Empty}>`;
  return link === 'live' && open ? html`<${Empty}>No event yet.</${Empty}>` : html`<p class="loading" role="status">Loading …</p>`;
}

function Detail({ row, recording, read }) {
  useEffect(read, [row.done]);
  const { fact } = row;
  const [from, to] = [recording.turns?.length, row.step];
  const said = from >= to && recording.turns[to - 1]?.join('\n');
  const call = row.nth !== undefined && recording.calls && recordedCall(row, recording.calls);
  const done = row.done ?? (fact.status && fact);
  const cut = !call && (isCut(fact.arguments) || isCut(done?.result));
  if (row.nth === undefined) {
    return html`${said && html`<h4>Text of this step</h4><pre><${Text} value=${said} /></pre>`}
      ${fact.type === 'approval_requested' && html`<p><${Go} to=${`questions/${fact.approval}`}>Open the question</${Go}></p>`}
      ${fact.type === 'run_ended' ? html`<${Evidence} of=${fact.evidence} />` : html`<${Evidence} of=${fields(fact)} />`}`;
  }
  return html`<${Facts} of=${[['Call', html`<${Code} value=${fact.call_id} />`], ['Result', html`<${State} value=${row.tone} />`],
      ['Took', done && duration(done.took_ms)]]} />
    ${recording.error && html`<${Failure} error=${recording.error} />`}
    ${cut && html`<p class="hint">${recording.loading ? 'The whole text is being read …'
      : 'The text is cut, and the recording does not have the rest.'}</p>`}
    <h4>Arguments</h4><pre><${Text} value=${call ? JSON.stringify(call.args, null, 2) : fact.arguments ?? 'none'} /></pre>
    ${done && html`<h4>Result</h4><pre><${Text} value=${call?.result ?? done.result ?? 'none'} /></pre>`}`;
}

/** The messages of the run as the stop rules see them. */
function Messages({ id }) {
  const [shown, show] = useState(false);
  const load = useLoad((signal) => (shown ? lines(path`runs/${id}/trajectory`, signal) : Promise.resolve()), [id, shown]);
  const rows = useMemo(() => recordingRows(load.value ?? []), [load.value]);
  return html`<details onToggle=${(event) => show(event.target.open)}><summary>Messages of the run (recording)</summary>
    <p class="hint">What the stop rules see, without cleared parts. “Added for the model”: a message during the run,${' '}
      or a note of Belay. <a href=${`api/v1/runs/${encodeURIComponent(id)}/trajectory`}
      download=${`${id}.jsonl`}>Save as JSON Lines</a></p>
    ${shown && html`<${Failure} error=${load.error} retry=${load.reload} />`}
    ${rows.length > 0 && html`<${Timeline} rows=${rows} label="Messages of the run" detail=${(row) => html`<pre><${Text}
      value=${row.whole} /></pre>`} />`}
  </details>`;
}
