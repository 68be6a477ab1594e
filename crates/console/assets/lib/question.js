// A question of a run inside a conversation: what is asked, and the answer.

import { html, useState } from '../vendor/preact.js';
import { get, path, post } from './api.js';
import { visible } from './format.js';
import { useAction, useLoad } from './hooks.js';
import { Markdown } from './markdown.js';
import { Failure, Go, Text, Time } from './ui.js';

/** `send(text)` sends a secret as the next message of the session. `done` is called after an answer. */
export function Question({ question, send, done }) {
  const load = useLoad((signal) => get(path`approvals/${question.id}`, {}, signal), [question.id]);
  const [answer, { busy, error }] = useAction(async (decision, values) => {
    try {
      await post(path`approvals/${question.id}`, { decision, values });
    } finally {
      done();
    }
  });
  const secret = question.kind === 'credential';
  const form = question.kind === 'form' && question.fields.length > 0;
  return html`<section class="notice question" aria-label="Question">
    ${load.value?.question ? html`<${Markdown} text=${load.value.question} />` : html`<p><b>May I do this?</b> <${Text}
      value=${question.summary} /></p>`}
    ${question.second && html`<p class="hint">Two persons must approve: ${question.second.given} of ${question.second.needed} have.</p>`}
    ${secret && html`<${Secret} send=${send} deny=${() => answer('deny')} busy=${busy} />`}
    ${form && html`<${Form} fields=${question.fields} busy=${busy} give=${(values) => answer('approve', values)} deny=${() => answer('deny')} />`}
    ${!secret && !form && html`<p class="row">
      <button class="primary" disabled=${busy} onClick=${() => answer('approve')}>Approve</button>
      ${question.covers && html`<button disabled=${busy} onClick=${() => answer('always')}>Always: <${Text}
        value=${question.covers} /></button>`}
      <button class="danger" disabled=${busy} onClick=${() => answer('deny')}>Deny</button></p>`}
    <p class="hint">Without an answer it is denied: <${Time} at=${question.expires_at} />. <${Go} to=${`questions/${question.id}`}>Details</${Go}></p>
    <${Failure} error=${error} />
  </section>`;
}

/** The fields that an MCP server asks for. The daemon checks and converts the values. */
export function Form({ fields, busy, give, deny }) {
  const submit = (event) => {
    event.preventDefault();
    const data = new FormData(event.currentTarget);
    const value = ({ name }) => [name, data.getAll(name).filter((one) => one !== '').join(', ')];
    give(Object.fromEntries(fields.map(value).filter(([, text]) => text !== '')));
  };
  return html`<form class="filters" onSubmit=${submit}>
    ${fields.map((field) => html`<label key=${field.name}><${Text} value=${field.title || field.name} />${field.required ? ' *' : ''}
      ${' '}<${Input} field=${field} /></label>`)}
    <p class="row"><button type="submit" class="primary" disabled=${busy}>Answer</button>
      <button type="button" class="danger" disabled=${busy} onClick=${deny}>Give nothing</button></p></form>`;
}

function Input({ field: { name, type, options, required, default: value, whole, min, max } }) {
  const chosen = (option) => (Array.isArray(value) ? value.includes(option) : value === option);
  const choice = (option) => html`<option value=${option.value} selected=${chosen(option.value)}>${visible(option.title || option.value)}</option>`;
  if (type === 'choice') return html`<select name=${name} required=${required}><option value="">–</option>${options.map(choice)}</select>`;
  if (type === 'choices') return html`<select name=${name} multiple>${options.map(choice)}</select>`;
  if (type === 'yes_no') {
    return html`<select name=${name} required=${required}><option value="">–</option>
      <option value="yes" selected=${value === true}>yes</option><option value="no" selected=${value === false}>no</option></select>`;
  }
  if (type === 'number') return html`<input name=${name} type="number" step=${whole ? 1 : 'any'} min=${min} max=${max} required=${required} value=${value} />`;
  return html`<input name=${name} autocomplete="off" maxlength=${max} required=${required} value=${value} />`;
}

function Secret({ send, deny, busy }) {
  const [value, setValue] = useState('');
  const submit = (event) => { event.preventDefault(); if (value) { send(value); setValue(''); } };
  return html`<form class="row" onSubmit=${submit}>
    <label>The secret <input type="password" autocomplete="off" value=${value}
      onInput=${(event) => setValue(event.target.value)} /></label>
    <button type="submit" disabled=${!value}>Give it</button>
    <button type="button" class="danger" disabled=${busy} onClick=${deny}>Deny</button></form>`;
}
