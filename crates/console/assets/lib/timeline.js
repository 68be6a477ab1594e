// A long list of rows of one height: the page has only the rows that can be seen. The arrow keys move the selection, and
// the details of the selected row stand below the list.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { exact, visible } from './format.js';
import { State } from './ui.js';

const ROW = 34;
const AROUND = 12;
let lists = 0;
const MOVES = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -Infinity, End: Infinity };

/**
 * `rows`: `{ key, time, title, kind, tone, text }`. `detail(row)` is shown for the selected row. With `tail`, the list
 * stays at its end while rows are added, until the reader scrolls up. Each new `at`, `{ key }`, selects a row and shows it.
 */
export function Timeline({ rows, detail, label, tail = false, at: wanted }) {
  const box = useRef();
  const list = useMemo(() => `list-${lists += 1}`, []);
  const atEnd = useRef(tail);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [selected, select] = useState();
  const look = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    atEnd.current = scrollTop + clientHeight > scrollHeight - ROW;
    setView((view) => (view.top === scrollTop && view.height === clientHeight ? view : { top: scrollTop, height: clientHeight }));
  };
  useEffect(() => {
    const sizes = new ResizeObserver(look);
    sizes.observe(box.current);
    return () => sizes.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (tail && atEnd.current) box.current.scrollTop = box.current.scrollHeight;
  }, [rows.length, tail]);
  const at = rows.findIndex((row) => row.key === selected);
  const go = (index) => {
    const next = Math.max(0, Math.min(rows.length - 1, index));
    select(rows[next]?.key);
    const { scrollTop, clientHeight } = box.current;
    if (next * ROW < scrollTop) box.current.scrollTop = next * ROW;
    else if ((next + 1) * ROW > scrollTop + clientHeight) box.current.scrollTop = (next + 1) * ROW - clientHeight;
  };
  useEffect(() => {
    const index = rows.findIndex((row) => row.key === wanted?.key);
    if (index < 0) return;
    go(index);
    box.current.focus();
    box.current.scrollIntoView({ block: 'nearest' });
  }, [wanted]);
  const press = (event) => {
    if (event.key === 'Escape') return select(undefined);
    const move = MOVES[event.key];
    if (move === undefined) return undefined;
    event.preventDefault();
    return go(at < 0 ? (move > 0 && move < Infinity ? 0 : rows.length - 1) * (move === -Infinity ? 0 : 1) : at + move);
  };
  const first = Math.max(0, Math.floor(view.top / ROW) - AROUND);
  const shown = rows.slice(first, Math.ceil((view.top + view.height) / ROW) + AROUND);
  return html`<div class="timeline" ref=${box} role="listbox" tabindex="0" aria-label=${label} onScroll=${look} onKeyDown=${press}
      style=${{ height: `min(60vh, ${Math.max(1, rows.length) * ROW + 2}px)` }}
      aria-activedescendant=${at >= first && at < first + shown.length ? `${list}-${selected}` : undefined}>
      <div class="rows" role="presentation" style=${{ height: `${rows.length * ROW}px` }}>${shown.map((row, i) => html`
        <div class="event" key=${row.key} id=${`${list}-${row.key}`} role="option" aria-selected=${row.key === selected}
          aria-posinset=${first + i + 1} aria-setsize=${rows.length} style=${{ top: `${(first + i) * ROW}px` }}
          onClick=${() => select(row.key === selected ? undefined : row.key)}>
          <span class="soft" title=${row.title ?? exact(row.fact.at)}>${row.time}</span>
          <span>${visible(row.kind)}${row.tone && html` <${State} value=${row.tone} />`}</span>
          <span dir="auto">${visible(row.text)}</span>
        </div>`)}</div>
    </div>
    ${at >= 0 && html`<section class="detail" aria-live="polite">
      <h3><span>${visible(rows[at].kind)}</span><button class="link"
        onClick=${() => select(undefined)}>Close</button></h3>${detail(rows[at])}</section>`}`;
}
