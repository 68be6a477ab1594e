#!/usr/bin/env bash
# Guess: an LMTP server answers once for each recipient behind the text of a mail (RFC 2033, 4.2). `smtplib.LMTP` of Python reads these
# answers and names the refused recipients, as nodemailer does with `lmtp: true`, and the LMTP server of aiosmtpd gives them.
# Seen with smtplib of Python 3.11, nodemailer 10.6.0, smtp-server 3.21.6 (`lmtp: true`) and aiosmtpd 1.4.6: smtplib reads one answer. Of
# two recipients the first one decides: if the second one is refused, `sendmail` returns no refused recipient, and if the first one is, it
# raises an error though the second one has the mail. The other answer stays in the connection. So the next mail is refused for the
# recipient of the mail before it, or raises the error "250", since `sendmail` is one answer behind and stops where it is told to send the
# text. The server of aiosmtpd gives one answer for all recipients, so a test of smtplib with it shows nothing of this. nodemailer does as
# guessed. A program for Python sends a mail of its own to each recipient.
# Output seen (Python 3.11, Node 20.20.2), in which bob's mailbox is full when the text has come:
#   nodemailer, ann and bob: ann has it | accepted: ann, rejected: bob
#   nodemailer, the next mail on the connection: ann has it | accepted: ann, rejected: nobody
#   smtplib, ann and bob: ann has it | refused: nobody
#   smtplib, the next mail on the connection: nobody has it | SMTPSenderRefused 452 "bob: mailbox full"
#   smtplib, bob and ann: ann has it | SMTPDataError 452 "bob: mailbox full"
#   smtplib, ann and eve: ann and eve have it | refused: nobody
#   smtplib, the next mail on the connection: nobody has it | SMTPDataError 250 "Accepted"
#   aiosmtpd, ann and eve: 1 answer for 2 recipients
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts nodemailer@10.6.0 smtp-server@3.21.6 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check aiosmtpd==1.4.6
cat >server.js <<'JS'
import { appendFileSync } from 'node:fs';
import { SMTPServer } from 'smtp-server';

// Writes the subject and the name of each recipient that gets a mail into the file "stored".
const lmtp = new SMTPServer({
  lmtp: true,
  disabledCommands: ['AUTH', 'STARTTLS'],
  async onData(stream, session, done) {
    const pieces = await stream.toArray().catch(() => []); // none of a mail whose connection ends within it
    if (!pieces.length) return;
    const [, subject] = /^Subject: (.*)$/m.exec(pieces.join(''));
    const answers = session.envelope.rcptTo.map(({ address }) => {
      const name = address.split('@')[0];
      if (name === 'bob') return Object.assign(new Error('bob: mailbox full'), { responseCode: 452 });
      appendFileSync('stored', `${subject.trim()} ${name}\n`);
      return `${name}: stored`;
    });
    done(null, answers);
  },
});
lmtp.listen(0, '127.0.0.1', () => console.log(lmtp.server.address().port));
JS
: >stored
mkfifo ready
node server.js >ready &
server=$!
read -r port <ready
cat >nodemailer.js <<'JS'
import { readFileSync } from 'node:fs';
import { createTransport } from 'nodemailer';

const names = (addresses) => addresses.map((address) => address.split('@')[0]).join(' and ') || 'nobody';
const settings = { host: '127.0.0.1', port: process.argv[2], lmtp: true, ignoreTLS: true };
const transport = createTransport({ ...settings, pool: true, maxConnections: 1 });
async function show(what, subject, ...to) {
  const { accepted, rejected } = await transport.sendMail({ from: 'me@example.org', to, subject, text: 'text' });
  const lines = readFileSync('stored', 'utf8').split('\n').filter((line) => line.startsWith(`${subject} `));
  const has = names(lines.map((line) => line.split(' ')[1]));
  console.log(`nodemailer, ${what}: ${has} has it | accepted: ${names(accepted)}, rejected: ${names(rejected)}`);
}
await show('ann and bob', 'n1', 'ann@example.org', 'bob@example.org');
await show('the next mail on the connection', 'n2', 'ann@example.org');
transport.close();
JS
cat >smtplib-lmtp.py <<'PY'
import smtplib, sys

port = int(sys.argv[1])


def send(client, what, subject, *names):
    try:
        refused = client.sendmail("me@example.org", [f"{name}@example.org" for name in names], f"Subject: {subject}\r\n\r\ntext\r\n")
        result = "refused: " + (" and ".join(refused) or "nobody")
    except smtplib.SMTPResponseException as error:
        text = error.smtp_error.decode()
        result = f'{type(error).__name__} {error.smtp_code} "{text}"'
    has = [line.split()[1] for line in open("stored") if line.startswith(f"{subject} ")]
    print(f"smtplib, {what}: {' and '.join(has) or 'nobody'} {'have' if len(has) > 1 else 'has'} it | {result}")


for number, (first, second) in enumerate((("ann", "bob"), ("bob", "ann"), ("ann", "eve"))):
    client = smtplib.LMTP("127.0.0.1", port, timeout=20)
    send(client, f"{first} and {second}", f"p{number}", first, second)
    if first == "ann":
        send(client, "the next mail on the connection", f"q{number}", "ann")
    client.close()
PY
cat >answers.py <<'PY'
"""Counts what the LMTP server of aiosmtpd answers behind the text of a mail for two recipients."""
import asyncio
from aiosmtpd.handlers import Sink
from aiosmtpd.lmtp import LMTP


async def main():
    server = await asyncio.get_running_loop().create_server(lambda: LMTP(Sink()), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    mail = ["LHLO me", "MAIL FROM:<me@example.org>", "RCPT TO:<ann@example.org>", "RCPT TO:<eve@example.org>", "DATA"]
    await reader.readline()
    for line in mail:
        writer.write(f"{line}\r\n".encode())
        while (await reader.readline())[3:4] == b"-":
            pass
    writer.write(b"Subject: a\r\n\r\ntext\r\n.\r\nQUIT\r\n")
    answers = (await reader.read()).splitlines()[:-1]  # without that to QUIT
    print(f"aiosmtpd, ann and eve: {len(answers)} answer{'s' if len(answers) > 1 else ''} for 2 recipients")
    writer.close()
    server.close()


asyncio.run(main())
PY
{
    node nodemailer.js "$port"
    v/bin/python smtplib-lmtp.py "$port"
    v/bin/python answers.py
} | tee seen
diff seen - <<'TEXT'
nodemailer, ann and bob: ann has it | accepted: ann, rejected: bob
nodemailer, the next mail on the connection: ann has it | accepted: ann, rejected: nobody
smtplib, ann and bob: ann has it | refused: nobody
smtplib, the next mail on the connection: nobody has it | SMTPSenderRefused 452 "bob: mailbox full"
smtplib, bob and ann: ann has it | SMTPDataError 452 "bob: mailbox full"
smtplib, ann and eve: ann and eve have it | refused: nobody
smtplib, the next mail on the connection: nobody has it | SMTPDataError 250 "Accepted"
aiosmtpd, ann and eve: 1 answer for 2 recipients
TEXT
