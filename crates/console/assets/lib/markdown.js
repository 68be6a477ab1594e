// Markdown as Preact nodes. The text comes from models, tools and persons: HTML in it is shown as text, a picture is a
// link, and only links of the web and of mail can be followed. Nothing is ever set as HTML.

import { html, useMemo } from '../vendor/preact.js';
import { Lexer } from '../vendor/marked.js';
import { visible } from './format.js';

/** Longer texts are shown as they are. */
const LONGEST = 200_000;

export function Markdown({ text }) {
  const tokens = useMemo(() => parsed(text ?? ''), [text]);
  return tokens ? html`<div class="markdown" dir="auto">${blocks(tokens, 0)}</div>` : html`<pre
    dir="auto">${visible(text)}</pre>`;
}

function parsed(text) {
  if (text.length > LONGEST) return undefined;
  try { return new Lexer({ gfm: true, breaks: true }).lex(text); } catch { return undefined; }
}

const HEADINGS = ['h3', 'h3', 'h4', 'h4', 'h4', 'h4'];
const ALIGN = { center: 'center', right: 'end' };
/** Levels of nesting; deeper parts are shown as text. */
const DEEPEST = 40;
const blocks = (tokens, depth) => (tokens ?? []).map((token, i) => (depth > DEEPEST ? visible(token.raw)
  : block(token, i, depth + 1)));

function block(token, key, depth) {
  const inside = () => blocks(token.tokens, depth);
  switch (token.type) {
    case 'space': return null;
    case 'def': return html`<p key=${key}>${visible(token.raw)}</p>`;
    case 'heading': return html`<${HEADINGS[token.depth - 1]} key=${key}>${inside()}</${HEADINGS[token.depth - 1]}>`;
    case 'paragraph': return html`<p key=${key}>${inside()}</p>`;
    case 'code': return html`<pre key=${key}><code>${visible(token.text)}</code></pre>`;
    case 'blockquote': return html`<blockquote key=${key}>${inside()}</blockquote>`;
    case 'hr': return html`<hr key=${key} />`;
    case 'list': {
      const items = token.items.map((item, i) => html`<li key=${i}>${blocks(item.tokens, depth)}</li>`);
      return token.ordered ? html`<ol key=${key} start=${token.start || 1}>${items}</ol>` : html`<ul key=${key}>${items}</ul>`;
    }
    case 'checkbox': return html`<span key=${key} role="img" aria-label=${token.checked ? 'done' : 'open'}>${token.checked ? '☑'
      : '☐'} </span>`;
    case 'table': return html`<div key=${key} class="scroll-x"><table
      class="grid"><thead><tr>${token.header.map(cell('th', depth))}</tr></thead>
      <tbody>${token.rows.map((row, i) => html`<tr key=${i}>${row.map(cell('td', depth))}</tr>`)}</tbody></table></div>`;
    case 'strong': return html`<strong key=${key}>${inside()}</strong>`;
    case 'em': return html`<em key=${key}>${inside()}</em>`;
    case 'del': return html`<del key=${key}>${inside()}</del>`;
    case 'br': return html`<br key=${key} />`;
    case 'codespan': return html`<code key=${key}>${visible(token.text)}</code>`;
    case 'link': return link(token, token.text, inside(), key);
    case 'image': return link(token, token.text || token.href, `picture: ${visible(token.text || token.href)}`, key);
    case 'escape': return visible(token.text);
    case 'text': return token.tokens ? html`<span key=${key}>${inside()}</span>` : visible(token.text);
    default: return visible(token.raw);
  }
}

const cell = (tag, depth) => (part, i) => html`<${tag} key=${i} style=${ALIGN[part.align]
  && { textAlign: ALIGN[part.align] }}>${blocks(part.tokens, depth)}</${tag}>`;

/** Whether the first address in a text is this one: `https://good.example/?evil.example` does not show `evil.example`. */
const shows = (text, where) => (text ?? '').toLowerCase().split(/[^\p{L}\p{N}\p{M}.@:-]+/u)
  .map((word) => word.replace(/^[.:-]+|[.:-]+$/g, '')).find((word) => word === where || /[.@:]/.test(word)) === where;

/** A link with its host, if the text does not show it. Other schemes stay text. */
function link({ href, raw }, text, inside, key) {
  let url;
  try { url = new URL(href); } catch { return visible(raw); }
  if (!['http:', 'https:', 'mailto:'].includes(url.protocol)) return visible(raw);
  const where = url.host || url.pathname;
  return html`<a key=${key} href=${url.href} title=${visible(url.href)} target="_blank"
    rel="noopener noreferrer nofollow">${inside}${shows(text, where) ? '' : ` (${visible(where)})`}</a>`;
}
