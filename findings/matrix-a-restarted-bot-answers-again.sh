#!/usr/bin/env bash
# Guess: a Matrix bot that keeps no sync token does a first sync when it starts, passes over what that shows, and handles what comes after
# it. So a restart may lose messages that arrive in between, and never handles one twice: `/sync` without `since` shows the rooms as they
# are now.
# Seen with Synapse 1.163.2, matrix-nio 0.26.0 and mautrix 0.21.1: Synapse keeps each answer to `/sync` for two minutes and gives it to the
# next request with the same parameters, the first sync too (its setting `sync_response_cache_duration`). A bot that starts again within
# that time gets the old answer and the old token, and then, as new, all that it has handled since its earlier start. Each further start
# handles more. The answer does not say that it is old. A bot whose first sync has a timeout that it has not used before gets a new answer
# (so does one that keeps its token).
# Output seen (Python 3.11), the messages that each start of the bot handles; before each, another user says one more:
#   matrix-nio: start 1 handles 1
#   matrix-nio: start 2 handles 1, 2
#   matrix-nio: start 3 handles 1, 2, 3
#   matrix-nio, other timeout: start 4 handles 4
#   mautrix: start 1 handles 1
#   mautrix: start 2 handles 1, 2
#   mautrix: start 3 handles 1, 2, 3
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null && wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check matrix-synapse==1.163.2 matrix-nio==0.26.0 mautrix==0.21.1
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat >server.yaml <<YAML
server_name: example.org
listeners: [{port: $port, type: http, bind_addresses: ["127.0.0.1"], resources: [{names: [client]}]}]
database: {name: sqlite3, args: {database: "$folder/server.db"}}
media_store_path: $folder/media
signing_key_path: $folder/signing.key
pid_file: $folder/pid
log_config: $folder/log.yaml
trusted_key_servers: []
report_stats: false
enable_registration: true
enable_registration_without_verification: true
YAML
cat >log.yaml <<YAML
version: 1
handlers: {file: {class: logging.FileHandler, filename: $folder/server.log}}
root: {level: WARNING, handlers: [file]}
YAML
v/bin/python -m synapse.app.homeserver --config-path server.yaml --generate-keys >log 2>&1
v/bin/python -m synapse.app.homeserver --config-path server.yaml >log 2>&1 &
server=$!
cat >bots.py <<'PY'
import asyncio, json, logging, sys, time, urllib.error, urllib.request
from mautrix.client import Client, InternalEventType
from mautrix.types import EventType
from nio import AsyncClient, RoomMessageText

logging.disable(logging.CRITICAL)
base = f"http://127.0.0.1:{sys.argv[1]}"


def ask(method, path, content=None, token=None):
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{base}/_matrix/client/{path}", body, headers, method=method)) as answer:
        return json.load(answer)


def wait_for_server():
    for _ in range(600):
        try:
            return ask("GET", "versions")
        except urllib.error.URLError:
            time.sleep(0.1)
    sys.exit("the server has not started")


def register(name):
    return ask("POST", "v3/register", {"username": name, "password": "a long password", "auth": {"type": "m.login.dummy"}})


class Room:
    """A room of a bot and a user, who says a number each time."""

    def __init__(self, bot, user):
        self.bot, self.user = bot, user
        self.id = ask("POST", "v3/createRoom", {"invite": [self.user["user_id"]]}, self.bot["access_token"])["room_id"]
        ask("POST", f"v3/join/{self.id}", {}, self.user["access_token"])
        self.said = 0

    def say(self):
        self.said += 1
        path = f"v3/rooms/{self.id}/send/m.room.message/{self.said}"
        ask("PUT", path, {"msgtype": "m.text", "body": str(self.said)}, self.user["access_token"])


async def start_nio(room, timeout):
    client = AsyncClient(base, room.bot["user_id"])
    client.restore_login(room.bot["user_id"], room.bot["device_id"], room.bot["access_token"])
    await client.sync(timeout=timeout)
    handled, last = [], asyncio.Event()

    def handle(_, event):
        handled.append(event.body)
        if event.body == str(room.said):
            last.set()

    client.add_event_callback(handle, RoomMessageText)
    room.say()
    syncing = asyncio.create_task(client.sync_forever(timeout=1000))
    await asyncio.wait_for(last.wait(), 60)
    syncing.cancel()
    await client.close()
    return handled


async def start_mautrix(room):
    client = Client(room.bot["user_id"], base_url=base, token=room.bot["access_token"])
    client.ignore_initial_sync = True
    handled, first, last = [], asyncio.Event(), asyncio.Event()

    async def handle(event):
        handled.append(event.content.body)
        if event.content.body == str(room.said):
            last.set()

    async def synced(_):
        first.set()

    client.add_event_handler(EventType.ROOM_MESSAGE, handle)
    client.add_event_handler(InternalEventType.SYNC_SUCCESSFUL, synced)
    client.start(None)
    await asyncio.wait_for(first.wait(), 60)
    room.say()
    await asyncio.wait_for(last.wait(), 60)
    client.stop()
    await client.api.session.close()
    return handled


async def main():
    wait_for_server()
    user = register("ann")
    room = Room(register("nio"), user)
    for number, timeout in enumerate((0, 0, 0, 1), 1):
        handled = await start_nio(room, timeout)
        print(f"matrix-nio{', other timeout' if timeout else ''}: start {number} handles {', '.join(handled)}")
    room = Room(register("mautrix"), user)
    for number in range(1, 4):
        print(f"mautrix: start {number} handles {', '.join(await start_mautrix(room))}")


asyncio.run(main())
PY
v/bin/python bots.py "$port" | tee seen
diff seen - <<'TEXT'
matrix-nio: start 1 handles 1
matrix-nio: start 2 handles 1, 2
matrix-nio: start 3 handles 1, 2, 3
matrix-nio, other timeout: start 4 handles 4
mautrix: start 1 handles 1
mautrix: start 2 handles 1, 2
mautrix: start 3 handles 1, 2, 3
TEXT
