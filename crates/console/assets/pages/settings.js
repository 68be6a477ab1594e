// Settings: the merged settings, what each means and its origin, and the problems of the files as they are now.

import { html, useMemo, useState } from '../vendor/preact.js';
import { get } from '../lib/api.js';
import { useLoad } from '../lib/hooks.js';
import { Code, Fold, Loaded, Page, State, Table, Text } from '../lib/ui.js';

const isDefault = (origin) => origin === 'default' || origin === 'built-in';
const shown = (value) => (typeof value === 'string' ? value : JSON.stringify(value));

export default function Settings() {
  const load = useLoad((signal) => get('settings', {}, signal), []);
  return html`<${Page} title="Settings" aside=${html`<button onClick=${load.reload}>Read the files again</button>`}>
    <${Loaded} load=${load}>${(report) => html`<${Report} report=${report} />`}</${Loaded}>
  </${Page}>`;
}

const SHORT = 160;
/** The words of the built-in settings file. Long ones are folded. */
const Described = ({ text }) => (text.length <= SHORT ? html`<${Text} value=${text} />`
  : html`<details><summary><${Text} value=${`${text.slice(0, SHORT).replace(/\s\S*$/, '')} …`} /></summary><${Text} value=${text} /></details>`);

function Report({ report: { settings, changed, problems } }) {
  const [words, filter] = useState('');
  const [own, only] = useState(true);
  const all = useMemo(() => Object.entries(settings)
    .map(([key, setting]) => ({ key, ...setting, changed: changed.includes(key) })), [settings]);
  const wanted = words.trim().toLowerCase();
  const rows = all.filter((row) => (!own || row.changed || !isDefault(row.origin))
    && (!wanted || `${row.key} ${shown(row.value)} ${row.origin} ${row.description ?? ''}`.toLowerCase().includes(wanted)));
  return html`
    ${problems.length > 0 && html`<div class="failure" role="alert"><div>
      <p>The settings files have problems. The settings of the start are shown; they are in force.</p>
      <ul>${problems.map((problem) => html`<li><${Text} value=${problem} /></li>`)}</ul></div></div>`}
    ${problems.length === 0 && html`<p><${State} value="The settings files have no problems" tone="good" /></p>`}
    ${changed.length > 0 && html`<p class="notice">Settings that differ from those of the start. They are in force if they were
      reloaded since, else after a restart: <${Text} value=${changed.join(', ')} />.</p>`}
    <${Fold} set=${words ? 1 : 0}><form class="filters row" onSubmit=${(event) => event.preventDefault()}>
      <label>Filter <input type="search" value=${words} onInput=${(event) => filter(event.currentTarget.value)} /></label>
      <label class="check"><input type="checkbox" checked=${own} onChange=${(event) => only(event.currentTarget.checked)} />
        Only those that differ from the defaults</label>
    </form></${Fold}>
    <p class="hint" role="status">${rows.length} of ${all.length} settings. Possible secrets are masked.</p>
    <${Table} rows=${rows} keyOf=${(row) => row.key} empty="There is no such setting." columns=${[
      ['Setting', (row) => html`<span><${Code} value=${row.key} />${row.description && html`<br /><small class="soft"><${Described} text=${row.description} /></small>`}</span>`],
      ['Value', (row) => html`<${Code} value=${shown(row.value)} />`],
      ['From', (row) => html`<span class=${isDefault(row.origin) ? 'soft' : ''}><${Text} value=${row.origin} />
        ${row.changed && html`<br /><${State} value="changed since the start" tone="ask" />`}</span>`],
    ]} />`;
}
