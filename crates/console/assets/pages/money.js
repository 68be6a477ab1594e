// Money: what model calls have cost by day, purpose, person and model, the budgets of today and the open reservations.

import { html, useState } from '../vendor/preact.js';
import { get } from '../lib/api.js';
import { money, number } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Choice } from '../lib/list.js';
import { Empty, Facts, Loaded, Page, State, Table, Text } from '../lib/ui.js';

const BY = [['day', 'Day'], ['purpose', 'Purpose'], ['person', 'Person'], ['model', 'Model']];
const SINCE = [['1d', 'Since yesterday'], ['7d', '7 days'], ['30d', '30 days'], ['90d', '90 days'], ['365d', '365 days']];
/** What an empty key means. */
const NOBODY = { person: 'no person', model: 'calls without a cost', purpose: 'no purpose' };

export default function Money({ role }) {
  const [by, group] = useState('day');
  const [since, from] = useState('30d');
  const load = useLoad((signal) => get('costs', { by, since }, signal), [by, since], { every: 30000 });
  return html`<${Page} title="Money">
    <form class="filters row">
      <${Choice} label="By" value=${by} options=${BY} set=${group} />
      <${Choice} label="Time" value=${since} options=${SINCE} set=${from} />
    </form>
    <${Loaded} load=${load}>${(report) => html`
      <${Today} report=${report} />
      <h2>Costs by ${report.by}</h2>
      <p class="hint">UTC days from ${report.first_day} to ${report.last_day}, ${money(total(report.rows))} in all.
        ${role !== 'operator' && ' These are your own costs.'}</p>
      <${Costs} report=${report} />`}</${Loaded}>
  </${Page}>`;
}

const total = (rows) => rows.reduce((sum, row) => sum + row.cost_micro_usd, 0);

/** The caps, and what runs have spent and reserved today. */
function Today({ report: { today, caps, open_reservations: open } }) {
  return html`<h2>Today</h2>
    <${Facts} of=${[
      ['UTC day', today.day],
      ['Spent', money(today.cost_micro_usd)],
      ...Object.entries(today.by_purpose).filter(([, cost]) => cost > 0)
        .map(([purpose, cost]) => [`For ${purpose}`, money(cost)]),
      ['Open reservations', open.calls ? `${number(open.calls)} calls, at most ${money(open.cost_micro_usd)}` : 'none'],
    ]} />
    ${caps.length ? html`<div class="bars">${caps.map((cap) => html`<${Cap} key=${cap.purpose} cap=${cap} />`)}</div>`
      : html`<${Empty}>No budget limits the costs. The setting limits.usd_per_day sets one.</${Empty}>`}`;
}

function Cap({ cap: { purpose, limit_micro_usd: limit, spent_micro_usd: spent } }) {
  const share = limit > 0 ? spent / limit : 1;
  const tone = share >= 1 ? 'bad' : share >= 0.8 ? 'ask' : 'good';
  return html`<div><span>${purpose ? `Budget for ${purpose}` : 'Budget of the day'}</span>
    <span class="track"><${Bar} share=${share} tone=${tone} /></span>
    <span class="number">${money(spent)} of ${money(limit)}
      ${share >= 1 && html` <${State} value="used up" tone="bad" />`}</span></div>`;
}

const Bar = ({ share, tone = '' }) => html`<span class="bar ${tone}"
  style=${{ width: `${Math.min(share, 1) * 100}%` }}></span>`;

const Key = ({ by, row: { key, name } }) => (key === '' ? html`<span class="soft">${NOBODY[by]}</span>`
  : html`<span><${Text} value=${name ?? key} />${name && html`<br /><small><${Text} value=${key} /></small>`}</span>`);

function Costs({ report: { by, rows } }) {
  const most = Math.max(1, ...rows.map((row) => row.cost_micro_usd));
  return html`<${Table} rows=${rows} keyOf=${(row) => row.key} empty="No model was called in this time." columns=${[
    [BY.find(([key]) => key === by)[1], (row) => html`<${Key} by=${by} row=${row} />`],
    ['Cost', (row) => money(row.cost_micro_usd), 'number'],
    ['', (row) => html`<span class="track wide" aria-hidden="true"><${Bar} share=${row.cost_micro_usd / most} /></span>`],
    ['Calls', (row) => number(row.calls), 'number'],
    ['Tokens in', (row) => number(row.input_tokens), 'number'],
    ['Tokens out', (row) => number(row.output_tokens), 'number'],
  ]} />`;
}
