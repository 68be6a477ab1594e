// A conversation: its stored messages, the runs that answer now, its waiting questions, and what was sent from this page.
// The stored messages are the truth: events say only when to read them again, and show an answer while it is written.

import { get, post } from './api.js';
import { dropDraft } from './drafts.js';
import { History } from './history.js';
import { planAfter, planFact } from './plan.js';

const RUNS = 50;
/** The newest questions that are shown with their answers. */
const ANSWERED = 100;
const RENDER_MS = 60;
const OPEN = new Set(['accepted', 'queued', 'running', 'paused']);

/** A key that nobody else has. `crypto.randomUUID` does not exist on pages without TLS. */
export const unique = () => Array.from(crypto.getRandomValues(new Uint8Array(8)),
  (byte) => byte.toString(16).padStart(2, '0')).join('');

const made = new Set();
/** The key of a new session. */
export function newSession() {
  const key = `chat-${unique()}`;
  made.add(key);
  return key;
}

export class Talk {
  constructor(session, changed) {
    Object.assign(this, {
      session, changed, messages: [], live: new Map(), ends: new Map(), questions: [], answered: [], pending: [], notes: [],
      past: new Map(), asked: true,
      loaded: false, error: undefined, wanted: false,
    });
    this.stop = new AbortController();
    const absent = () => made.has(session) && !this.live.size && !this.ends.size;
    this.history = new History(session, this.stop.signal, absent);
  }

  close() {
    this.stop.abort();
    clearTimeout(this.timer);
  }

  /** Shows the changes; many of them at once. */
  render() {
    this.timer ??= setTimeout(() => { this.timer = undefined; this.changed(); }, RENDER_MS);
  }

  /** Reads what is new; `fresh`: all messages again. Never two reads at the same time. */
  refresh(fresh = false) {
    this.wanted = true;
    this.history.fresh ||= fresh;
    this.working ??= this.work().finally(() => { this.working = undefined; });
  }

  /** Whether there can be messages before those that are kept. */
  get cut() {
    return this.history.start > 0;
  }

  /** Reads messages before those that are kept. */
  earlier() {
    this.history.older = true;
    this.refresh();
  }

  async work() {
    while (this.wanted && !this.stop.signal.aborted) {
      this.wanted = false;
      try {
        await this.load();
        this.error = undefined;
      } catch (error) {
        if (this.stop.signal.aborted) return;
        this.error = error;
      }
      this.render();
    }
  }

  async load() {
    const { session } = this;
    // Ends that come while the lists are read belong to the next round.
    const over = [...this.live.values()].filter((run) => run.ended).map((run) => run.id);
    const asked = this.asked;
    this.asked = false;
    const [other, { runs }, { approvals }, answered] = await Promise.all([
      this.history.read(),
      get('runs', { session, limit: RUNS }, this.stop.signal),
      get('approvals', { session }, this.stop.signal),
      asked && get('approvals', { session, all: true, limit: ANSWERED }, this.stop.signal),
    ]).catch((error) => { this.asked ||= asked; throw error; });
    if (answered) this.answered = answered.approvals.filter(({ decided_at: at }) => at).sort((a, b) => (a.decided_at < b.decided_at ? -1 : 1));
    if (other) this.notes.forEach((note) => { note.after = 0; });
    this.messages = this.history.messages;
    const first = !this.loaded;
    this.loaded = true;
    this.questions = approvals.filter((question) => question.asked_in === session);
    this.ends = new Map(runs.filter((run) => !OPEN.has(run.status)).map((run) => [run.run_id, run]));
    for (const { run_id: id, status } of runs.filter((run) => OPEN.has(run.status))) {
      // The stream of the session has not brought what such a run did before: its own events have it.
      const late = first && status !== 'queued';
      Object.assign(this.of(id), { status }, late && { late });
    }
    for (const [id, run] of this.live) {
      if (!over.includes(id) && !this.ends.has(id)) continue;
      this.past.set(id, { reasoning: run.reasoning, plan: run.plan });
      if (this.past.size > RUNS) this.past.delete(this.past.keys().next().value);
      this.live.delete(id);
    }
    const stored = new Set(this.messages.map((message) => message.run_id));
    this.pending = this.pending.filter((item) => !item.run_id || !(stored.has(item.run_id) || this.ends.has(item.run_id)));
  }

  /** A run that answers now. */
  of(id) {
    if (!this.live.has(id)) this.live.set(id, { id, status: 'queued', texts: new Map(), reasoning: new Map(), tools: new Map(), plan: undefined });
    return this.live.get(id);
  }

  /** Takes one event of the stream. */
  event({ type, data }) {
    if (type === 'reset' || !data?.runId) return this.refresh(type === 'reset');
    if (type !== 'agent') return undefined;
    const { stream, data: what } = data;
    const run = this.of(data.runId);
    if (stream === 'assistant') {
      run.status = 'running';
      if (what.final) run.final = what.text;
      else run.texts.set(what.step, what.text);
    } else if (stream === 'reasoning') run.reasoning.set(what.step, what.text);
    else if (stream === 'tool') {
      const tool = run.tools.get(what.toolCallId) ?? { id: what.toolCallId };
      if (what.phase === 'start') Object.assign(tool, { name: what.name, arguments: what.arguments, status: 'running' });
      else if (what.phase === 'result') Object.assign(tool, { name: what.name, status: what.status,
        took: what.tookMs, result: what.result });
      run.tools.set(tool.id, tool);
    } else if (stream === 'plan') {
      // The own events of a late run have its plan too, and an added step may be taken only once.
      if (!run.late) run.plan = planAfter(run.plan, planFact(what));
    } else if (stream === 'lifecycle') this.lifecycle(run, what);
    else if (stream === 'approval' || stream === 'queue' || stream === 'file') {
      this.asked ||= stream === 'approval';
      this.refresh();
    }
    return this.render();
  }

  /** Takes a fact of a run that began before this page: its plan and its tool calls. */
  fact(run, fact) {
    if (fact.type.startsWith('plan_')) run.plan = planAfter(run.plan, fact);
    else if (fact.type === 'tool_started' || fact.type === 'tool_finished') {
      const tool = run.tools.get(fact.call_id) ?? { id: fact.call_id };
      const { name, arguments: args, took_ms: took, result } = fact;
      // The stream of the session may have brought the end of the call already.
      const { status = tool.took === undefined ? 'running' : tool.status } = fact;
      Object.assign(tool, { name, status }, args !== undefined && { arguments: args }, fact.type === 'tool_finished' && { took, result });
      run.tools.set(tool.id, tool);
    } else return;
    this.render();
  }

  lifecycle(run, what) {
    if (what.phase === 'start') {
      Object.assign(run, { status: 'running', final: undefined });
      run.texts.clear();
    } else if (what.phase === 'end' || what.phase === 'error') {
      run.ended = true;
    } else return;
    this.refresh();
  }

  /** Sends a message or a command. It keeps its key, so that sending it again makes no second message. */
  async send(item) {
    if (!this.pending.includes(item)) this.pending.push(item);
    Object.assign(item, { state: 'sending', error: undefined });
    this.changed();
    try {
      const answer = await post('messages', {
        session: this.session,
        text: item.text,
        idempotency_key: item.key,
        ...(item.queue && { queue: item.queue }),
        ...(item.files?.length && { attachments: item.files.map((file) => ({ file: file.id })) }),
      });
      dropDraft(this.session, item.text);
      if (answer.command) {
        this.pending = this.pending.filter((other) => other !== item);
        const asked = item.secret ? undefined : item.text;
        this.notes.push({ key: item.key, after: this.messages.at(-1)?.id ?? 0, ...answer, asked });
        this.refresh();
      } else {
        Object.assign(item, { state: 'sent', run_id: answer.run_id, frozen: answer.frozen });
        made.delete(this.session);
        this.refresh();
      }
    } catch (error) {
      Object.assign(item, { state: 'failed', error });
    }
    this.changed();
  }

  drop(item) {
    dropDraft(this.session, item.text);
    this.pending = this.pending.filter((other) => other !== item);
    this.changed();
  }

  /** Messages, replies to commands and ends without an answer, in their order. */
  entries() {
    const notes = [...this.notes];
    const answered = [...this.answered];
    const all = [];
    const take = (id) => {
      while (notes.length && notes[0].after <= id) all.push({ kind: 'note', key: `n${notes[0].key}`, note: notes.shift() });
    };
    // Answers stand between the messages before and after them.
    const answers = (before) => {
      while (answered.length && answered[0].decided_at < before) {
        const question = answered.shift();
        if (this.messages.length && question.decided_at > this.messages[0].at) all.push({ kind: 'answer', key: `q${question.id}${question.state}`, question });
      }
    };
    take((this.messages[0]?.id ?? 1) - 1);
    this.messages.forEach((message, i) => {
      answers(message.at);
      const end = this.ends.get(message.run_id);
      const last = this.messages[i + 1]?.run_id !== message.run_id;
      const own = last && message.role === 'assistant' && end;
      all.push({ kind: 'message', key: `m${message.id}`, message, ...(own && { run: end, seen: this.past.get(end.run_id) }) });
      if (last && end && end.status !== 'completed' && end.reply) {
        all.push({ kind: 'end', key: `e${end.run_id}`, end });
      }
      take(message.id);
    });
    answers('~');
    take(Infinity);
    return all;
  }
}
