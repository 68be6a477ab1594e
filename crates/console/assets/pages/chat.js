// Chat: the conversations, and one of them with its answers as they are written, its questions and its files.

import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from '../vendor/preact.js';
import { path, post, put } from '../lib/api.js';
import { Composer } from '../lib/composer.js';
import { visible } from '../lib/format.js';
import { useFollow } from '../lib/hooks.js';
import { More, useList } from '../lib/list.js';
import { Question } from '../lib/question.js';
import { Earlier, Entry, Live, Pending } from '../lib/message.js';
import { newSession, Talk, unique } from '../lib/talk.js';
import { Act, Empty, Failure, Go, Page, Text, Time, chatLink } from '../lib/ui.js';
import { Actions, Meter } from '../lib/conversation.js';
import { Link, STOP_WAIT_MS } from './now.js';

const SESSIONS = 100;
const SHOWN = 100;

export default function Chat({ parts, role }) {
  const fresh = useMemo(newSession, [parts[0]]);
  const session = parts[0] ?? fresh;
  const [hidden, setHidden] = useState(false);
  const sessions = useList('sessions', 'sessions', hidden ? { hidden } : {}, { page: SESSIONS, every: 15000 });
  const begin = () => { location.hash = `/${chatLink(newSession())}`; };
  return html`<${Page} title="Chat" aside=${html`<button onClick=${begin}>New conversation</button>`}>
    <div class=${parts[0] ? 'chat' : 'chat list'}>
      <${Sessions} list=${sessions} current=${session} role=${role} hidden=${hidden} setHidden=${setHidden} />
      <${Conversation} key=${session} session=${session} ended=${sessions.reload} role=${role} />
    </div></${Page}>`;
}

function Sessions({ list, current, role, hidden, setHidden }) {
  const [find, setFind] = useState('');
  const all = list.rows;
  const words = find.trim().toLowerCase();
  const found = words ? all.filter((one) => `${one.title ?? ''} ${one.session}`.toLowerCase().includes(words)) : all;
  const open = (event) => {
    event.preventDefault();
    if (words) location.hash = `/${chatLink(found[0]?.session ?? find.trim())}`;
  };
  return html`<div class="sessions">
    <form onSubmit=${open} role="search"><label class="hidden" for="find">Find a conversation</label>
      <input id="find" type="search" placeholder="Find, or open by name" value=${find}
        onInput=${(event) => setFind(event.target.value)} />
      <label class="check small"><input type="checkbox" checked=${hidden} onChange=${(event) => setHidden(event.currentTarget.checked)} /> Hidden</label></form>
    <${Failure} error=${list.error} retry=${list.reload} />
    <ul>${found.map((one) => html`<li key=${one.session}>
      <${Go} to=${chatLink(one.session)} title=${visible(one.session)}
        aria-current=${one.session === current ? 'page' : undefined}>
        <${Text} value=${one.title ?? one.session} />
        <span class="soft small"><${Time} at=${one.last_active_at} />${one.open_runs ? html` · <span
          class="state live">${one.open_runs} open</span>` : ''}</span></${Go}>
      ${role === 'operator' && html`<${Act} kind="link"
        action=${() => put(path`sessions/${one.session}`, { hidden: !hidden })} done=${list.reload}>${hidden ? 'Show again' : 'Hide'}</${Act}>`}</li>`)}</ul>
    ${list.value && !found.length && html`<${Empty}>${words ? 'Press Enter to open it by its name.'
      : hidden ? 'No conversation is hidden.' : 'No conversation yet. Write the first message.'}</${Empty}>`}
    ${!words && html`<${More} list=${list} />`}
  </div>`;
}

function Conversation({ session, ended, role }) {
  const [round, changed] = useState(0);
  const talk = useMemo(() => new Talk(session, () => changed((n) => n + 1)), [session]);
  const link = useFollow(path`sessions/${session}/stream`, (event) => talk.event(event));
  useEffect(() => () => talk.close(), [talk]);
  // Whatever happened before the stream was connected is in the lists.
  useEffect(() => { if (link === 'live' || !talk.loaded) talk.refresh(); }, [talk, link]);
  useEffect(() => { if (talk.loaded) ended(); }, [talk.messages.length]);
  const [shown, setShown] = useState(SHOWN);
  const earlier = () => {
    setShown(shown + SHOWN);
    if (entries.length < shown + SHOWN && talk.cut) talk.earlier();
  };
  const entries = useMemo(() => talk.entries(), [talk.messages, talk.ends, talk.answered, talk.notes.length]);
  const live = [...talk.live.values()].filter((run) => run.status !== 'paused' || run.tools.size || run.texts.size || run.plan);
  const late = [...talk.live.values()].filter((run) => run.late);
  const own = new Set(talk.pending.map((item) => item.run_id));
  const waiting = [...talk.live.values()].filter((run) => run.status === 'queued' && !own.has(run.id));
  const busy = talk.live.size > 0;
  const say = (text) => talk.send({ key: unique(), text });
  return html`<section class="talk" aria-label="Conversation">
    <header class="row"><${Go} to="chat" class="back">All conversations</${Go}> <b class="title"><${Text}
      value=${session} /></b> <${Link} state=${link} />
      <${Meter} session=${session} known=${talk.loaded && entries.length > 0} round=${talk.messages.length} />
      <${Go} to=${`runs?session=${encodeURIComponent(session)}`}>Runs</${Go}>
      ${talk.loaded && entries.length > 0 && html`<${Actions} session=${session} busy=${busy} say=${say} role=${role} renamed=${ended} />`}</header>
    <${Messages} deps=${[round]}>
      ${talk.loaded && !entries.length && !busy && !talk.pending.length
        && html`<${Empty}>Nothing was said yet. Ask for something, or write <code>/help</code>.</${Empty}>`}
      ${!talk.loaded && !talk.error && html`<p class="loading" role="status">Loading …</p>`}
      ${(entries.length > shown || talk.cut) && html`<p class="more"><button
        onClick=${earlier}>Show earlier messages</button></p>`}
      ${entries.slice(-shown).map((entry) => html`<${Entry} key=${entry.key} entry=${entry} />`)}
      ${live.filter((run) => run.status !== 'queued').map((run) => html`<${Live} key=${run.id} run=${run}
        command=${(words) => say(`/plan ${words}`)} />`)}
      ${late.map((run) => html`<${Earlier} key=${`earlier ${run.id}`} id=${run.id} fact=${(fact) => talk.fact(run, fact)} />`)}
      ${talk.questions.map((question) => html`<${Question} key=${question.id} question=${question} done=${() => talk.refresh()}
        send=${(text) => talk.send({ key: unique(), text, secret: true })} />`)}
      ${talk.pending.map((item) => html`<${Pending} key=${item.key} item=${item} again=${() => talk.send(item)}
        drop=${() => talk.drop(item)} />`)}
      ${waiting.length > 0 && html`<p class="hint" role="status">${waiting.length === 1 ? '1 message waits'
        : `${waiting.length} messages wait`} for its turn.</p>`}
    </${Messages}>
    <${Failure} error=${talk.error} retry=${() => talk.refresh(true)} />
    <${Composer} session=${session} busy=${busy} send=${(item) => talk.send(item)}>
      ${busy && html`<${Act} kind="danger" title="Stop the running turn and the queue" done=${() => talk.refresh()}
        action=${() => post(path`sessions/${session}/stop`, {}, { wait_ms: STOP_WAIT_MS })}>Stop</${Act}>`}
    </${Composer}>
  </section>`;
}

/** The list stays at its end, until the reader scrolls up. */
function Messages({ deps, children }) {
  const box = useRef();
  const atEnd = useRef(true);
  const last = useRef(0);
  // Only a move towards the beginning leaves the end: a list also grows while it is moved to its end.
  const look = () => {
    const { scrollTop, clientHeight, scrollHeight } = box.current;
    if (scrollTop + clientHeight > scrollHeight - 60) atEnd.current = true;
    else if (scrollTop < last.current) atEnd.current = false;
    last.current = scrollTop;
  };
  const inner = useRef();
  const toEnd = () => { if (atEnd.current) box.current.scrollTop = box.current.scrollHeight; };
  useLayoutEffect(toEnd, deps);
  // A question and a picture load later, and the field below the list grows with its text.
  useEffect(() => {
    const sizes = new ResizeObserver(toEnd);
    sizes.observe(box.current);
    sizes.observe(inner.current);
    return () => sizes.disconnect();
  }, []);
  return html`<div class="messages" ref=${box} onScroll=${look} role="log" aria-label="Messages" tabindex="0">
    <div ref=${inner}>${children}</div></div>`;
}
