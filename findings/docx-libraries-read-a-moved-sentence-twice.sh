#!/usr/bin/env bash
# Guess: the text of a Word file with tracked changes is what the page shows if all changes are accepted. An inserted
# word is in it, a deleted word is not, and a moved sentence is at its new place only. The value of a content control (a
# field that a person fills in) is a part of its line.
# Seen with python-docx 1.2.0, docx2txt 0.9, docx2python 3.7.1, mammoth 1.13.0, markitdown 0.1.9 and undoc 0.27.1 for
# Python, mammoth 1.13.0, word-extractor 1.0.4 and officeparser 8.1.1 for Node: python-docx gives neither the old number
# nor the new one, nothing of the moved sentence, and no value of a content control. docx2txt, docx2python, undoc and
# word-extractor give the moved sentence at both places, so a step that a person moved reads as two. No library gives an
# error or a warning. mammoth and officeparser, and markitdown, which uses mammoth, do what the guess says.
# Output seen (Python 3.11, Node 20.20.2): four lines with a replaced number, a sentence moved from the second line to
# the third, and a content control
#   accepted: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
#   python-docx: Pay  euro. | Monday: call. | Friday: rest. | Guest:
#   docx2txt: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
#   docx2python: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
#   mammoth: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
#   markitdown: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
#   undoc: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
#   mammoth for Node: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
#   word-extractor: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
#   officeparser: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"commonjs"}' >package.json
npm install --no-audit --no-fund --ignore-scripts mammoth@1.13.0 word-extractor@1.0.4 officeparser@8.1.1 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check python-docx==1.2.0 docx2txt==0.9 docx2python==3.7.1 mammoth==1.13.0 \
    'markitdown[docx]==0.1.9' undoc==0.27.1 2>errors
cat >text.py <<'PY'
import zipfile
import docx, docx2python, docx2txt, mammoth, markitdown, undoc

OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
TYPES = f"""<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Override PartName="/word/document.xml" ContentType="{WORD}"/></Types>"""
RELATIONS = f"""<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">
<Relationship Id="r1" Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>"""
NO_RELATIONS = '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"/>'


def words(text, element="t"):
    return f'<w:r><w:{element} xml:space="preserve">{text}</w:{element}></w:r>'


def change(kind, number, content):
    return f'<w:{kind} w:id="{number}" w:author="Bob" w:date="2026-11-30T10:00:00Z">{content}</w:{kind}>'


def move(kind, number, content):
    start = f'<w:{kind}RangeStart w:id="{number}" w:author="Bob" w:date="2026-11-30T10:00:00Z" w:name="move1"/>'
    return f'{start}{change(kind, number + 1, content)}<w:{kind}RangeEnd w:id="{number}"/>'


LINES = (words("Pay ") + change("del", 1, words("100", "delText")) + change("ins", 2, words("90")) + words(" euro."),
         words("Monday: call.") + move("moveFrom", 3, words(" Send the keys.")),
         words("Friday: rest.") + move("moveTo", 5, words(" Send the keys.")),
         words("Guest: ") + f"<w:sdt><w:sdtPr><w:text/></w:sdtPr><w:sdtContent>{words('Ann')}</w:sdtContent></w:sdt>")
with zipfile.ZipFile("plan.docx", "w") as file:
    body = "".join(f"<w:p>{line}</w:p>" for line in LINES)
    spaces = f'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:r="{OFFICE}"'
    text = f"<w:document {spaces}><w:body>{body}</w:body></w:document>"
    for name, content in (("[Content_Types].xml", TYPES), ("_rels/.rels", RELATIONS), ("word/document.xml", text),
                          ("word/_rels/document.xml.rels", NO_RELATIONS)):
        file.writestr(name, f'<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n{content}')


def show(name, text):
    print(f"{name}: {' | '.join(line.strip() for line in text.splitlines() if line.strip())}")


with open("plan.docx", "rb") as file:
    for name, text in (("python-docx", "\n".join(paragraph.text for paragraph in docx.Document("plan.docx").paragraphs)),
                       ("docx2txt", docx2txt.process("plan.docx")),
                       ("docx2python", docx2python.docx2python("plan.docx").text),
                       ("mammoth", mammoth.extract_raw_text(file).value),
                       ("markitdown", markitdown.MarkItDown().convert("plan.docx").text_content),
                       ("undoc", undoc.parse_file("plan.docx").to_text())):
        show(name, text)
PY
cat >text.js <<'JS'
const mammoth = require('mammoth');
const { parseOffice } = require('officeparser');
const WordExtractor = require('word-extractor');

const reads = {
  'mammoth for Node': async (path) => (await mammoth.extractRawText({ path })).value,
  'word-extractor': async (path) => (await new WordExtractor().extract(path)).getBody(),
  officeparser: async (path) => (await (await parseOffice(path)).to('text')).value,
};
(async () => {
  for (const [name, read] of Object.entries(reads)) {
    const lines = (await read('plan.docx')).split('\n').map((line) => line.trim());
    console.log(`${name}: ${lines.filter(Boolean).join(' | ')}`);
  }
})();
JS
echo 'accepted: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann'
{ v/bin/python text.py 2>>errors && node text.js; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
python-docx: Pay  euro. | Monday: call. | Friday: rest. | Guest:
docx2txt: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
docx2python: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
mammoth: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
markitdown: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
undoc: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
mammoth for Node: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
word-extractor: Pay 90 euro. | Monday: call. Send the keys. | Friday: rest. Send the keys. | Guest: Ann
officeparser: Pay 90 euro. | Monday: call. | Friday: rest. Send the keys. | Guest: Ann
TEXT
