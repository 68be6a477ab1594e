// The sign-in: by a token, or by a link that `belay console` has printed.

import { html, useEffect, useRef, useState } from '../vendor/preact.js';
import { post } from '../lib/api.js';
import { useAction } from '../lib/hooks.js';
import { visible } from '../lib/format.js';

let linkFailure = '';
const LINK_REFUSED = 'This link is not valid. A link works once and for a short time. Run “belay console” for a new one.';

/**
 * Signs in with the link of the address, if it has one. The secret leaves the address first, so that neither the history
 * of the browser nor a bookmark keeps it. Never rejects: the sign-in page shows the failure.
 */
export async function takeLink() {
  const secret = /^#link=(.+)$/.exec(location.hash)?.[1];
  if (!secret) return;
  history.replaceState(null, '', location.pathname + location.search);
  try {
    await post('console/sign-in', { link: secret });
    linkFailure = '';
  } catch (error) {
    linkFailure = reason(error, LINK_REFUSED);
    window.dispatchEvent(new Event('belay:link-failed'));
  }
}

function reason(error, refused) {
  if (error.status === 401) return refused;
  if (error.status === 429) return `Too many attempts came from this address. Wait a moment, then try again. (${error.message})`;
  if (error.status === 0) return 'The daemon does not answer. Check that it runs, then try again.';
  return error.message;
}

export function SignIn({ done }) {
  const [token, setToken] = useState('');
  const [link, setLink] = useState(linkFailure);
  const [refusal, setRefusal] = useState('');
  const field = useRef();
  const [send, { busy }] = useAction(async () => {
    setLink(linkFailure = '');
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
    // A link that is opened while this page is shown changes the address only.
    const moved = async () => {
      if (!location.hash.startsWith('#link=')) return;
      await takeLink();
      if (!linkFailure) done();
    };
    const failed = () => setLink(linkFailure);
    window.addEventListener('hashchange', moved);
    window.addEventListener('belay:link-failed', failed);
    failed();
    return () => {
      window.removeEventListener('hashchange', moved);
      window.removeEventListener('belay:link-failed', failed);
    };
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
