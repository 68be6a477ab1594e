// What a run did, folded, in a conversation: its tool calls, its questions and its reasoning.

import { html, useMemo, useState } from '../vendor/preact.js';
import { path } from './api.js';
import { Rows } from './facts.js';
import { duration, number, visible } from './format.js';
import { useFollow } from './hooks.js';
import { Plan, planAfter } from './plan.js';
import { Code, Failure, State, Text, Time } from './ui.js';

/** A tool call as a line; its arguments and its result are below it, on demand. */
export const ToolRow = ({ tool }) => html`<li key=${tool.id}><details><summary><${State} value=${tool.status} /> <${Code}
  value=${tool.name} /> <span class="arguments">${visible(tool.arguments)}</span>${tool.took !== undefined
    && html` <span>${duration(tool.took)}</span>`}</summary>
  <h4>Arguments</h4><pre><${Text} value=${tool.arguments ?? 'none'} /></pre>
  ${tool.result !== undefined && html`<h4>Result</h4><pre><${Text} value=${tool.result} /></pre>`}</details></li>`;

/** The reasoning of a model. It is not stored: a page shows what it has seen itself. */
export const Reasoning = ({ texts }) => texts?.size > 0 && html`<details class="reasoning"><summary>Reasoning</summary><div class="soft"><${Text} of="pre"
  value=${[...texts.entries()].sort(([a], [b]) => a - b).map(([, text]) => text).join('\n\n')} /></div></details>`;

/** The state of a question. An answer that no call has used is told as such: the run ended first. */
export const stateOf = (question) => (question.state === 'withdrawn' && question.decided_by ? 'answered, not used' : question.state);

const ANSWER = { used: 'approved', approved: 'approved', denied: 'denied', expired: 'expired', withdrawn: 'withdrawn' };
/** A question that is over, as a line: what was asked, how it was answered, by whom and when. */
export const Answered = ({ question }) => html`<p class="answered"><${State} value=${ANSWER[stateOf(question)] ?? stateOf(question)} />
  <a href=${`#/questions/${encodeURIComponent(question.id)}`}><${Text} value=${question.summary} /></a>
  <span class="soft small">${question.decided_by && html`by <${Text} value=${question.decided_by} /> `}<${Time} at=${question.decided_at} /></span></p>`;

/** The calls of a run that has ended: they are read when they are unfolded. */
export function Work({ run, seen }) {
  const [open, set] = useState(false);
  const calls = run.usage.tool_calls;
  if (!calls && !seen?.reasoning.size && !seen?.plan) return null;
  return html`<div class="work">
    ${seen?.plan && html`<details><summary>Plan</summary><${Plan} plan=${seen.plan} /></details>`}
    ${calls > 0 && html`<details onToggle=${(event) => event.target === event.currentTarget && set(event.target.open)}>
    <summary>${number(calls)} tool ${calls === 1 ? 'call' : 'calls'}</summary>${open && html`<${Calls} id=${run.run_id} />`}</details>`}
    <${Reasoning} texts=${seen?.reasoning} /></div>`;
}

function Calls({ id }) {
  const rows = useMemo(() => new Rows(0), [id]);
  const [, render] = useState(0);
  const state = useFollow(path`runs/${id}/events`, ({ type, data }) => {
    if (/^(tool|plan)_/.test(type) && data?.seq !== undefined) rows.add(data);
    if (type === 'run_ended') render((n) => n + 1);
  }, { isEnd: (event) => !event || event.type === 'run_ended' });
  if (state instanceof Error) return html`<${Failure} error=${state} />`;
  if (state !== 'ended') return html`<p class="loading" role="status">Loading …</p>`;
  const plan = rows.rows.reduce((plan, { fact }) => planAfter(plan, fact), undefined);
  const tools = rows.rows.filter(({ fact }) => fact.type.startsWith('tool_')).map(({ fact, done, tone }) => ({ id: fact.seq, name: fact.name, status: tone, arguments: fact.arguments,
    took: (done ?? fact).took_ms, result: (done ?? fact).result }));
  if (!tools.length) return html`<p class="hint">Its events are not kept any more.</p>`;
  return html`${plan && html`<${Plan} plan=${plan} />`}<ul class="steps">${tools.map((tool) => html`<${ToolRow} key=${tool.id} tool=${tool} />`)}</ul>`;
}
