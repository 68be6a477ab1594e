// Long lists, and the parts that go with them: filters, tabs, live reloads and JSON.

import { html, useCallback, useEffect, useRef, useState } from '../vendor/preact.js';
import { get } from './api.js';
import { visible } from './format.js';
import { useFollow } from './hooks.js';
import { Failure, State, Table } from './ui.js';

/** The API returns at most this many rows for one request. */
const MOST = 500;

/**
 * The rows of a list: `{ rows, value, error, loading, reload, more }`. `more()` asks for the next page and is absent at the
 * end. A reload while a load is in progress follows it, so that frequent events do not keep the list from loading. With
 * `every`, it is loaded again after so many ms while the page is visible.
 */
export function useList(path, name, query = {}, { page = 50, every } = {}) {
  const key = JSON.stringify([path, query]);
  const [state, set] = useState({ key, loading: true, rows: [] });
  const load = useRef({});
  const start = useCallback((count, known) => {
    const mine = load.current;
    if (mine.busy) { mine.again = Math.max(mine.again ?? 0, count); return; }
    mine.busy = true;
    mine.count = count;
    fetchRows(path, name, query, count, mine.stop.signal, known).then(
      (found) => mine.stop.signal.aborted || set({ ...found, key, loading: false }),
      (error) => mine.stop.signal.aborted || set((before) => ({ ...before, error, loading: false })),
    ).finally(() => {
      mine.busy = false;
      const next = mine.again;
      mine.again = undefined;
      if (next && !mine.stop.signal.aborted) start(next);
    });
  }, [key]);
  useEffect(() => {
    load.current = { stop: new AbortController(), count: page };
    set({ key, loading: true, rows: [] });
    start(page);
    return () => load.current.stop.abort();
  }, [key]);
  const reload = useCallback(() => start(load.current.count), [start]);
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => document.visibilityState === 'visible' && reload(), every);
    return () => clearInterval(timer);
  }, [reload, every]);
  const further = () => {
    set((before) => ({ ...before, loading: true }));
    start(load.current.count + page * 2, state);
  };
  // Until the first rows of other filters are there, the rows before must not be shown for them.
  const now = state.key === key ? state : { loading: true, rows: [] };
  return { ...now, reload, more: now.next ? further : undefined };
}

/** Reads pages until there are `count` rows, after those of `known` if it has a cursor. */
async function fetchRows(path, name, query, count, signal, known) {
  const rows = known?.next ? [...known.rows] : [];
  let value;
  let after = known?.next;
  do {
    const limit = Math.min(count - rows.length, MOST);
    value = await readPage(path, { ...query, limit, after }, signal);
    if (!value) return fetchRows(path, name, query, count, signal);
    rows.push(...value[name]);
    after = value.next;
  } while (after && rows.length < count);
  return { value, rows, next: after };
}

/** One page. `undefined`: the row of the cursor was deleted, so that the list has to begin again. */
async function readPage(path, query, signal) {
  try {
    return await get(path, query, signal);
  } catch (error) {
    if (query.after === undefined || error.code !== 'invalid_cursor') throw error;
    return undefined;
  }
}

/** The button below a list. */
export const More = ({ list }) => list.more && html`<p class="more"><button onClick=${list.more}
  disabled=${list.loading} aria-busy=${list.loading}>Show more</button></p>`;

/**
 * Reloads when an event of one of these types arrives, at most once each second, and after a lost connection. Returns the
 * state of the connection.
 */
export function useLive(types, reload, enabled = true) {
  const timer = useRef();
  const last = useRef(0);
  const latest = useRef(reload);
  latest.current = reload;
  useEffect(() => () => clearTimeout(timer.current), []);
  const soon = () => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      last.current = Date.now();
      latest.current();
    }, Math.max(50, last.current + 1000 - Date.now()));
  };
  const state = useFollow('events', ({ type }) => (types.includes(type) || type === 'reset') && soon(), { enabled, query: { every_ms: 250 } });
  const before = useRef(state);
  useEffect(() => {
    // A load may have failed while the daemon was away.
    if (before.current === 'waiting' && state === 'live') soon();
    before.current = state;
  }, [state]);
  return state;
}

/** Says why an event stream has ended for good. */
export const StreamEnd = ({ error }) => html`<${State} value=${`no live updates: ${error.message}`} tone="bad" />`;

/** Says that the page waits for the daemon. It shows nothing while the connection is up. */
export const Connection = ({ state }) => html`<span role="status">${state instanceof Error ? html`<${StreamEnd} error=${state} />`
  : state === 'waiting' && html`<${State} value="reconnecting" tone="wait" />`}</span>`;

/** Links to the parts of a page: `[[address, label]]`. */
export const Tabs = ({ at, tabs, label }) => html`<nav class="tabs row" aria-label=${label}>${tabs.map(([to, name]) => html`
  <a href="#/${to}" aria-current=${to === at ? 'page' : undefined}>${name}</a> `)}</nav>`;

/** A choice with a label: `options` are `[value, label]`. */
export const Choice = ({ label, value, options, set }) => html`<label>${label}
  <select value=${value} onChange=${(event) => set(event.currentTarget.value)}>${options.map(([key, name]) => html`
    <option value=${key} selected=${key === value}>${name}</option>`)}</select></label>`;

/** A value as JSON. */
export const Json = ({ value }) => html`<pre tabindex="0">${visible(JSON.stringify(value, null, 2))}</pre>`;

/** The rows of a list as a table, with its states of loading, error and emptiness. */
export const ListTable = ({ list, ...table }) => html`<${Failure} error=${list.error} retry=${list.reload} />
  ${list.loading && !list.rows.length ? html`<p class="loading" role="status">Loading …</p>`
    : (list.rows.length > 0 || !list.error) && html`<${Table} rows=${list.rows} ...${table} />`}
  <${More} list=${list} />`;
