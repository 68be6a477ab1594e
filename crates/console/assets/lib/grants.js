// Grants: the calls that a job or a routine may make without a question.

import { html } from '../vendor/preact.js';
import { path, post } from './api.js';
import { Act, Code, Dialog, Text } from './ui.js';

/** The patterns of a grant, as a sentence. */
const condition = (patterns) => {
  const all = Object.entries(patterns ?? {});
  if (!all.length) return 'with any arguments';
  const one = ([name, pattern]) => `${name} matches “${typeof pattern === 'string' ? pattern : JSON.stringify(pattern)}”`;
  return `if ${all.map(one).join(' and ')}`;
};

export const Grant = ({ grant }) => html`<span><${Code} value=${grant.tool} />${' '}
  <${Text} value=${condition(grant.arguments)} /></span>`;

/** The grants of a job (`jobs/ID`) or a routine (`routines/NAME`), and a button that revokes each. */
export function Grants({ grants, kind, id, done, fixed }) {
  if (!grants?.length) return null;
  return html`<h2>Grants</h2>
    <p class="hint">These calls need no approval. A revoked grant stays in the list; the next such call asks.</p>
    <ol class="grants">${grants.map((grant, i) => html`<li key=${i}>
      <${Grant} grant=${grant} /> ${grant.revoked ? html`<span class="state muted">revoked</span>`
        : !fixed && html`<${Act} kind="danger" confirm=${`Revoke the grant of ${grant.tool}?`} done=${done}
            action=${() => post(`${kind}/${path`${id}/revoke`}`, { grant: i + 1 })}>Revoke</${Act}>`}</li>`)}
    </ol>`;
}

/**
 * One grant on each line: `TOOL`, `TOOL: PATTERN` (of `argv`) or `TOOL: ARGUMENT=PATTERN`, as on the command line. Throws
 * an error with the number of the line.
 */
export function parseGrants(text) {
  const name = /^[\w-]+$/;
  return text.split('\n').map((line, i) => [line.trim(), i + 1]).filter(([line]) => line).map(([line, number]) => {
    const [, tool, rest] = /^([^:]*?)\s*(?::\s*(.*))?$/.exec(line);
    if (!name.test(tool)) throw new Error(`Line ${number} of the grants does not begin with the name of a tool.`);
    if (!rest) return { tool };
    const at = rest.indexOf('=');
    const named = at > 0 && name.test(rest.slice(0, at));
    return { tool, arguments: named ? { [rest.slice(0, at)]: rest.slice(at + 1) } : { argv: rest } };
  });
}

/** Grants as the lines that `parseGrants` reads; `undefined` if one has no such form. */
export function writeGrants(grants) {
  const all = (grants ?? []).filter((grant) => !grant.revoked).map(({ tool, arguments: of }) => {
    const patterns = Object.entries(of ?? {});
    if (!patterns.length) return tool;
    if (patterns.length > 1 || typeof patterns[0][1] !== 'string') return undefined;
    return patterns[0][0] === 'argv' ? `${tool}: ${patterns[0][1]}` : `${tool}: ${patterns[0][0]}=${patterns[0][1]}`;
  });
  return all.includes(undefined) ? undefined : all.join('\n');
}

/** The field of a form. */
export const GrantsField = ({ value, set }) => html`<label>Calls that need no approval
  <textarea class="code" rows="3" value=${value} onInput=${(event) => set(event.currentTarget.value)} spellcheck="false"
    placeholder="run_command: cargo test"></textarea>
  <span class="hint">One on each line: <code>TOOL</code>, <code>TOOL: PATTERN</code> for argv,
    or <code>TOOL: ARGUMENT=PATTERN</code>. Empty: every call that needs an approval asks.</span></label>`;

/** Shows the grants before they are given. `give` runs after the confirmation. */
export const ConfirmGrants = ({ grants, give, close, busy }) => html`
  <${Dialog} title="Give these grants?" close=${close}>
    <p>It may make these calls without asking anybody:</p>
    <ul>${grants.map((grant) => html`<li><${Grant} grant=${grant} /></li>`)}</ul>
    <menu><button type="button" autofocus onClick=${close}>Back</button>
      <button type="button" class="primary" disabled=${busy} onClick=${give}>Give the grants</button></menu>
  </${Dialog}>`;
