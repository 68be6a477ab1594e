// The field for a message, with files and the queue mode.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { upload } from './api.js';
import { draftName } from './drafts.js';
import { bytes, visible } from './format.js';
import { unique } from './talk.js';

const MODES = [['', 'as configured'], ['steer', 'joins the running turn'], ['followup', 'gets its own turn after it'],
  ['collect', 'one turn for all new messages'], ['interrupt', 'interrupts the running turn']];
/** Bytes of a message. */
const LONGEST = 100_000;

/** The draft of a session outlives a reload of the page, and the conversation removes it after it was sent. */
function useDraft(session) {
  const name = draftName(session);
  const [text, set] = useState(() => { try { return sessionStorage.getItem(name) ?? ''; } catch { return ''; } });
  return [text, set, (value) => {
    set(value);
    try { if (value) sessionStorage.setItem(name, value); else sessionStorage.removeItem(name); } catch { /* no storage here */ }
  }];
}

export function Composer({ session, send, busy, children }) {
  const [text, show, setText] = useDraft(session);
  const [files, setFiles] = useState([]);
  const [queue, setQueue] = useState('');
  const field = useRef();
  const pick = useRef();
  useEffect(() => { if (matchMedia('(min-width: 861px)').matches) field.current.focus(); }, []);
  useEffect(() => {
    field.current.style.height = 'auto';
    field.current.style.height = `${field.current.scrollHeight + 2}px`;
  }, [text]);
  const change = (key, what) => setFiles((all) => all.map((file) => (file.key === key ? { ...file, ...what } : file)));
  const add = (list) => [...list].forEach((file) => {
    const key = unique();
    setFiles((all) => [...all, { key, name: file.name, bytes: file.size }]);
    upload(file).then((stored) => change(key, { id: stored.file, content: stored.content }),
      (error) => change(key, { error: error.message }));
  });
  const size = new TextEncoder().encode(text).length;
  const uploading = files.some((file) => !file.id && !file.error);
  const ready = text.trim() && size <= LONGEST && !uploading;
  const submit = (event) => {
    event?.preventDefault();
    if (!ready) return;
    send({ key: unique(), text, queue: queue || undefined, files: files.filter((file) => file.id) });
    show('');
    setFiles([]);
    field.current.focus();
  };
  const press = (event) => { if (event.key === 'Enter' && !event.shiftKey && !event.isComposing) submit(event); };
  const paste = (event) => { if (event.clipboardData.files.length) { event.preventDefault(); add(event.clipboardData.files); } };
  const dropped = (event) => { event.preventDefault(); add(event.dataTransfer.files); };
  return html`<form class="composer" onSubmit=${submit} onDrop=${dropped} onDragOver=${(event) => event.preventDefault()}>
    <label class="hidden" for="message">Message</label>
    <textarea id="message" ref=${field} rows="2" dir="auto"
      placeholder="Write a message. Enter sends it; Shift+Enter begins a new line."
      value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${press} onPaste=${paste} />
    ${files.length > 0 && html`<ul class="chips">${files.map((file) => html`<li key=${file.key}>
      <span class="text">${visible(file.name)}</span> <span class=${file.error ? 'failure' : 'soft'}>${visible(file.error)
        || (file.id ? `${bytes(file.bytes)}${file.content ? `, ${file.content}` : ''}` : 'uploading …')}</span>
      <button type="button" class="link" aria-label=${visible(`Remove ${file.name}`)}
        onClick=${() => setFiles((all) => all.filter((other) => other !== file))}>✕</button></li>`)}</ul>`}
    ${size > LONGEST && html`<p class="failure"
      role="alert">The message is too long: ${bytes(size)} of at most ${bytes(LONGEST)}. Attach it as a file.</p>`}
    <div class="row">
      <input ref=${pick} type="file" multiple class="hidden" tabindex="-1" aria-hidden="true"
        onChange=${(event) => { add(event.target.files); event.target.value = ''; }} />
      <button type="button" onClick=${() => pick.current.click()}>Attach files</button>
      ${busy && html`<label class="check"><span>While it works, a message</span> <select value=${queue}
        onChange=${(event) => setQueue(event.target.value)}>
        ${MODES.map(([value, name]) => html`<option value=${value}>${name}</option>`)}</select></label>`}
      <span class="end">${children} <button type="submit" disabled=${!ready}>Send</button></span>
    </div>
  </form>`;
}
