#!/usr/bin/env bash
# Guess: a library that turns HTML into Markdown or text for a model keeps what changes the meaning: a footnote mark or
# a power stays apart from its number, a struck price stays struck, a ticked box stays ticked, and a table cell stays in
# its column.
# Seen with html2text 2025.4.15, markdownify 1.2.3, markitdown 0.1.9, inscriptis 2.7.6 and trafilatura 2.3.1 for Python,
# turndown 7.2.5 (alone, and with turndown-plugin-gfm 1.0.2), html-to-text 10.0.1, node-html-markdown 2.0.0 and
# rehype-remark 10.0.1 with remark-gfm 4.0.1 for Node: nine of ten write 10 to the sixth as 106, and 30 with footnote 2
# as 302. Only trafilatura keeps the tag. Three lose which price is struck, and seven lose which box is ticked. Under a
# cell that goes over two rows, six of the eight that write rows put the second row one column too far left, so that the
# day is Bob. No library gives a warning. A program that gives pages to a model can write a ^ into each <sup> first.
# Output seen (Python 3.11, Node 20.20.2): a power and a footnote; a struck price; two boxes with the first one ticked;
# the rows of a table with the columns day, person and task, in which Monday goes over both rows
#   html2text: 106 bytes in 302 days ; ~~120~~ 90 euro ; * keys / * lights ; Mon| Ann| keys / Bob| lights
#   markdownify: 106 bytes in 302 days ; ~~120~~ 90 euro ; * keys / * lights ; | Mon | Ann | keys | / | Bob | lights |
#   markitdown: 106 bytes in 302 days ; ~~120~~ 90 euro ; * [x] keys / * [ ] lights ; | Mon | Ann | keys | / | Bob | lights |
#   inscriptis: 106 bytes in 302 days ; 120 90 euro ; * keys / * lights ; Mon Ann keys / Bob lights
#   trafilatura: 10<sup>6</sup> bytes in 30<sup>2</sup> days ; ~~120~~ 90 euro ; - keys / - lights ; | Mon | Ann | keys | / | | Bob | lights |
#   inscriptis, the table with its spaces: Day  Who     Task / Mon  Ann     keys / Bob  lights
#   turndown: 106 bytes in 302 days ; 120 90 euro ; * keys / * lights ; Mon / Ann / keys / Bob / lights
#   turndown-plugin-gfm: 106 bytes in 302 days ; ~120~ 90 euro ; * [x] keys / * [ ] lights ; | Mon | Ann | keys | / | Bob | lights |
#   html-to-text: 106 bytes in 302 days ; 120 90 euro ; * keys / * lights ; MonAnnkeysBoblights
#   node-html-markdown: 106 bytes in 302 days ; ~~120~~ 90 euro ; * keys / * lights ; | Mon | Ann | keys | / | Bob | lights | |
#   rehype-remark: 106 bytes in 302 days ; ~~120~~ 90 euro ; * [x] keys / * [ ] lights ; | Mon | Ann | keys | / | | Bob | lights |
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts turndown@7.2.5 turndown-plugin-gfm@1.0.2 html-to-text@10.0.1 node-html-markdown@2.0.0 \
    unified@11.0.5 rehype-parse@9.0.1 rehype-remark@10.0.1 remark-gfm@4.0.1 remark-stringify@11.0.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check html2text==2025.4.15 markdownify==1.2.3 markitdown==0.1.9 \
    inscriptis==2.7.6 trafilatura==2.3.1 lxml_html_clean==0.4.6 2>errors
cat >pieces.json <<'JSON'
["<p>10<sup>6</sup> bytes in 30<sup>2</sup> days</p>",
 "<p><del>120</del> 90 euro</p>",
 "<ul><li><input type=\"checkbox\" checked> keys</li><li><input type=\"checkbox\"> lights</li></ul>",
 "<table><tr><th>Day</th><th>Who</th><th>Task</th></tr><tr><td rowspan=\"2\">Mon</td><td>Ann</td><td>keys</td></tr><tr><td>Bob</td><td>lights</td></tr></table>"]
JSON
cat >text.py <<'PY'
import io, json, re
import html2text, inscriptis, markdownify, trafilatura
from markitdown import MarkItDown

BEFORE = "These are the words before the piece, so that the page has a text."


def with_markitdown(html):
    return MarkItDown().convert_stream(io.BytesIO(html.encode()), file_extension=".html").text_content


def with_trafilatura(html):  # looks for the article of a page
    page = f"<html><body><article><p>{BEFORE}</p>{html}</article></body></html>"
    return trafilatura.extract(page, output_format="markdown", include_formatting=True).replace(BEFORE, "")


def short(text):
    """The lines, without the head of the table."""
    lines = (" ".join(line.split()) for line in re.split("Task", text)[-1].splitlines())
    return " / ".join(line for line in lines if re.search(r"\w", line))


with open("pieces.json") as file:
    pieces = json.load(file)
for name, convert in (("html2text", html2text.html2text), ("markdownify", markdownify.markdownify), ("markitdown", with_markitdown),
                      ("inscriptis", inscriptis.get_text), ("trafilatura", with_trafilatura)):
    print(f"{name}: {' ; '.join(short(convert(piece)) for piece in pieces)}")
print("inscriptis, the table with its spaces:", " / ".join(inscriptis.get_text(pieces[-1]).splitlines()))
PY
cat >text.js <<'JS'
import { readFileSync } from 'node:fs';
import { convert } from 'html-to-text';
import { NodeHtmlMarkdown } from 'node-html-markdown';
import rehypeParse from 'rehype-parse';
import rehypeRemark from 'rehype-remark';
import remarkGfm from 'remark-gfm';
import remarkStringify from 'remark-stringify';
import Turndown from 'turndown';
import { gfm } from 'turndown-plugin-gfm';
import { unified } from 'unified';

const pipeline = unified().use(rehypeParse).use(rehypeRemark).use(remarkGfm).use(remarkStringify);
const converts = {
  turndown: (html) => new Turndown().turndown(html),
  'turndown-plugin-gfm': (html) => new Turndown().use(gfm).turndown(html),
  'html-to-text': (html) => convert(html),
  'node-html-markdown': (html) => NodeHtmlMarkdown.translate(html),
  'rehype-remark': (html) => String(pipeline.processSync(html)),
};
const short = (text) => {
  const lines = text.split('Task').pop().split('\n').map((line) => line.trim().replace(/\s+/g, ' '));
  return lines.filter((line) => /\w/.test(line)).join(' / ');
};
const pieces = JSON.parse(readFileSync('pieces.json', 'utf8'));
for (const [name, toText] of Object.entries(converts)) console.log(`${name}: ${pieces.map((piece) => short(toText(piece))).join(' ; ')}`);
JS
{ v/bin/python text.py 2>>errors && node text.js; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
html2text: 106 bytes in 302 days ; ~~120~~ 90 euro ; * keys / * lights ; Mon| Ann| keys / Bob| lights
markdownify: 106 bytes in 302 days ; ~~120~~ 90 euro ; * keys / * lights ; | Mon | Ann | keys | / | Bob | lights |
markitdown: 106 bytes in 302 days ; ~~120~~ 90 euro ; * [x] keys / * [ ] lights ; | Mon | Ann | keys | / | Bob | lights |
inscriptis: 106 bytes in 302 days ; 120 90 euro ; * keys / * lights ; Mon Ann keys / Bob lights
trafilatura: 10<sup>6</sup> bytes in 30<sup>2</sup> days ; ~~120~~ 90 euro ; - keys / - lights ; | Mon | Ann | keys | / | | Bob | lights |
inscriptis, the table with its spaces: Day  Who     Task / Mon  Ann     keys / Bob  lights
turndown: 106 bytes in 302 days ; 120 90 euro ; * keys / * lights ; Mon / Ann / keys / Bob / lights
turndown-plugin-gfm: 106 bytes in 302 days ; ~120~ 90 euro ; * [x] keys / * [ ] lights ; | Mon | Ann | keys | / | Bob | lights |
html-to-text: 106 bytes in 302 days ; 120 90 euro ; * keys / * lights ; MonAnnkeysBoblights
node-html-markdown: 106 bytes in 302 days ; ~~120~~ 90 euro ; * keys / * lights ; | Mon | Ann | keys | / | Bob | lights | |
rehype-remark: 106 bytes in 302 days ; ~~120~~ 90 euro ; * [x] keys / * [ ] lights ; | Mon | Ann | keys | / | | Bob | lights |
TEXT
