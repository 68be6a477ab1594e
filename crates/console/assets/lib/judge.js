// What other stop rules would have done: rules are edited and applied to recorded runs. Nothing is changed.

import { html, useState } from '../vendor/preact.js';
import { post } from './api.js';
import { useAction } from './hooks.js';
import { Facts, Failure, Go, State, Table, Text, runLink } from './ui.js';

const EXAMPLE = `# The keys of [stops], and perhaps a table [limits]. An empty text means the built-in rules.
[[rules]]
name = "few-calls"
when = { tool_calls = 5 }
then = "stop"
`;

/** Judges the run `id`, or the newest runs. */
export function Judge({ id }) {
  const [rules, setRules] = useState(EXAMPLE);
  const [these, setThese] = useState(id ? 'this' : 'last');
  const [last, setLast] = useState('20');
  const [report, setReport] = useState();
  const [judge, { busy, error }] = useAction(async () => {
    setReport(undefined);
    setReport(await post('judge', these === 'this' ? { rules, runs: [id] } : { rules, last: Number(last) }));
  });
  const choice = (value, label) => html`<label class="check"><input type="radio" name="these"
    value=${value} checked=${these === value}
    onChange=${() => setThese(value)} /> ${label}</label>`;
  return html`<details class="judge"><summary><b>What would these rules have done?</b></summary>
    <form onSubmit=${(event) => { event.preventDefault(); judge(); }}>
      <label>Stop rules (TOML)
        <textarea class="code" rows="9" spellcheck="false" maxlength="65536" value=${rules}
          onInput=${(event) => setRules(event.target.value)} /></label>
      <div class="row">${id && choice('this', 'This run')}${id && choice('last', 'The newest runs that have ended')}
        ${these === 'last' && html`<label>How many <input type="number" min="1" max="200" required value=${last}
          onInput=${(event) => setLast(event.target.value)} /></label>`}
        <button type="submit" disabled=${busy} aria-busy=${busy}>Judge</button></div>
      <p class="hint">Nothing is changed. A run is judged as far as it went.</p>
    </form>
    ${error && !busy && html`<${Failure} error=${error} />`}
    ${report && html`<${Report} report=${report} />`}
  </details>`;
}

function Report({ report }) {
  const struck = report.runs.filter((run) => run.would.strikes > 0).length;
  return html`<p role="status">${struck} of ${report.runs.length} runs would have had a strike.
      ${report.complete ? '' : ' The time was not enough for all runs.'}</p>
    <${Table} columns=${COLUMNS} rows=${report.runs} keyOf=${(run) => run.run_id} empty="No ended run was found." />`;
}

const COLUMNS = [
  ['Run', (run) => html`<${Go} to=${runLink(run.run_id)} title=${run.run_id}><${State} value=${run.status} /></${Go}>`],
  ['Session', (run) => html`<${Text} value=${run.session} />`],
  ['Ended by', (run) => (run.reason ? html`<code>${run.reason}</code>` : '–')],
  ['Would have', (run) => (run.would.strikes ? html`<b>${run.would.stopped ? 'stopped' : 'warned'}</b> at step ${run.would.step}`
    : 'gone on')],
  ['Rule', (run) => (run.would.rule ? html`<code>${run.would.rule}</code>` : '–')],
  ['Evidence', (run) => html`<${Evidence} of=${run.would.evidence} />`],
];

const plain = (value) => (Array.isArray(value) && value.every((one) => typeof one !== 'object') ? value.join(', ')
  : typeof value === 'object' ? JSON.stringify(value) : String(value));

/** The figures behind an end. */
export function Evidence({ of }) {
  const all = Object.entries(of ?? {}).filter(([, value]) => value !== null);
  if (!all.length) return null;
  return html`<${Facts} of=${all.map(([name, value]) => [name.replaceAll('_', ' '),
    html`<${Text} value=${plain(value)} />`])} />`;
}
