// People: who may talk to Belay, the strangers with a pairing code, and everybody who has sent a message.

import { html, useState } from '../vendor/preact.js';
import { del, get, path, post } from '../lib/api.js';
import { visible } from '../lib/format.js';
import { useAction, useLoad } from '../lib/hooks.js';
import { ListTable, useList } from '../lib/list.js';
import { Act, Code, Failure, Loaded, Page, State, Table, Text, Time } from '../lib/ui.js';

export default function People() {
  const load = useLoad((signal) => get('people', {}, signal), [], { every: 15000 });
  const principals = useList('principals', 'principals');
  return html`<${Page} title="People">
    <h2>Pair a person</h2>
    <${Pair} done=${() => { load.reload(); principals.reload(); }} />
    <${Loaded} load=${load}>${(report) => html`
      <h2>Strangers with a code</h2>
      <p class="hint">The person reads you the code; it is not shown here.</p>
      <${Table} rows=${report.pending} keyOf=${whole} empty="No stranger has a code." columns=${[...WHO,
        ['The code expires', (row) => html`<${Time} at=${row.expires_at} />`]]} />
      <h2>Admitted people</h2>
      <${Table} rows=${report.people} keyOf=${whole} columns=${[...WHO, ...RIGHTS, ['', (row) => row.admitted.by === 'pairing'
          && html`<${Remove} person=${row} done=${load.reload} />`, 'actions']]}
        empty="No channel has a list of people. Programs use tokens, and the terminal belongs to the operator." />`}</${Loaded}>
    <h2>Senders</h2>
    <p class="hint">The people and programs that have sent messages.</p>
    <${ListTable} list=${principals} keyOf=${whole} empty="Nobody has sent a message." columns=${[...WHO,
      ['First seen', (row) => html`<${Time} at=${row.first_seen_at} />`],
      ['Last seen', (row) => html`<${Time} at=${row.last_seen_at} />`]]} />
  </${Page}>`;
}

const Remove = ({ person, done }) => html`<${Act} kind="danger" action=${() => del(path`people/${whole(person)}`)} done=${done}
  confirm=${`Remove ${visible(person.name ?? whole(person))} and stop the runs of this person?`}>Remove</${Act}>`;

const whole = (row) => `${row.channel}:${row.id}`;
const WHO = [
  ['Person', (row) => (row.name ? html`<${Text} value=${row.name} />` : html`<${Code} value=${row.id} />`)],
  ['Channel', (row) => html`<${Text} value=${row.channel} />`, 'nowrap'],
  ['Id', (row) => html`<${Code} value=${row.id} />`],
];
const RIGHTS = [
  ['Role', (row) => html`<${State} value=${row.role} tone=${row.role === 'operator' ? 'good' : 'muted'} />`],
  ['Admitted by', ({ admitted }) => (admitted.by === 'settings' ? 'the settings'
    : html`<span>pairing: <${Text} value=${admitted.operator} />
      ${' '}through <${Text} value=${admitted.through} />, <${Time} at=${admitted.at} /></span>`)],
];

function Pair({ done }) {
  const [code, set] = useState('');
  const [paired, say] = useState(false);
  const [pair, { busy, error }] = useAction(async () => {
    await post('people/pair', { code: code.trim() });
    set('');
    say(true);
    done();
  });
  return html`<form onSubmit=${(event) => { event.preventDefault(); say(false); pair(); }}>
    <div class="row"><label>Pairing code
      <input required autocomplete="off" spellcheck="false" class="code" value=${code}
        onInput=${(event) => set(event.currentTarget.value)} /></label>
      <button type="submit" disabled=${busy || !code.trim()}>Admit</button></div>
    <div role="status"><${Failure} error=${error} />${paired && 'The person is admitted.'}</div>
  </form>`;
}
