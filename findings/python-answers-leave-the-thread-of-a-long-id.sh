#!/usr/bin/env bash
# Guess: an answer that Python's `email` writes names the Message-ID of the mail in In-Reply-To and References, as it was given. A long
# one gets a line of its own, as in Message-ID; an id has no place for encoded words (RFC 2047, section 5).
# Seen with the `email` of Python 3.11 and its policies default and SMTP: an id of 78 characters or more, as some mail services make them,
# becomes encoded words, without an error, and only in these two headers. Readers disagree about them. Dovecot 2.3.19.1 finds the answer
# by a search for the id, and does not put it into the thread; its ENVELOPE has the encoded words. mailparser 3.14.2 and postal-mime 4.0.0
# for Node decode them, as Python does with the policy default, so a test that reads with these sees no fault; imap-tools 1.16.0 does not
# decode them. nodemailer 10.6.1 writes the id as it is, on a line of its own.
# Output seen (Python 3.11, Node 20.20.2); mail 1 is the question, 2 the answer of Python, 3 that of nodemailer:
#   Message-ID: as given
#   In-Reply-To: encoded
#   References: encoded
#   Dovecot: SEARCH HEADER In-Reply-To: SEARCH 2 3
#   Dovecot: THREAD REFERENCES: THREAD (1 3)(2)
#   Dovecot: In-Reply-To in the ENVELOPE of mail 2: encoded, of mail 3: as given
#   read by Python: as given, by imap-tools: encoded
#   read by mailparser: as given, by postal-mime: as given
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download dovecot-core dovecot-imapd >log 2>&1 || { cat log; echo "needs Debian 12, after apt-get update" >&2; exit 1; }
for package in dovecot-*.deb; do
    [[ $(dpkg-deb --field "$package" Version) == 1:2.3.19.1+* ]]
    dpkg-deb --extract "$package" root
done
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts nodemailer@10.6.1 mailparser@3.14.2 postal-mime@4.0.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check imap-tools==1.16.0
id="<$(printf '0123456789ABCDEF%.0s' 1 2 3)@$(printf '0123456789abcdef%.0s' 1 2).mail.example.org>" # 100 characters
cat >write.py <<'PY'
import email, email.message, email.policy, sys
import imap_tools

identity = sys.argv[1]
answer = email.message.EmailMessage(policy=email.policy.SMTP)
answer["From"] = "bot@example.org"
answer["To"] = "ann@example.org"
answer["Subject"] = "the answer of Python"
answer["Date"] = "Sun, 29 Nov 2026 10:00:00 +0000"
answer["Message-ID"] = identity.replace("mail", "bot")
answer["In-Reply-To"] = answer["References"] = identity
answer.set_content("Yes.")
with open("python.eml", "wb") as file:
    file.write(answer.as_bytes())
with open("question.eml", "wb") as file:
    head = ["From: ann@example.org", "Subject: a question", "Date: Sun, 29 Nov 2026 09:00:00 +0000", f"Message-ID: {identity}"]
    file.write("\r\n".join([*head, "", "Why?", ""]).encode())


def kind(text, wanted=identity):
    return "as given" if text.strip() == wanted else "encoded" if text.strip().startswith("=?") else text


raw = email.message_from_bytes(answer.as_bytes(), policy=email.policy.compat32)
print("Message-ID:", kind(raw["Message-ID"], identity.replace("mail", "bot")))
for name in ("In-Reply-To", "References"):
    print(f"{name}: {kind(raw[name])}")
read = email.message_from_bytes(answer.as_bytes(), policy=email.policy.default)["In-Reply-To"]
other = imap_tools.MailMessage.from_bytes(answer.as_bytes()).headers["in-reply-to"][0]
with open("read", "w") as file:
    print(f"read by Python: {kind(read)}, by imap-tools: {kind(other)}", file=file)
PY
cat >mail.js <<'JS'
import { readFileSync, writeFileSync } from 'node:fs';
import { simpleParser } from 'mailparser';
import nodemailer from 'nodemailer';
import PostalMime from 'postal-mime';

const id = process.argv[2];
const kind = (text) => (text === id ? 'as given' : text.startsWith('=?') ? 'encoded' : text);
const { message } = await nodemailer.createTransport({ streamTransport: true, buffer: true, newline: 'windows' }).sendMail({
  from: 'bot@example.org', to: 'ann@example.org', subject: 'the answer of nodemailer', date: new Date('2026-11-29T11:00:00Z'),
  inReplyTo: id, references: [id], text: 'Yes.',
});
writeFileSync('nodemailer.eml', message);
const mail = readFileSync('python.eml');
const [one, other] = [await simpleParser(mail), await PostalMime.parse(mail)];
console.log(`read by mailparser: ${kind(one.inReplyTo)}, by postal-mime: ${kind(other.inReplyTo)}`);
JS
cat >threads.py <<'PY'
import os, re, subprocess, sys

folder, identity, *prefix = sys.argv[1:]
owner = os.stat(folder)
environment = {"HOME": f"{folder}/home", "USER": "me", "LD_LIBRARY_PATH": f"{folder}/root/usr/lib/dovecot", "PATH": os.environ["PATH"]}
settings = ["mail_location=maildir:~/Maildir", f"mail_uid={owner.st_uid}", f"mail_gid={owner.st_gid}", "first_valid_uid=1"]
command = [*prefix, f"{folder}/root/usr/lib/dovecot/imap", "-O", *(part for setting in settings for part in ("-o", setting))]
pipe = subprocess.PIPE
server = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, env=environment)
assert server.stdout.readline().startswith(b"* PREAUTH")


def ask(line, text=b""):
    literal = b" {%d+}\r\n%s" % (len(text), text) if text else b""
    server.stdin.write(b"t " + line.encode() + literal + b"\r\n")
    server.stdin.flush()
    answer = []
    while not (answer and answer[-1].startswith("t ")):
        answer.append(server.stdout.readline().decode().strip() or "t ended")
    assert answer[-1].startswith("t OK"), answer
    return answer[0].removeprefix("* ")


def envelope(number):
    """The In-Reply-To of a mail, which is the last but one in its envelope."""
    text = re.findall(r'"([^"]*)"', ask(f"FETCH {number} ENVELOPE"))[-2].strip()
    return "as given" if text == identity else "encoded" if text.startswith("=?") else text


for name in ("question", "python", "nodemailer"):
    with open(f"{name}.eml", "rb") as file:
        ask("APPEND INBOX", file.read())
ask("SELECT INBOX")
print("Dovecot: SEARCH HEADER In-Reply-To:", ask(f'SEARCH HEADER In-Reply-To "{identity}"'))
print("Dovecot: THREAD REFERENCES:", ask("THREAD REFERENCES UTF-8 ALL"))
print(f"Dovecot: In-Reply-To in the ENVELOPE of mail 2: {envelope(2)}, of mail 3: {envelope(3)}")
server.kill()
PY
v/bin/python write.py "$id" >headers
node mail.js "$id" >read-by-node
mkdir home
as=()
if [ "$(id -u)" = 0 ]; then # the server refuses to open the mails of root
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chown -R 65534:65534 home root && chown 65534:65534 "$folder"
fi
python3 threads.py "$folder" "$id" "${as[@]}" >threads
cat headers threads read read-by-node | tee seen
diff seen - <<'TEXT'
Message-ID: as given
In-Reply-To: encoded
References: encoded
Dovecot: SEARCH HEADER In-Reply-To: SEARCH 2 3
Dovecot: THREAD REFERENCES: THREAD (1 3)(2)
Dovecot: In-Reply-To in the ENVELOPE of mail 2: encoded, of mail 3: as given
read by Python: as given, by imap-tools: encoded
read by mailparser: as given, by postal-mime: as given
TEXT
