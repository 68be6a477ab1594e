// What stands above a conversation: how full the context of the model is, and what can be done with the whole.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { del, get, path, put } from './api.js';
import { number } from './format.js';
import { useAction, useLoad } from './hooks.js';
import { Act, Dialog, Failure } from './ui.js';

/** The share of the model's context that is used. It is asked for after each message. */
export function Meter({ session, known, round }) {
  const load = useLoad((signal) => (known ? get(path`sessions/${session}/context`, {}, signal) : Promise.resolve()), [session, known, round]);
  const { used_tokens: used, context_tokens: all } = load.value ?? {};
  if (!all) return null;
  const share = Math.min(1, used / all);
  const text = `${Math.round(share * 100)} % of the context`;
  return html`<span class="context small" title=${`${number(used)} of ${number(all)} tokens of the model's context are used`}>
    <meter min="0" max="1" high="0.8" optimum="0" value=${share} aria-label="Used context">${text}</meter> ${text}</span>`;
}

/** The commands for a whole conversation, as a menu. */
export function Actions({ session, busy, say, role, renamed }) {
  const [open, set] = useState(false);
  const [naming, name] = useState(false);
  const box = useRef();
  const close = () => { box.current.open = false; };
  const press = (event) => {
    if (event.key !== 'Escape' || !box.current.open) return;
    close();
    box.current.querySelector('summary').focus();
  };
  useEffect(() => {
    if (!open) return undefined;
    const outside = (event) => box.current.contains(event.target) || close();
    document.addEventListener('click', outside);
    return () => document.removeEventListener('click', outside);
  }, [open]);
  const run = (command) => () => { close(); say(command); };
  const item = (command, name, title) => html`<li><button class="link" title=${title} disabled=${busy} onClick=${run(command)}>${name}</button></li>`;
  const file = (format) => `api/v1/sessions/${encodeURIComponent(session)}/export?format=${format}`;
  return html`<details class="menu" ref=${box} onKeyDown=${press} onToggle=${(event) => set(event.target.open)}><summary>Actions</summary>
    <ul>${item('/retry', 'Try the last message again', 'Sends it again, instead of its turn')}
      ${item('/undo', 'Take the last turn back', 'Redo brings it back')}${item('/redo', 'Redo', 'Until the next message')}
      ${item('/fork', 'Go on in a copy', 'The original stays as it is')}
      ${item('/compact', 'Shorten the older part', 'A summary takes its place in the context')}
      ${item('/new', 'Begin anew', 'This conversation stays in the list of /sessions')}
      <li><a href=${file('markdown')} download>Save as Markdown</a></li><li><a href=${file('jsonl')} download>Save as JSON Lines</a></li>
      ${role === 'operator' && html`<li><button class="link" onClick=${() => { close(); name(true); }}>Rename</button></li><li><${Act} kind="link" disabled=${busy} confirm="Delete this conversation with its runs, notes and jobs? It cannot be brought back."
        action=${() => del(path`sessions/${session}`)} done=${() => { location.hash = '/chat'; }}>Delete</${Act}></li>`}</ul></details>
    ${naming && html`<${Rename} session=${session} close=${() => name(false)} done=${() => { name(false); renamed(); }} />`}`;
}

/** Gives the conversation a title. An empty one removes it: the first words are shown again. */
function Rename({ session, close, done }) {
  const [title, set] = useState('');
  const [run, { busy, error }] = useAction(async () => { await put(path`sessions/${session}`, { title }); done(); });
  return html`<${Dialog} title="Rename this conversation" close=${close}>
    <form onSubmit=${(event) => { event.preventDefault(); run(); }}>
      <label>Title <input autofocus maxlength="200" value=${title} onInput=${(event) => set(event.currentTarget.value)} />
        <span class="hint">Without one, the list shows its first words.</span></label>
      <${Failure} error=${error} />
      <menu><button type="button" onClick=${close}>Cancel</button><button class="primary" disabled=${busy}>Save</button></menu>
    </form></${Dialog}>`;
}
