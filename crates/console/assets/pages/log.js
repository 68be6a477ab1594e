// The log: the events of all runs and sessions as they happen, the newest at the end.

import { html, useEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { Rows, fields } from '../lib/facts.js';
import { exact } from '../lib/format.js';
import { useFollow } from '../lib/hooks.js';
import { Evidence } from '../lib/judge.js';
import { Choice } from '../lib/list.js';
import { Timeline } from '../lib/timeline.js';
import { Empty, Fold, Go, Page, Text, chatLink, runLink } from '../lib/ui.js';
import { Link } from './now.js';

/** Events before the page was opened that it shows, and the newest ones that it keeps. */
const BEFORE = 300;
const KEPT = 2000;
const EVERY_MS = 250;
const CLOCK = new Intl.DateTimeFormat('en-GB', { timeStyle: 'medium' });

const KINDS = [['', 'all'], ['runs', 'runs'], ['models', 'model calls'], ['tools', 'tool calls'], ['questions', 'questions'],
  ['work', 'jobs, routines and plans'], ['trouble', 'what went wrong']];
const PREFIX = { runs: ['run_', 'thread_', 'message_', 'delivered', 'notice'], models: ['model_', 'compact'], tools: ['tool_', 'process_', 'hook', 'file_'],
  questions: ['approval_', 'grant_'], work: ['job_', 'routine_', 'plan_', 'goal_', 'subagent_', 'heartbeat_'] };
const BAD = new Set(['error', 'failed', 'blocked', 'outcome_unknown', 'refused', 'crashed', 'missed', 'stuck']);
const isBad = (fact) => ['tool_failing', 'guardrail_triggered', 'model_fallback', 'server_needs_login', 'compaction_abandoned'].includes(fact.type)
  || Boolean(fact.error) || [fact.status, fact.outcome, fact.how, fact.to].some((word) => BAD.has(word));
const fits = (fact, kind) => !kind || (kind === 'trouble' ? isBad(fact) : PREFIX[kind].some((start) => fact.type.startsWith(start)));

/** A key with an id is long: its kind, and the end of the id, since its beginning is a time. */
const briefly = (session) => session.replace(/[0-9a-f-]{28}([0-9a-f]{8})$/, '…$1');

/** Rows with the time of the day. Each event is a row, since the calls of many runs stand between each other. */
class Log extends Rows {
  constructor() {
    super(0);
    this.calls = new Map();
  }

  time(at) {
    return CLOCK.format(new Date(at));
  }

  take(fact) {
    this.calls.clear();
    this.add(fact);
    if (this.rows.length > KEPT + KEPT / 10) this.rows = this.rows.slice(-KEPT);
  }
}

export default function Logs() {
  const log = useMemo(() => new Log(), []);
  const [since, begin] = useState();
  const [, render] = useState(0);
  const [kind, choose] = useState('');
  const [words, find] = useState('');
  const [held, hold] = useState();
  const timer = useRef();
  useEffect(() => () => clearTimeout(timer.current), []);
  // The first answer names the newest event; then the events before it are read too.
  const first = useFollow(since === undefined ? 'events' : '', ({ type, data }) => type === 'begin' && begin(Math.max(0, data.after - BEFORE)),
    { enabled: since === undefined, isEnd: (event) => event?.type === 'begin' });
  const link = useFollow(since === undefined ? '' : 'events', ({ data }) => {
    if (data?.seq === undefined) return;
    log.take(data);
    timer.current ??= setTimeout(() => { timer.current = undefined; render((n) => n + 1); }, EVERY_MS);
  }, { since, query: { every_ms: EVERY_MS }, enabled: since !== undefined });
  const all = held ?? log.rows;
  const wanted = words.trim().toLowerCase();
  const rows = all.filter(({ fact, kind: name, text }) => fits(fact, kind)
    && (!wanted || `${name} ${fact.type} ${fact.session ?? ''} ${fact.run_id ?? ''} ${text}`.toLowerCase().includes(wanted)))
    .map((row) => ({ ...row, title: exact(row.fact.at), text: [row.fact.session && briefly(row.fact.session), row.text].filter(Boolean).join(': ') }));
  return html`<${Page} title="Log" aside=${html`<${Link} state=${since === undefined ? first : link} />
      <button aria-pressed=${Boolean(held)} onClick=${() => hold(held ? undefined : [...log.rows])}>${held ? 'Go on' : 'Hold'}</button>`}>
    <${Fold} set=${(kind ? 1 : 0) + (wanted ? 1 : 0)}><form class="filters row" role="search" onSubmit=${(event) => event.preventDefault()}>
      <${Choice} label="Kind" value=${kind} options=${KINDS} set=${choose} />
      <label>Filter <input type="search" value=${words} placeholder="session, tool, text" onInput=${(event) => find(event.currentTarget.value)} /></label></form></${Fold}>
    <p class="hint">The events of all runs and sessions, the newest at the end. <code>belay logs --follow</code> shows the same in a terminal.</p>
    ${rows.length ? html`<${Timeline} rows=${rows} label="Events" tail=${!held} detail=${(row) => html`<${Detail} fact=${row.fact} />`} />`
      : html`<${Empty}>${all.length ? 'No event fits.' : 'No event yet.'}</${Empty}>`}
  </${Page}>`;
}

const Detail = ({ fact }) => html`<p>${exact(fact.at)}${fact.run_id && html`, <${Go} to=${runLink(fact.run_id)}>run</${Go}>`}${fact.session
  && html`, <${Go} to=${chatLink(fact.session)}><${Text} value=${fact.session} /></${Go}>`}</p><${Evidence} of=${fields(fact)} />`;
