#!/usr/bin/env bash
# Guess: a program with an open folder that looks for new mails with SEARCH, and then waits with IDLE, misses none. A mail that was stored
# before the SEARCH is in its answer, and one that is stored after it is reported by IDLE at once.
# Seen with imap-tools 1.16.0, IMAPClient 4.1.0 and aioimaplib 2.0.3 for Python, imapflow 2.10.2 for Node, and Dovecot 2.3.19.1 (Debian 12):
# the server looks for new mails at the end of a command. A mail that is in the folder before a SEARCH is not in the answer. The line
# EXISTS comes with that answer, where the three clients for Python drop it, and IDLE does not say it again. So the mail is neither found
# nor reported until something else happens, in a loop of IDLE and SEARCH too, if it comes between the two. A program that only polls has
# each mail one poll late. NOOP before the SEARCH helps. imapflow gives the line as an event, so a program that searches again at each
# event "exists" misses none.
# Output seen (Python 3.11, Node 20.20.2), one line for a client, its steps in order; a mail is stored before the first SEARCH and before
# NOOP:
#   imap-tools: SEARCH 1 missing, IDLE nothing, SEARCH all, a mail during IDLE: reports it, NOOP, SEARCH all
#   IMAPClient: SEARCH 1 missing, IDLE nothing, SEARCH all, a mail during IDLE: reports it, NOOP, SEARCH all
#   aioimaplib: SEARCH 1 missing, IDLE nothing, SEARCH all, a mail during IDLE: reports it, NOOP, SEARCH all
#   imapflow: SEARCH 1 missing, event exists, SEARCH all
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
npm install --no-audit --no-fund --ignore-scripts imapflow@2.10.2 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check imap-tools==1.16.0 IMAPClient==4.1.0 aioimaplib==2.0.3
mkdir home
as=()
if [ "$(id -u)" = 0 ]; then # the server refuses to open the mails of root
    as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
    chown 65534:65534 home
    chmod 755 "$folder"
fi
cat >clients.py <<'PY'
import asyncio, imaplib, os, socket, subprocess, sys, threading
import imap_tools
from aioimaplib import aioimaplib
from imapclient import IMAPClient

folder, *prefix = sys.argv[1:]
environment = {"HOME": f"{folder}/home", "USER": "me", "LD_LIBRARY_PATH": f"{folder}/root/usr/lib/dovecot", "PATH": os.environ["PATH"]}
owner = os.stat(f"{folder}/home")
settings = ["mail_location=maildir:~/Maildir", f"mail_uid={owner.st_uid}", f"mail_gid={owner.st_gid}", "first_valid_uid=1"]
command = [*prefix, f"{folder}/root/usr/lib/dovecot/imap", "-O", *(part for setting in settings for part in ("-o", setting))]
listener = socket.create_server(("127.0.0.1", 0))
host, port = listener.getsockname()


def serve():
    """Give each connection a server of its own, which is logged in from its start."""
    while True:
        connection = listener.accept()[0]
        subprocess.Popen(command, stdin=connection, stdout=connection, stderr=subprocess.DEVNULL, env=environment)
        connection.close()


threading.Thread(target=serve, daemon=True).start()
writer = imaplib.IMAP4(host, port)
stored = 0


def store():
    """Store a mail by another session; the server has said OK when this returns."""
    global stored
    assert writer.append("INBOX", None, None, b"Subject: a mail\r\n\r\ntext\r\n")[0] == "OK"
    stored += 1


def found(mails):
    return "all" if len(mails) == stored else f"{stored - len(mails)} missing"


class ImapTools:
    def __init__(self):
        self.box = imap_tools.MailBoxUnencrypted(host, port)
        self.box.folder.set("INBOX")
        self.noop = self.box.client.noop

    def search(self):
        return self.box.uids("ALL")

    def idle(self, timeout, meanwhile):
        with self.box.idle as idle:
            meanwhile()
            return idle.poll(timeout=timeout)


class ImapClient:
    def __init__(self):
        self.client = IMAPClient(host, port, ssl=False)
        self.client.select_folder("INBOX")
        self.search, self.noop = self.client.search, self.client.noop

    def idle(self, timeout, meanwhile):
        self.client.idle()
        meanwhile()
        answers = self.client.idle_check(timeout=timeout)
        self.client.idle_done()
        return answers


class AioImapLib:
    def __init__(self):
        self.run = asyncio.Runner().run
        self.client = self.run(self.connect())

    async def connect(self):
        client = aioimaplib.IMAP4(host, port, timeout=30)
        await client.wait_hello_from_server()
        await client.select("INBOX")
        return client

    def noop(self):
        self.run(self.client.noop())

    def search(self):
        return self.run(self.client.uid_search("ALL")).lines[0].split()

    def idle(self, timeout, meanwhile):
        return self.run(self.wait(timeout, meanwhile))

    async def wait(self, timeout, meanwhile):
        end = await self.client.idle_start(timeout=60)
        meanwhile()
        try:
            return await self.client.wait_server_push(timeout)
        except asyncio.TimeoutError:
            return []
        finally:
            self.client.idle_done()
            await end


def said(answers):
    return "reports it" if "EXISTS" in str(answers) else "nothing"


for name, kind in (("imap-tools", ImapTools), ("IMAPClient", ImapClient), ("aioimaplib", AioImapLib)):
    store()
    client = kind()
    assert found(client.search()) == "all"
    store()
    steps = [f"SEARCH {found(client.search())}", f"IDLE {said(client.idle(4, lambda: None))}", f"SEARCH {found(client.search())}"]
    steps.append(f"a mail during IDLE: {said(client.idle(30, store))}")
    client.search()
    store()
    client.noop()
    steps.append(f"NOOP, SEARCH {found(client.search())}")
    print(f"{name}: {', '.join(steps)}")
node = subprocess.Popen(["node", "client.js", str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert node.stdout.readline() == f"{stored}\n"
store()
print("search", file=node.stdin, flush=True)
first, event, second = (node.stdout.readline().split() for _ in range(3))
print(f"imapflow: SEARCH {found(range(int(*first)))}, event {' '.join(event)}, SEARCH {found(range(int(*second)))}")
node.wait()
PY
cat >client.js <<'JS'
import { once } from 'node:events';
import { ImapFlow } from 'imapflow';

const auth = { user: 'me', pass: 'password' };
const client = new ImapFlow({ host: '127.0.0.1', port: process.argv[2], secure: false, auth, logger: false });
await client.connect();
await client.mailboxOpen('INBOX');
const events = [];
client.on('exists', () => events.push('exists'));
const search = async () => (await client.search({ all: true }, { uid: true })).length;
console.log(await search());
await once(process.stdin, 'data');
process.stdin.unref();
console.log(await search());
console.log(events.join(' ') || 'none');
console.log(await search());
await client.logout();
JS
v/bin/python clients.py "$folder" "${as[@]}" | tee seen
diff seen - <<'TEXT'
imap-tools: SEARCH 1 missing, IDLE nothing, SEARCH all, a mail during IDLE: reports it, NOOP, SEARCH all
IMAPClient: SEARCH 1 missing, IDLE nothing, SEARCH all, a mail during IDLE: reports it, NOOP, SEARCH all
aioimaplib: SEARCH 1 missing, IDLE nothing, SEARCH all, a mail during IDLE: reports it, NOOP, SEARCH all
imapflow: SEARCH 1 missing, event exists, SEARCH all
TEXT
