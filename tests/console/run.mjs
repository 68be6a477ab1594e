// The console of a real daemon in a real Chromium.
//
//     BELAY_BIN=target/debug/belay node tests/console/run.mjs [PART OF A NAME]
//
// `tests/run.py` installs Chromium (a package of Debian) and the packages of package.json under build/console. Prints a line
// for each check and, as its last line, "N passed, N failed, N skipped".

import { launch } from './support/browser.mjs';
import { runAll } from './support/check.mjs';
import './checks/pages.mjs';
import './checks/now.mjs';
import './checks/names.mjs';
import './checks/picture.mjs';
import './checks/charts.mjs';
import './checks/work.mjs';
import './checks/chat.mjs';
import './checks/plans.mjs';
import './checks/log.mjs';
import './checks/lists.mjs';
import './checks/origin.mjs';
import './checks/sign-in.mjs';
import './checks/assets.mjs';

const browser = await launch();
const status = await runAll(browser, process.argv[2]);
await browser.close();
process.exit(status);
