// Hooks that load and follow.

import { useCallback, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { follow } from './api.js';
import { now } from './clock.js';

/**
 * Loads once, after `reload()`, and every `every` ms while the page is visible and `when()` is true or the load before has
 * failed: `{ value, error, loading, reload }`. The
 * value before stays while a load fails. `load` receives an `AbortSignal`. A reload while a load is in progress follows it,
 * so that a slow answer is shown too.
 */
export function useLoad(load, deps = [], { every, when = () => true } = {}) {
  const [state, set] = useState({ loading: true });
  const work = useRef({});
  const latest = useRef(load);
  latest.current = load;
  const wanted = useRef();
  wanted.current = () => when() || Boolean(state.error);
  const start = useCallback(() => {
    const mine = work.current;
    if (!mine.stop) return;
    if (mine.busy) { mine.again = true; return; }
    mine.busy = true;
    const { signal } = mine.stop;
    latest.current(signal).then(
      (value) => signal.aborted || set({ value, loading: false }),
      (error) => signal.aborted || set((before) => ({ value: before.value, error, loading: false })),
    ).finally(() => {
      mine.busy = false;
      if (!mine.again || signal.aborted) return;
      mine.again = false;
      start();
    });
  }, []);
  useEffect(() => {
    const mine = { stop: new AbortController() };
    work.current = mine;
    set({ loading: true });
    start();
    return () => mine.stop.abort();
  }, deps);
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => document.visibilityState === 'visible' && !work.current.busy && wanted.current() && start(), every);
    return () => clearInterval(timer);
  }, [every]);
  return { ...state, reload: start };
}

/**
 * Follows an event stream while the component is shown. Returns `connecting`, `live`, `waiting` or, after its terminal
 * event, `ended`; or the error that has ended it for good. `query` and `isEnd`: see `follow`.
 */
export function useFollow(path, onEvent, { since, query, isEnd, enabled = true } = {}) {
  const [state, setState] = useState('connecting');
  const latest = useRef({});
  latest.current = { onEvent, isEnd };
  useEffect(() => {
    if (!enabled || !path) return undefined;
    const stop = new AbortController();
    follow(path, {
      since,
      query,
      signal: stop.signal,
      onState: setState,
      onEvent: (event) => latest.current.onEvent(event),
      isEnd: (event) => latest.current.isEnd?.(event) ?? false,
    }).then(() => stop.signal.aborted || setState('ended'), (error) => stop.signal.aborted || setState(error));
    return () => stop.abort();
  }, [path, enabled]);
  return state;
}

/** Runs an action: `[run, { busy, error }]`. While it is busy, further calls are ignored. */
export function useAction(action) {
  const [state, set] = useState({ busy: false });
  const running = useRef(false);
  const run = async (...args) => {
    if (running.current) return undefined;
    running.current = true;
    set({ busy: true });
    try {
      const value = await action(...args);
      set({ busy: false });
      return value;
    } catch (error) {
      set({ busy: false, error });
      return undefined;
    } finally {
      running.current = false;
    }
  };
  return [run, state];
}

/** Calls `close` when Escape is pressed while `enabled`. */
export function useEscape(enabled, close) {
  useEffect(() => {
    if (!enabled) return undefined;
    const press = (event) => event.key === 'Escape' && close();
    document.addEventListener('keydown', press);
    return () => document.removeEventListener('keydown', press);
  }, [enabled]);
}

/** Whether the screen is as narrow as that of a phone: see the end of style.css. */
export function useNarrow() {
  const query = useMemo(() => matchMedia('(max-width: 600px)'), []);
  const [narrow, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener('change', changed);
    return () => query.removeEventListener('change', changed);
  }, []);
  return narrow;
}

const tickers = new Map();

/** The current time, renewed every `ms` while the page is visible. All readers of one interval share a timer. */
export function useNow(ms = 1000) {
  const [at, set] = useState(now);
  useEffect(() => {
    const ticker = tickers.get(ms) ?? { readers: new Set() };
    tickers.set(ms, ticker);
    ticker.readers.add(set);
    ticker.timer ??= setInterval(() => {
      if (document.visibilityState === 'hidden') return;
      const at = now();
      ticker.readers.forEach((read) => read(at));
    }, ms);
    return () => {
      ticker.readers.delete(set);
      if (ticker.readers.size) return;
      clearInterval(ticker.timer);
      tickers.delete(ms);
    };
  }, [ms]);
  return at;
}
