#!/usr/bin/env bash
# Guess: a library that turns a model's Markdown into Slack's text or blocks loses some looks, because Slack has fewer
# of them. It keeps the words, the numbers and the ends of lines.
# Seen with slackify-markdown 5.0.0, md-to-slack 1.1.7, @tryfabric/mack 1.2.1 and markdown-to-slack-blocks 1.5.0 for
# Node, markdown_to_mrkdwn 0.3.3, md2mrkdwn 0.4.5 and slackify_markdown 0.2.4 for Python: six of seven change the text,
# without an error. Two write "_" for the asterisks of a product. Three write two lines as one, and no space stays
# between their words. One leaves out tables. One leaves out the inner items of a list. One begins each numbered list at
# 1, and another one puts no number into the block, with which Slack does so. Two leave out the marks that say which
# task is done. slackify-markdown puts a backslash at the end of a line that has a hard break.
# Output seen (Python 3.11, Node 20.20.2), a slash for an end of line:
#   slackify-markdown: break "Street 1\ / London"
#   md-to-slack: break "Street 1London", inner item "- a- b / - c", table ""
#   @tryfabric/mack: break "Street 1London", inner item "• a / • c", numbers "1. five / 2. six", tasks "• pay / • call"
#   markdown-to-slack-blocks: break "Street 1London", numbers "1. five / 2. six", tasks "• pay / • call"
#   markdown_to_mrkdwn: product "It is 2 _ 3 _ 4 here."
#   md2mrkdwn: product "It is 2 _ 3 _ 4 here."
#   slackify_markdown: keeps all
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts slackify-markdown@5.0.0 md-to-slack@1.1.7 @tryfabric/mack@1.2.1 \
    markdown-to-slack-blocks@1.5.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check markdown_to_mrkdwn==0.3.3 md2mrkdwn==0.4.5 slackify_markdown==0.2.4
cat >texts.json <<'JSON'
{"product": "It is 2 * 3 * 4 here.",
 "break": "Street 1  \nLondon",
 "inner item": "- a\n  - b\n- c",
 "numbers": "5. five\n6. six",
 "tasks": "- [ ] pay\n- [x] call",
 "table": "| name | sum |\n|---|---|\n| ann | 4 |"}
JSON
cat >convert.py <<'PY'
import json
import markdown_to_mrkdwn, md2mrkdwn, slackify_markdown

texts = json.load(open("texts.json"))
for name, convert in (("markdown_to_mrkdwn", markdown_to_mrkdwn.SlackMarkdownConverter().convert),
                      ("md2mrkdwn", md2mrkdwn.convert),
                      ("slackify_markdown", slackify_markdown.slackify_markdown)):
    print(json.dumps({"name": name, "texts": {key: convert(text) for key, text in texts.items()}}))
PY
cat >convert.js <<'JS'
import { readFileSync } from 'node:fs';
import mack from '@tryfabric/mack';
import { markdownToBlocks } from 'markdown-to-slack-blocks';
import { markdownToSlack } from 'md-to-slack';
import { slackifyMarkdown } from 'slackify-markdown';

// A block as the lines that Slack shows for it. An ordered list begins at its offset and 1.
const lines = (block) => {
  if (Array.isArray(block)) return block.map(lines).join('\n');
  if (typeof block.text === 'string') return block.text;
  if (block.text) return lines(block.text);
  if (block.rows) return block.rows.map((row) => row.map(lines).join(' | ')).join('\n');
  const parts = block.elements.map(lines);
  if (block.type === 'rich_text_section') return parts.join('');
  if (block.type !== 'rich_text_list') return parts.join('\n');
  return parts.map((part, at) => (block.style === 'ordered' ? `${(block.offset ?? 0) + at + 1}. ` : '• ') + part).join('\n');
};
const libraries = {
  'slackify-markdown': slackifyMarkdown,
  'md-to-slack': markdownToSlack,
  '@tryfabric/mack': async (text) => lines(await mack.markdownToBlocks(text)),
  'markdown-to-slack-blocks': (text) => lines(markdownToBlocks(text)),
};
const texts = Object.entries(JSON.parse(readFileSync('texts.json', 'utf8')));
// What the words of each text are: the result has them in this order.
const kept = {
  product: /2 \* 3 \* 4/,
  break: /Street 1\nLondon/,
  'inner item': /a\n[^a-z]*b\n[^a-z]*c/,
  numbers: /5\. +five\s+6\. +six/,
  tasks: /^(.*)pay\n(?!\1call).*call$/,
  table: /ann[ |]+4/,
};
const show = (name, results) => {
  const trimmed = results.map(([key, result]) => [key, result.trim().replace(/\s*\n\s*/g, '\n')]);
  const changed = trimmed.filter(([key, result]) => !kept[key].test(result));
  const shown = changed.map(([key, result]) => `${key} "${result.replaceAll('\n', ' / ')}"`);
  console.log(`${name}: ${shown.join(', ') || 'keeps all'}`);
};
for (const [name, convert] of Object.entries(libraries)) {
  const results = [];
  for (const [key, text] of texts) results.push([key, await convert(text)]);
  show(name, results);
}
for (const line of readFileSync('python', 'utf8').trim().split('\n')) {
  const { name, texts: results } = JSON.parse(line);
  show(name, Object.entries(results));
}
JS
v/bin/python convert.py >python
node convert.js | tee seen
diff seen - <<'TEXT'
slackify-markdown: break "Street 1\ / London"
md-to-slack: break "Street 1London", inner item "- a- b / - c", table ""
@tryfabric/mack: break "Street 1London", inner item "• a / • c", numbers "1. five / 2. six", tasks "• pay / • call"
markdown-to-slack-blocks: break "Street 1London", numbers "1. five / 2. six", tasks "• pay / • call"
markdown_to_mrkdwn: product "It is 2 _ 3 _ 4 here."
md2mrkdwn: product "It is 2 _ 3 _ 4 here."
slackify_markdown: keeps all
TEXT
