#!/usr/bin/env bash
# Guess: a library that reads contacts (vCard 4.0, RFC 6350) gives the note without the backslashes of the file, the company apart from its
# department, `TYPE="cell,voice"` as the two types that it is in the examples of the RFC (6.4.1), the label of an address as one text, and
# the group by which a contact says that a number is that of the boat (3.3).
# Seen with ical.js 2.2.1, vcf 2.1.2, vcard4 4.0.5, vcard4-ts 0.4.1 and vcard-parser 1.0.0 for Node, vobject 0.9.9 for Python: none of six
# does, and no two fail in the same way. ical.js keeps the backslash before a semicolon, and vcf all of them. For vcard4-ts, vcard-parser
# and vobject the number has one type "cell,voice", so a program that looks for a mobile number finds none. vcard4 divides a label in
# quotes at its comma; vcf and vcard-parser keep the quotes. vcard4-ts leaves the group out, has company and department as one name, and
# warns of the comma in quotes as if it were a mistake of the file. The others give no error and no warning.
# Output seen (Python 3.11, Node 20.20.2): what differs from the contact
#   ical.js: note "Ring twice, then wait.\nGate code\\; 7"
#   vcf: company "Miller\\; Sons;Sales" | label "\"12 High Street, Oslo\"" | note "Ring twice\\, then wait.\\nGate code\\; 7"
#   vcard4: label ["12 High Street"," Oslo"]
#   vcard4-ts: company ["Miller; Sons;Sales"] | types ["cell,voice"] | group none
#   vcard-parser: types ["\"cell,voice\""] | label "\"12 High Street, Oslo\""
#   vobject: types ["cell,voice"]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts ical.js@2.2.1 vcf@2.1.2 vcard4@4.0.5 vcard4-ts@0.4.1 vcard-parser@1.0.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check vobject==0.9.9
sed 's/$/\r/' >ann.vcf <<'VCF'
BEGIN:VCARD
VERSION:4.0
FN:Ann Miller
ORG:Miller\; Sons;Sales
item1.TEL;VALUE=uri;TYPE="cell,voice":tel:+47-22-00-00-01
item1.X-ABLABEL:Boat
ADR;TYPE=home;LABEL="12 High Street, Oslo":;;12 High Street;Oslo;;0150;Norway
NOTE:Ring twice\, then wait.\nGate code\; 7
END:VCARD
VCF
cat >contact.json <<'JSON'
{
  "company": ["Miller; Sons", "Sales"],
  "types": ["cell", "voice"],
  "group": "item1",
  "label": "12 High Street, Oslo",
  "note": "Ring twice, then wait.\nGate code; 7"
}
JSON
cat >read.js <<'JS'
import { readFileSync } from 'node:fs';
import ICAL from 'ical.js';
import vCard from 'vcf';
import { parse } from 'vcard4';
import { parseVCards } from 'vcard4-ts';
import vCardParser from 'vcard-parser';

const text = readFileSync('ann.vcf', 'utf8');
const contact = JSON.parse(readFileSync('contact.json'));
function withIcal() {
  const card = new ICAL.Component(ICAL.parse(text));
  const [org, tel, adr, note] = ['org', 'tel', 'adr', 'note'].map((name) => card.getFirstProperty(name));
  const [types, group, label] = [tel.getParameter('type'), tel.getParameter('group'), adr.getParameter('label')];
  return { company: org.getFirstValue(), types, group, label, note: note.getFirstValue() };
}
function withVcf() {
  const card = vCard.parse(text)[0];
  const tel = card.get('tel');
  const [org, note] = [card.get('org').valueOf(), card.get('note').valueOf()];
  return { company: org, types: tel.type, group: tel.group, label: card.get('adr').label, note };
}
function withVcard4() {
  const card = parse(text);
  const [org, tel, adr, note] = ['ORG', 'TEL', 'ADR', 'NOTE'].map((name) => card.parsedVcard.find(({ property }) => property === name));
  return { company: org.value, types: tel.parameters.TYPE, group: tel.group, label: adr.parameters.LABEL, note: note.value };
}
function withVcard4Ts() {
  const { ORG, TEL, ADR, NOTE } = parseVCards(text).vCards[0];
  const { TYPE } = TEL[0].parameters;
  return { company: ORG[0].value, types: TYPE, group: TEL[0].group, label: ADR[0].parameters.LABEL, note: NOTE[0].value };
}
function withVcardParser() {
  const { org, tel, adr, note } = vCardParser.parse(text);
  const { type } = tel[0].meta;
  return { company: org[0].value, types: type, group: tel[0].namespace, label: adr[0].meta.label[0], note: note[0].value };
}
const libraries = { 'ical.js': withIcal, vcf: withVcf, vcard4: withVcard4, 'vcard4-ts': withVcard4Ts, 'vcard-parser': withVcardParser };
for (const [name, read] of Object.entries(libraries)) {
  const seen = read();
  const differ = Object.keys(contact).filter((key) => JSON.stringify(seen[key]) !== JSON.stringify(contact[key]));
  console.log(`${name}: ${differ.map((key) => `${key} ${JSON.stringify(seen[key]) ?? 'none'}`).join(' | ')}`);
}
JS
cat >read.py <<'PY'
import json, vobject

card = vobject.readOne(open("ann.vcf", newline="").read())
seen = {"company": card.org.value, "types": card.tel.params["TYPE"], "group": card.tel.group, "label": card.adr.params["LABEL"][0],
        "note": card.note.value}
differ = [key for key, value in json.load(open("contact.json")).items() if seen[key] != value]
print("vobject:", " | ".join(f"{key} {json.dumps(seen[key])}" for key in differ))
PY
{
    node read.js
    v/bin/python read.py
} | tee seen
diff seen - <<'TEXT'
ical.js: note "Ring twice, then wait.\nGate code\\; 7"
vcf: company "Miller\\; Sons;Sales" | label "\"12 High Street, Oslo\"" | note "Ring twice\\, then wait.\\nGate code\\; 7"
vcard4: label ["12 High Street"," Oslo"]
vcard4-ts: company ["Miller; Sons;Sales"] | types ["cell,voice"] | group none
vcard-parser: types ["\"cell,voice\""] | label "\"12 High Street, Oslo\""
vobject: types ["cell,voice"]
TEXT
