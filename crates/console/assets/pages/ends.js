// Ends: how many runs have ended for which reason, over time.

import { html, useMemo, useState } from '../vendor/preact.js';
import { get } from '../lib/api.js';
import { Columns, colour } from '../lib/chart.js';
import { exact, number } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Choice } from '../lib/list.js';
import { Fold, Go, Loaded, Page, State, Table } from '../lib/ui.js';

const TIMES = [['hour 24h', '24 hours'], ['hour 48h', '48 hours'], ['hour 168h', '7 days, by hour'], ['day 14d', '14 days'],
  ['day 30d', '30 days'], ['day 90d', '90 days']];
const STEP_MS = { hour: 3600e3, day: 86400e3 };

const words = (name) => String(name).replaceAll('_', ' ');

export default function Ends() {
  const [time, set] = useState('day 14d');
  const [by, since] = time.split(' ');
  const load = useLoad((signal) => get('ends', { by, since }, signal), [time], { every: 30000 });
  return html`<${Page} title="Ends">
    <${Fold}><form class="filters row"><${Choice} label="Time" value=${time} options=${TIMES} set=${set} /></form></${Fold}>
    <${Loaded} load=${load}>${(report) => html`<${Report} report=${report} />`}</${Loaded}>
  </${Page}>`;
}

/** The counts by period and by reason. Periods without an end are part of the result. */
function sum({ by, since, until, ends }) {
  const step = STEP_MS[by];
  const periods = new Map();
  for (let at = Math.floor(Date.parse(since) / step) * step; at < Date.parse(until); at += step) {
    periods.set(at, { at, all: 0, ends: [] });
  }
  const reasons = new Map();
  for (const end of ends) {
    const period = periods.get(Date.parse(end.at));
    if (period) {
      period.all += end.count;
      period.ends.push(end);
    }
    const key = `${end.reason} ${end.status}`;
    const known = reasons.get(key) ?? { ...end, key, count: 0 };
    reasons.set(key, { ...known, count: known.count + end.count });
  }
  return { periods: [...periods.values()], reasons: [...reasons.values()].sort((a, b) => b.count - a.count) };
}

/** The most frequent reasons have a colour each; the others share the last one. */
const SERIES = 5;

function Report({ report }) {
  const { periods, reasons } = useMemo(() => sum(report), [report]);
  const all = reasons.reduce((count, reason) => count + reason.count, 0);
  return html`
    <p>${number(all)} ${all === 1 ? 'run has' : 'runs have'} ended since ${exact(report.since)}.</p>
    ${all > 0 && html`<${Chart} periods=${periods} reasons=${reasons} by=${report.by} />`}
    <h2>Reasons</h2>
    <${Table} rows=${reasons} keyOf=${(row) => row.key} empty="No run has ended in this time." lines columns=${[
      ['Reason', (row) => html`<${Go} to=${`runs?reason=${encodeURIComponent(row.reason)}`}>${words(row.reason)}</${Go}>`],
      ['Status', (row) => html`<${State} value=${row.status} />`],
      ['Layer', (row) => words(row.layer)],
      ['Runs', (row) => number(row.count), 'number'],
      ['Share', (row) => `${Math.round((row.count / all) * 1000) / 10} %`, 'number'],
    ]} />`;
}

const label = (at, by) => {
  const text = new Date(at).toISOString();
  return by === 'day' ? text.slice(0, 10) : `${text.slice(5, 16).replace('T', ' ')} UTC`;
};
const count = (period, fits) => period.ends.filter(fits).reduce((n, end) => n + end.count, 0);

function Chart({ periods, reasons, by }) {
  const own = reasons.slice(0, SERIES).map((one) => [`${words(one.reason)} (${one.status})`, (end) => `${end.reason} ${end.status}` === one.key]);
  const known = new Set(reasons.slice(0, SERIES).map(({ key }) => key));
  const kinds = [...own, ...(reasons.length > SERIES ? [['other reasons', (end) => !known.has(`${end.reason} ${end.status}`)]] : [])];
  const columns = periods.map((period) => ({
    key: period.at, label: label(period.at, by), values: kinds.map(([, fits]) => count(period, fits)),
    title: [label(period.at, by), ...period.ends.map((end) => `${words(end.reason)}: ${end.count}`)].join('\n'),
  }));
  return html`<${Columns} label=${`Ended runs by ${by} and reason`} columns=${columns} format=${(value) => number(value)}
    series=${kinds.map(([name], i) => [name, colour(i)])}><${Periods} periods=${periods} by=${by} /></${Columns}>`;
}

/** The figures of the chart, newest first. */
const Periods = ({ periods, by }) => html`<${Table} rows=${periods.filter((period) => period.all).reverse()}
  keyOf=${(period) => period.at} lines columns=${[
    [by === 'day' ? 'Day (UTC)' : 'Hour', (period) => label(period.at, by), 'nowrap'],
    ['Runs', (period) => number(period.all), 'number'],
    ['Reasons', (period) => period.ends.map((end) => `${words(end.reason)} ${number(end.count)}`).join(', ')],
  ]} />`;
