// Tools and models: their health, the circuit breaker of each tool, the fallbacks of the model, and MCP servers.

import { html, useState } from '../vendor/preact.js';
import { get, path, post } from '../lib/api.js';
import { number, visible } from '../lib/format.js';
import { useAction, useLoad } from '../lib/hooks.js';
import { Connection, useLive } from '../lib/list.js';
import { Act, Code, Dialog, Empty, Facts, Failure, Fold, Go, Loaded, Page, State, Table, Text, Time, runLink } from '../lib/ui.js';
import { Latency } from './latency.js';

const EVENTS = ['tool_failing', 'tool_state_changed', 'server_needs_login', 'model_fallback'];
const EVERY = { every: 30000 };

export default function Tools({ role }) {
  const tools = useLoad((signal) => get('tools', {}, signal), [], EVERY);
  const models = useLoad((signal) => get('models', {}, signal), [], EVERY);
  const servers = useLoad((signal) => get('mcp', {}, signal), [], EVERY);
  const reload = () => [tools, models, servers].forEach((load) => load.reload());
  const live = useLive(EVENTS, reload);
  const operator = role === 'operator';
  return html`<${Page} title="Tools and models" aside=${html`<${Connection} state=${live} />`}>
    <h2>Models</h2>
    <${Loaded} load=${models}>${(value) => html`<${Models} report=${value} />`}</${Loaded}>
    <${Latency} ...${EVERY} tools=${tools.value?.tools} />
    <h2>MCP servers</h2>
    <${Loaded} load=${servers}>${(value) => (value.servers.length
      ? html`<${Health} rows=${value.servers} kind="Server" operator=${operator} reload=${reload} />`
      : html`<${Empty}>No MCP server is configured. The settings are in [mcp].</${Empty}>`)}</${Loaded}>
    <h2>Tools</h2>
    <${Loaded} load=${tools}>${(value) => html`
      <${ToolList} tools=${value.tools} operator=${operator} reload=${reload} />`}</${Loaded}>
  </${Page}>`;
}

const price = (micro) => `$${(micro / 1e6).toFixed(2)}`;

function Models({ report: { model, trouble, candidates } }) {
  return html`
    ${model.rehearsal && html`<p class="notice">No model answers: these answers come from the built-in rehearsal.
      Set a key of a provider, or llm.base_url.</p>`}
    ${trouble && html`<p class="notice"><${State} value="failing" /> since <${Time} at=${trouble.since} />:
      ${' '}${trouble.kind.replaceAll('_', ' ')}. The last call took ${trouble.requests} requests.</p>`}
    <${Facts} of=${[
      ['Model', html`<${Text} value=${model.model} />`],
      ['Provider', html`<${Text} value=${model.provider} />`],
      ['Context', `${number(model.context_tokens)} tokens`],
      ['Pictures', model.vision ? 'yes' : 'no'],
      ['Price of 1 million tokens', model.price && `${price(model.price.input)} in, ${price(model.price.output)} out`],
    ]} />
    <${Table} rows=${candidates} keyOf=${(row) => row.name} caption="In the order in which they are asked" columns=${[
      ['Model', (row) => html`<${Text} value=${row.name} />`],
      ['State', (row) => (row.cooling_until
        ? html`<${State} value="cooling" tone="ask" />` : html`<${State} value="ready" tone="good" />`)],
      ['Reason', (row) => row.reason?.replaceAll('_', ' ') ?? '–'],
      ['Asked again', (row) => html`<${Time} at=${row.cooling_until} />`],
    ]} />`;
}

function ToolList({ tools, operator, reload }) {
  const [words, filter] = useState('');
  const [bad, only] = useState(false);
  const rows = tools.filter((tool) => (!bad || tool.state !== 'ok')
    && `${tool.name} ${tool.description}`.toLowerCase().includes(words.trim().toLowerCase()));
  return html`
    <${Fold} set=${(words ? 1 : 0) + (bad ? 1 : 0)}><form class="filters row" onSubmit=${(event) => event.preventDefault()}>
      <label>Filter <input type="search" value=${words} onInput=${(event) => filter(event.currentTarget.value)} /></label>
      <label class="check"><input type="checkbox" checked=${bad} onChange=${(event) => only(event.currentTarget.checked)} />
        Only those with trouble</label>
    </form></${Fold}>
    <${Health} rows=${rows} kind="Tool" operator=${operator} reload=${reload} />`;
}

const Health = ({ rows, kind, operator, reload }) => html`<${Table} rows=${rows} keyOf=${(row) => row.name}
  empty="There is no such tool." columns=${[
    [kind, (row) => html`<${Code} value=${row.server ?? row.name} />`, 'nowrap'],
    ['State', (row) => html`<${Condition} row=${row} />`],
    ['Description', (row) => html`<${Described} text=${row.description} />`],
    ['Calls', (row) => (row.calls ? html`<span title="since the start of the daemon">${number(row.calls)}${row.failed > 0 && html`<br /><small>${number(row.failed)} failed</small>`}</span>` : '–'), 'number'],
    ['Failures', (row) => html`<${Failures} row=${row} />`],
    ...(operator ? [['', (row) => html`<${Switch} row=${row} done=${reload} />`, 'actions']] : []),
  ]} />`;

const NAMES = { ok: 'ok', failing: 'failing', off: 'disabled', trial: 'on trial', starting: 'starting', left_out: 'left out', needs_login: 'needs login' };
const Condition = ({ row }) => html`<span><${State} value=${NAMES[row.state] ?? row.state}
    tone=${{ ok: 'good', failing: 'bad', off: 'bad', trial: 'wait', starting: 'wait', left_out: 'bad', needs_login: 'bad' }[row.state]} />
  ${row.revision && html`<br /><small>MCP <${Text} value=${row.revision} /></small>`}
  ${row.actor && html`<br /><small>by <${Text} value=${row.actor} /></small>`}
  ${row.detail && html`<br /><small><${Text} value=${row.detail} /></small>`}
  ${row.until && html`<br /><small>until <${Time} at=${row.until} /></small>`}</span>`;

const SHORT = 140;
const Described = ({ text }) => (text.length <= SHORT ? html`<${Text} value=${text} />`
  : html`<details><summary><${Text} value=${`${text.slice(0, SHORT)}…`} /></summary><${Text} value=${text} /></details>`);

function Failures({ row }) {
  if (!row.failures) return '–';
  const head = html`${number(row.failures)} in a row, in ${number(row.runs)} runs, since <${Time} at=${row.since} />`;
  if (!row.last?.length) return html`<span>${head}</span>`;
  return html`<details><summary>${head}</summary><ul>${row.last.map((fault) => html`<li>
    <${Time} at=${fault.at} /> ${fault.kind.replaceAll('_', ' ')}, <${Go} to=${runLink(fault.run_id)}>run</${Go}>,
    ${' '}fingerprint <${Code} value=${fault.fingerprint} />: <${Text} value=${fault.quote} /></li>`)}</ul></details>`;
}

/** Disables a tool with a reason, or enables it. */
function Switch({ row, done }) {
  const [asking, ask] = useState(false);
  if (row.state === 'off' || row.state === 'trial') {
    return html`<${Act} action=${() => post(path`tools/${row.name}/enable`)} done=${done}>Enable</${Act}>`;
  }
  return html`<span>
    <button onClick=${() => ask(true)}>Disable</button>
    ${asking && html`<${Disable} name=${row.name} close=${() => ask(false)} done=${() => { ask(false); done(); }} />`}</span>`;
}

function Disable({ name, close, done }) {
  const [detail, set] = useState('');
  const [run, { busy, error }] = useAction(async () => {
    await post(path`tools/${name}/disable`, { detail: detail.trim() });
    done();
  });
  return html`<${Dialog} title=${`Disable ${visible(name)}?`} close=${close}>
    <form onSubmit=${(event) => { event.preventDefault(); run(); }}>
      <label>Reason <input required autofocus maxlength="500" value=${detail}
        onInput=${(event) => set(event.currentTarget.value)} />
        <span class="hint">Models read it.</span></label>
      <${Failure} error=${error} />
      <menu><button type="button" onClick=${close}>Cancel</button>
        <button class="danger" disabled=${busy || !detail.trim()}>Disable</button></menu>
    </form>
  </${Dialog}>`;
}
