// Chromium, and pages whose faults are collected: errors, blocked content and requests to other origins.

import fs from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { OPERATOR } from './daemon.mjs';

/** The folder with node_modules/. */
const MODULES = path.resolve(process.env.BELAY_CONSOLE_MODULES ?? 'build/console');
export const modules = createRequire(path.join(MODULES, 'package.json'));
const { chromium } = modules('playwright-core');
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
/** A folder whose files are shown in place of those in the binary, to try a change without building it. */
const ASSETS = process.env.BELAY_ASSETS;
/** Longest wait for a condition in ms. The machine may be busy. */
export const WAIT_MS = Number(process.env.BELAY_WAIT_MS ?? 120_000);

export const launch = () => chromium.launch({ executablePath: process.env.BELAY_CHROMIUM ?? '/usr/bin/chromium', args: FLAGS });

/** A browser of one person: its pages share cookies. */
export class Visitor {
  constructor(daemon, context) {
    Object.assign(this, { daemon, context, faults: [], expected: [] });
    context.setDefaultTimeout(WAIT_MS);
  }

  /** `options` are those of Playwright's `newContext`. */
  static async of(browser, daemon, options = {}) {
    const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
    const visitor = new Visitor(daemon, context);
    await context.addInitScript(() => {
      document.addEventListener('securitypolicyviolation', (event) => console.error(`CSP: ${event.violatedDirective} ${event.blockedURI}`));
    });
    const prefix = '/console/assets/';
    if (ASSETS) {
      await context.route((url) => url.pathname.startsWith(prefix), async (route) => {
        const file = path.join(ASSETS, new URL(route.request().url()).pathname.slice(prefix.length).replace(/^[0-9a-f]{16}\//, ''));
        const response = await route.fetch();
        // A new file is not in the binary.
        const type = file.endsWith('.js') ? 'text/javascript' : 'text/css';
        await route.fulfill({ ...(response.ok() ? { response } : { contentType: type }), body: fs.readFileSync(file) });
      });
    }
    return visitor;
  }

  /** Signed in with this token. */
  static async signedIn(browser, daemon, token = OPERATOR, options = {}) {
    const visitor = await Visitor.of(browser, daemon, options);
    const answer = await visitor.context.request.post(`${daemon.url}/console/sign-in`, { data: { token }, headers: { 'x-belay-csrf': '1' } });
    if (!answer.ok()) throw new Error(`the sign-in was answered ${answer.status()}: ${await answer.text()}`);
    return visitor;
  }

  /** A page at this address of the console, such as `#/now`. */
  async open(hash = '') {
    const page = await this.context.newPage();
    const fault = (text) => this.expected.some((pattern) => pattern.test(text)) || this.faults.push(text);
    page.on('console', (message) => ['error', 'warning'].includes(message.type()) && fault(`console: ${message.text()} ${message.location().url}`));
    page.on('pageerror', (error) => fault(`error: ${error.stack}`));
    page.on('dialog', (dialog) => { fault(`dialog: ${dialog.message()}`); return dialog.dismiss(); });
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (['http:', 'https:', 'ws:', 'wss:'].includes(url.protocol) && url.host !== new URL(this.daemon.url).host) fault(`a request left the origin: ${url}`);
    });
    await page.goto(`${this.daemon.url}/${hash}`);
    return page;
  }

  /** Faults that match are part of the checks. Chromium names each answer with an error status. */
  expect(...patterns) {
    this.expected.push(...patterns);
  }

  /** Throws if a page had a fault, then closes all pages. */
  async close() {
    await this.context.close();
    if (this.faults.length) throw new Error(`the pages had faults:\n${this.faults.join('\n')}`);
  }
}
