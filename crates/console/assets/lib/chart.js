// Charts as small SVG: columns and lines over time, a strip of times, a bar of parts, and squares. Each has its figures
// as a table or as text.

import { html } from '../vendor/preact.js';
import { visible } from './format.js';

const HEIGHT = 150;
/** The share of its slot that a column fills. */
const FILL = 0.8;
const percent = (share) => `${(share * 100).toFixed(3)}%`;

/** The colours of series, in their order; further ones share the last. */
export const COLOURS = ['c1', 'c2', 'c3', 'c4', 'c5', 'c6'];
export const colour = (i) => COLOURS[Math.min(i, COLOURS.length - 1)];

/** A round number that is not less: 1, 2, 2.5 or 5 times a power of ten. */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  return [1, 2, 2.5, 5, 10].find((step) => step * power >= value * (1 - 1e-9)) * power;
}

/**
 * Stacked columns. `columns`: `{ key, label, values, title }` with a value for each of `series`, `[name, colour]`. `line`:
 * `{ value, label }` is a limit across all columns. `format(value)` writes a value of the axis. `children` is the table.
 */
export function Columns({ label, columns, series, format, line, children }) {
  const sum = ({ values }) => values.reduce((all, value) => all + value, 0);
  const top = roundUp(Math.max(line?.value ?? 0, ...columns.map(sum)));
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  // Only an odd number of columns has one in the middle.
  const middle = columns[(columns.length - 1) / 2];
  return html`<figure class="chart">
    <div class="plot"><div class="axis small soft" aria-hidden="true">${[1, 0.5, 0].map((share) => html`<span>${format(top * share)}</span>`)}</div>
      <svg role="img" width="100%" height=${HEIGHT} aria-label=${visible(`${label}. The figures are in the table below.`)}>
        ${[0, 0.5].map((share) => html`<line class="grid" x1="0" x2="100%" y1=${HEIGHT * share + 0.5} y2=${HEIGHT * share + 0.5} />`)}
        ${columns.map((column, i) => html`<${Column} key=${column.key} column=${column} series=${series} y=${y} at=${i / columns.length}
          width=${1 / columns.length} />`)}
        ${line && html`<line class="limit" x1="0" x2="100%" y1=${y(line.value)} y2=${y(line.value)}><title>${visible(line.label)}</title></line>`}
      </svg></div>
    <figcaption><span class="ends" aria-hidden="true"><span>${columns[0].label}</span>${columns.length > 2 && columns.length % 2 === 1 && html`<span>${middle.label}</span>`}
        <span>${columns.at(-1).label}</span></span>
      <${Legend} series=${series} line=${line} /></figcaption>
    ${children && html`<details class="figures"><summary>The figures as a table</summary>${children}</details>`}</figure>`;
}

/**
 * Lines over time, from `from` to `to` in ms. `series`: `[name, colour, [[at, value]]]`; a gap of more than `gap` ms
 * interrupts a line. `format(value)` writes a value of the axis, `title(at)` what a point says. `children` is the table.
 */
export function Lines({ label, series, from, to, gap, format, ends, title, children }) {
  const top = roundUp(Math.max(...series.flatMap(([, , points]) => points.map(([, value]) => value))));
  const x = (at) => ((at - from) / (to - from)) * 1000;
  const y = (value) => HEIGHT - (value / top) * HEIGHT;
  const path = (points) => points.map(([at, value], i) => `${i && at - points[i - 1][0] <= gap ? 'L' : 'M'}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join('');
  return html`<figure class="chart">
    <div class="plot"><div class="axis small soft" aria-hidden="true">${[1, 0.5, 0].map((share) => html`<span>${format(top * share)}</span>`)}</div>
      <div class="lines-plot"><svg role="img" width="100%" height=${HEIGHT} viewBox=${`0 0 1000 ${HEIGHT}`} preserveAspectRatio="none"
          aria-label=${visible(`${label}. The figures are in the table below.`)}>
        ${[0, 0.5].map((share) => html`<line class="grid" x1="0" x2="1000" y1=${HEIGHT * share + 0.5} y2=${HEIGHT * share + 0.5} />`)}
        ${series.map(([, kind, points]) => html`<path class=${`line ${kind}`} d=${path(points)} />`)}</svg>
        ${series.map(([name, kind, points]) => points.map(([at, value]) => html`<span class=${`dot ${kind}`} title=${visible(`${title(at)}\n${name}: ${format(value)}`)}
          style=${{ left: percent((at - from) / (to - from)), top: `${y(value)}px` }}></span>`))}</div></div>
    <figcaption><span class="ends" aria-hidden="true">${ends.map((text) => html`<span>${text}</span>`)}</span><${Legend} series=${series} /></figcaption>
    ${children && html`<details class="figures"><summary>The figures as a table</summary>${children}</details>`}</figure>`;
}

/**
 * Marks on a line of time for each of `rows`: `{ key, name, marks: [[at, tone, title]], words }`, from `from` to `to` in
 * ms, with a line at `now`. `words` say the same as the marks.
 */
export const Strip = ({ rows, from, to, now, ends }) => html`<figure class="chart strip"><div class="rows">${rows.map(({ key, name, marks, words }) => html`
    <span key=${key} class="name">${name}</span><span class="line" role="img" aria-label=${visible(words)}>
      <span class="now" style=${{ left: percent((now - from) / (to - from)) }}></span>
      ${marks.map(([at, tone, title]) => html`<span class=${`mark ${tone}`} title=${visible(title)}
        style=${{ left: percent((at - from) / (to - from)) }}></span>`)}</span>`)}</div>
  <figcaption><span class="ends" aria-hidden="true">${ends.map((text) => html`<span>${text}</span>`)}</span></figcaption></figure>`;

function Column({ column, series, y, at, width }) {
  let below = 0;
  return html`<g class="column"><rect class="slot" x=${percent(at)} width=${percent(width)} y="0" height=${HEIGHT} />
    ${column.values.map((value, i) => {
      if (!(value > 0)) return null;
      const [from, to] = [below, below + value];
      below = to;
      return html`<rect class=${series[i][1]} x=${percent(at + (width * (1 - FILL)) / 2)} width=${percent(width * FILL)} y=${y(to)}
        height=${Math.max(1, y(from) - y(to))} />`;
    })}<title>${visible(column.title)}</title></g>`;
}

export const Legend = ({ series, line }) => html`<ul class="legend">${series.map(([name, kind]) => html`<li><span
  class=${`key ${kind}`}></span>${visible(name)}</li>`)}${line && html`<li><span class="key limit"></span>${visible(line.label)}</li>`}</ul>`;

/** One bar of parts, `[name, value, colour]`, in the scale of `most`, with a line at `limit`. */
export function Parts({ parts, most, limit, label }) {
  let before = 0;
  return html`<svg class="parts" role="img" width="100%" height="22" aria-label=${visible(label)}>
    ${parts.map(([name, value, kind]) => {
      const x = before;
      before += value;
      return html`<rect class=${kind} x=${percent(x / most)} width=${percent(value / most)} y="3" height="16"><title>${visible(name)}</title></rect>`;
    })}
    ${limit !== undefined && html`<line class="limit" x1=${percent(limit / most)} x2=${percent(limit / most)} y1="0" y2="22" />`}</svg>`;
}

/** Squares from left to right: `[tone, title]`; `label` says the same in words. */
export const Squares = ({ squares, label }) => html`<span class="squares" role="img" aria-label=${visible(label)}>${squares.map(([tone, title]) => html`
  <span class=${`bar ${tone}`} title=${visible(title)}></span>`)}</span>`;

/** How often each word comes: `18 ok, 2 failed`. */
export function counted(words) {
  const counts = new Map();
  for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1);
  return [...counts].map(([word, count]) => `${count} ${word}`).join(', ');
}
