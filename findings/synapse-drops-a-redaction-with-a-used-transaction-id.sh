#!/usr/bin/env bash
# Guess: a Matrix client may number its messages, reactions and redactions separately. The server takes a request for a repeated one if
# the transaction id and the path are the same (client-server API, "Transaction identifiers"), and these paths differ.
# Seen with Synapse 1.163.2: the path matters for the answer to a repeated request, but not for events. Within a room, all events that a
# device sends share one set of transaction ids, whatever their type. A reaction or a redaction with the id of an earlier message gets 200
# and the event id of that message, and is not carried out; a message with the id of an earlier redaction is lost in the same way. Only
# the event id in the answer shows it. The same id in another room, or from another user, is a new event. So a client needs one source of
# transaction ids for everything that it sends, or a prefix for each kind.
# Output seen (Python 3.11), each line with the transaction id:
#   message 1: 200, a new event
#   reaction 1: 200, the event of message 1
#   redaction 1 of message 1: 200, the event of message 1
#   redaction 2 of message 1: 200, a new event
#   message 2: 200, the event of redaction 2 of message 1
#   message 1 in another room: 200, a new event
#   events in the room: m.room.message, m.room.redaction
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null && wait "$server" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check matrix-synapse==1.163.2
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
cat >send.py <<'PY'
import json, sys, time, urllib.error, urllib.request

base = f"http://127.0.0.1:{sys.argv[1]}/_matrix/client/"
token = None


def ask(method, path, content=None):
    """The status and the answer of a request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(base + path, body, headers, method=method)) as answer:
        return answer.status, json.load(answer)


def wait_for_server():
    for _ in range(600):
        try:
            return ask("GET", "versions")
        except urllib.error.URLError:
            time.sleep(0.1)
    sys.exit("the server has not started")


events = {}


def send(name, path, content):
    status, answer = ask("PUT", path, content)
    known = events.setdefault(answer["event_id"], name)
    print(f"{name}: {status}, {'a new event' if known == name else f'the event of {known}'}")
    return answer["event_id"]


wait_for_server()
token = ask("POST", "v3/register", {"username": "bot", "password": "a long password", "auth": {"type": "m.login.dummy"}})[1]["access_token"]
room, other = (f"v3/rooms/{ask('POST', 'v3/createRoom', {})[1]['room_id']}" for _ in range(2))
message = {"msgtype": "m.text", "body": "hello"}
first = send("message 1", f"{room}/send/m.room.message/1", message)
reaction = {"m.relates_to": {"rel_type": "m.annotation", "event_id": first, "key": "+"}}
send("reaction 1", f"{room}/send/m.reaction/1", reaction)
send("redaction 1 of message 1", f"{room}/redact/{first}/1", {})
send("redaction 2 of message 1", f"{room}/redact/{first}/2", {})
send("message 2", f"{room}/send/m.room.message/2", message)
send("message 1 in another room", f"{other}/send/m.room.message/1", message)
chunk = ask("GET", f"{room}/messages?dir=f&limit=50")[1]["chunk"]
print("events in the room:", ", ".join(event["type"] for event in chunk if "state_key" not in event))
PY
v/bin/python send.py "$port" | tee seen
diff seen - <<'TEXT'
message 1: 200, a new event
reaction 1: 200, the event of message 1
redaction 1 of message 1: 200, the event of message 1
redaction 2 of message 1: 200, a new event
message 2: 200, the event of redaction 2 of message 1
message 1 in another room: 200, a new event
events in the room: m.room.message, m.room.redaction
TEXT
