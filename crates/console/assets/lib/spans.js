// The facts of a run as spans of time: its waiting, its model calls, its tool calls, its questions and its subagents.

import { modelCall, toolCall } from './facts.js';

const ms = (at) => Date.parse(at);

/** The lanes of the picture, in their order: `[lane, name]`. */
export const LANES = [['waiting', 'Waiting'], ['model', 'Model'], ['tool', 'Tools'], ['person', 'Person'], ['part', 'Subagents']];

class Spans {
  constructor(until) {
    Object.assign(this, { until, all: [], open: new Map(), begin: undefined, end: undefined });
  }

  /** A span without an end is in progress. */
  add(key, span) {
    this.all.push(span);
    this.open.set(key, span);
  }

  finish(key, to, more) {
    const span = this.open.get(key);
    this.open.delete(key);
    return span && Object.assign(span, { to, live: false }, more);
  }

  wait(row, at, label) {
    this.add('wait', { lane: 'waiting', key: row.key, label, from: at, live: true });
  }

  take(row) {
    const { fact, done } = row;
    const at = ms(fact.at);
    this.begin ??= at;
    this.last = Math.max(this.last ?? at, done ? ms(done.at) : at);
    const took = fact.took_ms ?? 0;
    if (fact.type === 'run_accepted') this.wait(row, at, 'Waits for its turn');
    else if (fact.type === 'run_started') this.finish('wait', at);
    else if (fact.type === 'model_called') {
      this.all.push({ lane: 'model', key: row.key, label: modelCall(fact), from: at - took, to: at, step: fact.step,
        input: fact.input, output: fact.output, bad: fact.error });
    } else if (fact.type === 'tool_started') this.tool(row, at, done);
    else if (fact.type === 'tool_finished') this.tool(row, at - took, fact);
    else if (fact.type === 'approval_requested') {
      this.add(`q${fact.approval}`, { lane: 'person', key: row.key, label: `Question: ${fact.summary}`, from: at, live: true });
    } else if (fact.type === 'approval_resolved') {
      this.finish(`q${fact.approval}`, at, { note: `${fact.state}${fact.actor ? ` by ${fact.actor}` : ''}` });
    } else if (fact.type === 'subagent_started') {
      this.add(`s${fact.call_id}`, { lane: 'part', key: row.key, label: fact.task, depth: fact.depth, from: at, live: true });
    } else if (fact.type === 'subagent_ended') {
      this.finish(`s${fact.call_id}`, at, { note: `${fact.termination}, ${fact.turns} turns`, bad: fact.termination === 'ERROR' });
    } else if (fact.type === 'run_ended') this.end = at;
  }

  tool(row, from, done) {
    const to = done ? Math.min(from + done.took_ms, Math.max(from, ms(done.at))) : undefined;
    this.all.push({ lane: 'tool', key: row.key, label: toolCall(row.fact), note: done?.status ?? 'running', from, to, live: !done,
      bad: done && done.status !== 'success' });
  }

  /** What has not ended when the run has, ended with it. Between its other parts, a running run waits for the model. */
  close(running) {
    const to = this.end ?? this.until;
    if (running && this.end === undefined && !this.all.some(({ live }) => live)) {
      this.all.push({ lane: 'model', key: 'live', label: 'Model call', from: this.last, live: true });
    }
    for (const span of this.all) span.to ??= Math.max(span.from, to);
    // Most runs begin at once.
    const spans = this.all.filter((span) => span.lane !== 'waiting' || span.live || span.to > span.from).sort((a, b) => a.from - b.from);
    const length = spans.reduce((most, span) => Math.max(most, span.to - this.begin), Math.max(1, to - this.begin));
    return { spans, begin: this.begin, length };
  }
}

/**
 * `{ spans, begin, length }` of these rows of lib/facts.js: the spans in order of their start, `{ lane, key, label, note, from, to,
 * live, bad, … }`, and the time from the acceptance to the end.
 */
export function spansOf(rows, { until, running }) {
  const spans = new Spans(until);
  rows.forEach((row) => spans.take(row));
  return spans.close(running);
}

/** The time in which at least one of these spans was open, in ms; they are sorted by their start. */
export function covered(spans) {
  let [sum, end] = [0, -Infinity];
  for (const { from, to } of spans) {
    sum += Math.max(0, to - Math.max(from, end));
    end = Math.max(end, to);
  }
  return sum;
}

/** Spans so short that they cannot be told apart are drawn as one block: at most about `MOST` blocks in a row. */
const MOST = 400;
const DEPTH = 4;

/** The blocks of one lane, each with its `row`: spans at the same time stand below each other. */
export function blocks(spans, begin, length) {
  const least = length / MOST;
  const rows = [];
  for (const span of spans) {
    let row = rows.findIndex((blocks) => blocks.at(-1).to <= span.from);
    if (row < 0) row = rows.length < DEPTH ? rows.push([]) - 1 : DEPTH - 1;
    const last = rows[row].at(-1);
    const joins = last && span.from - last.to < least && span.to - span.from < least && last.to - last.from < least && last.live === span.live;
    if (joins || (last && span.from < last.to)) Object.assign(last, { to: Math.max(last.to, span.to), count: last.count + 1, bad: last.bad || span.bad });
    else rows[row].push({ ...span, count: 1 });
  }
  return rows.flatMap((blocks, row) => blocks.map((block) => ({ ...block, row, x: (block.from - begin) / length,
    width: (block.to - block.from) / length })));
}

/** The subagents as a tree: those of a depth belong to the newest open one of the depth above. */
export function tree(spans) {
  const roots = [];
  const path = [];
  for (const span of spans.filter(({ lane }) => lane === 'part')) {
    const node = { ...span, parts: [] };
    path.length = Math.min(path.length, Math.max(0, (span.depth ?? 1) - 1));
    (path.at(-1)?.parts ?? roots).push(node);
    path.push(node);
  }
  return roots;
}

/** The shares of the steps in the cost of the run, by their tokens and the price: `Map(key → micro-USD)`. */
export function costs(spans, cost, price) {
  const steps = spans.filter(({ lane, input }) => lane === 'model' && input !== undefined);
  const weight = ({ input, output }) => input * price.input + output * price.output;
  const all = steps.reduce((sum, step) => sum + weight(step), 0);
  return new Map(all > 0 ? steps.map((step) => [step.key, (cost * weight(step)) / all]) : []);
}
