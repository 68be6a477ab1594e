#!/usr/bin/env bash
# Guess: `messageFlagsAdd` of imapflow returns false when the server has not set the flag, as when `unchangedSince` is older than the last
# change of the mail. `messageMove` and `messageDelete` return false for a mail that is no longer there. So two workers on one folder may
# take a mail by a flag or by a move, and the returned value says who has it.
# Seen with imapflow 2.10.2 and Dovecot 2.3.19.1 (Debian 12): the server answers OK with MODIFIED, or OK without any mail, and imapflow
# returns true, or an object without UIDs, for all these. It returns false only where the server says NO or BAD. So the worker reads the
# flags again, and looks for its own, or asks whether `uidMap` of a move has the mail.
# Output seen (Node 20):
#   first worker, flag $first if unchanged: true
#   second worker, flag $second if unchanged: true
#   flags of the mail: $first
#   flag $third on two mails, of which one has changed: true
#   flags of the two mails: $first; $third
#   flag "a b", which is no keyword: false
#   first worker, move: {"path":"INBOX","destination":"Done","uidMap":[[3,1]]}
#   second worker, move: {"path":"INBOX","destination":"Done"}
#   second worker, copy: {"path":"INBOX","destination":"Done"}
#   second worker, flag: true
#   second worker, delete: true
#   second worker, fetch: false
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
apt-get download dovecot-core dovecot-imapd >log 2>&1 || { cat log; echo "needs Debian 12, after apt-get update" >&2; exit 1; }
for package in dovecot-*.deb; do
    [[ $(dpkg-deb --field "$package" Version) == 1:2.3.19.1+* ]]
    dpkg-deb --extract "$package" root
done
npm init --yes >log
npm install --silent --no-audit --no-fund imapflow@2.10.2 >log
mkdir home
as=()
if [ "$(id -u)" = 0 ]; then # the server refuses to open the mails of root
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chown 65534:65534 home
    chmod 755 "$folder"
fi
cat >workers.mjs <<'JS'
import { spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import { createServer } from 'node:net';
import { ImapFlow } from 'imapflow';

const [folder, ...prefix] = process.argv.slice(2);
const { uid, gid } = statSync(`${folder}/home`);
const settings = ['mail_location=maildir:~/Maildir', `mail_uid=${uid}`, `mail_gid=${gid}`, 'first_valid_uid=1'];
const [command, ...rest] = [...prefix, `${folder}/root/usr/lib/dovecot/imap`, '-O', ...settings.flatMap((setting) => ['-o', setting])];
const env = { HOME: `${folder}/home`, USER: 'me', LD_LIBRARY_PATH: `${folder}/root/usr/lib/dovecot`, PATH: process.env.PATH };
// Each connection has a server of its own, which is logged in from its start.
const server = createServer((socket) => {
  const imap = spawn(command, rest, { env, stdio: ['pipe', 'pipe', 'ignore'] });
  for (const pipe of [socket, imap.stdin, imap.stdout]) pipe.on('error', () => {});
  socket.pipe(imap.stdin);
  imap.stdout.pipe(socket);
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

async function connect() {
  const auth = { user: 'me', pass: 'password' };
  const client = new ImapFlow({ host: '127.0.0.1', port: server.address().port, secure: false, auth, logger: false });
  await client.connect();
  await client.mailboxOpen('INBOX');
  return client;
}

const [first, second] = [await connect(), await connect()];
for (const number of [1, 2, 3]) await first.append('INBOX', `Subject: ${number}\r\n\r\ntext\r\n`);
for (const client of [first, second]) await client.noop();
const ofUid = { uid: true };
const modseq = async (mail) => (await first.fetchOne(mail, { modseq: true }, ofUid)).modseq;
const flags = async (mail) => {
  const found = await second.fetchOne(mail, { flags: true }, ofUid);
  return [...found.flags].filter((flag) => flag !== '\\Recent').join(' ');
};
const text = (value) => JSON.stringify(value, (key, part) => (part instanceof Map ? [...part] : key === 'uidValidity' ? undefined : part));
const show = async (name, result) => console.log(`${name}: ${text(await result)}`);

const seen = await modseq('1');
await show('first worker, flag $first if unchanged', first.messageFlagsAdd('1', ['$first'], { uid: true, unchangedSince: seen }));
await show('second worker, flag $second if unchanged', second.messageFlagsAdd('1', ['$second'], { uid: true, unchangedSince: seen }));
console.log(`flags of the mail: ${await flags('1')}`);
const both = { uid: true, unchangedSince: await modseq('2') };
await show('flag $third on two mails, of which one has changed', second.messageFlagsAdd('1,2', ['$third'], both));
console.log(`flags of the two mails: ${await flags('1')}; ${await flags('2')}`);
await show('flag "a b", which is no keyword', second.messageFlagsAdd('2', ['a b'], ofUid));
await first.mailboxCreate('Done');
await show('first worker, move', first.messageMove('3', 'Done', ofUid));
await show('second worker, move', second.messageMove('3', 'Done', ofUid));
await show('second worker, copy', second.messageCopy('3', 'Done', ofUid));
await show('second worker, flag', second.messageFlagsAdd('3', ['$third'], ofUid));
await show('second worker, delete', second.messageDelete('3', ofUid));
await show('second worker, fetch', second.fetchOne('3', { flags: true }, ofUid));
for (const client of [first, second]) await client.logout();
server.close();
JS
node workers.mjs "$folder" "${as[@]}" | tee seen
diff seen - <<'TEXT'
first worker, flag $first if unchanged: true
second worker, flag $second if unchanged: true
flags of the mail: $first
flag $third on two mails, of which one has changed: true
flags of the two mails: $first; $third
flag "a b", which is no keyword: false
first worker, move: {"path":"INBOX","destination":"Done","uidMap":[[3,1]]}
second worker, move: {"path":"INBOX","destination":"Done"}
second worker, copy: {"path":"INBOX","destination":"Done"}
second worker, flag: true
second worker, delete: true
second worker, fetch: false
TEXT
