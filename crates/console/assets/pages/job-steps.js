// The plan and the events of one job.

import { html, useCallback, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { path } from '../lib/api.js';
import { number, seconds } from '../lib/format.js';
import { useFollow } from '../lib/hooks.js';
import { Plan, planAfter } from '../lib/plan.js';
import { Code, Go, State, Table, Text, Time, runLink } from '../lib/ui.js';

/** The states in which a job is over. Its stream ends with the first of them. */
const OVER = new Set(['completed', 'submitted', 'accepted', 'failed', 'cancelled']);

/** The newest events that are kept. A job can have very many. */
const KEPT = 2000;

/** What the events of a job say: the newest ones, the plan with the state of each step, and the open questions. */
class Progress {
  constructor() {
    Object.assign(this, { rows: [], count: 0, seen: 0, plan: undefined, questions: new Map() });
  }

  /** Takes an event; one that it has already is ignored. */
  add(event) {
    if (event.seq <= this.seen) return;
    this.seen = event.seq;
    this.count += 1;
    this.rows.push(event);
    if (this.rows.length > KEPT + KEPT / 10) this.rows = this.rows.slice(-KEPT);
    this.plan = planAfter(this.plan, event);
    if (event.type === 'approval_requested') this.questions.set(event.approval, event.summary);
    else if (event.type === 'approval_resolved') this.questions.delete(event.approval);
  }
}

/** Follows the events of a job, each once, and calls `reload` soon after new ones. Returns `[progress, connection]`. */
export function useJobEvents(id, job, reload) {
  const progress = useMemo(() => new Progress(), [id]);
  const timer = useRef();
  const [, shown] = useState(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const soon = useCallback(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      shown(progress.count);
      reload();
    }, 500);
  }, [reload, progress]);
  const state = useFollow(path`jobs/${id}/events`, (event) => {
    if (event.type === 'delta' || event.data?.seq === undefined) return;
    progress.add(event.data);
    soon();
  }, { isEnd: (event) => (event ? event.type === 'job_changed' && OVER.has(event.data.to) : OVER.has(job?.state)) });
  return [progress, state];
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
export const OpenQuestions = ({ progress }) => [...progress.questions].map(([id, summary]) => html`<p class="notice" key=${id}>
  <${State} value="waits for an answer" tone="ask" /> <${Go} to=${`questions/${encodeURIComponent(id)}`}>
    <${Text} value=${summary} /></${Go}></p>`);

export function Steps({ progress: { rows, count: all, plan } }) {
  const [count, show] = useState(50);
  return html`
    ${plan && html`<h2>Plan</h2><${Plan} plan=${plan} />`}
    <h2>Events</h2>
    <${Table} rows=${rows.slice(-count).reverse()} keyOf=${(event) => event.seq} empty="There is no event." columns=${[
      ['When', (event) => html`<${Time} at=${event.at} />`],
      ['Event', (event) => html`<${Code} value=${event.type} />`, 'nowrap'],
      ['What', (event) => html`<${Text} value=${tell(event)} />`],
      ['Run', (event) => event.run_id && html`<${Go} to=${runLink(event.run_id)}>open</${Go}>`],
    ]} />
    ${rows.length > count ? html`<p class="more"><button onClick=${() => show(count + 200)}>
      Show more of ${number(all)} events</button></p>`
      : all > rows.length && html`<p class="hint">These are the newest of ${number(all)} events. The page of each run has${' '}
        its own.</p>`}`;
}
