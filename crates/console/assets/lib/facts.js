// The rows of a run's timeline, made of its events and its recording.

import { duration, goalText, number } from './format.js';

/** Characters after which events cut arguments and results. */
const CUT = 1000;
const HEAD = new Set(['seq', 'at', 'session', 'run_id', 'type']);

const QUESTIONS = { closing: 'Closing turn', judge: 'Judge of the stop rules', goal: 'Judge of the goal', completion: 'Check of the answer',
  summary: 'Summary', notes: 'Notes', title: 'Title' };
/** The name of a model call: its step, or the question beside the work that it answers. */
export const modelCall = ({ step, purpose }) => (purpose ? QUESTIONS[purpose] ?? purpose : `Step ${step}`);

/** The name of a tool call. The run itself makes the call that checks its goal: its id begins with the end of the run's. */
export function toolCall({ name, call_id: id, run_id: run }) {
  return run && id?.startsWith(`goal-${run.split('-').at(-1)}-`) ? `Check: ${name}` : name;
}

const TEXT = {
  run_accepted: () => 'The message is on disk.',
  run_started: (fact) => (fact.attempt > 1 ? `Attempt ${fact.attempt}: resumed from the last checkpoint.`
    : 'The work begins, or resumes.'),
  model_called: (fact) => `${modelCall(fact)}: ${number(fact.input)} tokens read, ${number(fact.output)} written`
    + `${fact.attempts > 1 ? `, ${fact.attempts} requests` : ''}`,
  model_fallback: (fact) => `${fact.to} takes over from ${fact.from}: ${fact.reason}`,
  guardrail_triggered: (fact) => `${fact.guardrail}: ${fact.count}${fact.force_text ? '; no tools are offered any more' : ''}`,
  compaction_started: (fact) => `${number(fact.tokens)} tokens; reason: ${fact.reason}`,
  compacted: (fact) => `${fact.messages} messages: ${number(fact.before)} → ${number(fact.after)} tokens, by ${fact.source}`,
  compaction_abandoned: (fact) => `Nothing was removed: ${fact.reason}`,
  subagent_started: (fact) => fact.task,
  subagent_ended: (fact) => `${fact.termination}: ${fact.reason}, ${fact.turns} turns`,
  plan_created: (fact) => `${fact.title}: ${fact.steps?.length} steps`,
  plan_changed: (fact) => `${fact.change}${fact.index === undefined ? '' : ` step ${fact.index + 1}`} by ${fact.actor}; ${fact.steps?.length} steps`,
  goal_checked: (fact) => goalText(fact),
  plan_step: (fact) => `Step ${fact.index + 1}: ${fact.status}${fact.note ? `, ${fact.note}` : ''}`,
  file_sent: (fact) => fact.file?.name,
  process_started: (fact) => `${fact.process}${fact.kept ? ', kept by the conversation' : ''}: ${fact.command}`,
  process_ended: (fact) => `${fact.process}: ${fact.how}${fact.code === undefined ? '' : `, exit code ${fact.code}`}`,
  approval_requested: (fact) => fact.summary,
  approval_first_yes: (fact) => `The first of two, by ${fact.actor}`,
  approval_resolved: (fact) => `${fact.state}${fact.actor ? ` by ${fact.actor}` : ''}`,
  hook: (fact) => `${fact.name} at ${fact.point}: ${fact.outcome}`,
  run_ended: (fact) => `${fact.status}: ${fact.reason}`,
  message_emitted: () => 'A part of the answer was committed for delivery.',
  delivered: (fact) => fact.outcome,
};
const NAME = {
  model_called: 'Model call', guardrail_triggered: 'Guardrail', message_emitted: 'Checkpoint', compacted: 'Checkpoint: compacted',
  approval_requested: 'Question', approval_resolved: 'Answer', approval_first_yes: 'First approval', run_ended: 'End',
};
const named = (type) => NAME[type] ?? type.replaceAll('_', ' ').replace(/^./, (c) => c.toUpperCase());

/** Collects events into rows: a tool call is one row, from its start to its result. */
export class Rows {
  constructor(start) {
    Object.assign(this, { start, rows: [], calls: new Map(), seen: 0 });
  }

  /** Takes a fact; one that it has already is ignored. */
  add(fact) {
    if (fact.seq <= this.seen) return;
    this.seen = fact.seq;
    if (fact.type === 'tool_finished') {
      const row = this.calls.get(fact.call_id);
      if (row) return Object.assign(row, { done: fact, tone: fact.status, text: callText(row.fact, fact) });
    }
    const row = { key: fact.seq, fact, time: this.time(fact.at), kind: named(fact.type), text: text(fact) };
    if (fact.type === 'tool_started' || fact.type === 'tool_finished') {
      const done = fact.status && fact;
      Object.assign(row, { kind: toolCall(fact), tone: fact.status ?? 'running', nth: this.calls.size, text: callText(fact, done) });
      if (fact.type === 'tool_started') this.calls.set(fact.call_id, row);
    }
    if (fact.type === 'model_called' && (!fact.purpose || fact.purpose === 'closing')) row.step = fact.step;
    this.rows.push(row);
  }

  time(at) {
    return `+${duration(Date.parse(at) - Date.parse(this.start))}`;
  }
}

const text = (fact) => TEXT[fact.type]?.(fact) ?? fact.text ?? fact.detail ?? fact.name ?? '';
const callText = (start, done) => [start.arguments, done && `→ ${duration(done.took_ms)}: ${plain(done.result)}`]
  .filter(Boolean).join('  ');
/** The first line of a result, without the frame of untrusted content. */
const plain = (result) => (result ?? '').replace(/<\/?untrusted[^>]*>\n?/g, '').slice(0, 200).replaceAll('\n', ' ');

/** The other fields of a fact. */
export const fields = (fact) => Object.fromEntries(Object.entries(fact).filter(([name]) => !HEAD.has(name)));
export const isCut = (value) => (value?.length ?? 0) >= CUT;

/** The calls of a recording, `{ name, args, result }`, each with its result, and the texts of each model call. */
export function recorded(lines) {
  const [calls, open, turns] = [[], new Map(), []];
  for (const line of lines) {
    if (line.turn) turns.push([]);
    else if (line.assistant !== undefined || line.text !== undefined) turns.at(-1)?.push(line.assistant ?? line.text);
    else if (line.tool) {
      const call = { name: line.tool.name, args: line.tool.args };
      calls.push(call);
      if (!open.has(call.name)) open.set(call.name, []);
      open.get(call.name).push(call);
    } else if (line.tool_result) {
      const call = open.get(line.tool_result.name)?.shift();
      if (call) call.result = line.tool_result.text;
    }
  }
  return { calls, turns };
}

/**
 * The recorded call of a row. A recording has no cleared parts, so that positions may differ: the beginning of the result
 * has to be the one of the event.
 */
export function recordedCall(row, calls) {
  const start = (row.done?.result ?? row.fact.result ?? '').replace(/…$/, '').slice(0, CUT - 50);
  const same = (call) => call?.name === row.fact.name && (call.result ?? '').startsWith(start);
  return same(calls[row.nth]) ? calls[row.nth] : calls.find((call) => start && same(call));
}

/**
 * The lines of a recording as rows of a timeline. The line after a `reset` is the message that begins a request. A later
 * one has the role `user` too: it is a message of a person during the run, or a note of Belay, and the recording does not
 * say which.
 */
export function recordingRows(lines) {
  const rows = [];
  let step = 0;
  let before;
  lines.forEach((line, key) => {
    const [kind, value] = Object.entries(line)[0] ?? [];
    const begins = before === undefined || before === 'reset';
    if (kind !== 'label') before = kind;
    if (kind === 'turn') step += 1;
    if (['turn', 'reset', 'usage', 'clock_ms', 'label'].includes(kind)) return;
    const texts = { tool: (v) => `${v.name} ${JSON.stringify(v.args)}`, tool_result: (v) => `${v.name}: ${v.text ?? ''}` };
    const name = { tool: 'Call', tool_result: 'Result', user: begins ? 'User' : 'Added for the model', assistant: 'Assistant',
      text: 'Assistant (part)' }[kind] ?? named(kind);
    const whole = texts[kind]?.(value) ?? (typeof value === 'string' ? value : JSON.stringify(value));
    rows.push({ key, time: `step ${step}`, title: `event ${key} of the recording`, kind: name,
      text: whole.slice(0, 300).replaceAll('\n', ' '), whole, line });
  });
  return rows;
}
