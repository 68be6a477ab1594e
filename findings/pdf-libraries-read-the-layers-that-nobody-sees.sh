#!/usr/bin/env bash
# Guess: a PDF may have its text in several languages or a draft in layers (optional content), of which one is on. A library that leaves
# hidden layers out of a picture of the page leaves them out of its text too, and a library that reads text gives what a person sees.
# Seen with pypdf 7.1.1, pdfminer.six 20260107, pdfplumber 0.11.10, pypdfium2 5.15.2 and pymupdf 2.0 for Python, unpdf 1.7.0 for Node,
# which has pdf.js: only pymupdf does. PDFium draws the page without the hidden layers and gives their text. All others give it too, without
# a sign, so a model reads the fee of the draft beside the right one. pdfplumber puts the letters of both languages into one line, as they
# stand in one place, and the words of neither can be read.
# Output seen (Python 3.11, Node 20.20.2), for a page with the layers English (on), German (off) and Draft (off), a slash for an end of line:
#   PDFium draws the line of the draft: False
#   pymupdf: "The fee is 120 euros. / Page 1"
#   pypdfium2: "The fee is 120 euros. Die Kosten sind 120 Euro. / The fee is 100 euros. / Page 1"
#   pypdf: "The fee is 120 euros.Die Kosten sind 120 Euro. / The fee is 100 euros. / Page 1"
#   pdfminer.six: "Die Kosten sind 120 Euro. / The fee is 120 euros. / The fee is 100 euros. / Page 1"
#   pdfplumber: "TDhiee Kfeoes tiesn 1 s2i0n de u1r2o0s .Euro. / The fee is 100 euros. / Page 1"
#   unpdf: "The fee is 120 euros.Die Kosten sind 120 Euro. / The fee is 100 euros. / Page 1"
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts unpdf@1.7.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check pypdf==7.1.1 pdfminer.six==20260107 pdfplumber==0.11.10 \
    pypdfium2==5.15.2 pymupdf==2.0
cat >text.py <<'PY'
import pdfminer.high_level, pdfplumber, pymupdf, pypdf, pypdfium2

paper = pymupdf.open()
page = paper.new_page(width=400, height=200)
layers = {name: paper.add_ocg(name, on=name == "English") for name in ("English", "German", "Draft")}
page.insert_text((40, 50), "The fee is 120 euros.", oc=layers["English"])
page.insert_text((40, 50), "Die Kosten sind 120 Euro.", oc=layers["German"])
page.insert_text((40, 80), "The fee is 100 euros.", oc=layers["Draft"])
page.insert_text((40, 110), "Page 1")
paper.save("layers.pdf")

picture = pypdfium2.PdfDocument("layers.pdf")[0].render()
rows = [bytes(picture.buffer)[picture.stride * row:picture.stride * (row + 1)] for row in range(picture.height)]
assert any(set(row) != {255} for row in rows[35:60])
print("PDFium draws the line of the draft:", any(set(row) != {255} for row in rows[65:90]))


def show(name, read):
    lines = (line.strip() for line in read("layers.pdf").split("\n"))
    print(f'{name}: "{" / ".join(line for line in lines if line)}"', flush=True)


show("pymupdf", lambda name: pymupdf.open(name)[0].get_text())
show("pypdfium2", lambda name: pypdfium2.PdfDocument(name)[0].get_textpage().get_text_range())
show("pypdf", lambda name: pypdf.PdfReader(name).pages[0].extract_text())
show("pdfminer.six", pdfminer.high_level.extract_text)
show("pdfplumber", lambda name: pdfplumber.open(name).pages[0].extract_text())
PY
cat >text.js <<'JS'
import { readFileSync } from 'node:fs';
import { extractText } from 'unpdf';

const { text } = await extractText(new Uint8Array(readFileSync('layers.pdf')));
console.log(`unpdf: "${text[0].split('\n').map((line) => line.trim()).filter(Boolean).join(' / ')}"`);
JS
{
    v/bin/python text.py 2>errors
    node text.js
} | tee seen
diff seen - <<'TEXT'
PDFium draws the line of the draft: False
pymupdf: "The fee is 120 euros. / Page 1"
pypdfium2: "The fee is 120 euros. Die Kosten sind 120 Euro. / The fee is 100 euros. / Page 1"
pypdf: "The fee is 120 euros.Die Kosten sind 120 Euro. / The fee is 100 euros. / Page 1"
pdfminer.six: "Die Kosten sind 120 Euro. / The fee is 120 euros. / The fee is 100 euros. / Page 1"
pdfplumber: "TDhiee Kfeoes tiesn 1 s2i0n de u1r2o0s .Euro. / The fee is 100 euros. / Page 1"
unpdf: "The fee is 120 euros.Die Kosten sind 120 Euro. / The fee is 100 euros. / Page 1"
TEXT
