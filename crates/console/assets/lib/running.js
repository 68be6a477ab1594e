// The runs that have not ended, as they live: lists of the API, moved on by the facts of the event stream.

import { useEffect, useMemo, useState } from '../vendor/preact.js';
import { follow, get } from './api.js';
import { useFollow } from './hooks.js';

const STATES = ['running', 'paused', 'queued', 'accepted'];
/** Most runs that are listed for each state. */
export const MOST = 200;
/** Pauses before a list is loaded again: after a fact that moves a run to another list, and after one that changes its costs. */
const MOVED_MS = 2000;
const COSTS_MS = 5000;
const RENDER_MS = 200;
const FACTS_BEFORE = 500;
/** Facts that move a run from one list to another. The others change what a running one costs. */
const MOVING = new Set(['run_accepted', 'run_started', 'run_ended', 'approval_requested', 'approval_resolved']);
const DOING = new Set(['run_started', 'model_called', 'tool_started', 'tool_finished']);

/** The runs and what each one does now. It is a plain object with timers, so that a burst of facts renders once. */
class Running {
  constructor(changed) {
    Object.assign(this, { changed, runs: [], doing: new Map(), ended: new Set(),
      lists: new Map(), stale: new Set(STATES), loading: false, again: false, error: undefined });
    this.stop = new AbortController();
  }

  /** Loads the lists that facts have changed; while a load is in progress, one more follows it. */
  async load() {
    if (this.loading) { this.again = true; return; }
    this.loading = true;
    this.again = false;
    const stale = [...this.stale];
    this.stale.clear();
    if (stale.length === STATES.length) this.ended.clear();
    try {
      const load = async (status) => [status, (await get('runs', { status, limit: MOST }, this.stop.signal)).runs];
      for (const [status, runs] of await Promise.all(stale.map(load))) this.lists.set(status, runs);
      const known = new Map();
      for (const run of STATES.flatMap((status) => this.lists.get(status) ?? [])) {
        if (!this.ended.has(run.run_id) && !known.has(run.run_id)) known.set(run.run_id, run);
      }
      this.runs = [...known.values()];
      for (const id of this.doing.keys()) if (!known.has(id)) this.doing.delete(id);
      this.error = undefined;
      this.loaded = true;
    } catch (error) {
      if (this.stop.signal.aborted) return;
      for (const status of stale) this.stale.add(status);
      this.error = error;
    }
    this.loading = false;
    this.render();
    if (this.again) this.soon([], MOVED_MS);
  }

  /** Loads the lists of these states after `ms` at the latest. */
  soon(states, ms) {
    for (const status of states) this.stale.add(status);
    const at = performance.now() + ms;
    if (this.reloadTimer !== undefined && this.reloadAt <= at) return;
    clearTimeout(this.reloadTimer);
    this.reloadAt = at;
    this.reloadTimer = setTimeout(() => { this.reloadTimer = undefined; this.load(); }, ms);
  }

  /** Loads all lists now. */
  reload() {
    for (const status of STATES) this.stale.add(status);
    return this.load();
  }

  render() {
    this.renderTimer ??= setTimeout(() => { this.renderTimer = undefined; this.changed(); }, RENDER_MS);
  }

  close() {
    this.stop.abort();
    clearTimeout(this.reloadTimer);
    clearTimeout(this.renderTimer);
  }

  /**
   * What a run does now: `{ step, tools: Map(call → { name, at }) }`. Older facts can come after newer ones, so that the
   * number of the fact is kept for `finished` calls, the step and the start of the attempt.
   */
  of(id) {
    if (!this.doing.has(id)) this.doing.set(id, { tools: new Map(), finished: new Map(), started: 0, stepped: 0 });
    return this.doing.get(id);
  }

  /** Takes one fact. */
  fact({ type, data }) {
    const id = data?.run_id;
    if (!id) return;
    if (type === 'run_ended') {
      this.ended.add(id);
      this.doing.delete(id);
      this.runs = this.runs.filter((run) => run.run_id !== id);
    } else if (DOING.has(type)) this.does(this.of(id), type, data);
    if (type === 'run_started') {
      const started = (run) => ({ ...run, status: 'running', started_at: run.started_at ?? data.at });
      this.runs = this.runs.map((run) => (run.run_id === id ? started(run) : run));
    }
    if (!DOING.has(type) && !MOVING.has(type)) return;
    if (MOVING.has(type)) this.soon(STATES, MOVED_MS);
    else this.soon(['running'], COSTS_MS);
    this.render();
  }

  does(run, type, { seq, call_id: call, step, name, at }) {
    if (type === 'run_started') {
      run.started = Math.max(run.started, seq);
      for (const [id, tool] of run.tools) if (tool.seq < seq) run.tools.delete(id);
    } else if (type === 'model_called') {
      if (seq > run.stepped) Object.assign(run, { stepped: seq, step });
    } else if (type === 'tool_started') {
      if (seq > run.started && seq > (run.finished.get(call) ?? 0)) run.tools.set(call, { name, at, seq });
    } else {
      if (this.replays) run.finished.set(call, seq);
      if (run.tools.get(call)?.seq < seq) run.tools.delete(call);
    }
  }

  /** Reads the facts before `newest` once: they name the tools that were started before the page was opened. */
  async before(newest) {
    this.replays = true;
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), 3000);
    this.stop.signal.addEventListener('abort', () => stop.abort(), { once: true });
    await follow('events', {
      since: Math.max(0, newest - FACTS_BEFORE),
      signal: stop.signal,
      onEvent: ({ type, data }) => DOING.has(type) && this.does(this.of(data.run_id), type, data),
      isEnd: (event) => Number(event?.id) >= newest,
    }).catch(() => {});
    clearTimeout(timer);
    this.replays = false;
    this.render();
    for (const run of this.doing.values()) run.finished.clear();
  }
}

/** `{ runs, doing(id), link, error, loaded, reload }`; `link` is the state of the event stream. */
export function useRunning() {
  const [, render] = useState(0);
  const running = useMemo(() => new Running(() => render((n) => n + 1)), []);
  useEffect(() => () => running.close(), []);
  const link = useFollow('events', (event) => {
    if (event.type !== 'begin' && event.type !== 'reset') return running.fact(event);
    running.reload();
    return event.type === 'begin' && running.before(Number(event.id));
  });
  return {
    runs: running.runs,
    doing: (id) => running.doing.get(id),
    link,
    error: running.error,
    loaded: running.loaded,
    reload: () => running.reload(),
  };
}
