// Figures and texts for people.

/** `1234567` as `$1.23`; the amounts of the API are millionths of a US dollar. */
export function money(micro) {
  if (micro === undefined || micro === null) return '–';
  const dollars = micro / 1e6;
  if (dollars !== 0 && Math.abs(dollars) < 0.01) return `$${dollars.toPrecision(2)}`;
  return `$${dollars.toFixed(2)}`;
}

/** `83` seconds as `1 m 23 s`. */
export function seconds(s) {
  if (s < 0) return '0 s';
  if (s < 10) return `${Math.round(s * 10) / 10} s`;
  const [d, h, m, rest] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60, Math.floor(s) % 60];
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} m`;
  return m ? `${m} m ${rest} s` : `${rest} s`;
}

/** `1234` ms as `1.2 s`, and less than a second in milliseconds. */
export const duration = (ms) => (ms < 1000 ? `${Math.max(0, Math.round(ms))} ms` : seconds(ms / 1000));

export const number = (n) => (n === undefined || n === null ? '–' : n.toLocaleString('en'));

/** A file size. */
export function bytes(n) {
  if (n === undefined || n === null) return '–';
  const unit = ['B', 'KB', 'MB', 'GB', 'TB'];
  let i = 0;
  for (; n >= 1000 && i < unit.length - 1; i += 1) n /= 1000;
  return `${i && n < 10 ? n.toFixed(1) : Math.round(n)} ${unit[i]}`;
}

/** The time from `at` to `now`: `3 m ago`, `in 2 h`. */
export function relative(at, now) {
  const s = Math.round((now - Date.parse(at)) / 1000);
  if (Number.isNaN(s)) return '–';
  if (Math.abs(s) < 5) return 'now';
  const a = Math.abs(s);
  const text = a < 60 ? `${a} s` : a < 3600 ? `${Math.floor(a / 60)} m` : a < 86400 ? `${Math.floor(a / 3600)} h` : `${Math.floor(a / 86400)} d`;
  return s > 0 ? `${text} ago` : `in ${text}`;
}

// Made once: a formatter is expensive.
const EXACT = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });
/** The exact time in the zone of the reader. */
export function exact(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? '' : EXACT.format(date);
}

// Characters that change the direction of text, or that nobody sees: a text could look like another one. The variation
// selector U+FE0F is a part of an emoji.
const HIDDEN = new RegExp([
  '[\\u0000-\\u0008\\u000b\\u000c\\u000e-\\u001f\\u007f-\\u009f\\u00ad\\u034f\\u061c\\u115f\\u1160\\u180b-\\u180f',
  '\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u206f\\u3164\\ufe00-\\ufe0e\\ufeff\\uffa0\\ufff9-\\ufffb\\u{e0000}-\\u{e007f}]',
  '|(?<!\\p{Extended_Pictographic})\\ufe0f(?!\\u20e3)'].join(''), 'gu');
/** Shows hidden characters by their number, so that no text looks like another. */
export const visible = (text) => String(text ?? '').replace(HIDDEN,
  (c) => `\u27e8U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`);
/** JSON text whose hidden characters are escapes: one for each unit of UTF-16. */
export const escaped = (json) => json.replace(HIDDEN,
  (c) => c.split('').map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`).join(''));

/** What a check has said about the goal of a run. */
export const goalText = ({ attempt, attempts, holds, missing }) => (holds ? `reached after ${number(attempt)} of ${number(attempts)} attempts`
  : `not reached after ${number(attempt)} of ${number(attempts)} attempts: ${missing ?? 'no check has said why'}`);
