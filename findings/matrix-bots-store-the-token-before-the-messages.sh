#!/usr/bin/env bash
# Guess: a Matrix bot that stores its sync token does so when the messages of a sync have been handled. So a bot that
# ends in the middle, with its process or its power, sees those messages again after its next start: a message may be
# handled twice and is never lost.
# Seen with matrix-nio 0.26.0 (with vodozemac, and `store_sync_tokens`) and mautrix 0.21.1: both store the token before
# they call the first handler. A bot that ends while it handles the first message of a sync never sees that message or
# the others of the sync again, and the next start gives no sign of it. A handler that raises an error loses its message
# too with mautrix, which logs it and syncs on. matrix-nio ends `sync_forever` with the error, and the rest of the sync
# is lost. A bot that must not lose a message stores tokens of its own.
# Output seen (Python 3.11), of three messages, two of which come with one sync:
#   matrix-nio: the process ends while it handles 1: handled before 1, handled after the next start 3
#   matrix-nio: the handler of 1 raises an error: handled before 1, handled after the next start 3
#   mautrix: the process ends while it handles 1: handled before 1, handled after the next start 3
#   mautrix: the handler of 1 raises an error: handled before 1, 2, handled after the next start 3
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check 'matrix-nio[e2e]==0.26.0' vodozemac==0.10.0 mautrix==0.21.1
cat >bot.py <<'PY'
# A bot that writes the number of each message that it handles.
# Its arguments: the library, its folder, the server and the end at message 1.
import asyncio, logging, os, pathlib, sys

logging.disable(logging.CRITICAL)
library, folder, base, end = sys.argv[1:]
folder = pathlib.Path(folder)
user, device, token = "@bot:example.org", "DEVICE", "token"


def handle(number):
    with open(folder / "handled", "a") as handled:
        handled.write(f"{number} ")
    if number == "1" and end == "process":
        os._exit(1)
    if number == "1" and end == "error":
        raise RuntimeError("an error of the handler")


async def with_nio():
    from nio import AsyncClient, AsyncClientConfig, RoomMessageText, SyncResponse

    config = AsyncClientConfig(store_sync_tokens=True)
    client = AsyncClient(base, user, device_id=device, store_path=str(folder), config=config)
    client.restore_login(user, device, token)

    async def handle_event(_, event):
        handle(event.body)

    async def synced(_):
        (folder / "synced").touch()

    client.add_event_callback(handle_event, RoomMessageText)
    client.add_response_callback(synced, SyncResponse)
    await client.sync_forever(timeout=1000)


async def with_mautrix():
    from mautrix.client import Client, InternalEventType
    from mautrix.client.state_store import SyncStore
    from mautrix.types import EventType

    class Store(SyncStore):
        async def put_next_batch(self, next_batch):
            (folder / "token").write_text(next_batch)

        async def get_next_batch(self):
            return (folder / "token").read_text() if (folder / "token").exists() else None

    client = Client(user, device, base_url=base, token=token, sync_store=Store())

    async def handle_event(event):
        handle(event.content.body)

    async def synced(_):
        (folder / "synced").touch()

    client.add_event_handler(EventType.ROOM_MESSAGE, handle_event)
    client.add_event_handler(InternalEventType.SYNC_SUCCESSFUL, synced)
    await client.start(None)


asyncio.run(with_nio() if library == "matrix-nio" else with_mautrix())
PY
cat >server.py <<'PY'
# A server with one room, and the runs of the bots.
import json, pathlib, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

USERS = ("@ann:example.org", "@bot:example.org")
said = 0


def event(kind, number, content, **more):
    return {"type": kind, "event_id": f"${number}", "sender": USERS[0], "origin_server_ts": 1, "content": content, **more}


def room(messages):
    state = [event("m.room.create", "create", {"room_version": "10", "creator": USERS[0]}, state_key="")]
    state += [event("m.room.member", user, {"membership": "join"}, state_key=user, sender=user) for user in USERS]
    timeline = {"events": messages, "limited": False, "prev_batch": "p"}
    return {"rooms": {"join": {"!room:example.org": {"state": {"events": [] if messages else state}, "timeline": timeline}}}}


def sync(since):
    if since is None:
        return {"next_batch": f"t{said}", **room([])}
    known, end = int(since[1:]), time.monotonic() + 1
    while said == known and time.monotonic() < end:
        time.sleep(0.02)
    now = said
    messages = [event("m.room.message", number, {"msgtype": "m.text", "body": str(number)}) for number in range(known + 1, now + 1)]
    return {"next_batch": f"t{now}", **(room(messages) if messages else {})}


class Server(BaseHTTPRequestHandler):
    log_message = lambda *_: None

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        url = urlsplit(self.path)
        answers = {"sync": lambda: sync(parse_qs(url.query).get("since", [None])[0]),
                   "upload": lambda: {"one_time_key_counts": {"signed_curve25519": 50}},
                   "query": lambda: {"device_keys": {}, "failures": {}},
                   "joined_members": lambda: {"joined": {user: {} for user in USERS}},
                   "versions": lambda: {"versions": ["v1.11"]}}
        body = json.dumps(answers.get(url.path.split("/")[-1], dict)()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass  # the bot has ended

    do_POST = do_GET


def wait(seen):
    end = time.monotonic() + 60
    while not seen():
        if time.monotonic() > end:
            sys.exit("the bot does not sync")
        time.sleep(0.05)


def run(library, folder, end, messages):
    """Starts a bot, says messages when it has synced, and returns what it has handled two seconds later."""
    global said
    for name in ("synced", "handled"):
        (folder / name).unlink(missing_ok=True)
    base = f"http://127.0.0.1:{server.server_address[1]}"
    bot = subprocess.Popen([sys.executable, "bot.py", library, folder, base, end], stderr=open("errors", "a"))
    wait((folder / "synced").exists)
    time.sleep(0.5)
    said += messages
    wait((folder / "handled").exists)
    time.sleep(2)
    bot.kill()
    bot.wait()
    return ", ".join((folder / "handled").read_text().split())


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
ends = {"process": "the process ends while it handles 1", "error": "the handler of 1 raises an error"}
for library in ("matrix-nio", "mautrix"):
    for end, words in ends.items():
        said = 0
        folder = pathlib.Path(f"{library}-{end}")
        folder.mkdir()
        before = run(library, folder, end, 2)
        after = run(library, folder, "none", 1)
        print(f"{library}: {words}: handled before {before}, handled after the next start {after}", flush=True)
PY
v/bin/python server.py | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
matrix-nio: the process ends while it handles 1: handled before 1, handled after the next start 3
matrix-nio: the handler of 1 raises an error: handled before 1, handled after the next start 3
mautrix: the process ends while it handles 1: handled before 1, handled after the next start 3
mautrix: the handler of 1 raises an error: handled before 1, 2, handled after the next start 3
TEXT
