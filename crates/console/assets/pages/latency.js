// How long things took in the last day, from the counters of the daemon; how tool calls ended, by tool.

import { html, useState } from '../vendor/preact.js';
import { get, readText } from '../lib/api.js';
import { Lines } from '../lib/chart.js';
import { now } from '../lib/clock.js';
import { duration, exact, number } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Choice } from '../lib/list.js';
import { histogram, parse, quantile } from '../lib/metrics.js';
import { Code, Empty, Failure, Span, State, Table } from '../lib/ui.js';

const KINDS = [['first_token', 'First token'], ['model_call', 'Model call'], ['wait', 'Wait for the turn'], ['stop', 'Stop until its end'],
  ['tool_call', 'Tool call']];
const TIMES = [['First token', 'belay_model_first_token_seconds'], ['Model call', 'belay_model_call_duration_seconds'],
  ['Tool call', 'belay_tool_call_duration_seconds'], ['Wait for the turn', 'belay_queue_wait_seconds'],
  ['Stop until its end', 'belay_stop_acknowledgement_seconds'], ['Run', 'belay_run_duration_seconds']];
const TONE = { success: 'good', error: 'bad', denied: 'muted', cancelled: 'muted', outcome_unknown: 'ask', not_executed: 'muted' };
const DAY_MS = 86400e3;
/** The length of a period, and a little more: the next point of a line is not further away. */
const GAP_MS = 31 * 60e3;

export function Latency({ every, tools }) {
  const day = useLoad((signal) => get('latency', {}, signal), [], { every });
  const since = useLoad(async (signal) => parse(await readText('metrics', signal)), [], { every });
  return html`<h2>Latency</h2><${Failure} error=${day.error} retry=${day.reload} />
    ${day.value && html`<${Day} latencies=${day.value.latencies} />`}
    <${Failure} error=${since.error} retry=${since.reload} />${since.value && html`<${Times} metrics=${since.value} />
    <${Calls} metrics=${since.value} tools=${tools} />`}`;
}

/** Half and 95 % of the values of one kind, by half hour. */
function Day({ latencies }) {
  const [kind, choose] = useState('first_token');
  const { periods = [] } = latencies.find((one) => one.kind === kind) ?? {};
  const [to, name] = [now(), KINDS.find(([key]) => key === kind)[1]];
  const points = (field) => periods.map((period) => [Date.parse(period.at), period[field]]);
  return html`<form class="row" onSubmit=${(event) => event.preventDefault()}><${Choice} label="What" value=${kind} options=${KINDS} set=${choose} /></form>
    ${periods.length ? html`<${Lines} label=${`${name} over the last day: half and 95 % of them`} from=${to - DAY_MS} to=${to} gap=${GAP_MS} format=${duration}
      title=${exact} ends=${['24 h ago', '12 h ago', 'now']} series=${[['half of them (p50)', 'c1', points('p50_ms')], ['95 % of them (p95)', 'c3', points('p95_ms')]]}>
      <${Table} rows=${[...periods].reverse()} keyOf=${(row) => row.at} lines columns=${[
        ['From', (row) => exact(row.at), 'nowrap'],
        ['Times', (row) => number(row.count), 'number'],
        ['p50', (row) => duration(row.p50_ms), 'number'],
        ['p95', (row) => duration(row.p95_ms), 'number'],
      ]} /></${Lines}>` : html`<${Empty}>Nothing of this kind was measured in the last day.</${Empty}>`}`;
}

function Times({ metrics }) {
  const rows = TIMES.map(([name, metric]) => [name, histogram(metrics, metric)]).filter(([, { count }]) => count)
    .map(([name, all]) => ({ name, count: all.count, half: quantile(all, 0.5) * 1000, most: quantile(all, 0.95) * 1000 }));
  const longest = Math.max(...rows.map(({ most }) => most));
  return html`<p class="hint">Since the start of the daemon, as estimates from its histograms:</p>
    <${Table} rows=${rows} keyOf=${(row) => row.name} empty="Nothing was measured since the start." lines columns=${[
      ['What', (row) => row.name, 'nowrap'],
      ['Times', (row) => number(row.count), 'number'],
      ['Half of them (p50)', (row) => html`<${Span} ms=${row.half} most=${longest} />`, 'number'],
      ['95 % of them (p95)', (row) => html`<${Span} ms=${row.most} most=${longest} tone="wait" />`, 'number'],
    ]} />`;
}

/** Tools that are shown as bars. */
const MOST = 15;
const bar = (tone, share) => html`<span class=${`bar ${tone}`} style=${{ width: `${share * 100}%` }}></span>`;

/** How calls ended, and which tools were called most, with their failures. */
function Calls({ metrics, tools = [] }) {
  const rows = (metrics.get('belay_tool_calls_total') ?? []).map(({ labels, value }) => ({ status: labels.status, count: value }))
    .filter(({ count }) => count > 0).sort((a, b) => b.count - a.count);
  const most = Math.max(1, ...rows.map(({ count }) => count));
  const called = tools.filter(({ calls }) => calls).sort((a, b) => b.calls - a.calls).slice(0, MOST);
  const highest = Math.max(1, ...called.map(({ calls }) => calls));
  if (!rows.length) return null;
  return html`<h2>Tool calls</h2><p class="hint">Since the start of the daemon.</p><div class="bars">${rows.map(({ status, count }) => html`<div key=${status}>
    <span><${State} value=${status} tone=${TONE[status]} /></span>
    <span class="track" aria-hidden="true">${bar(TONE[status] ?? 'muted', count / most)}</span>
    <span class="number">${number(count)}</span></div>`)}</div>
  ${called.length > 0 && html`<h3>By tool</h3><div class="bars by-tool">${called.map(({ name, calls, failed }) => html`<div key=${name}>
    <span><${Code} value=${name} /></span>
    <span class="track" aria-hidden="true">${calls > failed && bar('good', (calls - failed) / highest)}${failed > 0 && bar('bad', failed / highest)}</span>
    <span class="number">${number(calls)}${failed > 0 && html`, <span class="state bad">${number(failed)} failed</span>`}</span></div>`)}</div>`}`;
}
