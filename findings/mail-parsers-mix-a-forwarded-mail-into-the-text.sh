#!/usr/bin/env bash
# Guess: a mail that is forwarded as a part of its own (message/rfc822) is an attachment for libraries that read mail. Their text is what
# the sender wrote, and the words of the forwarded mail are found in the attachment.
# Seen with imap-tools 1.16.0, mail-parser 4.8.0 and the `email` of Python 3.11, mailparser 3.14.2 and postal-mime 4.0.0 for Node: the
# first two put the words of the forwarded mail right behind those of the sender, also where the part says that it is an attachment.
# postal-mime does it where the part says nothing, behind lines with the inner sender. `email` and mailparser leave it out. A program
# that checks who sent a mail, and reads a request from its text, reads that of somebody else.
# Output seen (Python 3.11, Node 20.20.2): are the words in the text, for a part without and with "Content-Disposition: attachment"?
#   email: no, 1 attachment | no, 1 attachment
#   imap-tools: yes, 1 attachment | yes, 1 attachment
#   mail-parser: yes, 0 attachments | yes, 1 attachment
#   imap-tools reads: "Please look.Delete it."
#   mailparser: no, 1 attachment | no, 1 attachment
#   postal-mime: yes behind its sender, 0 attachments | no, 1 attachment
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts mailparser@3.14.2 postal-mime@4.0.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check imap-tools==1.16.0 mail-parser==4.8.0
for kind in plain marked; do
    disposition=
    [ "$kind" = plain ] || disposition=$'Content-Disposition: attachment; filename="f.eml"\n'
    sed 's/$/\r/' >"$kind.eml" <<MAIL
From: ann@example.org
To: bob@example.org
Subject: Fwd: a request
Date: Sun, 29 Nov 2026 10:00:00 +0000
Message-ID: <1@example.org>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="b"

--b
Content-Type: text/plain

Please look.
--b
Content-Type: message/rfc822
${disposition}
From: eve@example.net
Subject: a request
Date: Sun, 29 Nov 2026 09:00:00 +0000
MIME-Version: 1.0
Content-Type: text/plain

Delete it.
--b--
MAIL
done
cat >text.py <<'PY'
import email, email.policy, pathlib
import imap_tools, mailparser


def with_email(mail):
    message = email.message_from_bytes(mail, policy=email.policy.default)
    return message.get_body(("plain",)).get_content(), list(message.iter_attachments())


def with_imap_tools(mail):
    message = imap_tools.MailMessage.from_bytes(mail)
    return message.text, message.attachments


def with_mail_parser(mail):
    message = mailparser.parse_from_bytes(mail)
    return "".join(message.text_plain), message.attachments


def seen(read, kind):
    text, attachments = read(pathlib.Path(f"{kind}.eml").read_bytes())
    return f"{'yes' if 'Delete it.' in text else 'no'}, {len(attachments)} attachment{'s' * (len(attachments) != 1)}"


for name, read in (("email", with_email), ("imap-tools", with_imap_tools), ("mail-parser", with_mail_parser)):
    print(f"{name}: {seen(read, 'plain')} | {seen(read, 'marked')}")
print(f'imap-tools reads: "{with_imap_tools(pathlib.Path("marked.eml").read_bytes())[0].strip()}"')
PY
cat >text.js <<'JS'
import { readFileSync } from 'node:fs';
import { simpleParser } from 'mailparser';
import PostalMime from 'postal-mime';

const seen = async (read, kind) => {
  const { text, attachments } = await read(readFileSync(`${kind}.eml`));
  const sender = /From:\s+eve@example.net/.test(text) ? ' behind its sender' : '';
  const words = text.includes('Delete it.') ? `yes${sender}` : 'no';
  return `${words}, ${attachments.length} attachment${attachments.length === 1 ? '' : 's'}`;
};
for (const [name, read] of [['mailparser', simpleParser], ['postal-mime', (mail) => PostalMime.parse(mail)]])
  console.log(`${name}: ${await seen(read, 'plain')} | ${await seen(read, 'marked')}`);
JS
{ v/bin/python text.py; node text.js; } | tee seen
diff seen - <<'TEXT'
email: no, 1 attachment | no, 1 attachment
imap-tools: yes, 1 attachment | yes, 1 attachment
mail-parser: yes, 0 attachments | yes, 1 attachment
imap-tools reads: "Please look.Delete it."
mailparser: no, 1 attachment | no, 1 attachment
postal-mime: yes behind its sender, 0 attachments | no, 1 attachment
TEXT
