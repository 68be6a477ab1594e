// The plan and the events of one job.

import { html, useCallback, useEffect, useRef, useState } from '../vendor/preact.js';
import { path } from '../lib/api.js';
import { seconds } from '../lib/format.js';
import { useFollow } from '../lib/hooks.js';
import { Code, Go, State, Table, Text, Time, runLink } from '../lib/ui.js';

/** The states in which a job is over. Its stream ends with the first of them. */
const OVER = new Set(['completed', 'submitted', 'accepted', 'failed', 'cancelled']);

/** Follows the events of a job, each once, and calls `reload` soon after new ones. Returns `[events, connection]`. */
export function useJobEvents(id, job, reload) {
  const all = useRef([]);
  const timer = useRef();
  const [, shown] = useState(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const soon = useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      shown(all.current.length);
      reload();
    }, 500);
  }, [reload]);
  const state = useFollow(path`jobs/${id}/events`, (event) => {
    if (event.type === 'delta' || event.data?.seq === undefined) return;
    all.current.push(event.data);
    soon();
  }, { isEnd: (event) => (event ? event.type === 'job_changed' && OVER.has(event.data.to) : OVER.has(job?.state)) });
  return [all.current, state];
}

/** The newest plan, with the state of each step. */
function planOf(events) {
  let plan;
  for (const event of events) {
    if (event.type === 'plan_created') {
      plan = { title: event.title, steps: event.steps.map((text) => ({ text, status: 'pending' })) };
    } else if (event.type === 'plan_step' && plan?.steps[event.index]) Object.assign(plan.steps[event.index], event);
  }
  return plan;
}

const words = (name) => String(name).replaceAll('_', ' ');
const TELLS = {
  job_changed: (e) => `The job is ${words(e.to)}${e.attempt ? `, attempt ${e.attempt}` : ''}${e.detail ? `: ${e.detail}` : ''}`,
  run_accepted: () => 'A run was accepted',
  run_started: (e) => `The run was started, attempt ${e.attempt}`,
  model_called: (e) => `Model call, step ${e.step}: ${e.input} tokens in, ${e.output} out`,
  model_fallback: (e) => `${e.to} takes over from ${e.from}: ${e.reason}`,
  tool_started: (e) => `${e.name} (${e.arguments ?? ''})`,
  tool_finished: (e) => `${e.name}: ${words(e.status)} after ${seconds(e.took_ms / 1000)}. ${e.result ?? ''}`,
  guardrail_triggered: (e) => `The guardrail ${e.guardrail} was triggered, ${e.count}`,
  plan_created: (e) => `Plan of ${e.steps.length} steps`,
  plan_step: (e) => `Step ${e.index + 1}: ${words(e.status)}${e.note ? `. ${e.note}` : ''}`,
  approval_requested: (e) => `Question: ${e.summary}`,
  approval_resolved: (e) => `The question is ${e.state}${e.actor ? ` by ${e.actor}` : ''}`,
  grant_revoked: (e) => `Grant ${e.grant} was revoked by ${e.actor}`,
  run_ended: (e) => `The run has ended: ${e.status}, ${words(e.reason)}`,
};
const tell = (event) => TELLS[event.type]?.(event) ?? '';

/** Links to the questions that wait for an answer. */
export function OpenQuestions({ events }) {
  const open = new Map();
  for (const event of events) {
    if (event.type === 'approval_requested') open.set(event.approval, event);
    else if (event.type === 'approval_resolved') open.delete(event.approval);
  }
  return [...open.values()].map((event) => html`<p class="notice" key=${event.approval}>
    <${State} value="waits for an answer" tone="ask" /> <${Go} to=${`questions/${encodeURIComponent(event.approval)}`}>
      <${Text} value=${event.summary} /></${Go}></p>`);
}

export function Steps({ events }) {
  const [count, show] = useState(50);
  const plan = planOf(events);
  return html`
    ${plan && html`<h2>Plan</h2><p><${Text} value=${plan.title} /></p>
      <ol>${plan.steps.map((step) => html`<li>
        <${State} value=${step.status} tone=${step.status === 'blocked' ? 'bad' : undefined} /> <${Text} value=${step.text} />
        ${step.note && html`<br /><small><${Text} value=${step.note} /></small>`}</li>`)}</ol>`}
    <h2>Events</h2>
    <${Table} rows=${events.slice(-count).reverse()} keyOf=${(event) => event.seq} empty="There is no event." columns=${[
      ['When', (event) => html`<${Time} at=${event.at} />`],
      ['Event', (event) => html`<${Code} value=${event.type} />`, 'nowrap'],
      ['What', (event) => html`<${Text} value=${tell(event)} />`],
      ['Run', (event) => event.run_id && html`<${Go} to=${runLink(event.run_id)}>open</${Go}>`],
    ]} />
    ${events.length > count && html`<p class="more"><button onClick=${() => show(count + 200)}>
      Show more of ${events.length} events</button></p>`}`;
}
