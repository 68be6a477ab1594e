#!/usr/bin/env bash
# Guess: an IRC server cuts a line that is too long for it (512 bytes), and passes on what fits. A library that knows the limit either
# refuses a longer text or sends it in parts, so that other people read all of it. Sixty short lines at once arrive at once.
# Seen with ngIRCd 26.1 (Debian 12), irc 20.5.0 and pydle 1.2.0 for Python: the server puts the sender in front of a line, and where that
# makes more than 512 bytes, it writes "[CUT]" over the end, in the middle of a character if need be; the sender gets no notice. A line
# of 513 bytes ends the connection. irc refuses texts by the length of its own line, without the sender, so its longest texts are cut.
# pydle counts the sender, and characters instead of bytes, so a text in Cyrillic letters is cut, or ends the connection. The server
# handles 3 lines a second, in order: the answer to a PING waits behind all lines before it, and looks like a lost connection.
# Output seen (Python 3.11):
#   line of 512 bytes: 473 of 498 letters [CUT]
#   line of 513 bytes: ERROR :Request too long
#   60 lines and a PING: 3 lines a second, up to the PONG
#   irc, 490 letters of 1 byte: 473 of 490 letters [CUT]
#   irc, 300 letters of 2 bytes: refused
#   pydle, 490 letters of 1 byte: 490 of 490 letters
#   pydle, 240 letters of 2 bytes: 236 of 240 letters [CUT]
#   pydle, 300 letters of 2 bytes: connection closed
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
apt-get download ngircd libident >log 2>&1 || { cat log; echo "needs Debian 12, after apt-get update" >&2; exit 1; }
[[ $(dpkg-deb --field ngircd_*.deb Version) == 26.1-* ]]
for package in *.deb; do dpkg-deb --extract "$package" root; done
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check irc==20.5.0 pydle==1.2.0
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >ngircd.conf <<CONF
[Global]
Name = irc.example.org
Info = test
Listen = 127.0.0.1
Ports = $port
[Options]
DNS = no
Ident = no
PAM = no
CONF
LD_LIBRARY_PATH=root/usr/lib:root/usr/lib/x86_64-linux-gnu root/usr/sbin/ngircd --nodaemon --config "$folder/ngircd.conf" >log 2>&1 &
server=$!
cat >with_irc.py <<'PY'
import sys
import irc.client

port, text = int(sys.argv[1]), sys.argv[2] * int(sys.argv[3])
reactor = irc.client.Reactor()
connection = reactor.server().connect("127.0.0.1", port, "ann")


def on_join(connection, event):
    try:
        connection.privmsg("#c", text)
        connection.privmsg("#c", "done")
    except irc.client.MessageTooLong:
        connection.privmsg("#c", "refused")


connection.add_global_handler("welcome", lambda connection, event: connection.join("#c"))
connection.add_global_handler("join", on_join)
reactor.process_forever()
PY
cat >with_pydle.py <<'PY'
import sys
import pydle


class Sender(pydle.Client):
    RECONNECT_MAX_ATTEMPTS = 0

    async def on_connect(self):
        await self.join("#c")

    async def on_join(self, channel, user):
        await self.message("#c", sys.argv[2] * int(sys.argv[3]))
        await self.message("#c", "done")


Sender("ann").run("127.0.0.1", port=int(sys.argv[1]), tls=False)
PY
cat >limits.py <<'PY'
import socket, subprocess, sys, time

port = int(sys.argv[1])


class Session:
    def __init__(self, nick):
        for _ in range(100):
            try:
                self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
        self.lines = self.socket.makefile("rb")
        self.send(f"NICK {nick}\r\nUSER {nick} 0 * :{nick}\r\nJOIN #c\r\n".encode())
        self.read_until(b" 366 ")

    def send(self, data):
        self.socket.sendall(data)

    def read_until(self, *parts):
        """The lines up to the first one with one of the parts, or to the end of the connection."""
        found = []
        while not (found and any(part in found[-1] for part in parts)):
            line = self.lines.readline()
            if not line:
                break
            found.append(line.rstrip(b"\r\n"))
        return found


reader = Session("bob")


def seen(letter, number):
    """What the reader gets of a text, up to the end of the sender."""
    lines = reader.read_until(b" :done", b" :refused", b" QUIT ")
    if lines[-1].endswith(b" :refused"):
        return "refused"
    texts = [line.split(b" :", 1)[1].decode(errors="replace") for line in lines if b" PRIVMSG " in line]
    if b" QUIT " in lines[-1] and not texts:
        return "connection closed"
    cut = " [CUT]" if any(text.endswith("[CUT]") for text in texts) else ""
    return f"{sum(text.count(letter) for text in texts)} of {number} letters{cut}"


sender = Session("ann")
sender.send(b"PRIVMSG #c :" + b"x" * 498 + b"\r\nPRIVMSG #c :done\r\n")
print("line of 512 bytes:", seen("x", 498))
sender.send(b"PRIVMSG #c :" + b"x" * 499 + b"\r\n")
print("line of 513 bytes:", sender.read_until(b"ERROR")[-1].decode())
reader.read_until(b" QUIT ")

sender = Session("ann")
begun = time.monotonic()
sender.send(b"".join(b"PRIVMSG #c :line %d\r\n" % number for number in range(60)) + b"PING :end\r\n")
sender.read_until(b"PONG")
rate = 60 / (time.monotonic() - begun)
reader.read_until(b":line 59")
print(f"60 lines and a PING: {rate:.0f} lines a second, up to the PONG")
sender.send(b"QUIT\r\n")
reader.read_until(b" QUIT ")

for library, letter, number in (("irc", "x", 490), ("irc", "ж", 300), ("pydle", "x", 490), ("pydle", "ж", 240), ("pydle", "ж", 300)):
    command = [sys.executable, f"with_{library}.py", str(port), letter, str(number)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    text = seen(letter, number)
    print(f"{library}, {number} letters of {len(letter.encode())} byte{'s' * (len(letter.encode()) > 1)}: {text}")
    process.kill()
    process.wait()
    if text != "connection closed":
        reader.read_until(b" QUIT ")
PY
timeout 300 v/bin/python limits.py "$port" | tee seen
diff seen - <<'TEXT'
line of 512 bytes: 473 of 498 letters [CUT]
line of 513 bytes: ERROR :Request too long
60 lines and a PING: 3 lines a second, up to the PONG
irc, 490 letters of 1 byte: 473 of 490 letters [CUT]
irc, 300 letters of 2 bytes: refused
pydle, 490 letters of 1 byte: 490 of 490 letters
pydle, 240 letters of 2 bytes: 236 of 240 letters [CUT]
pydle, 300 letters of 2 bytes: connection closed
TEXT
