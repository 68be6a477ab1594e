"""A real homeserver, its users, and a proxy before it that loses answers. Standard library only."""

import http.client
import http.server
import json
import pathlib
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

# The longest wait for a start or an event: a start is slow beside other work. It only decides how long a failure takes.
PATIENCE = 300

SERVER = """
server_name: example.org
listeners: [{{port: {port}, type: http, bind_addresses: ["127.0.0.1"], resources: [{{names: [client, media]}}]}}]
database: {{name: sqlite3, args: {{database: "{home}/server.db"}}}}
media_store_path: {home}/media
signing_key_path: {home}/signing.key
pid_file: {home}/pid
log_config: {home}/log.yaml
trusted_key_servers: []
report_stats: false
enable_registration: true
enable_registration_without_verification: true
rc_login: {{address: {{per_second: 1000, burst_count: 1000}}}}
rc_registration: {{per_second: 1000, burst_count: 1000}}
rc_message: {{per_second: {rate}, burst_count: {burst}}}
"""

LOG = """
version: 1
handlers: {{file: {{class: logging.FileHandler, filename: {home}/server.log}}}}
root: {{level: WARNING, handlers: [file]}}
"""


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def until(what, condition, patience=PATIENCE):
    """Waits for a condition, and returns its value."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"it never came: {what}")


class Synapse:
    """A homeserver with a folder of its own, over its starts."""

    def __init__(self, python, home, rate=1000, burst=1000):
        self.python, self.home, self.port = python, pathlib.Path(home), free_port()
        self.home.mkdir()
        (self.home / "server.yaml").write_text(SERVER.format(port=self.port, home=self.home, rate=rate, burst=burst))
        (self.home / "log.yaml").write_text(LOG.format(home=self.home))
        self.command = [str(python), "-m", "synapse.app.homeserver", "--config-path", str(self.home / "server.yaml")]
        with open(self.home / "out", "ab") as out:
            subprocess.run([*self.command, "--generate-keys"], check=True, stdout=out, stderr=out)
        self.process = None

    def start(self):
        with open(self.home / "out", "ab") as out:
            self.process = subprocess.Popen(self.command, stdout=out, stderr=out)
        until("the homeserver's start", self.answers)

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError((self.home / "out").read_text()[-2000:])
        try:
            return request(self.port, "GET", "versions")[0] == 200
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)

    def register(self, name):
        body = {"username": name, "password": "a long password", "auth": {"type": "m.login.dummy"}}
        status, answer = request(self.port, "POST", "v3/register", body)
        assert status == 200, answer
        return User(self, answer["user_id"], answer["access_token"])


def request(port, method, path, body=None, token=None):
    """The status and the JSON of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        place = path if path.startswith("/") else f"/_matrix/client/{path}"
        connection.request(method, place, data, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


class User:
    """A user of the homeserver, who says things and reads what rooms have."""

    def __init__(self, server, name, token):
        self.server, self.id, self.token, self.sent = server, name, token, 0

    def ask(self, method, path, body=None):
        status, answer = request(self.server.port, method, path, body, self.token)
        assert status == 200, (method, path, status, answer)
        return answer

    def room(self, *invited, **options):
        return self.ask("POST", "v3/createRoom", {"invite": [user.id for user in invited], **options})["room_id"]

    def send(self, room, content, kind="m.room.message"):
        self.sent += 1
        return self.ask("PUT", f"v3/rooms/{room}/send/{kind}/{time.monotonic_ns()}", content)["event_id"]

    def say(self, room, text, **more):
        return self.send(room, {"msgtype": "m.text", "body": text, **more})

    def mention(self, room, user, text):
        return self.say(room, text, **{"m.mentions": {"user_ids": [user.id]}})

    def edit(self, room, event, text):
        new = {"msgtype": "m.text", "body": text}
        self.say(room, f"* {text}", **{"m.new_content": new, "m.relates_to": {"rel_type": "m.replace", "event_id": event}})

    def react(self, room, event, key):
        self.send(room, {"m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": key}}, "m.reaction")

    def events(self, room):
        """All events of a room, the oldest first."""
        found, place = [], ""
        while True:
            page = self.ask("GET", f"v3/rooms/{room}/messages?dir=f&limit=500{place}")
            found += page["chunk"]
            if "end" not in page:
                return found
            place = f"&from={page['end']}"

    def messages(self, room, of):
        """The newest texts of the messages of a user, edits applied, the oldest first."""
        texts = {}
        for event in self.events(room):
            content = event["content"]
            if event["type"] != "m.room.message" or event["sender"] != of.id or "body" not in content:
                continue
            relation = content.get("m.relates_to", {})
            if relation.get("rel_type") == "m.replace":
                texts[relation["event_id"]] = content["m.new_content"]["body"]
            else:
                texts[event["event_id"]] = content["body"]
        return list(texts.values())


class Proxy:
    """Passes requests on to the homeserver. `plan(method, path)` may name what goes wrong: "lose" answers, "limit", "fail"."""

    def __init__(self, server):
        self.server, self.plan, self.seen = server, lambda _method, _path: None, []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def pass_on(self):
                proxy.pass_on(self)

            do_GET = do_PUT = do_POST = pass_on

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                """A daemon that was killed leaves broken connections behind."""

        self.listener = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.listener.server_address[1]}"
        threading.Thread(target=self.listener.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def pass_on(self, handler):
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        path = urllib.parse.unquote(handler.path)
        fault = self.plan(handler.command, path)
        self.seen.append((handler.command, path))
        if fault == "limit":
            return self.reply(handler, 429, json.dumps({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 50}).encode())
        if fault == "fail":
            return self.reply(handler, 502, b"<html>bad gateway</html>")
        headers = {name: value for name, value in handler.headers.items() if name.lower() in ("authorization", "content-type")}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request(handler.command, handler.path, body or None, headers)
            response = connection.getresponse()
            data, status = response.read(), response.status
        except OSError:
            return self.reply(handler, 502, b"")
        finally:
            connection.close()
        if fault == "lose":
            handler.close_connection = True
            handler.connection.close()
            return None
        return self.reply(handler, status, data)

    def reply(self, handler, status, data):
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)
