#!/usr/bin/env python3
"""Tests the reverse proxies of deploy/: a real nginx and a real Caddy with TLS on loopback, before a real belay.

    BELAY_BIN=target/debug/belay NGINX=/usr/sbin/nginx CADDY=/usr/bin/caddy tests/packages/proxies.py

$NGINX and $CADDY name the programs; tests/run.py takes them out of Debian's packages. The checks of a program without a name are
skipped. The shipped files are used with another address, port and certificate. Needs openssl, and the Python package `websockets`
(tests/run.py installs it under build/websocket). Prints a line for each check, then "N passed, N failed, N skipped".
"""

import asyncio
import base64
import concurrent.futures
import contextlib
import http.client
import http.server
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "clients"), str(ROOT / "docs" / "examples" / "client-python")]
import belay_client  # noqa: E402
from belay_process import Belay, Failure, until  # noqa: E402
from websockets.exceptions import InvalidStatus  # noqa: E402

BINARY = os.environ.get("BELAY_BIN") or ROOT / "target" / "debug" / "belay"
NAME, TOKEN = "belay.example", "token-of-the-proxy-test"
# Every wait ends; no check measures time by it.
LIMIT_S = 300
# nginx gives up a silent request after 60 s unless told otherwise.
SILENCE_S = 63
CHECKS = []
PRINTING = threading.Lock()


def check(function):
    """A check of one proxy."""
    CHECKS.append(function)
    return function


def expect(fact, words):
    """Fails with these words unless the fact holds."""
    if not fact:
        raise Failure(words)


def certificate(place):
    """Makes a certificate for the name, and its key. Returns a context that trusts it alone."""
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    command += ["-keyout", str(place / "privkey.pem"), "-out", str(place / "fullchain.pem")]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=LIMIT_S)
    return ssl.create_default_context(cafile=str(place / "fullchain.pem"))


def free_port():
    """A port of the loopback that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def replaced(file, changes):
    """The text of a shipped file with other values. Each old text must be there exactly once."""
    text = (ROOT / "deploy" / file).read_text(encoding="utf-8")
    for old, new in changes:
        expect(text.count(old) == 1, f"deploy/{file} has {old!r} {text.count(old)} times")
        text = text.replace(old, new)
    return text


def nginx(program, place, port, backend):
    """The command that runs nginx with our server."""
    changes = [
        ("listen 443 ssl http2;", f"listen 127.0.0.1:{port} ssl http2;"),
        ("server 127.0.0.1:8787;", f"server 127.0.0.1:{backend};"),
        ("/etc/ssl/belay/fullchain.pem", str(place / "fullchain.pem")),
        ("/etc/ssl/belay/privkey.pem", str(place / "privkey.pem")),
    ]
    (place / "belay.conf").write_text(replaced("nginx/belay.conf", changes), encoding="utf-8")
    temporary = "".join(
        f"    {kind}_temp_path {place}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # As root, nginx would give its temporary files to a user who may not enter the directory of the test.
    user = "user root;\n" if os.geteuid() == 0 else ""
    (place / "nginx.conf").write_text(
        f"{user}daemon off;\npid {place}/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n"
        f"    access_log off;\n{temporary}    include {place}/belay.conf;\n}}\n",
        encoding="utf-8",
    )
    return [program, "-p", str(place), "-e", "stderr", "-c", str(place / "nginx.conf")]


def caddy(program, place, port, backend):
    """The command that runs Caddy with our site. Only the certificate's origin differs: nobody gives one for this name."""
    changes = [
        ("belay.example {\n", f"{NAME}:{port} {{\n\ttls {place}/fullchain.pem {place}/privkey.pem\n"),
        ("reverse_proxy 127.0.0.1:8787", f"reverse_proxy 127.0.0.1:{backend}"),
    ]
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n\tdefault_bind 127.0.0.1\n}\n"
    (place / "Caddyfile").write_text(options + replaced("caddy/Caddyfile", changes), encoding="utf-8")
    return [program, "run", "--config", str(place / "Caddyfile"), "--adapter", "caddyfile"]


KINDS = {"nginx": nginx, "caddy": caddy}


class Connection(http.client.HTTPSConnection):
    """A connection to the proxy on loopback under the proxy's public name."""

    def connect(self):
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT_S)
        self.sock = self._context.wrap_socket(plain, server_hostname=NAME)


class Proxy:
    """A running proxy. Use it with `with`: at the end it has ended."""

    def __init__(self, kind, program, context, place, backend):
        self.kind, self.place, self.context = kind, place / f"{kind}-{backend}", context
        self.place.mkdir()
        for file in ("fullchain.pem", "privkey.pem"):
            shutil.copy(place / file, self.place)
        self.port = free_port()
        self.origin = f"https://{NAME}:{self.port}"
        self.command = KINDS[kind](program, self.place, self.port, backend)
        self.process = None

    def __enter__(self):
        home = str(self.place)
        environment = {"PATH": os.environ["PATH"], "HOME": home, "XDG_DATA_HOME": home, "XDG_CONFIG_HOME": home}
        with open(self.place / "log", "wb") as log:
            self.process = subprocess.Popen(self.command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until("the proxy", self.is_ready, LIMIT_S)
        except BaseException:
            self.__exit__()
            raise
        return self

    def is_ready(self):
        expect(self.process.poll() is None, f"the proxy has ended: {self.log()}")
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def log(self):
        """The end of the proxy's output."""
        return (self.place / "log").read_text(encoding="utf-8", errors="replace")[-2000:]

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)  # it may wait for open connections
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @contextlib.contextmanager
    def request(self, method, path, body=None, token=TOKEN, **headers):
        """Sends a request, and gives the response with the body unread."""
        connection = Connection(NAME, self.port, context=self.context, timeout=LIMIT_S)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            sent["Authorization"] = f"Bearer {token}"
        if isinstance(body, dict):
            body, sent["Content-Type"] = json.dumps(body), "application/json"
        try:
            connection.request(method, path, body, sent)
            yield connection.getresponse()
        finally:
            connection.close()

    def ask(self, *arguments, **more):
        """Sends a request. Returns status and text of the response."""
        with self.request(*arguments, **more) as response:
            return response.status, response.read().decode("utf-8", "replace")

    def send(self, session, text, wait_ms=0, **more):
        """Sends a message. Returns the status and the parsed answer."""
        message = {"session": f"{self.kind}-{session}", "text": text, "wait_ms": wait_ms}
        status, answer = self.ask("POST", "/api/v1/messages", message, **more)
        return status, json.loads(answer)


async def websocket(proxy, origin):
    """A connected client of the example library, through the proxy."""
    plain = socket.create_connection(("127.0.0.1", proxy.port), timeout=LIMIT_S)
    plain.setblocking(False)
    try:
        connection = await belay_client.connect(
            f"wss://{NAME}:{proxy.port}/ws", sock=plain, ssl=proxy.context, server_hostname=NAME, origin=origin
        )
    except BaseException:
        plain.close()
        raise
    client = belay_client.Belay(connection)
    client._reader = asyncio.create_task(client._read())
    about = {"id": "proxies", "version": "1", "mode": "cli"}
    client.hello = await client.call("connect", {"minProtocol": 1, "maxProtocol": 4, "client": about, "auth": {"token": TOKEN}})
    return client


def events(response):
    """The server-sent events of a response as they arrive: pairs of name and data."""
    name, data = None, []
    for line in iter(response.readline, b""):
        key, _, value = line.decode().rstrip("\n").partition(": ")
        if key == "event":
            name = value
        elif key == "data":
            data.append(value)
        elif not key and data:
            yield name, json.loads("\n".join(data))
            name, data = None, []


@check
def a_message_is_answered(proxy):
    status, answer = proxy.send("message", "calculate 17*23", wait_ms=30_000)
    expect(status == 200 and "391" in answer["reply"], f"{status}: {answer}")


@check
def a_stream_arrives_piece_by_piece(proxy):
    # The model says nothing, so no later event pushes the first one out of a buffer.
    status, accepted = proxy.send("stream", "rehearse stall silent 60")
    expect(status == 202, f"{status}: {accepted}")
    run = f"/api/v1/runs/{accepted['run_id']}"
    with proxy.request("GET", f"{run}/stream?since=0") as response:
        stream = events(response)
        first = next(data for _, data in stream if data["stream"] == "lifecycle")
        now = json.loads(proxy.ask("GET", run)[1])
        expect(first["data"]["phase"] == "start" and now["status"] == "running", f"{first} arrived after the end: {now}")
        status, stopped = proxy.ask("POST", f"{run}/stop?wait_ms=10000")
        expect(status == 200, f"{status}: {stopped}")
        last = list(stream)[-1][1]
        expect(last["stream"] == "lifecycle", f"the stream did not go on to the end of the run: {last}")


@check
def a_websocket_carries_a_conversation(proxy):
    async def conversation():
        async with await websocket(proxy, proxy.origin) as client:
            for question, answer in (("calculate 6*7", "42"), ("calculate 17*23", "391")):
                run = await client.send(f"{proxy.kind}-socket", question)
                said = [event["data"]["delta"] async for event in run.stream() if event["stream"] == "assistant"]
                end = await run.result()
                expect(end["status"] == "ok" and answer in "".join(said), f"{said}, {end}")

    asyncio.run(asyncio.wait_for(conversation(), LIMIT_S))


@check
def a_request_without_a_token_is_refused(proxy):
    status, answer = proxy.send("nobody", "calculate 6*7", token=None)
    expect(status == 401 and answer["error"]["code"] == "unauthorized", f"{status}: {answer}")


@check
def an_origin_has_to_be_the_public_name(proxy):
    status, answer = proxy.send("page", "calculate 6*7", wait_ms=30_000, Origin=proxy.origin)
    expect(status == 200 and "42" in answer["reply"], f"{status}: {answer}")
    for foreign in ("https://other.example", f"https://{NAME}.other.example:{proxy.port}", "null"):
        status, answer = proxy.send("page", "calculate 6*7", Origin=foreign)
        expect(status == 403, f"{foreign}: {status}: {answer}")

    async def opened():
        async with await websocket(proxy, "https://other.example"):
            pass

    try:
        asyncio.run(asyncio.wait_for(opened(), LIMIT_S))
        raise Failure("the WebSocket of another site was accepted")
    except InvalidStatus as refusal:
        expect(refusal.response.status_code == 403, f"{refusal.response.status_code}")


@check
def a_body_above_the_limit_is_refused(proxy):
    file, message = "/api/v1/files?name=large", "/api/v1/messages"
    # The refusal comes before the body, so the body is never sent.
    for path, length in ((message, 1024 * 1024 + 1), (file, 20 * 1024 * 1024 + 1)):
        status, answer = proxy.ask("POST", path, Content_Length=str(length), Content_Type="application/json")
        expect(status == 413 and json.loads(answer)["error"]["code"] == "too_large", f"{path}: {status}: {answer}")
    # A message and a file just below the limits are accepted.
    content = base64.b64encode(b"x" * 780_000).decode()
    attachments = [{"name": "x.txt", "data": content}]
    body = {"session": f"{proxy.kind}-large", "text": "calculate 6*7", "attachments": attachments, "wait_ms": 0}
    status, answer = proxy.ask("POST", message, body)
    expect(status in (200, 202) and len(content) > 1_000_000, f"{status}: {answer}")
    status, answer = proxy.ask("POST", file, b"x" * (20 * 1024 * 1024), Content_Type="application/octet-stream")
    expect(status in (200, 201), f"{status}: {answer}")


@check
def a_silent_request_outlives_a_minute(proxy):
    status, answer = proxy.send("silence", f"rehearse stall silent {SILENCE_S}", wait_ms=(SILENCE_S + 30) * 1000)
    expect(status == 200 and answer["status"] == "completed", f"{status}: {answer}")


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the headers of the request."""

    def do_GET(self):
        body = json.dumps({name.lower(): self.headers.get_all(name) for name in self.headers}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def headers_name_the_outside(proxy):
    """The check of a proxy in front of `Echo`: a client cannot forge what the proxy says of it."""
    forged = {"X_Forwarded_Proto": "gopher", "X_Forwarded_For": "192.0.2.1"}
    status, answer = proxy.ask("GET", "/", **forged)
    seen = json.loads(answer)
    wanted = {"host": [f"{NAME}:{proxy.port}"], "x-forwarded-proto": ["https"], "x-forwarded-for": ["127.0.0.1"]}
    found = {name: seen.get(name) for name in wanted}
    expect(status == 200 and found == wanted, f"{status}: {found}")


def passes(kind, function, proxy):
    """Runs a check and prints its line."""
    name = f"{kind}: {function.__name__.replace('_', ' ')}"
    try:
        function(proxy)
        say(f"ok {name}")
        return True
    except Exception:  # a check may fail in any way; the others run all the same
        say(f"FAILED {name}\n{traceback.format_exc()}{proxy.log()}")
        return False


def say(text):
    """Prints in one piece: several checks run at once."""
    with PRINTING:
        print(text, flush=True)


def test(kind, program, place, context, belay, echo):
    """Runs all checks of a proxy side by side. Returns how many passed."""
    backend = int(belay.url.rsplit(":", 1)[1])
    with Proxy(kind, program, context, place, backend) as proxy, Proxy(kind, program, context, place, echo) as before_echo:
        with concurrent.futures.ThreadPoolExecutor(len(CHECKS)) as pool:
            done = [pool.submit(passes, kind, function, proxy) for function in CHECKS]
            good = passes(kind, headers_name_the_outside, before_echo)
            return good + sum(one.result() for one in done)


def main():
    programs = {kind: os.environ.get(kind.upper()) for kind in KINDS}
    lacking = [kind for kind, program in programs.items() if not program]
    for kind in lacking:
        print(f"{kind} is not tested: set {kind.upper()}= to the program")
    of_each, passed, failed = len(CHECKS) + 1, 0, 0
    place = pathlib.Path(tempfile.mkdtemp(prefix="belay-proxies-"))
    echo = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=echo.serve_forever, daemon=True).start()
    try:
        context = certificate(place)
        with Belay(BINARY, {"llm.provider": "rehearsal"}, {"BELAY_TOKEN": TOKEN}) as belay, concurrent.futures.ThreadPoolExecutor() as pool:
            subjects = [(kind, program) for kind, program in programs.items() if program]
            for (kind, _), done in [(one, pool.submit(test, *one, place, context, belay, echo.server_port)) for one in subjects]:
                try:
                    good = done.result()
                except Exception as why:  # the proxy does not start
                    say(f"FAILED {kind}: {why}")
                    good = 0
                passed, failed = passed + good, failed + of_each - good
    finally:
        echo.shutdown()
        shutil.rmtree(place, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {of_each * len(lacking)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
