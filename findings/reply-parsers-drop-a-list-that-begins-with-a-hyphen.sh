#!/usr/bin/env bash
# Guess: a library that takes the new text from an answer by mail removes lines that begin with ">", the line above them that says who
# wrote when, and what stands below "-- ". A mail without any of these, and without an older mail in it, comes out whole.
# Seen with email-reply-parser 0.5.12, mail-parser-reply 1.36, quotequail 0.5.4, unquotemail 1.0.11 and email-reply-extractor 1.1.1 for
# Python, email-reply-parser 2.3.7, node-email-reply-parser 0.1.4, emailreplyparser 0.0.5 and planer 1.2.0 for Node: for three of them a
# line that begins with a hyphen and a letter or a digit is the beginning of a signature, and everything below is dropped, with a request
# behind the list. "From:" and "To:" in the text are an older mail for four, and "wrote:" at the end of a line for four: two of them give
# an empty text, and one drops only the line that says who speaks. email-reply-parser for Node alone keeps all four; its namesake for
# Python keeps none. So an agent that reads its mails through such a library does a part of what was asked, and reports success.
# Output seen (Python 3.11, Node 20.20.2): what is left of four mails, in their order below
#   email-reply-parser (Python): "Please change:" | "Add these:" | "Please change the letter:" | ""
#   mail-parser-reply: all | all | "Please change the letter:" | all
#   quotequail: all | all | all | "On Monday I wrote:"
#   unquotemail: all | all | all | ""
#   email-reply-extractor: all | all | "Please change the letter:" | "Please pay. Has it been paid?"
#   email-reply-parser (Node): all | all | all | all
#   node-email-reply-parser: "Please change:" | "Add these:" | all | all
#   emailreplyparser: "Please change:" | "Add these:" | all | all
#   planer: all | all | "Please change the letter:" | all
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts email-reply-parser@2.3.7 node-email-reply-parser@0.1.4 emailreplyparser@0.0.5 \
    planer@1.2.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check email-reply-parser==0.5.12 mail-parser-reply==1.36 quotequail==0.5.4 \
    unquotemail==1.0.11 email-reply-extractor==1.1.1
cat >mails.json <<'JSON'
["Please change:\n\n-red to blue\n-small to large\n\nKeep the rest as it is.\n",
 "Add these:\n\n-5\n-7\n12\n",
 "Please change the letter:\n\nFrom: spring\nTo: summer\n\nKeep the rest.\n",
 "On Monday I wrote:\n\nPlease pay.\n\nHas it been paid?\n"]
JSON
cat >read.py <<'PY'
import json
import email_reply_extractor, email_reply_parser, mailparser_reply, quotequail, unquotemail


def with_unquotemail(text):
    mail = unquotemail.Unquote(None, text)
    mail.parse()
    return mail.get_text()


libraries = {
    "email-reply-parser (Python)": email_reply_parser.EmailReplyParser.parse_reply,
    "mail-parser-reply": lambda text: mailparser_reply.EmailReplyParser(languages=["en"]).parse_reply(text=text),
    "quotequail": lambda text: "\n".join(part for new, part in quotequail.quote(text) if new),
    "unquotemail": with_unquotemail,
    "email-reply-extractor": lambda text: email_reply_extractor.extract_new_text(text).text,
}
with open("mails.json") as file:
    mails = json.load(file)
for name, read in libraries.items():
    left = [read(mail).split() for mail in mails]
    print(f"{name}:", " | ".join("all" if words == mail.split() else json.dumps(" ".join(words)) for words, mail in zip(left, mails)))
PY
cat >read.js <<'JS'
import { readFileSync } from 'node:fs';
import EmailReplyParser from 'email-reply-parser';
import older from 'emailreplyparser';
import nodeParser from 'node-email-reply-parser';
import * as planer from 'planer';

const libraries = {
  'email-reply-parser (Node)': (text) => new EmailReplyParser().read(text).getVisibleText(),
  'node-email-reply-parser': (text) => nodeParser(text, true),
  emailreplyparser: (text) => older.EmailReplyParser.parse_reply(text),
  planer: (text) => (planer.default ?? planer).extractFrom(text, 'text/plain'),
};
const words = (text) => text.split(/\s+/).filter(Boolean).join(' ');
const mails = JSON.parse(readFileSync('mails.json', 'utf8'));
for (const [name, read] of Object.entries(libraries)) {
  const left = mails.map((mail) => (words(read(mail)) === words(mail) ? 'all' : JSON.stringify(words(read(mail)))));
  console.log(`${name}: ${left.join(' | ')}`);
}
JS
{ v/bin/python read.py; node read.js; } | tee seen
diff seen - <<'TEXT'
email-reply-parser (Python): "Please change:" | "Add these:" | "Please change the letter:" | ""
mail-parser-reply: all | all | "Please change the letter:" | all
quotequail: all | all | all | "On Monday I wrote:"
unquotemail: all | all | all | ""
email-reply-extractor: all | all | "Please change the letter:" | "Please pay. Has it been paid?"
email-reply-parser (Node): all | all | all | all
node-email-reply-parser: "Please change:" | "Add these:" | all | all
emailreplyparser: "Please change:" | "Add these:" | all | all
planer: all | all | "Please change the letter:" | all
TEXT
