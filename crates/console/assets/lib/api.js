// The public HTTP API as the pages use it. The browser adds the cookie of the sign-in; the header proves that a request
// comes from a page of this origin.

import { setClock } from './clock.js';

const HEADERS = { 'x-belay-csrf': '1' };

/** An answer that is an error: `status` is 0 when no answer came. */
export class ApiError extends Error {
  constructor(status, code, message, retryable) {
    super(message);
    Object.assign(this, { status, code, retryable });
  }
}

/** `/api/v1/…` with percent-encoded parts and a query: `` path`runs/${id}` ``. */
export function path(parts, ...values) {
  return parts.reduce((text, part, i) => text + encodeURIComponent(values[i - 1]) + part);
}

/** The address of a file, relative to the page: a proxy can serve the console under a prefix. */
export const fileUrl = (url) => url?.replace(/^\//, '');

/** A new UUID (version 4), for idempotency keys. `crypto.randomUUID` is missing on pages without TLS. */
export function newId() {
  const hex = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte, i) => {
    const value = i === 6 ? (byte & 15) | 64 : i === 8 ? (byte & 63) | 128 : byte;
    return value.toString(16).padStart(2, '0');
  }).join('');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-');
}

function url(path, query) {
  const search = new URLSearchParams(Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== ''));
  const base = path.startsWith('console/') || path === 'metrics' ? path : `api/v1/${path}`;
  return search.size ? `${base}?${search}` : base;
}

async function ask(method, path, { query, body, file, signal, headers } = {}) {
  let answer;
  const type = file ? 'application/octet-stream' : body === undefined ? undefined : 'application/json';
  try {
    answer = await fetch(url(path, query), {
      method,
      signal,
      cache: 'no-store',
      headers: { ...HEADERS, ...headers, ...(type && { 'content-type': type }) },
      body: file ?? (body === undefined ? undefined : JSON.stringify(body)),
    });
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw new ApiError(0, 'unreachable', 'The daemon does not answer.', true);
  }
  setClock(answer.headers.get('date'));
  if (answer.ok) return answer;
  const error = (await answer.json().catch(() => ({}))).error ?? {};
  if (answer.status === 401) window.dispatchEvent(new Event('belay:signed-out'));
  throw new ApiError(answer.status, error.code ?? 'unknown', error.message ?? `HTTP ${answer.status}`, error.retryable ?? false);
}

const json = async (...request) => (await ask(...request)).json();

export const get = (path, query, signal) => json('GET', path, { query, signal });
export const post = (path, body = {}, query) => json('POST', path, { body, query });
export const put = (path, body) => json('PUT', path, { body });
export const del = (path, query) => json('DELETE', path, { query });
/** Stores a `File`; a message names it by the field `file` of the answer. */
export const upload = (file) => json('POST', 'files', { query: { name: file.name || 'file' }, file });
/** An answer that is plain text. */
export const readText = async (path, signal) => (await ask('GET', path, { signal })).text();
/** The lines of a JSON Lines answer. */
export async function lines(path, signal) {
  const text = await (await ask('GET', path, { signal })).text();
  return text.split('\n').filter(Boolean).map((line) => JSON.parse(line));
}

/** The first line for which `fits(line)` is true; the rest of the answer is not read. */
export async function firstLine(path, fits, signal) {
  const decoder = new TextDecoder();
  let rest = '';
  for await (const bytes of chunks((await ask('GET', path, { signal })).body)) {
    const parts = (rest + decoder.decode(bytes, { stream: true })).split('\n');
    rest = parts.pop();
    const found = parts.filter(Boolean).map((line) => JSON.parse(line)).find(fits);
    if (found) return found;
  }
  return undefined;
}

const RECONNECT_MS = [500, 1000, 2000, 5000];
/** A page that is hidden for longer closes its streams: all tabs of a browser share six connections to one HTTP/1.1 server. */
const HIDDEN_MS = 10_000;
/** The server sends a comment after 15 s of silence. A connection that is silent for longer is lost. */
const SILENT_MS = 45_000;

/**
 * Reads server-sent events until `signal` is aborted; `query` has further parameters of the stream. It connects again after the last fact that was read, so that none
 * is missed or shown twice. `onState` receives `live` or `waiting`. A hidden page reads on when it is shown again. It
 * returns after the event for which `isEnd(event)` is true. `isEnd()` is asked when the body ends without such an event: a
 * daemon that restarts ends it too.
 */
export async function follow(path, { since, query, onEvent, onState = () => {}, signal, isEnd = () => false }) {
  let last = since;
  let resumed = false;
  for (let failures = 0; !signal.aborted; failures += 1) {
    await shown(signal);
    if (signal.aborted) return;
    const open = connection(signal);
    try {
      const headers = resumed ? { 'last-event-id': String(last) } : {};
      const answer = await ask('GET', path, { signal: open.signal, headers, query: resumed ? query : { ...query, since: last } });
      open.alive();
      onState('live');
      for await (const event of events(answer.body, open.alive)) {
        failures = 0;
        if (event.id !== undefined) {
          last = Number(event.id);
          resumed = true;
        }
        onEvent(event);
        if (isEnd(event)) return;
      }
      if (isEnd()) return;
    } catch (error) {
      if (signal.aborted) return;
      if (open.hidden()) {
        // Without a fact there is nothing to continue after: the reader has to read its lists again.
        if (!resumed) onState('waiting');
        failures = -1;
        continue;
      }
      if (error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
    } finally {
      open.close();
    }
    onState('waiting');
    await pause(RECONNECT_MS[Math.min(failures, RECONNECT_MS.length - 1)], signal);
  }
}

/** Waits until the page is visible, or `signal` is aborted. */
const shown = (signal) => new Promise((done) => {
  if (document.visibilityState !== 'hidden') return done();
  const listen = new AbortController();
  const check = () => {
    if (document.visibilityState === 'hidden' && !signal.aborted) return;
    listen.abort();
    done();
  };
  document.addEventListener('visibilitychange', check, { signal: listen.signal });
  signal.addEventListener('abort', check, { signal: listen.signal });
});

/**
 * One connection of a stream. Its signal is aborted with `signal`, after `HIDDEN_MS` in which the page is hidden, and after
 * `SILENT_MS` without a call of `alive()`.
 */
function connection(signal) {
  const stop = new AbortController();
  const listen = new AbortController();
  let timer;
  let silence;
  let hidden = false;
  const alive = () => {
    clearTimeout(silence);
    silence = setTimeout(() => stop.abort(), SILENT_MS);
  };
  const check = () => {
    clearTimeout(timer);
    if (document.visibilityState === 'hidden') timer = setTimeout(() => { hidden = true; stop.abort(); }, HIDDEN_MS);
  };
  document.addEventListener('visibilitychange', check, { signal: listen.signal });
  signal.addEventListener('abort', () => stop.abort(), { signal: listen.signal });
  check();
  alive();
  const close = () => { clearTimeout(timer); clearTimeout(silence); listen.abort(); };
  return { signal: stop.signal, alive, hidden: () => hidden, close };
}

const pause = (ms, signal) => new Promise((done) => {
  const end = () => { clearTimeout(timer); signal.removeEventListener('abort', end); done(); };
  const timer = setTimeout(end, ms);
  signal.addEventListener('abort', end);
});

/**
 * Server-sent events of a body: `{ id, type, data }`; `alive` is called for each piece that arrives. Source: HTML, 9.2.6
 * Interpreting an event stream.
 */
export async function* events(body, alive = () => {}) {
  const decoder = new TextDecoder();
  let rest = '';
  let event = { data: [] };
  for await (const bytes of chunks(body)) {
    alive();
    const parts = (rest + decoder.decode(bytes, { stream: true })).split(/\r\n|\n|\r(?!$)/);
    rest = parts.pop();
    for (const line of parts) {
      if (line === '') {
        if (event.data.length) yield { id: event.id, type: event.type ?? 'message', data: parsed(event.data.join('\n')) };
        event = { data: [] };
        continue;
      }
      const colon = line.indexOf(':');
      if (colon === 0) continue;
      const [field, value] = colon < 0 ? [line, ''] : [line.slice(0, colon), line.slice(colon + 1).replace(/^ /, '')];
      if (field === 'data') event.data.push(value);
      else if (field === 'event') event.type = value;
      else if (field === 'id') event.id = value;
    }
  }
}

function parsed(text) {
  try { return JSON.parse(text); } catch { return text; }
}

async function* chunks(body) {
  const reader = body.getReader();
  try {
    for (let read = await reader.read(); !read.done; read = await reader.read()) yield read.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}
