// The metrics of the daemon: histograms and counters since its start, in the text format of Prometheus.

const LINE = /^([a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+|\+Inf|NaN)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;

/** `Map(name → [{ labels, value }])`. */
export function parse(text) {
  const found = new Map();
  for (const line of text.split('\n')) {
    const [, name, labels = '', value] = LINE.exec(line) ?? [];
    if (!name) continue;
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels: Object.fromEntries([...labels.matchAll(LABEL)].map(([, key, text]) => [key, text])), value: Number(value) });
  }
  return found;
}

/** A histogram over all its labels: `{ count, buckets: [[upper bound, how many are not above it]] }`. */
export function histogram(metrics, name) {
  const sums = new Map();
  for (const { labels: { le }, value } of metrics.get(`${name}_bucket`) ?? []) {
    const bound = le === '+Inf' ? Infinity : Number(le);
    sums.set(bound, (sums.get(bound) ?? 0) + value);
  }
  const buckets = [...sums].sort(([a], [b]) => a - b);
  return { count: buckets.at(-1)?.[1] ?? 0, buckets };
}

/** The value below which this share lies, between the bounds of its bucket; `undefined` without one. */
export function quantile({ count, buckets }, share) {
  if (!count) return undefined;
  const rank = share * count;
  const i = buckets.findIndex(([, upTo]) => upTo >= rank);
  const [below, before] = i > 0 ? buckets[i - 1] : [0, 0];
  const [bound, upTo] = buckets[i];
  if (bound === Infinity) return below;
  return below + ((bound - below) * (rank - before)) / Math.max(1, upTo - before);
}
