// The sign-in: by a token, or by a link that `belay console` has printed.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { post } from '../lib/api.js';
import { useAction } from '../lib/hooks.js';
import { visible } from '../lib/format.js';

const LINK_REFUSED = 'This link is not valid. A link works once and for a short time. Run “belay console” for a new one.';

/** Whether the address has a link. It is no address of a page. */
export const hasLink = () => location.hash.startsWith('#link=');

/**
 * Signs in with the link of the address, if it has one. The secret leaves the address first, so that neither the history
 * of the browser nor a bookmark keeps it; `hash` takes its place. Never rejects: it returns the failure as a text.
 */
export async function takeLink(hash = '') {
  if (!hasLink()) return '';
  const secret = location.hash.slice('#link='.length);
  history.replaceState(null, '', location.pathname + location.search + hash);
  try {
    await post('console/sign-in', { link: secret });
    return '';
  } catch (error) {
    return reason(error, LINK_REFUSED);
  }
}

function reason(error, refused) {
  if (error.status === 401) return refused;
  if (error.status === 429) return `Too many attempts came from this address. Wait a moment, then try again. (${error.message})`;
  if (error.status === 0) return 'The daemon does not answer. Check that it runs, then try again.';
  return error.message;
}

/** `failure`: why the link of the address was refused. */
export function SignIn({ done, failure }) {
  const [token, setToken] = useState('');
  const [link, setLink] = useState(failure);
  useEffect(() => setLink(failure), [failure]);
  const [refusal, setRefusal] = useState('');
  const field = useRef();
  const [send, { busy }] = useAction(async () => {
    setLink('');
    try {
      await post('console/sign-in', { token: token.trim() });
      setRefusal('');
      done();
    } catch (error) {
      setRefusal(reason(error, 'This token is not the one of the daemon. Check BELAY_TOKEN or BELAY_OPERATOR_TOKEN.'));
      field.current?.select();
    }
  });
  useEffect(() => {
    document.title = 'Sign in · Belay';
    field.current?.focus();
  }, []);
  const submit = (event) => { event.preventDefault(); if (token.trim()) send(); };
  return html`<main class="sign-in">
    <h1><img src="console/assets/icon.svg" alt="" width="28" height="28" /> Sign in to Belay</h1>
    ${(refusal || link) && html`<p class="failure" role="alert">${visible(refusal || link)}</p>`}
    <form onSubmit=${submit}>
      <label>Token
        <input ref=${field} type="password" name="token" autocomplete="current-password" required spellcheck="false"
          value=${token} onInput=${(event) => setToken(event.target.value)} aria-invalid=${refusal ? 'true'
            : undefined} /></label>
      <p class="hint">The value of <code>BELAY_TOKEN</code> (client) or <code>BELAY_OPERATOR_TOKEN</code> (operator).</p>
      <p><button type="submit" disabled=${busy} aria-busy=${busy}>Sign in</button></p>
    </form>
    <p class="hint">Or run <code>belay console</code> on the machine of the daemon: it prints a link that signs you in once.</p>
  </main>`;
}
