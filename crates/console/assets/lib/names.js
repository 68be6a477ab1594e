// Names for sessions: the title of a job, the name of a routine, or the first words of a conversation.

import { html, useEffect, useMemo, useState } from '../vendor/preact.js';
import { firstLine, get, path } from './api.js';
import { useLoad } from './hooks.js';
import { Go, Text, chatLink, runLink } from './ui.js';

/** So many unknown names are asked for one by one; more of them are read from a list. */
const ONE_BY_ONE = 4;
const MOST = 500;
/** Sessions that came meanwhile are named together. */
const WAIT_MS = 300;

/** What a kind of session is called, and how its names are read: `[from the list, of one]` as `[id, name]`. */
const KINDS = {
  job: {
    list: async (signal) => (await get('jobs', { limit: 100 }, signal)).jobs.map(({ job_id: id, title }) => [id, title]),
    one: async (id, signal) => (await get(path`jobs/${id}`, {}, signal)).title,
    link: (id) => `jobs/${encodeURIComponent(id)}`,
  },
  routine: {
    list: async (signal) => (await get('routine-runs', { limit: 100 }, signal)).routine_runs
      .map(({ routine_run_id: id, routine }) => [id, routine]),
    one: async (id, signal) => (await get(path`routine-runs/${id}`, {}, signal)).routine,
    link: (id) => `routines/run/${encodeURIComponent(id)}`,
  },
  session: {
    list: async (signal) => (await get('sessions', { limit: MOST, all: true }, signal)).sessions
      .map(({ session, title }) => [session, title]),
    one: async (session, signal) => (await get(path`sessions/${session}`, {}, signal)).title,
    link: chatLink,
  },
};

/** `job:ID` as `['job', 'ID']`; the session of a conversation as `['session', KEY]`. */
export function kindOf(session) {
  const [, kind, id] = /^(job|routine):([0-9a-f-]{36})$/.exec(session) ?? ['', 'session', session];
  return [kind, id];
}
export const sessionLink = (session) => {
  const [kind, id] = kindOf(session);
  return KINDS[kind].link(id);
};

class Names {
  constructor(changed) {
    Object.assign(this, { changed, known: new Map(), listed: new Set(), stop: new AbortController() });
  }

  close() {
    clearTimeout(this.timer);
    this.stop.abort();
  }

  /** Asks for the names of those that are not known, once for each, and forgets the others. */
  want(sessions) {
    this.wanted = sessions;
    const wanted = new Set(sessions);
    for (const session of this.known.keys()) if (!wanted.has(session)) this.known.delete(session);
    if (sessions.every((session) => this.known.has(session))) return;
    this.timer ??= setTimeout(() => {
      this.ask().finally(() => {
        this.timer = undefined;
        if (this.stop.signal.aborted) return;
        this.changed();
        this.want(this.wanted);
      });
    }, this.known.size ? WAIT_MS : 0);
  }

  async ask() {
    const unknown = new Map();
    for (const session of new Set(this.wanted)) {
      if (this.known.has(session)) continue;
      this.known.set(session, undefined);
      const [kind, id] = kindOf(session);
      unknown.set(kind, [...unknown.get(kind) ?? [], [session, id]]);
    }
    await Promise.all([...unknown].map(([kind, those]) => this.askFor(kind, those)));
  }

  /** A name that cannot be read leaves the key of the session, which is always there. */
  async askFor(kind, those) {
    const { signal } = this.stop;
    const { list, one } = KINDS[kind];
    let names = new Map();
    if (those.length > ONE_BY_ONE && !this.listed.has(kind)) {
      this.listed.add(kind);
      names = new Map(await list(signal).catch(() => []));
    }
    const rest = those.filter(([, id]) => !names.has(id)).slice(0, ONE_BY_ONE);
    await Promise.all(rest.map(async ([, id]) => names.set(id, await one(id, signal).catch(() => undefined))));
    for (const [session, id] of those) {
      // What was not asked for yet is asked for next.
      if (names.has(id)) this.known.set(session, names.get(id) ?? undefined);
      else this.known.delete(session);
    }
  }
}

/** Returns `name(session)` for these sessions. A name that is not known yet is `undefined`. */
export function useNames(sessions) {
  const [, render] = useState(0);
  const names = useMemo(() => new Names(() => render((n) => n + 1)), []);
  useEffect(() => () => names.close(), []);
  useEffect(() => names.want(sessions), [sessions.join('\n')]);
  return (session) => names.known.get(session);
}

/** The subject of a run with a link to it, and below it the conversation, the job or the routine. */
export function Subject({ run, name }) {
  const [kind] = kindOf(run.session);
  return html`<span class="subject"><${Go} to=${runLink(run.run_id)} title=${run.run_id}><${Text}
      value=${name(run.session) ?? (kind === 'session' ? run.session : `A run of a ${kind}`)} /></${Go}>
    <small><${Go} to=${sessionLink(run.session)}>${kind === 'session' ? html`<${Text} value=${run.session} />`
      : kind}</${Go}></small></span>`;
}

const ASKED = 300;
/** What the run was asked for: the first words of its message, and where they were said. */
export function Asked({ run }) {
  const name = useNames([run.session])(run.session);
  const [kind] = kindOf(run.session);
  const load = useLoad((signal) => firstLine(path`runs/${run.run_id}/trajectory`, (line) => line.user !== undefined, signal), [run.run_id]);
  const words = load.value?.user;
  return html`<div class="asked">
    <p class="lead"><${Text} value=${words ? brief(words) : name ?? run.session} /></p>
    ${(kind !== 'session' || (words && name && !sameWords(words, name))) && html`<p class="soft small">${kind === 'session'
      ? 'In the conversation' : `A run of the ${kind}`} <${Go} to=${sessionLink(run.session)}><${Text} value=${name ?? kind} /></${Go}></p>`}</div>`;
}
/** A conversation without a title of its own is named by its first words. */
const sameWords = (words, name) => words.replace(/\s+/g, ' ').startsWith(name.replace(/…$/, '').trim());
const brief = (text) => (text.length > ASKED ? `${text.slice(0, ASKED)}…` : text);
