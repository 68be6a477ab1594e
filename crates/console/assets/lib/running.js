// The runs that have not ended, as they live: one list of the API, moved on by the facts of the event stream.

import { useEffect, useMemo, useState } from '../vendor/preact.js';
import { follow, get } from './api.js';
import { useFollow } from './hooks.js';

const OPEN = 'running,paused,queued,accepted';
/** The runs that a page must not leave out, however many are queued. */
const AT_WORK = 'running,paused';
/** Most runs that are listed. */
export const MOST = 500;
/** Pauses before the list is loaded again: after a fact that does not say how a run has changed, and after one that changes costs. */
const MOVED_MS = 500;
const COSTS_MS = 10_000;
/** Facts arrive at most so often, and so do renderings. */
const EVERY_MS = 250;
const FACTS_BEFORE = 500;
/** Facts that change the state of a run. */
const MOVING = new Set(['run_accepted', 'queued', 'run_started', 'run_ended', 'approval_requested', 'approval_resolved']);
const DOING = new Set(['run_started', 'model_called', 'goal_checked', 'tool_started', 'tool_finished']);

/** A run of which only its first fact is known. */
const accepted = ({ run_id, session, at }) => ({
  run_id, session, status: 'accepted', accepted_at: at, usage: { input: 0, output: 0, model_calls: 0 }, cost_micro_usd: 0,
});

/** The runs and what each one does now. It is a plain object with timers, so that a burst of facts renders once. */
class Running {
  constructor(changed) {
    Object.assign(this, { changed, known: new Map(), doing: new Map(), during: [], news: false, ended: false, loading: false, error: undefined });
    this.stop = new AbortController();
    document.addEventListener('visibilitychange', () => this.shown(), { signal: this.stop.signal });
  }

  /** The runs, newest first: their ids begin with the time. */
  get runs() {
    return [...this.known.values()].sort((a, b) => (a.run_id < b.run_id ? 1 : -1));
  }

  /** Loads the list. A load while another one is in progress follows it. */
  async load() {
    if (this.loading) { this.again = true; return; }
    Object.assign(this, { loading: true, again: false, during: [] });
    clearTimeout(this.loadTimer);
    this.loadTimer = undefined;
    try {
      const ask = (status) => get('runs', { status, limit: MOST }, this.stop.signal);
      const { runs, next } = await ask(OPEN);
      if (next) runs.push(...(await ask(AT_WORK)).runs);
      this.cut = next !== undefined;
      this.known = new Map(runs.map((run) => [run.run_id, run]));
      // The answer may be older than facts that came meanwhile.
      this.during.forEach((fact) => this.move(fact));
      for (const id of this.doing.keys()) if (!this.known.has(id)) this.doing.delete(id);
      this.error = undefined;
      this.loaded = true;
    } catch (error) {
      if (this.stop.signal.aborted) return;
      this.error = error;
    }
    this.loading = false;
    this.render();
    if (this.again) this.soon(MOVED_MS);
  }

  /** Loads the list after `ms` at the latest, or when the page is shown again. */
  soon(ms) {
    const at = performance.now() + ms;
    if (this.loadTimer !== undefined && this.loadAt <= at) return;
    clearTimeout(this.loadTimer);
    this.loadAt = at;
    this.loadTimer = setTimeout(() => {
      this.loadTimer = undefined;
      if (document.visibilityState === 'hidden') this.stale = true;
      else this.load();
    }, ms);
  }

  /** Renders at most every `EVERY_MS`, and not while the page is hidden. */
  render() {
    this.renderTimer ??= setTimeout(() => {
      this.renderTimer = undefined;
      if (document.visibilityState === 'hidden') this.unseen = true;
      else this.changed();
    }, EVERY_MS);
  }

  shown() {
    if (document.visibilityState === 'hidden') return;
    if (this.stale) this.load();
    if (this.unseen) this.changed();
    this.stale = false;
    this.unseen = false;
  }

  close() {
    this.stop.abort();
    clearTimeout(this.loadTimer);
    clearTimeout(this.renderTimer);
  }

  /**
   * What a run does now: `{ step, goal, tools: Map(call → { name, at }) }`. Older facts can come after newer ones, so that the
   * number of the fact is kept for `finished` calls, the step and the start of the attempt.
   */
  of(id) {
    if (!this.doing.has(id)) this.doing.set(id, { tools: new Map(), finished: new Map(), started: 0, stepped: 0 });
    return this.doing.get(id);
  }

  /** Takes one fact. */
  fact(fact) {
    this.news = true;
    const { type, data } = fact;
    const id = data?.run_id;
    if (!id) return;
    if (DOING.has(type)) this.does(this.of(id), type, data);
    if (MOVING.has(type)) {
      if (this.loading) this.during.push(fact);
      this.move(fact);
    } else if (type === 'model_called') this.soon(COSTS_MS);
    if (DOING.has(type) || MOVING.has(type)) this.render();
  }

  /** Changes the state of a run as the fact says. */
  move({ type, data }) {
    const run = this.known.get(data.run_id);
    if (type === 'run_accepted') run ?? this.known.set(data.run_id, accepted(data));
    else if (type === 'run_ended') {
      this.ended = true;
      this.known.delete(data.run_id);
      this.doing.delete(data.run_id);
      // One of those that were left out has room now.
      if (this.cut) this.soon(COSTS_MS);
    } else if (!run || type.startsWith('approval_')) this.soon(MOVED_MS);
    else if (type === 'run_started') {
      const { waiting_for, ...rest } = run;
      this.known.set(run.run_id, { ...rest, status: 'running', started_at: run.started_at ?? data.at });
    } else if (run.status === 'accepted') this.known.set(run.run_id, { ...run, status: 'queued' });
  }

  /** Whether a fact has come since this was asked last. */
  takeNews() {
    const { news } = this;
    this.news = false;
    return news;
  }

  /** Whether a run has ended since the last call. */
  takeEnded() {
    const { ended } = this;
    this.ended = false;
    return ended;
  }

  does(run, type, fact) {
    const { seq, call_id: call, step, name, at } = fact;
    if (type === 'run_started') {
      run.started = Math.max(run.started, seq);
      for (const [id, tool] of run.tools) if (tool.seq < seq) run.tools.delete(id);
    } else if (type === 'model_called') {
      if (seq > run.stepped) Object.assign(run, { stepped: seq, step });
    } else if (type === 'goal_checked') {
      if (!(run.goal?.seq > seq)) run.goal = fact;
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

/**
 * `{ runs, cut, doing(id), link, error, loaded, reload, takeNews, takeEnded }`; `link` is the state of the event stream,
 * `cut` says that there are more runs.
 */
export function useRunning() {
  const [, render] = useState(0);
  const running = useMemo(() => new Running(() => render((n) => n + 1)), []);
  useEffect(() => () => running.close(), []);
  const link = useFollow('events', (event) => {
    if (event.type !== 'begin' && event.type !== 'reset') return running.fact(event);
    running.load();
    return event.type === 'begin' && running.before(Number(event.id));
  }, { query: { every_ms: EVERY_MS } });
  return {
    runs: running.runs,
    cut: running.cut,
    doing: (id) => running.doing.get(id),
    link,
    error: running.error,
    loaded: running.loaded,
    reload: () => running.load(),
    takeNews: () => running.takeNews(),
    takeEnded: () => running.takeEnded(),
  };
}
