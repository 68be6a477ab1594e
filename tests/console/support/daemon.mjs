// A daemon of its own for a group of checks: a home that is removed at the end, the rehearsal as model, and its API.

import { execFile, spawn } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';

const BINARY = path.resolve(process.env.BELAY_BIN ?? 'target/debug/belay');
const READY = /ready on (http:\/\/[0-9.:]+)/;
const READY_MS = 300_000;
export const CLIENT = 'token-of-a-client';
export const OPERATOR = 'token-of-an-operator';

export class Daemon {
  /** `settings`: `{ 'llm.provider': 'rehearsal', … }`. `tokens: false`: this machine needs no sign-in. */
  constructor(settings = {}, { tokens = true } = {}) {
    this.home = fs.mkdtempSync(path.join(os.tmpdir(), 'belay-console-'));
    this.settings = { 'llm.provider': 'rehearsal', 'gateway.listen': '127.0.0.1:0', 'channels.stdin.enabled': 'false', ...settings };
    this.tokens = tokens ? { BELAY_TOKEN: CLIENT, BELAY_OPERATOR_TOKEN: OPERATOR } : {};
    this.log = '';
  }

  environment() {
    const { PATH, RUST_BACKTRACE = '' } = process.env;
    const [HOME, data, config] = [this.home, path.join(this.home, 'data'), path.join(this.home, 'config')];
    return { PATH, RUST_BACKTRACE, HOME, XDG_DATA_HOME: data, XDG_CONFIG_HOME: config, XDG_RUNTIME_DIR: HOME, ...this.tokens };
  }

  sets() {
    return Object.entries(this.settings).flatMap(([key, value]) => ['--set', `${key}=${value}`]);
  }

  /** Starts the process, and waits until it is ready. A later start listens at the same address. */
  async start() {
    this.process = spawn(BINARY, ['run', ...this.sets()], { env: this.environment(), stdio: ['ignore', 'ignore', 'pipe'] });
    this.ended = new Promise((done) => this.process.once('exit', done));
    this.process.stderr.setEncoding('utf8');
    this.url = await new Promise((ready, fail) => {
      const timer = setTimeout(() => fail(new Error(`the daemon is not ready:\n${this.log}`)), READY_MS);
      let begun = '';
      this.process.stderr.on('data', (text) => {
        begun += text;
        this.log = (this.log + text).slice(-20_000);
        const found = READY.exec(begun);
        if (found) { clearTimeout(timer); ready(found[1]); }
      });
      this.ended.then((status) => { clearTimeout(timer); fail(new Error(`the daemon ended with ${status}:\n${this.log}`)); });
    });
    this.settings['gateway.listen'] = new URL(this.url).host;
    return this;
  }

  /** Ends the process at once, as a crash of the machine does. */
  async kill() {
    this.process.kill('SIGKILL');
    await this.ended;
  }

  /** Asks the daemon to end, and waits until it has. */
  async stop() {
    this.process?.kill('SIGTERM');
    await this.ended;
  }

  /** Ends the daemon, and removes its home. */
  async close() {
    await this.stop();
    fs.rmSync(this.home, { recursive: true, force: true });
  }

  /** The output of a command of belay for this daemon. */
  async belay(...words) {
    const { stdout } = await promisify(execFile)(BINARY, words, { env: this.environment() });
    return stdout;
  }

  /** One request of the API, as operator. Throws unless it succeeds. */
  async api(method, where, body) {
    const answer = await fetch(`${this.url}/api/v1/${where}`, {
      method,
      headers: { authorization: `Bearer ${OPERATOR}`, ...(body && { 'content-type': 'application/json' }) },
      body: body && JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${method} ${where}: ${answer.status} ${await answer.text()}`);
    return answer.json();
  }

  get = (where) => this.api('GET', where);
  post = (where, body = {}) => this.api('POST', where, body);
  say = (session, text) => this.post('messages', { session, text });
}
