// Access: the sign-ins of browsers. Each can be ended, also all at once.

import { html } from '../vendor/preact.js';
import { del, get, path } from '../lib/api.js';
import { exact } from '../lib/format.js';
import { useLoad } from '../lib/hooks.js';
import { Act, Facts, Loaded, Page, State, Table, Text, Time } from '../lib/ui.js';

const signedOut = () => window.dispatchEvent(new Event('belay:signed-out'));

export default function Access({ role }) {
  const load = useLoad((signal) => get('console/session', {}, signal), []);
  return html`<${Page} title="Access">
    <${Loaded} load=${load}>${(session) => (session.cookie ? html`<${SignIns} role=${role} />`
      : html`<${NoToken} role=${session.role} />`)}</${Loaded}>
  </${Page}>`;
}

const NoToken = ({ role }) => html`
  <p class="notice">No token is configured: every program of this machine that reaches the loopback address is ${role}.</p>
  <p>To ask for a sign-in, set <code>BELAY_TOKEN</code> (client) and <code>BELAY_OPERATOR_TOKEN</code> (operator) in the
    environment of the daemon and restart it. The command <code>belay console</code> then prints a link that signs in once.
    The rules stand in the reference of the HTTP API under “Who may”.</p>`;

const EVERYWHERE = {
  operator: 'Sign out every browser, this one too?',
  client: 'Sign out every browser with your role, this one too?',
};

function SignIns({ role }) {
  const load = useLoad((signal) => get('console/sessions', {}, signal), [], { every: 30000 });
  const everywhere = html`<${Act} kind="danger" confirm=${EVERYWHERE[role]}
    action=${() => del('console/sessions')} done=${signedOut}>Sign out everywhere</${Act}>`;
  return html`<${Loaded} load=${load}>${({ sessions }) => {
    const own = sessions.find((session) => session.current);
    return html`
      ${own && html`<h2>This sign-in</h2><${Facts} of=${[
        ['Role', own.role],
        ['Signed in', html`<${Time} at=${own.created_at} /> (${exact(own.created_at)})`],
        ['Ends', html`<${Time} at=${own.expires_at} /> (${exact(own.expires_at)})`],
      ]} />`}
      <h2>All sign-ins</h2>
      <p class="hint">${role === 'operator' ? 'These are all sign-ins.' : 'These are the sign-ins with your role.'}${' '}
        A sign-out takes effect at once.</p>
      <p>${everywhere}</p>
      <${Table} rows=${sessions} keyOf=${(session) => session.id} empty="There is no sign-in." columns=${[...COLUMNS,
        ['', (session) => html`<${End} session=${session} done=${load.reload} />`, 'actions'],
      ]} />`;
  }}</${Loaded}>`;
}

const End = ({ session, done }) => html`<${Act} kind="danger" done=${session.current ? signedOut : done}
  confirm=${session.current ? 'Sign out this browser?' : 'End this sign-in?'}
  action=${() => del(path`console/sessions/${session.id}`)}>End</${Act}>`;

const COLUMNS = [
  ['Browser', (session) => html`<span><${Text} value=${session.agent || 'unknown'} />
    ${session.current && html`<br /><${State} value="this browser" tone="good" />`}</span>`],
  ['Role', (session) => session.role, 'nowrap'],
  ['Signed in', (session) => html`<${Time} at=${session.created_at} />`],
  ['Last used', (session) => html`<${Time} at=${session.used_at} />`],
  ['Ends', (session) => html`<${Time} at=${session.expires_at} />`],
];
