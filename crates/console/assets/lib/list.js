// Long lists, and the parts that go with them: filters, tabs, live reloads and JSON.

import { html, useCallback, useEffect, useRef, useState } from '../vendor/preact.js';
import { get } from './api.js';
import { visible } from './format.js';
import { useFollow } from './hooks.js';
import { Failure, State, Table } from './ui.js';

/** The API returns at most this many rows for one request. */
const MOST = 500;

/**
 * The rows of a list: `{ rows, value, error, loading, reload, more, full }`. `more()` asks for the next page and is absent
 * at the end; `full` says that older rows exist which the API does not return. A reload while a load is in progress
 * follows it, so that frequent events do not keep the list from loading.
 */
export function useList(path, name, query = {}, { page = 50 } = {}) {
  const key = JSON.stringify([path, query]);
  const [state, set] = useState({ loading: true, rows: [] });
  const load = useRef({});
  const start = useCallback((count) => {
    const mine = load.current;
    if (mine.busy) { mine.again = Math.max(mine.again ?? 0, count); return; }
    mine.busy = true;
    mine.count = count;
    fetchRows(path, name, query, count, mine.stop.signal).then(
      (found) => mine.stop.signal.aborted || set({ ...found, loading: false }),
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
    set({ loading: true, rows: [] });
    start(page);
    return () => load.current.stop.abort();
  }, [key]);
  const reload = useCallback(() => start(load.current.count), [start]);
  const further = () => {
    set((before) => ({ ...before, loading: true }));
    start(load.current.count + page * 2);
  };
  return { ...state, reload, more: state.more ? further : undefined };
}

/** Reads pages until there are `count` rows. A list without `next` is read again with a higher limit. */
async function fetchRows(path, name, query, count, signal) {
  const rows = [];
  let value;
  let after;
  do {
    const limit = Math.min(count - rows.length, MOST);
    value = await get(path, { ...query, limit, after }, signal);
    rows.push(...value[name]);
    after = value.next;
    if (!after) {
      const whole = value[name].length >= limit;
      return { value, rows, more: whole && limit < MOST, full: whole && limit >= MOST };
    }
  } while (rows.length < count);
  return { value, rows, more: true, full: false };
}

/** The button below a list, or the sentence that older rows need a filter. */
export function More({ list }) {
  if (list.more) return html`<p class="more"><button onClick=${list.more} disabled=${list.loading}>Show more</button></p>`;
  if (!list.full) return null;
  return html`<p class="hint">These are the newest ${list.rows.length}. Use the filters to find older ones.</p>`;
}

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
  const state = useFollow('events', ({ type }) => (types.includes(type) || type === 'reset') && soon(), { enabled });
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
