// How long things take, and how tool calls end: of the whole daemon since its start, from its counters.

import { html } from '../vendor/preact.js';
import { readText } from '../lib/api.js';
import { number } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { histogram, parse, quantile } from '../lib/metrics.js';
import { Failure, Span, State, Table } from '../lib/ui.js';

const TIMES = [['First token', 'belay_model_first_token_seconds'], ['Model call', 'belay_model_call_duration_seconds'],
  ['Tool call', 'belay_tool_call_duration_seconds'], ['Wait for the turn', 'belay_queue_wait_seconds'],
  ['Stop until its end', 'belay_stop_acknowledgement_seconds'], ['Run', 'belay_run_duration_seconds']];
const TONE = { success: 'good', error: 'bad', denied: 'muted', cancelled: 'muted', outcome_unknown: 'ask', not_executed: 'muted' };

export function Latency({ every }) {
  const load = useLoad(async (signal) => parse(await readText('metrics', signal)), [], { every });
  return html`<h2>Latency</h2><${Failure} error=${load.error} retry=${load.reload} />${load.value && html`<${Times} metrics=${load.value} />
    <${Calls} metrics=${load.value} />`}`;
}

function Times({ metrics }) {
  const rows = TIMES.map(([name, metric]) => [name, histogram(metrics, metric)]).filter(([, { count }]) => count)
    .map(([name, all]) => ({ name, count: all.count, half: quantile(all, 0.5) * 1000, most: quantile(all, 0.95) * 1000 }));
  const longest = Math.max(...rows.map(({ most }) => most));
  return html`<p class="hint">Since the start of the daemon, as estimates from its histograms.</p>
    <${Table} rows=${rows} keyOf=${(row) => row.name} empty="Nothing was measured since the start." lines columns=${[
      ['What', (row) => row.name, 'nowrap'],
      ['Times', (row) => number(row.count), 'number'],
      ['Half of them (p50)', (row) => html`<${Span} ms=${row.half} most=${longest} />`, 'number'],
      ['95 % of them (p95)', (row) => html`<${Span} ms=${row.most} most=${longest} tone="wait" />`, 'number'],
    ]} />`;
}

/** Belay counts calls by their outcome, not by tool; the list of tools has the failures in a row of each. */
function Calls({ metrics }) {
  const rows = (metrics.get('belay_tool_calls_total') ?? []).map(({ labels, value }) => ({ status: labels.status, count: value }))
    .filter(({ count }) => count > 0).sort((a, b) => b.count - a.count);
  const most = Math.max(1, ...rows.map(({ count }) => count));
  if (!rows.length) return null;
  return html`<h2>Tool calls</h2><div class="bars">${rows.map(({ status, count }) => html`<div key=${status}>
    <span><${State} value=${status} tone=${TONE[status]} /></span>
    <span class="track" aria-hidden="true"><span class=${`bar ${TONE[status] ?? 'muted'}`} style=${{ width: `${(count / most) * 100}%` }}></span></span>
    <span class="number">${number(count)}</span></div>`)}</div>`;
}
