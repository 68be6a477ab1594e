// The entries of a conversation: stored messages, replies to commands, ends without an answer, and answers in progress.

import { html, useMemo } from '../vendor/preact.js';
import { fileUrl, path } from './api.js';
import { visible } from './format.js';
import { useFollow } from './hooks.js';
import { Markdown } from './markdown.js';
import { Plan } from './plan.js';
import { Act, Code, Go, State, Text, Time, runLink } from './ui.js';
import { Answered, Reasoning, ToolRow, Work } from './work.js';

const WHO = { user: 'You', assistant: 'Belay', system: 'Notice' };
const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp']);

/** An entry never changes: it is rendered once. */
export const Entry = ({ entry }) => useMemo(() => KINDS[entry.kind](entry), 
  [entry.key, entry.message?.files?.[0]?.url, entry.run?.run_id]);

const KINDS = {
  message: ({ message, run, seen }) => html`<article class=${`message ${message.role}`}>
    <header><b>${WHO[message.role] ?? message.role}</b> <${Time} at=${message.at} />
      ${message.run_id && message.role === 'assistant' && html`<${Go} to=${runLink(message.run_id)}>run</${Go}>`}</header>
    ${run && html`<${Work} run=${run} seen=${seen} />`}
    <div class="body">${message.role === 'user' ? html`<${Text} value=${message.text} />`
      : html`<${Markdown} text=${message.text} />`}</div>
    ${message.files?.length > 0 && html`<${Files} files=${message.files} />`}</article>`,
  note: ({ note }) => html`<article class="message system">
    ${note.asked && html`<header><b>You</b> <${Code} value=${note.asked} /></header>`}
    <div class="body">${note.refused && html`<b>Refused. </b>`}<${Markdown} text=${note.reply} /></div></article>`,
  answer: ({ question }) => html`<${Answered} question=${question} />`,
  end: ({ end }) => html`<article class="message system"><header><${State} value=${end.status} /> <code>${end.reason}</code>
    <${Go} to=${runLink(end.run_id)}>run</${Go}></header><div class="body"><${Markdown} text=${end.reply} /></div></article>`,
};

/** Files that Belay has sent. Pictures are shown; an SVG file is not one of them. */
function Files({ files }) {
  return html`<ul class="files">${files.map((file) => {
    const url = fileUrl(file.url);
    return html`<li key=${file.id}>${url && PICTURES.has(file.media_type) && html`<img src=${url}
      alt=${visible(file.caption ?? file.name)} loading="lazy" />`}
      ${url ? html`<a href=${url} download><${Text} value=${file.name} /></a>` : html`<${Text}
        value=${file.name} />`} ${file.caption && html`<${Text} value=${file.caption} />`}</li>`;
  })}</ul>`;
}

/** An answer while it is written: the steps so far, and the text of the newest one. */
export function Live({ run, command }) {
  const texts = [...run.texts.entries()].sort(([a], [b]) => a - b).map(([, text]) => text);
  const now = run.final ?? texts.at(-1) ?? '';
  const before = run.final === undefined ? texts.slice(0, -1) : [];
  return html`<article class="message assistant" aria-busy="true">
    <header><b>Belay</b> <${State} value=${run.status} /> <${Go} to=${runLink(run.id)}>run</${Go}></header>
    ${before.map((text) => html`<div class="body soft"><${Markdown} text=${text} /></div>`)}
    ${run.plan && html`<${Plan} plan=${run.plan} command=${command} />`}
    <${Reasoning} texts=${run.reasoning} />
    ${run.tools.size > 0 && html`<ul class="steps">${[...run.tools.values()].map((tool) => html`<${ToolRow} key=${tool.id} tool=${tool} />`)}</ul>`}
    <div class="body" aria-live="off"><${Markdown} text=${now} /></div></article>`;
}

/** Reads the facts of a run that began before this page. */
export function Earlier({ id, fact }) {
  useFollow(path`runs/${id}/events`, ({ type, data }) => type !== 'delta' && data?.seq !== undefined && fact(data),
    { isEnd: (event) => !event || event.type === 'run_ended' });
  return null;
}

/** What was sent from this page and is not stored as a message yet. */
export function Pending({ item, again, drop }) {
  if (item.secret && item.state !== 'failed') return null;
  return html`<article class="message user"><header><b>You</b> ${item.state === 'sending' ? 'sending …' : item.state === 'sent'
    ? 'waits for its turn' : ''}</header>
    <div class="body">${item.secret ? 'A secret' : html`<${Text} value=${item.text} />`}</div>
    ${item.files?.length > 0 && html`<ul class="chips">${item.files.map((file) => html`<li key=${file.key}><${Text}
      value=${file.name} /></li>`)}</ul>`}
    ${item.frozen && html`<p class="notice" role="status"><${Text} value=${item.frozen} /></p>`}
    ${item.state === 'failed' && html`<p class="failure" role="alert"><span>It was not sent: ${visible(item.error.message)}</span>
      <${Act} action=${again}>Send again</${Act}><button class="link" onClick=${drop}>Remove</button></p>`}</article>`;
}
