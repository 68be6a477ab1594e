// Questions: the calls that wait for a person's approval, and who has answered which question before.

import { html, useState } from '../vendor/preact.js';
import { get, path, post } from '../lib/api.js';
import { exact, seconds, visible } from '../lib/format.js';
import { useAction, useLoad, useNow } from '../lib/hooks.js';
import { Choice, Connection, Json, ListTable, More, Tabs, useList, useLive } from '../lib/list.js';
import { Markdown } from '../lib/markdown.js';
import { Form } from '../lib/question.js';
import { stateOf } from '../lib/work.js';
import { Act, Code, Empty, Facts, Failure, Go, Loaded, Page, State, Text, Time, chatLink, runLink } from '../lib/ui.js';

const EVENTS = ['approval_requested', 'approval_first_yes', 'approval_resolved', 'run_ended'];
const STATES = [['', 'All'], ['approved', 'Approved'], ['used', 'Approved and used'], ['denied', 'Denied'],
  ['expired', 'Expired'], ['withdrawn', 'Withdrawn']];
const TABS = [['questions', 'Waiting'], ['questions/history', 'History']];

export default function Questions({ parts, role }) {
  if (parts[0] === 'history') return html`<${History} />`;
  return parts[0] ? html`<${One} id=${parts[0]} role=${role} />` : html`<${Waiting} role=${role} />`;
}

const oneLink = (id) => `questions/${encodeURIComponent(id)}`;
const Talk = ({ session }) => html`<${Go} to=${chatLink(session)}><${Text} value=${session} /></${Go}>`;

function Waiting({ role }) {
  const list = useList('approvals', 'approvals', {}, { page: 20 });
  const live = useLive(EVENTS, list.reload);
  const n = list.rows.length;
  return html`<${Page} title="Questions" aside=${html`<${Connection} state=${live} />`}>
    <${Tabs} at="questions" label="Questions" tabs=${TABS} />
    <${Failure} error=${list.error} retry=${list.reload} />
    <p role="status" class="hint">${n > 0
      && `${n}${list.more ? ' or more' : ''} ${n === 1 ? 'question waits' : 'questions wait'} for an answer.`}</p>
    ${list.loading && !n && html`<p class="loading">Loading …</p>`}
    ${!list.loading && !list.error && !n
      && html`<${Empty}>No question waits for an answer. A tool call that needs an approval appears here.</${Empty}>`}
    ${list.rows.map((row) => html`<${Card} key=${row.id} question=${row} role=${role} answered=${list.reload} />`)}
    <${More} list=${list} />
  </${Page}>`;
}

function Card({ question, role, answered }) {
  return html`<article class="card question" aria-label=${`Question about ${visible(question.tool)}`}>
    <p class="row"><strong><${Code} value=${question.tool} /></strong> <${Left} until=${question.expires_at} />
      <span>in <${Talk} session=${question.asked_in} /></span> <${Go} to=${oneLink(question.id)}>Details</${Go}></p>
    <${Shown} question=${question} />
    <${Answer} question=${question} role=${role} answered=${answered} />
  </article>`;
}

/** The text that people were shown, as the daemon renders it. */
function Shown({ question }) {
  const load = useLoad((signal) => get(path`approvals/${question.id}`, {}, signal), [question.id, question.second?.given]);
  return html`<${Failure} error=${load.error} retry=${load.reload} />
    ${load.value ? html`<${Markdown} text=${load.value.question} />` : html`<${Text} of="p" value=${question.summary} />`}`;
}

/** The time until a question expires. */
function Left({ until }) {
  const left = (Date.parse(until) - useNow(1000)) / 1000;
  if (Number.isNaN(left)) return null;
  const text = left <= 0 ? 'expires now' : `expires in ${seconds(Math.floor(left))}`;
  return html`<span class="state ${left < 60 ? 'bad' : 'wait'}" title=${exact(until)}>${text}</span>`;
}

function Answer({ question, role, answered }) {
  const answer = (decision) => () => post(path`approvals/${question.id}`, { decision });
  const [fill, filling] = useAction(async (decision, values) => {
    await post(path`approvals/${question.id}`, { decision, values });
    answered();
  });
  const { covers, second, asker } = question;
  if (role !== 'operator' && asker.authority === 'operator') {
    return html`<p class="hint">Only an operator may answer this question.</p>`;
  }
  if (question.kind === 'credential') {
    return html`<p class="hint">This asks for the secret <${Code} value=${question.name} />. The next message in its conversation
      is the secret: <${Go} to=${chatLink(question.asked_in)}>open the conversation</${Go}>.</p>
      <p class="row"><${Act} kind="danger" action=${answer('deny')} done=${answered}>Deny</${Act}></p>`;
  }
  if (question.kind === 'form' && question.fields.length) {
    return html`<${Form} fields=${question.fields} busy=${filling.busy} give=${(values) => fill('approve', values)} deny=${() => fill('deny')} />
      <${Failure} error=${filling.error} />`;
  }
  return html`
    ${second && html`<p class="hint">Two persons must approve. ${second.given} of ${second.needed} approvals are given${
      second.first_by ? html`, the first by <${Text} value=${second.first_by} />` : ''}.</p>`}
    ${covers && html`<p class="hint">“Always” covers: <${Text} value=${covers} /></p>`}
    <p class="row">
      <${Act} kind="primary" action=${answer('approve')} done=${answered}>Approve</${Act}>
      ${covers && html`<${Act} action=${answer('always')} done=${answered} confirm=${`Always allow this: ${covers}?`}
        title="Approve, and do not ask about such calls again">Always</${Act}>`}
      <${Act} kind="danger" action=${answer('deny')} done=${answered}>Deny</${Act}>
    </p>`;
}

function History() {
  const [state, filter] = useState('');
  const list = useList('approvals', 'approvals', state ? { state } : { all: true });
  const live = useLive(EVENTS, list.reload);
  return html`<${Page} title="Questions" aside=${html`<${Connection} state=${live} />`}>
    <${Tabs} at="questions/history" label="Questions" tabs=${TABS} />
    <form class="filters row"><${Choice} label="State" value=${state} options=${STATES} set=${filter} /></form>
    <${ListTable} list=${list} keyOf=${(row) => row.id} empty="There is no such question." columns=${[
      ['Asked', (row) => html`<${Time} at=${row.asked_at} />`],
      ['State', (row) => html`<${State} value=${stateOf(row)} />`],
      ['Call', (row) => html`<span><${Go} to=${oneLink(row.id)}><${Code} value=${row.tool} /></${Go}>${' '}
        <${Text} value=${row.summary} /></span>`],
      ['Asked for', (row) => html`<${Text} value=${row.asker.principal} />`],
      ['Conversation', (row) => html`<${Talk} session=${row.asked_in} />`],
      ['Answered by', (row) => (row.decided_by ? html`<${Text} value=${row.decided_by} />` : '–')],
      ['Answered', (row) => html`<${Time} at=${row.decided_at} />`],
    ]} />
  </${Page}>`;
}

function One({ id, role }) {
  const load = useLoad((signal) => get(path`approvals/${id}`, {}, signal), [id]);
  const live = useLive(EVENTS, load.reload);
  return html`<${Page} title="Question" aside=${html`<${Connection} state=${live} />`}>
    <${Tabs} label="Questions" tabs=${TABS} />
    <${Loaded} load=${load}>${(question) => html`
      <p class="row"><${State} value=${stateOf(question)} />
        ${question.state === 'waiting' && html`<${Left} until=${question.expires_at} />`}</p>
      <h2>What was shown</h2>
      <div class="card"><${Markdown} text=${question.question} /></div>
      ${question.state === 'waiting' && html`
        <${Answer} question=${question} role=${role} answered=${load.reload} />`}
      <${Facts} of=${facts(question)} />
      ${question.bound?.length > 0 && html`<h2>The answer holds for</h2>
        <${Facts} of=${question.bound.map(([name, value]) => [name, html`<${Text} value=${value} />`])} />`}
      <h2>Arguments</h2>
      <${Json} value=${question.arguments} />`}</${Loaded}>
  </${Page}>`;
}

const facts = (question) => [
  ['Tool', html`<${Code} value=${question.tool} />`],
  ['Asked', html`<${Time} at=${question.asked_at} /> (${exact(question.asked_at)})`],
  ['Asked for', html`<${Text} value=${question.asker.principal} />`],
  ['Work', question.work && html`<${Text} value=${question.work} />`],
  ['Conversation', html`<${Talk} session=${question.asked_in} />`],
  ['Run', html`<${Go} to=${runLink(question.run_id)}><${Code} value=${question.run_id} /></${Go}>`],
  ['Expires', question.state === 'waiting' && exact(question.expires_at)],
  ['First approval', question.second?.first_by
    && html`<${Text} value=${question.second.first_by} />, <${Time} at=${question.second.first_at} />`],
  ['Answered by', question.decided_by && html`<${Text} value=${question.decided_by} />`],
  ['Answered', question.decided_at && html`<${Time} at=${question.decided_at} /> (${exact(question.decided_at)})`],
];
