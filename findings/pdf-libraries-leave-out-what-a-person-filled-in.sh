#!/usr/bin/env bash
# Guess: the text of a PDF from a library contains what a reader shows on the page. A form that a person has filled in
# gives the values of its fields with their labels, because the file holds an appearance stream for each. So do words
# that were typed onto a page as a note.
# Seen with pypdf 7.1.1, pdfminer.six 20260107, pdfplumber 0.11.10, pypdfium2 5.15.2, markitdown 0.1.9 and pymupdf 2.0
# for Python, unpdf 1.7.0 and pdf-parse 2.4.5 for Node: seven of eight give the labels and none of the values, without a
# warning, so a filled form reads as an empty one. Only pymupdf gives the values, behind all labels. Other functions of
# some libraries give the fields of a form, and those hold no note. pypdf has `get_form_text_fields`, which shows what
# the form holds.
# Output seen (Python 3.11, Node 20.20.2): the text of a form with two fields, and of a page with a note, a slash for an
# end of line
#   pypdf: "Guest: / Room:" | "Guest:"
#   pdfminer.six: "Guest: / Room:" | "Guest:"
#   pdfplumber: "Guest: / Room:" | "Guest:"
#   pypdfium2: "Guest: / Room:" | "Guest:"
#   markitdown: "Guest: / Room:" | "Guest:"
#   pymupdf: "Guest: / Room: / Ann Miller / 7" | "Guest: / Ann Miller"
#   pypdf's fields: {"guest": "Ann Miller", "room": "7"} | {}
#   unpdf: "Guest: / Room:" | "Guest:"
#   pdf-parse: "Guest: / Room:" | "Guest:"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check pypdf==7.1.1 pdfminer.six==20260107 pdfplumber==0.11.10 \
    pypdfium2==5.15.2 pymupdf==2.0 'markitdown[pdf]==0.1.9' reportlab==5.1.0
for name in unpdf@1.7.0 pdf-parse@2.4.5; do # each with a pdf.js of its own
    mkdir "${name%@*}"
    echo '{"private":true,"type":"module"}' >"${name%@*}/package.json"
    npm install --no-audit --no-fund --ignore-scripts --prefix "${name%@*}" "$name" >log 2>&1
done
cat >text.py <<'PY'
import json
import pdfminer.high_level, pdfplumber, pymupdf, pypdf, pypdfium2, reportlab.pdfgen.canvas
from markitdown import MarkItDown

page = reportlab.pdfgen.canvas.Canvas("form.pdf")
for label, value, height in (("Guest", "Ann Miller", 800), ("Room", "7", 770)):
    page.drawString(50, height, f"{label}:")
    page.acroForm.textfield(name=label.lower(), value=value, x=150, y=height - 5, width=200, height=20)
page.save()
paper = pymupdf.open()
paper.new_page().insert_text((50, 50), "Guest:")
paper[0].add_freetext_annot((150, 35, 350, 60), "Ann Miller").update()
paper.save("note.pdf")
for name, words in (("form.pdf", {"Ann Miller", "7"}), ("note.pdf", {"Ann Miller"})):  # the appearance streams have the words
    drawn = [annotation.get_object()["/AP"]["/N"].get_data() for annotation in pypdf.PdfReader(name).pages[0]["/Annots"]]
    assert len(drawn) == len(words) and all(any(word.encode() in stream for stream in drawn) for word in words), drawn


def show(name, read):
    text, note = ((" / ".join(line.strip() for line in read(file).split("\n") if line.strip())) for file in ("form.pdf", "note.pdf"))
    print(f'{name}: "{text}" | "{note}"')


def fields(name):
    return json.dumps(pypdf.PdfReader(name).get_form_text_fields())


show("pypdf", lambda name: pypdf.PdfReader(name).pages[0].extract_text())
show("pdfminer.six", pdfminer.high_level.extract_text)
show("pdfplumber", lambda name: pdfplumber.open(name).pages[0].extract_text())
show("pypdfium2", lambda name: pypdfium2.PdfDocument(name)[0].get_textpage().get_text_range())
show("markitdown", lambda name: MarkItDown().convert(name).text_content)
show("pymupdf", lambda name: pymupdf.open(name)[0].get_text())
print(f"pypdf's fields: {fields('form.pdf')} | {fields('note.pdf')}")
PY
cat >unpdf/text.js <<'JS'
import { extractText } from 'unpdf';

export default async (bytes) => (await extractText(bytes)).text[0];
JS
cat >pdf-parse/text.js <<'JS'
import { PDFParse } from 'pdf-parse';

export default async (data) => (await new PDFParse({ data }).getText()).pages[0].text;
JS
cat >show.js <<'JS'
const { readFileSync } = require('node:fs');

const name = process.argv[2];
import(`./${name}/text.js`).then(async ({ default: read }) => {
  const texts = [];
  for (const file of ['form.pdf', 'note.pdf']) texts.push(await read(new Uint8Array(readFileSync(file))));
  console.log(`${name}: ${texts.map((text) => `"${text.trim().replace(/\s*\n\s*/g, ' / ')}"`).join(' | ')}`);
});
JS
{ v/bin/python text.py 2>errors; node show.js unpdf; node show.js pdf-parse; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
pypdf: "Guest: / Room:" | "Guest:"
pdfminer.six: "Guest: / Room:" | "Guest:"
pdfplumber: "Guest: / Room:" | "Guest:"
pypdfium2: "Guest: / Room:" | "Guest:"
markitdown: "Guest: / Room:" | "Guest:"
pymupdf: "Guest: / Room: / Ann Miller / 7" | "Guest: / Ann Miller"
pypdf's fields: {"guest": "Ann Miller", "room": "7"} | {}
unpdf: "Guest: / Room:" | "Guest:"
pdf-parse: "Guest: / Room:" | "Guest:"
TEXT
