// Ends: how many runs have ended for which reason, over time.

import { html, useMemo, useState } from '../vendor/preact.js';
import { get } from '../lib/api.js';
import { Columns, colour } from '../lib/chart.js';
import { exact, number, visible } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Choice } from '../lib/list.js';
import { Fold, Go, Loaded, Page, State, Table, Text } from '../lib/ui.js';

const TIMES = [['hour 24h', '24 hours'], ['hour 48h', '48 hours'], ['hour 168h', '7 days, by hour'], ['day 14d', '14 days'],
  ['day 30d', '30 days'], ['day 90d', '90 days']];
const SPLITS = [['reason', 'Reason'], ['channel', 'Channel'], ['model', 'Model']];
/** The query of each split but that by reason, and how it names an end. */
const PARTS = {
  channel: { query: { channels: true }, head: 'Channel', of: (end) => end.channel },
  model: { query: { models: true }, head: 'Model', of: ({ model }) => (model === '' ? 'no model' : model) },
};
const STEP_MS = { hour: 3600e3, day: 86400e3 };

const words = (name) => String(name).replaceAll('_', ' ');

export default function Ends() {
  const [time, set] = useState('day 14d');
  const [split, divide] = useState('reason');
  const [by, since] = time.split(' ');
  const load = useLoad((signal) => get('ends', { by, since, ...PARTS[split]?.query }, signal), [time, split], { every: 30000 });
  return html`<${Page} title="Ends">
    <${Fold}><form class="filters row"><${Choice} label="Time" value=${time} options=${TIMES} set=${set} />
      <${Choice} label="By" value=${split} options=${SPLITS} set=${divide} /></form></${Fold}>
    <${Loaded} load=${load}>${(report) => html`<${Report} report=${report} split=${split} />`}</${Loaded}>
  </${Page}>`;
}

/** The counts by period and by reason. Periods without an end are part of the result. */
function sum({ by, since, until, ends }, part) {
  const step = STEP_MS[by];
  const periods = new Map();
  for (let at = Math.floor(Date.parse(since) / step) * step; at < Date.parse(until); at += step) {
    periods.set(at, { at, all: 0, ends: [] });
  }
  const reasons = new Map();
  const parts = new Map();
  for (const end of ends) {
    const period = periods.get(Date.parse(end.at));
    if (period) {
      period.all += end.count;
      period.ends.push(end);
    }
    const key = `${end.reason} ${end.status}`;
    const known = reasons.get(key) ?? { ...end, key, count: 0 };
    reasons.set(key, { ...known, count: known.count + end.count });
    const name = part?.of(end);
    if (name !== undefined) {
      const one = parts.get(name) ?? { name, count: 0, completed: 0, failed: 0 };
      one.count += end.count;
      if (end.status in one) one[end.status] += end.count;
      parts.set(name, one);
    }
  }
  const most = (all) => [...all.values()].sort((a, b) => b.count - a.count);
  return { periods: [...periods.values()], reasons: most(reasons), parts: most(parts) };
}

/** The most frequent reasons have a colour each; the others share the last one. */
const SERIES = 5;

function Report({ report, split }) {
  const part = PARTS[split];
  const { periods, reasons, parts } = useMemo(() => sum(report, part), [report, part]);
  const all = reasons.reduce((count, reason) => count + reason.count, 0);
  return html`
    <p>${number(all)} ${all === 1 ? 'run has' : 'runs have'} ended since ${exact(report.since)}.</p>
    ${all > 0 && html`<${Chart} periods=${periods} kinds=${part ? kindsOf(parts, ({ name }) => name, part.of)
      : kindsOf(reasons, (one) => `${words(one.reason)} (${one.status})`, (end) => `${end.reason} ${end.status}`, ({ key }) => key)} by=${report.by} split=${split} />`}
    ${part && html`<h2>${part.head}s</h2><${Table} rows=${parts} keyOf=${(row) => row.name} empty="No run has ended in this time." lines columns=${[
      [part.head, (row) => html`<${Text} value=${row.name} />`],
      ['Runs', (row) => number(row.count), 'number'],
      ['Completed', (row) => number(row.completed), 'number'],
      ['Failed', (row) => number(row.failed), 'number'],
      ['Share', (row) => `${Math.round((row.count / all) * 1000) / 10} %`, 'number'],
    ]} />`}
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

/**
 * `[name, whether an end is of it]` of the most frequent ones, and of all others together. `key(end)` tells of which one
 * an end is.
 */
function kindsOf(all, name, key, keyOf = name) {
  const own = all.slice(0, SERIES).map((one) => [name(one), (end) => key(end) === keyOf(one)]);
  const known = new Set(all.slice(0, SERIES).map(keyOf));
  return [...own, ...(all.length > SERIES ? [['others', (end) => !known.has(key(end))]] : [])];
}

function Chart({ periods, kinds, by, split }) {
  const columns = periods.map((period) => {
    const values = kinds.map(([, fits]) => count(period, fits));
    const title = [label(period.at, by), ...kinds.map(([name], i) => values[i] > 0 && `${name}: ${values[i]}`)].filter(Boolean).join('\n');
    return { key: period.at, label: label(period.at, by), values, title };
  });
  return html`<${Columns} label=${`Ended runs by ${by} and ${split}`} columns=${columns} format=${(value) => number(value)}
    series=${kinds.map(([name], i) => [name, colour(i)])}><${Periods} columns=${columns} kinds=${kinds} by=${by} /></${Columns}>`;
}

/** The figures of the chart, newest first. */
const Periods = ({ columns, kinds, by }) => html`<${Table} rows=${columns.filter(({ values }) => values.some(Boolean)).reverse()}
  keyOf=${(row) => row.key} lines columns=${[
    [by === 'day' ? 'Day (UTC)' : 'Hour', (row) => row.label, 'nowrap'],
    ['Runs', (row) => number(row.values.reduce((sum, value) => sum + value, 0)), 'number'],
    ...kinds.map(([name], i) => [visible(name), (row) => number(row.values[i]), 'number wide']),
  ]} />`;
