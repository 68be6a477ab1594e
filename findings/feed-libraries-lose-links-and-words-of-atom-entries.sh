#!/usr/bin/env bash
# Guess: a library that reads feeds gives the link, the title and the text of an entry of Atom (RFC 4287). It resolves a
# link by `xml:base`, gives the words of a title with markup (type="xhtml"), and leaves a plain text (type="text") as it
# is.
# Seen with feedparser 6.0.14, fastfeedparser 0.6.5 and atoma 0.0.17 for Python, rss-parser 3.13.0, feedsmith 3.0.1,
# @rowanmanning/feed-parser 2.1.5 and @extractus/feed-extractor 8.0.3 for Node: only feedparser and
# @rowanmanning/feed-parser give all three. @extractus/feed-extractor gives no link, and the other four give one without
# its site. fastfeedparser and @extractus/feed-extractor give an empty title, rss-parser gives an object, and atoma
# raises an error for the whole feed. The `description` or `contentSnippet` of three libraries takes a plain text for
# HTML, so "1 < 2" is 1. There is no other error, and no warning.
# Output seen (Python 3.11, Node 20.20.2): the link, a title with markup, the text of an entry
#   feedparser: "https://example.org/news/1" | "H<sub>2</sub>O" | "1 < 2, List<Int>"
#   fastfeedparser: "1" | "" | "1"
#   atoma: "1" | AttributeError | "1 < 2, List<Int>"
#   rss-parser: "1" | an object | "1"
#   feedsmith: "1" | "H<sub>2</sub>O" | "1 < 2, List<Int>"
#   @rowanmanning/feed-parser: "https://example.org/news/1" | "H2O" | "1 < 2, List<Int>"
#   @extractus/feed-extractor: "" | "" | "1"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts rss-parser@3.13.0 feedsmith@3.0.1 @rowanmanning/feed-parser@2.1.5 \
    @extractus/feed-extractor@8.0.3 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check feedparser==6.0.14 fastfeedparser==0.6.5 atoma==0.0.17 2>errors
feed() { # name, title, with its attributes
    cat >"$1.xml" <<XML
<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xml:base="https://example.org/news/">
<id>urn:example:feed</id><title>News</title><updated>2026-12-07T09:00:00Z</updated><author><name>Ann</name></author>
<entry><id>urn:example:1</id><title $2</title><updated>2026-12-07T09:00:00Z</updated><link href="1"/>
<content type="text">1 &lt; 2, List&lt;Int&gt;</content></entry>
</feed>
XML
}
feed plain 'type="text">water'
feed markup 'type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml">H<sub>2</sub>O</div>'
cat >read.py <<'PY'
import json, pathlib
import atoma, fastfeedparser, feedparser


def with_feedparser(text):
    entry = feedparser.parse(text).entries[0]
    return entry.link, entry.title, entry.summary


def with_fastfeedparser(text):
    entry = fastfeedparser.parse(text).entries[0]
    return entry["link"], entry["title"], entry["description"]


def with_atoma(text):
    entry = atoma.parse_atom_bytes(text).entries[0]
    return entry.links[0].href, entry.title.value, entry.content.value


def title(read):
    try:
        return json.dumps(read(pathlib.Path("markup.xml").read_bytes())[1])
    except Exception as error:
        return type(error).__name__


for name, read in (("feedparser", with_feedparser), ("fastfeedparser", with_fastfeedparser), ("atoma", with_atoma)):
    link, _, text = read(pathlib.Path("plain.xml").read_bytes())
    print(f"{name}: {json.dumps(link)} | {title(read)} | {json.dumps(text)}")
PY
cat >read.js <<'JS'
import { readFileSync } from 'node:fs';
import { extractFromXml } from '@extractus/feed-extractor';
import { parseFeed } from '@rowanmanning/feed-parser';
import { parseAtomFeed } from 'feedsmith';
import Parser from 'rss-parser';

const reads = {
  'rss-parser': async (xml) => {
    const { link, title, contentSnippet } = (await new Parser().parseString(xml)).items[0];
    return [link, title, contentSnippet];
  },
  feedsmith: (xml) => {
    const { links, title, content } = parseAtomFeed(xml).entries[0];
    return [links[0].href, title.value, content.value];
  },
  '@rowanmanning/feed-parser': (xml) => {
    const { url, title, content } = parseFeed(xml).items[0];
    return [url, title, content];
  },
  '@extractus/feed-extractor': (xml) => {
    const { link, title, description } = extractFromXml(xml).entries[0];
    return [link, title, description];
  },
};
for (const [name, read] of Object.entries(reads)) {
  const [link, , text] = await read(readFileSync('plain.xml', 'utf8'));
  const [, title] = await read(readFileSync('markup.xml', 'utf8'));
  console.log(`${name}: ${JSON.stringify(link)} | ${typeof title === 'object' ? 'an object' : JSON.stringify(title)} | ${JSON.stringify(text)}`);
}
JS
{ v/bin/python read.py 2>>errors && node read.js 2>>errors; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
feedparser: "https://example.org/news/1" | "H<sub>2</sub>O" | "1 < 2, List<Int>"
fastfeedparser: "1" | "" | "1"
atoma: "1" | AttributeError | "1 < 2, List<Int>"
rss-parser: "1" | an object | "1"
feedsmith: "1" | "H<sub>2</sub>O" | "1 < 2, List<Int>"
@rowanmanning/feed-parser: "https://example.org/news/1" | "H2O" | "1 < 2, List<Int>"
@extractus/feed-extractor: "" | "" | "1"
TEXT
