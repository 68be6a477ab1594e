// A question of a run inside a conversation: what is asked, and the answer.

import { html, useState } from '../vendor/preact.js';
import { get, path, post } from './api.js';
import { useAction, useLoad } from './hooks.js';
import { Markdown } from './markdown.js';
import { Failure, Go, Text, Time } from './ui.js';

/** `send(text)` sends a secret as the next message of the session. `done` is called after an answer. */
export function Question({ question, send, done }) {
  const load = useLoad((signal) => get(path`approvals/${question.id}`, {}, signal), [question.id]);
  const [answer, { busy, error }] = useAction(async (decision) => {
    try {
      await post(path`approvals/${question.id}`, { decision });
    } finally {
      done();
    }
  });
  const secret = question.kind === 'credential';
  return html`<section class="notice question" aria-label="Question">
    ${load.value?.question ? html`<${Markdown} text=${load.value.question} />` : html`<p><b>May I do this?</b> <${Text}
      value=${question.summary} /></p>`}
    ${question.second && html`<p class="hint">Two persons must approve: ${question.second.given} of ${question.second.needed} have.</p>`}
    ${secret ? html`<${Secret} send=${send} deny=${() => answer('deny')} busy=${busy} />` : html`<p class="row">
      <button class="primary" disabled=${busy} onClick=${() => answer('approve')}>Approve</button>
      ${question.covers && html`<button disabled=${busy} onClick=${() => answer('always')}>Always: <${Text}
        value=${question.covers} /></button>`}
      <button class="danger" disabled=${busy} onClick=${() => answer('deny')}>Deny</button></p>`}
    <p class="hint">Without an answer it is denied: <${Time} at=${question.expires_at} />. <${Go} to=${`questions/${question.id}`}>Details</${Go}></p>
    <${Failure} error=${error} />
  </section>`;
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
