// A small runner: named checks in groups, each group with its own daemon.

import assert from 'node:assert/strict';
import { WAIT_MS } from './browser.mjs';

/** Most ms that one check may take. */
const LONGEST_MS = 6 * WAIT_MS;
const groups = [];
let current;

/** `name` is the name of the group. `make` makes what its checks get; `end` releases it. */
export function group(name, make, end, checks) {
  current = { name, make, end, checks: [] };
  groups.push(current);
  checks();
}

/** One check: `run` receives what its group has made. */
export const check = (name, run) => current.checks.push({ name, run });

/** Waits until `probe()` is true or does not throw, and returns its value. */
export async function until(what, probe) {
  const end = performance.now() + WAIT_MS;
  let last;
  do {
    try {
      const value = await probe();
      if (value) return value;
      last = undefined;
    } catch (error) { last = error; }
    await new Promise((again) => setTimeout(again, 25));
  } while (performance.now() < end);
  throw new Error(`${what}: not within ${WAIT_MS} ms${last ? `: ${last.message}` : ''}`);
}

/** Asserts that `text` has `part` so many times. */
export function times(text, part, count) {
  assert.equal(text.split(part).length - 1, count, `“${part}” is expected ${count} times in:\n${text.slice(0, 3000)}`);
}

async function limited(run) {
  let timer;
  const late = new Promise((_, fail) => { timer = setTimeout(() => fail(new Error(`not done within ${LONGEST_MS} ms`)), LONGEST_MS); });
  try { await Promise.race([run(), late]); } finally { clearTimeout(timer); }
}

/** Runs all groups whose name or check contains `only`, `beside` at a time. Prints each result, and their sums last. */
export async function runAll(browser, only = '', beside = 4) {
  const count = { passed: 0, failed: 0 };
  const report = (name, error, ms) => {
    count[error ? 'failed' : 'passed'] += 1;
    console.log(error ? `FAILED ${name}\n${error.stack ?? error}` : `ok ${name} (${Math.round(ms)} ms)`);
  };
  const queue = groups.map((one) => ({ ...one, checks: one.checks.filter(({ name }) => `${one.name}: ${name}`.includes(only)) }));
  const work = async () => {
    for (let one = queue.shift(); one; one = queue.shift()) {
      if (!one.checks.length) continue;
      let world;
      try { world = await one.make(browser); } catch (error) { report(one.name, error); continue; }
      for (const { name, run } of one.checks) {
        const begin = performance.now();
        await limited(() => run(world)).then(() => report(`${one.name}: ${name}`, undefined, performance.now() - begin),
          (error) => report(`${one.name}: ${name}`, error));
      }
      await one.end(world).catch((error) => report(`${one.name}: its end`, error));
    }
  };
  await Promise.all(Array.from({ length: beside }, work));
  console.log(`${count.passed} passed, ${count.failed} failed, 0 skipped`);
  return count.failed || !count.passed ? 1 : 0;
}
