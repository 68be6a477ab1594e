// Money: what model calls have cost by day, purpose, person and model, the budgets of today and the open reservations.

import { html, useState } from '../vendor/preact.js';
import { get, readText } from '../lib/api.js';
import { Columns, Legend, Parts, colour } from '../lib/chart.js';
import { money, number } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Choice } from '../lib/list.js';
import { parse } from '../lib/metrics.js';
import { Empty, Facts, Fold, Loaded, Page, State, Table, Text } from '../lib/ui.js';

const BY = [['day', 'Day'], ['purpose', 'Purpose'], ['person', 'Person'], ['model', 'Model']];
const SINCE = [['1d', 'Since yesterday'], ['7d', '7 days'], ['30d', '30 days'], ['90d', '90 days'], ['365d', '365 days']];
/** What an empty key means. */
const NOBODY = { person: 'no person', model: 'calls without a cost', purpose: 'no purpose' };

export default function Money({ role }) {
  const [by, group] = useState('day');
  const [since, from] = useState('30d');
  const load = useLoad((signal) => get('costs', { by, since }, signal), [by, since], { every: 30000 });
  return html`<${Page} title="Money">
    <${Fold}><form class="filters row">
      <${Choice} label="By" value=${by} options=${BY} set=${group} />
      <${Choice} label="Time" value=${since} options=${SINCE} set=${from} />
    </form></${Fold}>
    <${Loaded} load=${load}>${(report) => html`
      <${Today} report=${report} />
      <h2>Costs by ${report.by}</h2>
      <p class="hint">UTC days from ${report.first_day} to ${report.last_day}, ${money(total(report.rows))} in all.
        ${role !== 'operator' && ' These are your own costs.'}</p>
      ${report.by === 'day' && report.rows.length > 0 && html`<${Days} report=${report} since=${since} />`}
      <${Cached} />
      <${Costs} report=${report} />`}</${Loaded}>
  </${Page}>`;
}

const DAY_MS = 86400e3;
const MOST = 500;
/** The costs of each day, with the budget of a day as a line. Days without a call are part of the picture. */
function Days({ report, since }) {
  const rows = new Map(report.rows.map((row) => [row.key, row]));
  const load = useLoad((signal) => get('costs', { by: 'day_purpose', since }, signal), [since], { every: 30000 });
  const parts = load.value?.rows ?? [];
  // The API returns at most this many rows: a part of the days would lack its purposes.
  const { purposes, of } = stacked(parts.length < MOST ? parts : []);
  const first = Math.max(Date.parse(report.first_day), Math.min(...report.rows.map(({ key }) => Date.parse(key))) - 6 * DAY_MS);
  const columns = [];
  for (let at = first; at <= Date.parse(report.last_day); at += DAY_MS) {
    const day = new Date(at).toISOString().slice(0, 10);
    const row = rows.get(day);
    const cost = row?.cost_micro_usd ?? 0;
    const values = purposes.map((purpose) => of(day, purpose));
    // The two requests are not of one moment: a call in between is in the first of them alone.
    const title = [day, `${money(cost)}, ${number(row?.calls ?? 0)} calls`, ...purposes.map((name, i) => values[i] > 0 && `${name}: ${money(values[i])}`)];
    columns.push({ key: day, label: day, values: purposes.length ? values : [cost], title: title.filter(Boolean).join('\n') });
  }
  const cap = report.caps.find(({ purpose }) => !purpose);
  const line = cap && { value: cap.limit_micro_usd, label: `Budget of a day: ${money(cap.limit_micro_usd)}` };
  return html`<${Columns} label="Costs by day" columns=${columns} series=${purposes.length ? purposes.map((name, i) => [name, colour(i)]) : [['Costs', colour(0)]]}
      format=${money} line=${line}><${ByPurpose} columns=${columns} purposes=${purposes} /></${Columns}>
    <${Pace} rows=${rows} last=${Date.parse(report.last_day)} />`;
}

/** The costs by day and purpose, `2026-11-20 chat`: the purposes, most expensive first, and `of(day, purpose)`. */
function stacked(rows) {
  const [costs, sums] = [new Map(rows.map((row) => [row.key, row.cost_micro_usd])), new Map()];
  for (const { key, cost_micro_usd: cost } of rows) {
    const purpose = key.slice(key.indexOf(' ') + 1);
    if (cost > 0) sums.set(purpose, (sums.get(purpose) ?? 0) + cost);
  }
  const purposes = [...sums].sort(([, a], [, b]) => b - a).map(([purpose]) => purpose);
  return { purposes, of: (day, purpose) => costs.get(`${day} ${purpose}`) ?? 0 };
}

const ByPurpose = ({ columns, purposes }) => html`<${Table} rows=${columns.filter(({ values }) => values.some(Boolean)).reverse()} keyOf=${(row) => row.key} lines
  empty="No model call has cost anything." columns=${[['Day (UTC)', (row) => row.key, 'nowrap'],
    ...purposes.map((name, i) => [name, (row) => money(row.values[i]), 'number']),
    ['All', (row) => money(row.values.reduce((sum, value) => sum + value, 0)), 'number']]} />`;

/** The tokens that providers have read from their caches, since the start of the daemon. */
function Cached() {
  const load = useLoad(async (signal) => parse(await readText('metrics', signal)), []);
  const tokens = (direction) => load.value?.get('belay_model_tokens_total')?.find(({ labels }) => labels.direction === direction)?.value ?? 0;
  const [read, cached] = [tokens('in'), tokens('cached')];
  return read > 0 && html`<p class="hint">Since the start of the daemon, providers have read ${number(cached)} of ${number(read)} input tokens
    (${Math.round((cached / read) * 100)} %) from their caches.</p>`;
}

/** What a month would cost at the pace of the last seven whole days. */
function Pace({ rows, last }) {
  const week = Array.from({ length: 7 }, (_, i) => rows.get(new Date(last - (i + 1) * DAY_MS).toISOString().slice(0, 10))?.cost_micro_usd ?? 0);
  const sum = week.reduce((all, one) => all + one, 0);
  return sum > 0 && html`<p class="hint">The last seven whole days cost ${money(sum)}: at this pace 30 days cost ${money(Math.round((sum / 7) * 30))}.</p>`;
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
    <${Purposes} today=${today} cap=${caps.find(({ purpose }) => !purpose)} />
    ${caps.length ? html`<div class="bars">${caps.map((cap) => html`<${Cap} key=${cap.purpose} cap=${cap} />`)}</div>`
      : html`<${Empty}>No budget limits the costs. The setting limits.usd_per_day sets one.</${Empty}>`}`;
}

/** The money of today by purpose as one bar, and the budget as a line across it. */
function Purposes({ today, cap }) {
  const parts = Object.entries(today.by_purpose).filter(([, cost]) => cost > 0).map(([name, cost], i) => [`${name}: ${money(cost)}`, cost, colour(i)]);
  if (!parts.length) return null;
  const limit = cap?.limit_micro_usd;
  const line = cap && { label: `Budget of the day: ${money(limit)}` };
  return html`<figure class="chart"><${Parts} parts=${parts} most=${Math.max(today.cost_micro_usd, limit ?? 0)} limit=${limit}
      label=${`Spent today by purpose: ${parts.map(([name]) => name).join(', ')}. ${line?.label ?? 'No budget.'}`} />
    <${Legend} series=${parts.map(([name, , kind]) => [name, kind])} line=${line} /></figure>`;
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
  return html`<${Table} rows=${rows} keyOf=${(row) => row.key} empty="No model was called in this time." lines columns=${[
    [BY.find(([key]) => key === by)[1], (row) => html`<${Key} by=${by} row=${row} />`],
    ['Cost', (row) => money(row.cost_micro_usd), 'number'],
    ['Share', (row) => html`<span class="track wide" aria-hidden="true"><${Bar} share=${row.cost_micro_usd / most} /></span>`, 'wide'],
    ['Calls', (row) => number(row.calls), 'number wide'],
    ['Tokens in', (row) => number(row.input_tokens), 'number wide'],
    ['Tokens out', (row) => number(row.output_tokens), 'number wide'],
  ]} />`;
}
