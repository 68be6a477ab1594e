// The clock of the daemon.

let skewMs = 0;

/** Takes the `Date` header of an answer: a clock of the browser that is wrong must not show wrong ages. */
export function setClock(header) {
  const there = Date.parse(header ?? '');
  // The header has whole seconds.
  if (!Number.isNaN(there)) skewMs = Math.abs(there - Date.now()) < 2000 ? 0 : there - Date.now();
}

/** The time of the daemon, in ms since 1970. */
export const now = () => Date.now() + skewMs;
