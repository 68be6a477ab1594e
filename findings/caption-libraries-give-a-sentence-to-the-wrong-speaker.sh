#!/usr/bin/env bash
# Guess: a library for captions (WebVTT) gives the words of a cue with their speakers, with `&amp;` as &. A library that
# writes captions escapes < and &, so words are read again as they were.
# Seen with webvtt-py 0.6.0, pysubs2 1.8.1 and pycaption 2.3.14 for Python, subtitle 4.2.2, node-webvtt 1.9.4 and
# webvtt-parser 2.2.0 for Node: webvtt-py has one `voice` for a cue, the first one, so in a cue with two speakers the
# answer is Ann's own. pysubs2 has a field for the speaker and leaves it empty. Both take the tags away and leave
# `&amp;`. subtitle and node-webvtt give the text with its tags. The tree of webvtt-parser has the speakers, and "&;"
# for `&amp;` unless the program brings a table of its own. Without one, only pycaption does what the guess says. Four
# of the five that write captions escape nothing: "Map<String>" is a tag for a reader, and the word is gone. webvtt-py
# and pysubs2 lose it when they read their own file. No writer gives an error or a warning.
# Output seen (Python 3.11, Node 20.20.2): a cue with two speakers, and what is read where "Use Map<String> here" was
# written, by the parser and by the library that wrote it
#   webvtt-py: voice "Ann", "Do we ship? / No, Q&amp;A."
#   pysubs2: name "", "Do we ship? / No, Q&amp;A."
#   pycaption: "Ann: Do we ship? / Bob: No, Q&A."
#   subtitle: "<v Ann>Do we ship?</v> / <v Bob>No, Q&amp;A.</v>"
#   node-webvtt: "<v Ann>Do we ship?</v> / <v Bob>No, Q&amp;A.</v>"
#   webvtt-parser: "Ann: Do we ship? / Bob: No, Q&;A."
#   webvtt-parser with a table: "Ann: Do we ship? / Bob: No, Q&A."
#   written by webvtt-py: "Use Map here", itself "Use Map here"
#   written by pysubs2: "Use Map here", itself "Use Map here"
#   written by pycaption: "Use Map<String> here", itself "Use Map<String> here"
#   written by subtitle: "Use Map here", itself "Use Map<String> here"
#   written by node-webvtt: "Use Map here", itself "Use Map<String> here"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts subtitle@4.2.2 node-webvtt@1.9.4 webvtt-parser@2.2.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check webvtt-py==0.6.0 pysubs2==1.8.1 pycaption==2.3.14 2>errors
cat >meeting.vtt <<'VTT'
WEBVTT

00:00:01.000 --> 00:00:03.000
<v Ann>Do we ship?</v>
<v Bob>No, Q&amp;A.</v>
VTT
cat >captions.py <<'PY'
import pathlib
import pycaption, pysubs2, webvtt

WORDS = "Use Map<String> here"


def with_pycaption(name):
    captions = pycaption.WebVTTReader().read(pathlib.Path(name).read_text())
    return [caption.get_text() for caption in captions.get_captions(captions.get_languages()[0])]


def with_webvtt(name):
    return [(caption.voice, caption.text) for caption in webvtt.read(name)]


def with_pysubs2(name):
    return [(event.name, event.plaintext) for event in pysubs2.load(name)]


def write():
    file = webvtt.WebVTT()
    file.captions.append(webvtt.Caption("00:00:01.000", "00:00:02.000", WORDS))
    file.save("webvtt-py.vtt")
    event = pysubs2.SSAEvent(start=1000, end=2000)
    event.plaintext = WORDS
    file = pysubs2.SSAFile()
    file.append(event)
    file.save("pysubs2.vtt")
    caption = pycaption.Caption(1_000_000, 2_000_000, [pycaption.CaptionNode.create_text(WORDS)])
    captions = pycaption.CaptionSet({"en": pycaption.CaptionList([caption])})
    pathlib.Path("pycaption.vtt").write_text(pycaption.WebVTTWriter().write(captions))


def line(text):
    return '"%s"' % text.replace("\n", " / ")


[(voice, text)] = with_webvtt("meeting.vtt")
print(f'webvtt-py: voice "{voice}", {line(text)}')
[(name, text)] = with_pysubs2("meeting.vtt")
print(f'pysubs2: name "{name}", {line(text)}')
print(f"pycaption: {line(*with_pycaption('meeting.vtt'))}")
write()
for name, text in (("webvtt-py", with_webvtt("webvtt-py.vtt")[0][1]), ("pysubs2", with_pysubs2("pysubs2.vtt")[0][1]),
                   ("pycaption", with_pycaption("pycaption.vtt")[0])):
    pathlib.Path(f"{name}.own").write_text(line(text))
PY
cat >captions.js <<'JS'
import { readFileSync } from 'node:fs';
import webvtt from 'node-webvtt';
import subtitle from 'subtitle';
import parser from 'webvtt-parser';

const words = 'Use Map<String> here';
const table = { '&amp;': '&', '&lt;': '<', '&gt;': '>' };
const line = (text) => `"${text.replaceAll('\n', ' / ')}"`;
const text = ({ type, value, name, children }) =>
  type === 'text' ? value : `${name === 'v' ? `${value}: ` : ''}${children.map(text).join('')}`;
const withParser = (vtt, own) => text(new parser.WebVTTParser(own).parse(vtt).cues[0].tree);
const withSubtitle = (vtt) => subtitle.parseSync(vtt).find(({ type }) => type === 'cue').data.text;
const withWebvtt = (vtt) => webvtt.parse(vtt).cues[0].text;
const meeting = readFileSync('meeting.vtt', 'utf8');
console.log(`subtitle: ${line(withSubtitle(meeting))}`);
console.log(`node-webvtt: ${line(withWebvtt(meeting))}`);
console.log(`webvtt-parser: ${line(withParser(meeting))}`);
console.log(`webvtt-parser with a table: ${line(withParser(meeting, table))}`);
const written = {
  subtitle: subtitle.stringifySync([{ type: 'cue', data: { start: 1000, end: 2000, text: words } }], { format: 'WebVTT' }),
  'node-webvtt': webvtt.compile({ valid: true, cues: [{ identifier: '', start: 1, end: 2, text: words, styles: '' }] }),
};
for (const name of ['webvtt-py', 'pysubs2', 'pycaption']) written[name] = readFileSync(`${name}.vtt`, 'utf8');
for (const name of ['webvtt-py', 'pysubs2', 'pycaption', 'subtitle', 'node-webvtt']) {
  const own = { subtitle: withSubtitle, 'node-webvtt': withWebvtt }[name];
  const again = own ? line(own(written[name])) : readFileSync(`${name}.own`, 'utf8');
  console.log(`written by ${name}: ${line(withParser(written[name], table))}, itself ${again}`);
}
JS
{ v/bin/python captions.py 2>>errors && node captions.js 2>>errors; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
webvtt-py: voice "Ann", "Do we ship? / No, Q&amp;A."
pysubs2: name "", "Do we ship? / No, Q&amp;A."
pycaption: "Ann: Do we ship? / Bob: No, Q&A."
subtitle: "<v Ann>Do we ship?</v> / <v Bob>No, Q&amp;A.</v>"
node-webvtt: "<v Ann>Do we ship?</v> / <v Bob>No, Q&amp;A.</v>"
webvtt-parser: "Ann: Do we ship? / Bob: No, Q&;A."
webvtt-parser with a table: "Ann: Do we ship? / Bob: No, Q&A."
written by webvtt-py: "Use Map here", itself "Use Map here"
written by pysubs2: "Use Map here", itself "Use Map here"
written by pycaption: "Use Map<String> here", itself "Use Map<String> here"
written by subtitle: "Use Map here", itself "Use Map<String> here"
written by node-webvtt: "Use Map here", itself "Use Map<String> here"
TEXT
