// Every page, full of hostile text: no script runs, nothing is blocked because nothing is tried, and the page keeps the rules
// of WCAG 2 A and AA.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import { modules, Visitor } from '../support/browser.mjs';
import { check, group, until } from '../support/check.mjs';
import { OPERATOR } from '../support/daemon.mjs';
import { ANSWERS, BIDI, EVIL_NAME, PAGES, hostileDaemon } from '../support/hostile.mjs';

const AXE = fs.readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
/** The sizes in CSS px and colours; the rules of structure do not depend on the colours. */
const LOOKS = [['light', 1200, RULES], ['dark', 1200, ['color-contrast']], ['light', 360, RULES], ['dark', 360, ['color-contrast']]];

/** Opens a page, and waits until it has loaded what it shows. */
async function settled(visitor, address, title, text) {
  const page = await visitor.open(`#/${address}`);
  await page.getByRole('heading', { name: title, level: 1, exact: true }).waitFor();
  await until(`${address} shows “${text}”`, async () => (await page.locator('main').innerText()).includes(text));
  await until(`${address} has loaded`, async () => (await page.locator('.loading').count()) === 0);
  for (const folded of await page.locator('.picture summary, .figures summary, .work > details > summary').all()) await folded.click();
  return page;
}

/** What a hostile text could have made of the page. */
const made = () => ({
  hacked: window.hacked,
  images: [...document.images].map((image) => image.src).filter((src) => !src.endsWith('/console/assets/icon.svg')),
  scripts: document.scripts.length,
  links: [...document.links].map((link) => link.href).filter((href) => !/^(https?|mailto):/.test(href)),
  handlers: [...document.querySelectorAll('*')].filter((one) => [...one.attributes].some(({ name }) => name.startsWith('on'))).length,
});

/** Two halves, which run side by side. */
for (const half of [0, 1]) group('pages', async (browser) => {
  const { daemon, ids } = await hostileDaemon();
  // A header has no characters beyond ASCII.
  const visitor = await Visitor.signedIn(browser, daemon, OPERATOR, { userAgent: EVIL_NAME.replace(BIDI, '') });
  for (const [name, change] of Object.entries(ANSWERS)) {
    await visitor.context.route((url) => url.pathname === `/api/v1/${name}`, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: change(await response.json()) });
    });
  }
  return { daemon, ids, visitor };
}, async ({ visitor, daemon }) => {
  try { await visitor.close(); } finally { await daemon.close(); }
}, () => {
  for (const [address, title, text] of PAGES.filter((_, i) => i % 2 === half)) {
    const of = (ids) => (typeof address === 'string' ? address : address(ids));
    const name = of({ session: 'KEY', read: 'ID', asked: 'ID of a waiting one', question: 'ID', job: 'ID', fired: 'ID' });
    check(`${name} shows hostile text as text, and keeps WCAG 2 AA`, async ({ visitor, ids }) => {
      const page = await settled(visitor, of(ids), title, text);
      assert.deepEqual(await page.evaluate(made), { hacked: undefined, images: [], scripts: 1, links: [], handlers: 0 });
      assert.ok(!(await page.locator('body').innerText()).includes(BIDI), 'a hidden character is in the text of the page');
      await page.evaluate(AXE);
      const found = [];
      for (const [colorScheme, width, rules] of LOOKS) {
        await page.emulateMedia({ colorScheme });
        await page.setViewportSize({ width, height: 800 });
        const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (over > 0) found.push(`${colorScheme} ${width}: the page is ${over} px too wide`);
        const violations = await page.evaluate(async (values) => {
          const type = values.includes('color-contrast') ? 'rule' : 'tag';
          return (await axe.run(document, { runOnly: { type, values }, resultTypes: ['violations'] })).violations
            .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.slice(0, 3).map((node) => `${node.html.slice(0, 200)} ${node.any[0]?.message ?? ''}`).join('\n  ')}`);
        }, rules);
        found.push(...violations.map((text) => `${colorScheme} ${width}: ${text}`));
      }
      assert.equal(found.join('\n'), '');
      const faults = visitor.faults.splice(0);
      assert.equal(faults.join('\n'), '');
      await page.close();
    });
  }
});
