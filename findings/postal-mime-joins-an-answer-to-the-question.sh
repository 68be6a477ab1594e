#!/usr/bin/env bash
# Guess: a library that gives the text of a mail puts the lines of `format=flowed` (RFC 3676) together again, as mail programs have written
# them for decades, and takes the spaces out that `delsp=yes` has put into a long link. A library that does so knows quotes: the marks are
# no text, lines of different quotes do not belong together (4.5), and "-- " begins a signature, quoted or not (4.3).
# Seen with mailparser 3.14.2, postal-mime 4.0.0 and letterparser 0.1.8 for Node, `email` of Python 3.11, imap-tools 1.16.0, mail-parser
# 4.8.0 and fast-mail-parser 0.10.0: mailparser alone does. The five others beside postal-mime give the link in two lines with a space, so
# that it ends too early. postal-mime puts it together, and joins quoted lines with their marks. If the last line of a quote ends with a
# space, as the RFC expects of some programs, it joins the answer below to the question, so a program that removes quoted lines removes
# the answer. A quoted "-- " is joined to the name below.
# Output seen (Python 3.11, Node 20.20.2): the text of three mails, a slash for an end of line
#   by RFC 3676: "See https://example.org/orders/2026/list" | "> Shall I order them? / No." | "> -- / > Ann / Yes."
#   mailparser: "See https://example.org/orders/2026/list" | "> Shall I order them? / No." | "> -- / > Ann / Yes."
#   postal-mime: "See https://example.org/orders/2026/list" | "> Shall I order > them? No." | "> -- > Ann / Yes."
#   letterparser: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
#   email: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
#   imap-tools: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
#   mail-parser: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
#   fast-mail-parser: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts mailparser@3.14.2 postal-mime@4.0.0 letterparser@0.1.8 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check imap-tools==1.16.0 mail-parser==4.8.0 fast-mail-parser==0.10.0
cat >write.py <<'PY'
mails = {"link": ("format=flowed; delsp=yes", "See https://example.org/orders/ ", "2026/list"),
         "quote": ("format=flowed", "> Shall I order ", "> them? ", "No."),
         "signature": ("format=flowed", "> -- ", "> Ann", "Yes.")}
for name, (parameters, *lines) in mails.items():
    head = ["From: ann@example.org", "Subject: order", "MIME-Version: 1.0", f"Content-Type: text/plain; charset=us-ascii; {parameters}", ""]
    with open(f"{name}.eml", "wb") as file:
        file.write("".join(f"{line}\r\n" for line in head + lines).encode())
PY
cat >text.js <<'JS'
import { readFileSync } from 'node:fs';
import { extract } from 'letterparser';
import { simpleParser } from 'mailparser';
import PostalMime from 'postal-mime';

const libraries = {
  mailparser: async (mail) => (await simpleParser(mail)).text,
  'postal-mime': async (mail) => (await PostalMime.parse(mail)).text,
  letterparser: (mail) => extract(String(mail)).text,
};
for (const [name, read] of Object.entries(libraries)) {
  const texts = [];
  for (const mail of ['link', 'quote', 'signature']) texts.push(await read(readFileSync(`${mail}.eml`)));
  console.log(`${name}: ${texts.map((text) => `"${text.trim().split(/ *\n/).join(' / ')}"`).join(' | ')}`);
}
JS
cat >text.py <<'PY'
import email, email.policy, fast_mail_parser, imap_tools, mailparser

libraries = {
    "email": lambda mail: email.message_from_bytes(mail, policy=email.policy.default).get_content(),
    "imap-tools": lambda mail: imap_tools.MailMessage.from_bytes(mail).text,
    "mail-parser": lambda mail: mailparser.parse_from_bytes(mail).text_plain[0],
    "fast-mail-parser": lambda mail: fast_mail_parser.parse_email(mail).text_plain[0],
}
for name, read in libraries.items():
    texts = [read(open(f"{mail}.eml", "rb").read()) for mail in ("link", "quote", "signature")]
    print(f"{name}:", " | ".join('"' + " / ".join(line.rstrip() for line in text.strip().splitlines()) + '"' for text in texts))
PY
python3 write.py
{
    node text.js
    v/bin/python text.py
} | tee seen
diff seen - <<'TEXT'
mailparser: "See https://example.org/orders/2026/list" | "> Shall I order them? / No." | "> -- / > Ann / Yes."
postal-mime: "See https://example.org/orders/2026/list" | "> Shall I order > them? No." | "> -- > Ann / Yes."
letterparser: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
email: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
imap-tools: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
mail-parser: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
fast-mail-parser: "See https://example.org/orders/ / 2026/list" | "> Shall I order / > them? / No." | "> -- / > Ann / Yes."
TEXT
