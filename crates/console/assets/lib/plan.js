// A plan: its steps with their states, from the facts of a run, a job or a conversation.

import { html, useState } from '../vendor/preact.js';
import { Dialog, State, Text } from './ui.js';

const step = (text) => ({ text, status: 'pending' });

/** The plan after a fact. Facts about other things change nothing. */
export function planAfter(plan, fact) {
  if (fact.type === 'plan_created') return { title: fact.title, steps: (fact.steps ?? []).map(step) };
  if (!plan) return plan;
  const { index } = fact;
  const steps = [...plan.steps];
  if (fact.type === 'plan_step') {
    if (steps[index]) steps[index] = { ...steps[index], status: fact.status, note: fact.note };
    return { ...plan, steps };
  }
  if (fact.type !== 'plan_changed') return plan;
  if (fact.change === 'added') steps.splice(index, 0, step(''));
  if (fact.change === 'dropped' && steps[index]) steps[index] = { ...steps[index], status: 'dropped' };
  const held = fact.change === 'held' || (plan.held && fact.change !== 'approved');
  return { ...plan, held, steps: (fact.steps ?? []).map((text, i) => ({ ...step(text), ...steps[i], text })) };
}

/** A `plan` event of an `agent` stream as a fact. */
export const planFact = ({ phase, ...rest }) => (phase === 'created' ? { type: 'plan_created', ...rest }
  : phase === 'step' ? { type: 'plan_step', ...rest } : { type: 'plan_changed', change: phase, ...rest });

const NAMES = { pending: 'not begun', in_progress: 'in progress', completed: 'done', blocked: 'blocked', dropped: 'left out' };
const TONES = { pending: 'muted', in_progress: 'live', completed: 'good', blocked: 'bad', dropped: 'muted' };

/** `command(text)` sends a `/plan` command; without it, the plan is only shown. */
export function Plan({ plan, command }) {
  const [asked, ask] = useState();
  const done = plan.steps.filter(({ status }) => status === 'completed').length;
  const open = (name, at, text = '') => html`<button class="link" onClick=${() => ask({ name, at, text })}>${name === 'change' ? 'Change' : 'Add a step'}</button>`;
  return html`<section class="plan" aria-label="Plan"><p class="row"><b><${Text} value=${plan.title} /></b>
      <span class="soft small" role="status">${done} of ${plan.steps.length} steps are done${plan.held && ', the next one waits for you'}</span></p>
    <ol>${plan.steps.map((one, i) => html`<li class=${one.status}><${State} value=${NAMES[one.status] ?? one.status} tone=${TONES[one.status]} />
      ${' '}<${Text} value=${one.text} />${command && one.status === 'pending' && html` <span class="small">${open('change', i + 1, one.text)}
        ${' '}<button class="link" onClick=${() => command(`drop ${i + 1}`)}>Leave out</button></span>`}
      ${one.note && html`<br /><small class="soft"><${Text} value=${one.note} /></small>`}</li>`)}</ol>
    ${command && html`<p class="row small">${open('add', plan.steps.length + 1)}
      <button class="link" onClick=${() => command(plan.held ? 'approve' : 'hold')}>${plan.held ? 'Go on' : 'Wait before the next step'}</button>
      <button class="link" onClick=${() => command('cancel')}>Cancel the plan</button></p>`}
    ${asked && html`<${Ask} ...${asked} close=${() => ask()} send=${(words) => { ask(); command(words); }} />`}</section>`;
}

/** Asks for the text of a step. A command is one line. */
function Ask({ name, at, text, close, send }) {
  const [words, set] = useState(text);
  const line = words.replace(/\s+/g, ' ').trim();
  return html`<${Dialog} title=${name === 'add' ? 'Add a step' : `Change step ${at}`} close=${close}>
    <form onSubmit=${(event) => { event.preventDefault(); send(`${name} ${at} ${line}`); }}>
      <label>Text <textarea rows="3" required autofocus value=${words} onInput=${(event) => set(event.target.value)} /></label>
      <menu><button type="button" onClick=${close}>Cancel</button><button class="primary" disabled=${!line}>Save</button></menu>
    </form></${Dialog}>`;
}
