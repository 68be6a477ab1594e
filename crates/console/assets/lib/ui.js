// The parts that every page uses.

import { html, useEffect, useLayoutEffect, useRef, useState } from '../vendor/preact.js';
import { duration, exact, relative, visible } from './format.js';
import { useAction, useNarrow, useNow } from './hooks.js';

/** A time relative to now; the exact one is its title. */
export function Time({ at }) {
  const now = useNow(5000);
  return at ? html`<time datetime=${at} title=${exact(at)}>${relative(at, now)}</time>` : html`<span>–</span>`;
}

const TONE = {
  running: 'live', accepted: 'wait', queued: 'wait', paused: 'ask', pending: 'ask', completed: 'good', success: 'good',
  approved: 'good', used: 'good', failed: 'bad', error: 'bad', denied: 'bad', stopped: 'muted', cancelled: 'muted',
  expired: 'muted', waiting: 'ask', in_progress: 'live', stuck: 'bad', submitted: 'good', ok: 'good', attention: 'ask',
  missed: 'bad', skipped: 'muted', failing: 'bad', trial: 'wait', off: 'bad', on: 'good',
};
/** A word of state. Its colour is never the only sign. */
export const State = ({ value, tone }) => html`<span class="state ${tone ?? TONE[value] ?? 'muted'}">${
  visible(value ?? '–').replaceAll('_', ' ')}</span>`;

/** Text of a person, a model or a tool. */
export const Text = ({ value, of = 'span' }) => html`<${of} class="text" dir="auto">${visible(value)}</${of}>`;

/** The text of a field with its hidden characters, which the field itself cannot show. */
export const Hidden = ({ value }) => (visible(value) === String(value ?? '') ? null
  : html`<span class="hint">With its hidden characters: <${Text} value=${value} /></span>`);

/** Names, ids and keys. */
export const Code = ({ value }) => html`<code>${visible(value)}</code>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

/** An error and what to do next. */
export function Failure({ error, retry }) {
  if (!error) return null;
  const forbidden = error.status === 403;
  return html`<div class="failure" role="alert">
    <p>${forbidden ? 'Your role may not do this: ' : ''}${visible(error.message)}</p>
    ${retry && !forbidden && html`<button onClick=${retry}>Try again</button>`}
  </div>`;
}

/** A button that runs an action. With `confirm`, a dialog asks first. `children` is its label. */
export function Act({ action, done, confirm, kind = '', title, disabled, children }) {
  const [run, { busy, error }] = useAction(action);
  const [asking, ask] = useState(false);
  const go = async () => {
    const value = await run();
    ask(false);
    if (value !== undefined) done?.(value);
  };
  return html`<span class="act">
    <button class=${kind} title=${title && visible(title)} disabled=${disabled || busy} aria-busy=${busy}
      onClick=${() => (confirm ? ask(true) : go())}>${children}</button>
    ${asking && html`<${Dialog} title=${confirm} close=${() => ask(false)}>
      <menu><button autofocus onClick=${() => ask(false)}>Cancel</button><button class="danger" disabled=${busy} onClick=${go}>${children}</button></menu>
    </${Dialog}>`}
    ${error && html`<span class="failure" role="alert">${visible(error.message)}</span>`}
  </span>`;
}

/** A modal dialog: Escape closes it, the focus stays inside. */
export function Dialog({ title, close, children }) {
  const dialog = useRef();
  useLayoutEffect(() => {
    const shown = dialog.current;
    if (!shown.open) shown.showModal();
    // The browser restores the focus only if the dialog is closed before it is removed.
    return () => shown.close();
  }, []);
  return html`<dialog ref=${dialog} onClose=${close} aria-label=${visible(title)}><h2>${visible(title)}</h2>${children}</dialog>`;
}

/**
 * `columns`: `[name, cell(row), class?]`. On a narrow screen each row is a card; with `lines`, it has two lines: the first
 * column, and below it the others without those of the class `wide`.
 */
export function Table({ columns, rows, keyOf, empty = 'Nothing here.', caption, lines }) {
  if (!rows.length) return html`<${Empty}>${empty}</${Empty}>`;
  return html`<div class="scroll"><table class=${lines ? 'lines' : undefined}>
    ${caption && html`<caption>${caption}</caption>`}
    <thead><tr>${columns.map(([name, , kind]) => html`<th scope="col" class=${kind}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>
      ${columns.map(([name, cell, kind]) => html`<td data-name=${name} class=${kind}>${cell(row)}</td>`)}
    </tr>`)}</tbody>
  </table></div>`;
}

/** The filters of a list. On a narrow screen they are folded; `set` is how many of them are set. */
export function Fold({ set = 0, children }) {
  if (!useNarrow()) return children;
  return html`<details class="fold"><summary>Filters${set > 0 && `, ${set} set`}</summary>${children}</details>`;
}

/** What a load has brought: its value, and an error above it. */
export function Loaded({ load, children }) {
  return html`<${Failure} error=${load.error} retry=${load.reload} />
    ${load.value === undefined ? load.loading && html`<p class="loading" role="status">Loading …</p>` : children(load.value)}`;
}

/** A page: its heading, and what stands beside it. */
export function Page({ title, aside, children }) {
  useEffect(() => { document.title = `${title} · Belay`; }, [title]);
  return html`<header class="page"><h1 tabindex="-1">${title}</h1><div class="aside">${aside}</div></header>${children}`;
}

/** A link to a page of the console: `` to="runs/ID" ``. */
export const Go = ({ to, children, ...rest }) => html`<a href="#/${to}" ...${rest}>${children}</a>`;
export const runLink = (id) => `runs/${encodeURIComponent(id)}`;
export const chatLink = (session) => `chat/${encodeURIComponent(session)}`;

/** A duration as text and as a bar: its share of the longest one. */
export const Span = ({ ms, most, tone = '' }) => html`<span class="span">${duration(ms)}<span class="track"
  aria-hidden="true"><span class=${`bar ${tone}`} style=${{ width: `${Math.min(1, ms / Math.max(1, most)) * 100}%` }}></span></span></span>`;

/** `name: value` pairs. */
export const Facts = ({ of }) => html`<dl class="facts">${of
  .filter(([, value]) => ![undefined, null, '', false].includes(value))
  .map(([name, value]) => html`<div><dt>${visible(name)}</dt><dd>${value}</dd></div>`)}</dl>`;
