// The run as a picture: who had it when, as lanes over time; its subagents as a tree; and the same as a table.

import { html, useMemo, useState } from '../vendor/preact.js';
import { get } from './api.js';
import { duration, money, number, visible } from './format.js';
import { useLoad, useNow } from './hooks.js';
import { LANES, blocks, costs, covered, spansOf, tree } from './spans.js';
import { Span, Table, Text } from './ui.js';

const ROW = 18;
const TICKS = 4;
/** Rows of the table that are shown at once. */
const SHOWN = 100;

/** `go(key)` shows the row of the timeline. `open`: the run has not ended. */
export function Picture({ run, rows, open, go }) {
  const now = useNow(open ? 1000 : 3600_000);
  const { spans, begin, length } = useMemo(() => spansOf(rows, { until: now, running: run.status === 'running' }),
    [open ? now : undefined, rows.length, run.status]);
  if (!spans.length) return null;
  const lanes = LANES.map(([lane, name]) => ({ lane, name, spans: spans.filter((span) => span.lane === lane) }))
    .filter(({ spans }) => spans.length);
  return html`<section class="picture" aria-label="The run as a picture"><h2>Where the time went</h2>
    <${Sentence} lanes=${lanes} length=${length} spans=${spans} />
    <div class="lanes">${lanes.map((one) => html`<${Lane} key=${one.lane} ...${one} begin=${begin} length=${length} go=${go} />`)}
      <div class="lane"><span></span><div class="ticks small soft" aria-hidden="true">${Array.from({ length: TICKS + 1 }, (_, i) => html`
        <span>${duration((length * i) / TICKS)}</span>`)}</div></div></div>
    <${Parts} nodes=${tree(spans)} go=${go} />
    <${AsTable} run=${run} spans=${spans} begin=${begin} go=${go} /></section>`;
}

const NAMED = { waiting: () => 'the wait for its turn', person: () => 'the answer of a person',
  model: (label) => (label.startsWith('Step') ? `the model call of ${label.toLowerCase()}` : 'the model call') };

function Sentence({ lanes, length, spans }) {
  const parts = lanes.map(({ lane, name, spans }) => [lane, name, covered(spans)]).filter(([lane, , ms]) => lane !== 'part' && ms > 0);
  const longest = spans.filter(({ lane }) => lane !== 'part')
    .reduce((most, span) => (span.to - span.from > (most ? most.to - most.from : 0) ? span : most), undefined);
  return html`<p>${duration(length)} in all${parts.length > 0 && `: ${parts.map(([, name, ms]) => `${name.toLowerCase()} ${duration(ms)}`
    + ` (${Math.round((ms / length) * 100)} %)`).join(', ')}`}. ${longest && html`The longest part: <b><${Text}
      value=${NAMED[longest.lane]?.(longest.label) ?? longest.label} /></b>, ${duration(longest.to - longest.from)}.`}</p>`;
}

function Lane({ lane, name, spans, begin, length, go }) {
  const all = blocks(spans, begin, length);
  const height = (Math.max(...all.map(({ row }) => row)) + 1) * ROW;
  const percent = (share) => `${(share * 100).toFixed(3)}%`;
  return html`<div class="lane"><span>${name}</span>
    <svg role="img" width="100%" height=${height} onClick=${(event) => event.target.dataset.key && go(Number(event.target.dataset.key))}
      aria-label=${`${name}: ${spans.length} ${spans.length === 1 ? 'span' : 'spans'}, ${duration(covered(spans))} in all. The table below has them.`}>
      ${all.map((block) => html`<rect key=${block.key} data-key=${block.key} class=${`block ${lane} ${block.bad ? 'bad' : ''} ${block.live ? 'live' : ''}`}
        x=${percent(block.x)} y=${block.row * ROW + 2} width=${percent(block.width)} style=${{ width: `max(3px, ${percent(block.width)})` }} height=${ROW - 4} rx="2">
        <title>${textOf(block)}</title></rect>`)}</svg></div>`;
}

const textOf = ({ label, note, count, from, to, input, output }) => visible([count > 1 ? `${label} and ${count - 1} more` : label, note,
  input !== undefined && count === 1 && `${number(input)} + ${number(output)} tokens`, duration(to - from)].filter(Boolean).join(' · '));

const Parts = ({ nodes, go }) => nodes.length > 0 && html`<h3>Subagents</h3><${Nodes} nodes=${nodes} go=${go} />`;
const Nodes = ({ nodes, go }) => html`<ul class="tree">${nodes.map((node) => html`<li key=${node.key}>
  <button class="link" onClick=${() => go(node.key)}><${Text} value=${node.label} /></button>
  <span class="soft small"> ${node.live ? 'running' : visible(node.note ?? '')}, ${duration(node.to - node.from)}</span>
  ${node.parts.length > 0 && html`<${Nodes} nodes=${node.parts} go=${go} />`}</li>`)}</ul>`;

/** The same for readers without the picture, and with the keys: a click goes to the entry of the timeline. */
function AsTable({ run, spans, begin, go }) {
  const [shown, show] = useState(false);
  return html`<details onToggle=${(event) => show(event.target.open)}><summary>The same as a table (${number(spans.length)})</summary>
    ${shown && html`<${Rows} run=${run} spans=${spans} begin=${begin} go=${go} />`}</details>`;
}

function Rows({ run, spans, begin, go }) {
  const [count, more] = useState(SHOWN);
  const priced = run.cost_micro_usd > 0;
  const load = useLoad((signal) => (priced ? get('models', {}, signal) : Promise.resolve()), [priced]);
  const price = load.value?.model.price;
  const cost = price ? costs(spans, run.cost_micro_usd, price) : new Map();
  const most = spans.reduce((most, { from, to }) => Math.max(most, to - from), 0);
  const names = Object.fromEntries(LANES);
  return html`<${Table} rows=${spans.slice(0, count)} keyOf=${(span) => `${span.key} ${span.lane}`} lines columns=${[
    ['What', (span) => html`<span><span class=${`key ${span.lane}`}></span>${span.key === 'live' ? span.label
      : html`<button class="link" onClick=${() => go(span.key)}><${Text} value=${span.label} /></button>`}</span>`],
    ['Part', (span) => names[span.lane], 'nowrap'],
    ['State', (span) => visible((span.note ?? span.bad ?? '–').toString().replaceAll('_', ' ')), 'wide'],
    ['Began', (span) => `+${duration(span.from - begin)}`, 'number'],
    ['Took', (span) => html`<${Span} ms=${span.to - span.from} most=${most} />`, 'number'],
    ['Tokens', (span) => (span.input === undefined ? '–' : html`<span title="read and written">${number(span.input)} + ${number(span.output)}</span>`), 'number'],
    ...(price ? [['Cost, about', (span) => (cost.has(span.key) ? money(Math.round(cost.get(span.key))) : '–'), 'number wide']] : []),
  ]} />
  ${spans.length > count && html`<p class="more"><button onClick=${() => more(count + SHOWN * 5)}>Show more</button></p>`}
  ${price && html`<p class="hint">The cost of the run, ${money(run.cost_micro_usd)}, is shared among its steps by their tokens and the price of the model.</p>`}`;
}
