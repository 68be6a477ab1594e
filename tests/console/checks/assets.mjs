// The size of the files of the console.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import http from 'node:http';
import path from 'node:path';
import { check, group } from '../support/check.mjs';
import { Daemon } from '../support/daemon.mjs';

const FOLDER = new URL('../../../crates/console/assets/', import.meta.url).pathname;
const MOST_BYTES = 140_000;
/** The libraries of the pages, and the files of the packages that they are. */
const VENDORED = { 'preact.js': 'htm/preact/standalone.module.js', 'marked.js': 'marked/lib/marked.esm.js' };

/** The bytes of the body, as they are sent to a browser that accepts gzip. */
const sent = (url) => new Promise((done, fail) => {
  http.get(url, { headers: { 'accept-encoding': 'gzip' } }, (answer) => {
    let bytes = 0;
    answer.on('data', (part) => { bytes += part.length; });
    answer.on('end', () => (answer.statusCode === 200 ? done({ bytes, encoding: answer.headers['content-encoding'] })
      : fail(new Error(`${url}: ${answer.statusCode}`))));
  }).on('error', fail);
});

/** Bytes of all files with gzip, and how many they are. */
export async function assetsSent(url) {
  const names = fs.readdirSync(FOLDER, { recursive: true, withFileTypes: true }).filter((file) => file.isFile())
    .map((file) => path.relative(FOLDER, path.join(file.parentPath ?? file.path, file.name)));
  const all = await Promise.all(names.map((name) => sent(name === 'index.html' ? `${url}/` : `${url}/console/assets/${name}`)));
  return { files: names.length, bytes: all.reduce((sum, { bytes }) => sum + bytes, 0), packed: all.filter(({ encoding }) => encoding === 'gzip').length };
}

group('assets', async () => ({ daemon: await new Daemon().start() }), ({ daemon }) => daemon.close(), () => {
  check('all files together are at most 140 KB with gzip', async ({ daemon }) => {
    const { files, bytes, packed } = await assetsSent(daemon.url);
    assert.ok(files > 30 && packed > 30, `${packed} of ${files} files were sent with gzip`);
    assert.ok(bytes <= MOST_BYTES, `${bytes} bytes`);
  });

  check('the libraries of the pages are those of the pinned packages', () => {
    const modules = path.join(process.env.BELAY_CONSOLE_MODULES ?? 'build/console', 'node_modules');
    assert.deepEqual(fs.readdirSync(path.join(FOLDER, 'vendor')).sort(), Object.keys(VENDORED).sort());
    for (const [name, file] of Object.entries(VENDORED)) {
      const [ours, theirs] = [path.join(FOLDER, 'vendor', name), path.join(modules, file)].map((place) => fs.readFileSync(place));
      assert.ok(ours.equals(theirs), `${name} is not ${file}: \`make console\` copies it`);
    }
  });
});
