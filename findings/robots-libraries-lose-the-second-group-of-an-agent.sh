#!/usr/bin/env bash
# Guess: libraries that read robots.txt for an agent that fetches pages follow RFC 9309. All groups of an agent count together (2.2.1), an
# empty line or a line such as `Sitemap:` does not end a group (2.2, 2.2.4), and of the rules that fit a path the longest counts (2.2.2).
# Seen with urllib.robotparser of Python 3.11, Protego 0.7.0, robotexclusionrulesparser 1.7.1, robotspy 0.13.0 and gpyrobotstxt 1.0.0 for
# Python, robots-parser 3.0.1, robots-txt-guard 1.0.2 with robots-txt-parse 2.0.1, and robots-txt-parser 2.0.3 for Node: three of eight do.
# Of two groups for one agent, three libraries keep the first one and robots-txt-parser the last one. A `Sitemap:` line between two names
# takes the rules away from the name in front of it with all three for Node and one for Python. urllib and robotexclusionrulesparser end a
# group at an empty line, and apply the first rule that fits. So an agent fetches pages that the site has asked it not to fetch.
# Output seen (Python 3.11, Node 20.20.2): the files of which a rule is not applied, in the order below
#   urllib.robotparser: second group, empty line, longest, end
#   protego: none
#   robotexclusionrulesparser: second group, sitemap, empty line, longest
#   robotspy: none
#   gpyrobotstxt: none
#   robots-parser: sitemap
#   robots-txt-guard: second group, sitemap
#   robots-txt-parser: first group, sitemap
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts robots-parser@3.0.1 robots-txt-guard@1.0.2 robots-txt-parse@2.0.1 \
    robots-txt-parser@2.0.3 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check Protego==0.7.0 robotexclusionrulesparser==1.7.1 robotspy==0.13.0 gpyrobotstxt==1.0.0
cat >cases.json <<'JSON'
{
  "first group": ["User-agent: bot\nDisallow: /a\n\nUser-agent: other\nDisallow: /c\n\nUser-agent: bot\nDisallow: /b\n", "/a"],
  "second group": ["User-agent: bot\nDisallow: /a\n\nUser-agent: other\nDisallow: /c\n\nUser-agent: bot\nDisallow: /b\n", "/b"],
  "sitemap": ["User-agent: bot\nSitemap: https://example.org/map.xml\nUser-agent: other\nDisallow: /a\n", "/a"],
  "empty line": ["User-agent: bot\n\nDisallow: /a\n", "/a"],
  "longest": ["User-agent: *\nAllow: /a\nDisallow: /a/b\n", "/a/b"],
  "end": ["User-agent: *\nDisallow: /*.pdf$\n", "/a.pdf"]
}
JSON
cat >read.py <<'PY'
import json
import robotexclusionrulesparser, robots
from gpyrobotstxt.robots_cc import RobotsMatcher
from protego import Protego
from urllib.robotparser import RobotFileParser

SITE = "https://example.org"


def with_urllib(text, path):
    parser = RobotFileParser()
    parser.parse(text.splitlines())
    return parser.can_fetch("bot", SITE + path)


def with_rules_parser(text, path):
    parser = robotexclusionrulesparser.RobotExclusionRulesParser()
    parser.parse(text)
    return parser.is_allowed("bot", SITE + path)


libraries = {
    "urllib.robotparser": with_urllib,
    "protego": lambda text, path: Protego.parse(text).can_fetch(SITE + path, "bot"),
    "robotexclusionrulesparser": with_rules_parser,
    "robotspy": lambda text, path: robots.RobotsParser.from_string(text).can_fetch("bot", SITE + path),
    "gpyrobotstxt": lambda text, path: RobotsMatcher().allowed_by_robots(text.encode(), ["bot"], SITE + path),
}
for name, allowed in libraries.items():
    wrong = [case for case, (text, path) in json.load(open("cases.json")).items() if allowed(text, path)]
    print(f"{name}: {', '.join(wrong) or 'none'}")
PY
cat >read.js <<'JS'
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import robotsParser from 'robots-parser';
import guard from 'robots-txt-guard';
import parse from 'robots-txt-parse';
import robotsTxtParser from 'robots-txt-parser';

const site = 'https://example.org';
const libraries = {
  'robots-parser': (text, path) => robotsParser(`${site}/robots.txt`, text).isAllowed(site + path, 'bot'),
  'robots-txt-guard': async (text, path) => guard(await parse(Readable.from([Buffer.from(text)]))).isAllowed('bot', path),
  'robots-txt-parser': (text, path) => {
    const parser = robotsTxtParser({ userAgent: 'bot' });
    parser.parseRobots(site, text);
    return parser.canCrawlSync(site + path);
  },
};
for (const [name, allowed] of Object.entries(libraries)) {
  const wrong = [];
  for (const [kind, [text, path]] of Object.entries(JSON.parse(readFileSync('cases.json'))))
    if (await allowed(text, path)) wrong.push(kind);
  console.log(`${name}: ${wrong.join(', ') || 'none'}`);
}
JS
{ v/bin/python read.py; node read.js; } | tee seen
diff seen - <<'TEXT'
urllib.robotparser: second group, empty line, longest, end
protego: none
robotexclusionrulesparser: second group, sitemap, empty line, longest
robotspy: none
gpyrobotstxt: none
robots-parser: sitemap
robots-txt-guard: second group, sitemap
robots-txt-parser: first group, sitemap
TEXT
