// The frame of the console: sign-in, navigation and the page of the address.

import { html, render, useEffect, useState } from './vendor/preact.js';
import { del, get } from './lib/api.js';
import { dropDrafts } from './lib/drafts.js';
import { useEscape } from './lib/hooks.js';
import { Act, Failure } from './lib/ui.js';
import { SignIn, hasLink, takeLink } from './pages/sign-in.js';

/** `path → [title in the navigation, module, who]`. A page exports `default ({ parts, role })`. */
const PAGES = {
  now: ['Now', () => import('./pages/now.js'), 'client'],
  chat: ['Chat', () => import('./pages/chat.js'), 'client'],
  questions: ['Questions', () => import('./pages/questions.js'), 'client'],
  runs: ['Runs', () => import('./pages/runs.js'), 'client'],
  jobs: ['Jobs', () => import('./pages/jobs.js'), 'client'],
  routines: ['Routines', () => import('./pages/routines.js'), 'client'],
  ends: ['Ends', () => import('./pages/ends.js'), 'client'],
  money: ['Money', () => import('./pages/money.js'), 'client'],
  log: ['Log', () => import('./pages/log.js'), 'client'],
  tools: ['Tools and models', () => import('./pages/tools.js'), 'client'],
  people: ['People', () => import('./pages/people.js'), 'operator'],
  backups: ['Backups', () => import('./pages/backups.js'), 'operator'],
  settings: ['Settings', () => import('./pages/settings.js'), 'operator'],
  access: ['Access', () => import('./pages/access.js'), 'client'],
};

/** `#/runs/ID` as `['runs', 'ID']`. */
function address() {
  const [path, query] = location.hash.replace(/^#\/?/, '').split('?');
  const parts = path.split('/').filter(Boolean).map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { parts: parts.length ? parts : ['now'], query: new URLSearchParams(query) };
}

function App() {
  const [session, setSession] = useState();
  const [error, setError] = useState();
  const [failure, setFailure] = useState('');
  const [round, again] = useState(0);
  const check = () => get('console/session').then(setSession, (problem) => (problem.status === 401 ? setSession(null) : setError(problem)));
  const link = async (hash) => {
    setFailure(await takeLink(hash));
    await check();
  };
  useEffect(() => {
    link();
    const out = () => { dropDrafts(); setSession(null); };
    // A link that is opened in this tab changes the address only. The page before it stays.
    const moved = async (event) => {
      if (!hasLink()) return;
      await link(new URL(event.oldURL).hash);
      // The pages load again: the role can be another one.
      again((n) => n + 1);
    };
    window.addEventListener('belay:signed-out', out);
    window.addEventListener('hashchange', moved);
    return () => {
      window.removeEventListener('belay:signed-out', out);
      window.removeEventListener('hashchange', moved);
    };
  }, []);
  const signedIn = () => { setFailure(''); return check(); };
  if (error && session === undefined) return html`<main><${Failure} error=${error} retry=${() => { setError(undefined); check(); }} /></main>`;
  if (session === undefined) return html`<p class="loading first" role="status">Loading …</p>`;
  const signedOut = () => window.dispatchEvent(new Event('belay:signed-out'));
  return session ? html`<${Frame} key=${round} session=${session} failure=${failure} signedOut=${signedOut} />`
    : html`<${SignIn} done=${signedIn} failure=${failure} />`;
}

function Frame({ session, failure, signedOut }) {
  const [at, setAt] = useState(address);
  useEffect(() => {
    const moved = () => hasLink() || setAt(address());
    window.addEventListener('hashchange', moved);
    // The address may have changed between the first render and this effect.
    moved();
    return () => window.removeEventListener('hashchange', moved);
  }, []);
  // On a narrow screen the pages are behind a button.
  const [menu, openMenu] = useState(false);
  useEffect(() => openMenu(false), [at]);
  useEscape(menu, () => { openMenu(false); document.getElementById('menu').focus(); });
  const operator = session.role === 'operator';
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.getElementById('main').focus(); }}>Skip to the page</a>
    <nav aria-label="Pages" class=${menu ? 'open' : undefined}>
      <a class="brand" href="#/now"><img src="console/assets/icon.svg" alt="" width="24" height="24" /> Belay</a>
      <span class="here" aria-hidden="true">${PAGES[at.parts[0]]?.[0]}</span>
      <button id="menu" aria-expanded=${menu} aria-controls="pages" onClick=${() => openMenu(!menu)}>Menu</button>
      <ul id="pages">${Object.entries(PAGES).filter(([, [, , who]]) => operator || who === 'client').map(([name, [title]]) => html`
        <li><a href="#/${name}" aria-current=${at.parts[0] === name ? 'page' : undefined}>${title}</a></li>`)}</ul>
      <p class="who">${session.role}
        ${session.cookie && html` <${Act} action=${() => del('console/session')} done=${signedOut}>Sign out</${Act}>`}</p>
    </nav>
    <main id="main" tabindex="-1">${failure && html`<p class="failure" role="alert">${failure}</p>`}
      <${Current} at=${at} role=${session.role} /></main>`;
}

const OPERATORS = new Error('Only operators see this page.');

/** Loads the module of a page when it is first shown. */
function Current({ at, role }) {
  const [page, setPage] = useState({});
  const name = at.parts[0];
  useEffect(() => {
    let current = true;
    setPage({});
    const load = PAGES[name]?.[1];
    if (PAGES[name]?.[2] === 'operator' && role !== 'operator') setPage({ name, error: OPERATORS });
    else if (load) load().then((module) => current && setPage({ name, View: module.default }), (error) => current && setPage({ name, error }));
    else setPage({ name, error: new Error('There is no such page.') });
    return () => { current = false; };
  }, [name]);
  if (page.error) return html`<${Failure} error=${page.error} />`;
  return page.name === name ? html`<${page.View} parts=${at.parts.slice(1)} query=${at.query} role=${role} />` : null;
}

render(html`<${App} />`, document.getElementById('app'));
