#!/usr/bin/env python3
"""A real daemon logs in at an MCP server behind `oidc-provider` of npm, a certified authorization server: through its pages, with cookies.

    BELAY_BIN=target/debug/belay tests/clients/mcp_oauth.py FOLDER

FOLDER has `oidc-provider` in its node_modules (tests/run.py installs it under build/oauth). Prints a line for each test and, as its last line,
"N passed, N failed, N skipped". Standard library only.
"""

import html
import http.cookiejar
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import Belay, until  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
PATIENCE_S = 300
TOKEN = "token-of-the-login-test"
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


def line_of(process, what):
    """The next line of a process, which is killed if there is none for a long time."""
    lines = []
    reader = threading.Thread(target=lambda: lines.append(process.stdout.readline()), daemon=True)
    reader.start()
    reader.join(PATIENCE_S)
    if not lines:
        process.kill()
        raise AssertionError(f"{what} has printed no line within {PATIENCE_S} s")
    return lines[0]


class Server:
    """The MCP server and its authorization server."""

    def __init__(self, folder):
        command = ["node", str(HERE / "oauth" / "server.mjs"), str(folder)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = line_of(self.process, "the server").strip()
        assert self.url.startswith("http://"), "the server does not start"

    def ask(self, path, **fields):
        request = urllib.request.Request(self.url.removesuffix("/mcp") + "/test/" + path, json.dumps(fields).encode())
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)


class Browser(urllib.request.HTTPRedirectHandler):
    """A browser of a person who fills in the forms of the authorization server."""

    def __init__(self):
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def open(self, url, form=None):
        body = urllib.parse.urlencode(form).encode() if form else None
        with self.opener.open(urllib.request.Request(url, body), timeout=PATIENCE_S) as page:
            return page.url, page.read().decode()

    def log_in(self, url):
        """Follows the pages to the end; returns the last text."""
        at, page = self.open(url)
        for _ in range(4):
            action = re.search(r'<form[^>]*action="([^"]+)"', page)
            if not action:
                return page
            form = {"prompt": "login", "login": "ann", "password": "x"} if 'name="login"' in page else {"prompt": "consent"}
            at, page = self.open(urllib.parse.urljoin(at, html.unescape(action[1])), form)
        raise AssertionError(f"the pages have no end: {page}")


class World:
    def __init__(self, belay, server):
        self.belay, self.server, self.count = belay, server, 0

    def run(self, *arguments):
        return subprocess.run([self.belay.binary, *arguments], env=self.belay.environment(), capture_output=True, text=True, timeout=PATIENCE_S)

    def get(self, path, body=None):
        self.count += 1
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.belay.url + path, json.dumps(body).encode() if body else None, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def greet(self):
        """The reply of a run that calls the tool."""
        run = self.get("/api/v1/messages", {"session": f"s{self.count}", "text": "call mcp_guarded_greet {}", "wait_ms": 100_000})
        return run["reply"]

    def tools(self):
        return [tool["name"] for tool in self.get("/api/v1/tools")["tools"]]

    def standing(self):
        return next(one for one in self.get("/api/v1/mcp")["servers"] if one["server"] == "guarded")

    def file(self):
        return json.loads((self.belay.home / "data" / "belay" / "mcp-logins" / "guarded.json").read_text())

    def events(self, kind):
        lines = self.run("logs", "--json", "-n", "500").stdout.splitlines()
        return [event for event in map(json.loads, lines) if event["type"] == kind]

    def log_in(self):
        """`belay mcp login` with a browser on this machine."""
        command = [self.belay.binary, "mcp", "login", "guarded", "--no-browser"]
        with subprocess.Popen(command, env=self.belay.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            lines = []
            while not (lines and lines[-1].strip().startswith("http")):
                line = line_of(process, "belay mcp login")
                assert line, process.stderr.read()
                lines.append(line)
            page = Browser().log_in(lines[-1].strip())
            out, error = process.communicate(timeout=PATIENCE_S)
        equal((page, process.returncode), ("Belay is logged in. You can close this page.", 0))
        assert "logged in at guarded" in out, (out, error)
        self.secret(out + error)

    def secret(self, text):
        """Fails if a token is in a text."""
        file = self.file()
        assert file["access"] not in text and file["refresh"] not in text, text


@test
def a_server_that_wants_a_token_says_what_to_do(world):
    standing = until("the login is needed", lambda: world.standing() if world.standing()["state"] == "needs_login" else None, PATIENCE_S)
    assert "needs login: belay mcp login guarded" in standing["detail"], standing
    assert "needs login: belay mcp login guarded" in world.run("status").stdout
    assert any("needs login: belay mcp login guarded" in line for line in world.belay.log), list(world.belay.log)
    equal("mcp_guarded_greet" in world.tools(), False)
    until("the event", lambda: [event["server"] for event in world.events("server_needs_login")] == ["guarded"], PATIENCE_S)


@test
def after_the_pages_the_tool_works_without_a_restart(world):
    world.log_in()
    until("the tool is offered", lambda: "mcp_guarded_greet" in world.tools(), PATIENCE_S)
    assert "hello ann" in world.greet()
    standing = world.standing()
    equal((standing["state"], standing["login"]["state"], standing["login"]["renewable"]), ("ok", "logged_in", True))
    assert "mcp:read" in standing["login"]["scopes"], standing
    world.secret(json.dumps(standing))
    equal(oct((world.belay.home / "data/belay/mcp-logins/guarded.json").stat().st_mode & 0o777), "0o600")


@test
def the_commands_of_the_shell_use_the_login_too(world):
    sets = [f"--set=tools.mcp.guarded.url={world.server.url}"]
    listed = world.run("mcp", "list", *sets)
    assert "greet" in listed.stdout and "guarded is logged in" in listed.stdout, listed
    world.secret(listed.stdout + listed.stderr)


@test
def an_expired_token_is_renewed_and_the_old_refresh_token_replaced(world):
    before = world.file()
    world.server.ask("expire", token=before["access"])
    assert "hello ann" in world.greet()
    after = world.file()
    equal(world.server.ask("set")["refreshes"], 1)
    assert before["access"] != after["access"] and before["refresh"] != after["refresh"]


@test
def a_token_that_is_about_to_expire_is_renewed_before_the_request(world):
    world.server.ask("set", lifetime=1)
    world.server.ask("expire", token=world.file()["access"])
    assert "hello ann" in world.greet()
    world.server.ask("set", lifetime=3600)
    at = world.file()["expires_at_ms"]
    until("the token expires", lambda: time.time() * 1000 > at, PATIENCE_S)
    assert "hello ann" in world.greet()
    equal(world.server.ask("set")["refreshes"] >= 3, True)


@test
def a_call_that_lacks_rights_leads_to_a_login_with_more(world):
    world.server.ask("set", needed="mcp:write")
    assert "needs login: belay mcp login guarded (the server asks for more rights: mcp:write)" in world.greet()
    until("it is shown", lambda: world.standing()["state"] == "needs_login", PATIENCE_S)
    world.log_in()
    assert "hello ann" in world.greet()
    granted = world.standing()["login"]["scopes"]
    assert {"mcp:read", "mcp:write"} <= set(granted), granted
    world.server.ask("set", needed="mcp:read")


@test
def the_second_use_of_a_refresh_token_ends_the_login_with_a_notice(world):
    before = world.file()
    world.server.ask("expire", token=before["access"])
    assert "hello ann" in world.greet()
    # A thief, or a restored backup, uses the one that was replaced: the server ends the whole grant.
    equal(world.server.ask("token", token=before["refresh"], client=before["client"]["id"])["status"], 400)
    told = len(world.events("server_needs_login"))
    for _ in range(2):
        assert "needs login: belay mcp login guarded" in world.greet()
    until("it is told", lambda: len(world.events("server_needs_login")) > told, PATIENCE_S)
    equal(len(world.events("server_needs_login")), told + 1)
    equal("mcp_guarded_greet" in world.tools(), True)
    world.log_in()
    assert "hello ann" in world.greet()


@test
def a_revoked_grant_needs_a_login(world):
    file = world.file()
    world.server.ask("revoke", token=file["refresh"])
    world.server.ask("expire", token=file["access"])
    assert "needs login: belay mcp login guarded" in world.greet()
    world.log_in()
    assert "hello ann" in world.greet()


@test
def a_logout_revokes_and_deletes(world):
    file = world.file()
    out = world.run("mcp", "logout", "guarded")
    assert "its tokens are revoked and deleted" in out.stdout, out
    equal((world.belay.home / "data/belay/mcp-logins/guarded.json").exists(), False)
    equal(world.server.ask("known", token=file["refresh"])["known"], False)
    assert "needs login: belay mcp login guarded" in world.greet()
    for secret in (file["access"], file["refresh"]):
        assert not any(secret in line for line in world.belay.log), "a token is in the log"


def main():
    server = Server(sys.argv[1])
    settings = {"llm.provider": "rehearsal", "tools.mcp.guarded.url": server.url, "tools.mcp.guarded.approval": "never"}
    passed = failed = 0
    try:
        with Belay(BINARY, settings, {"BELAY_OPERATOR_TOKEN": TOKEN}) as belay:
            world = World(belay, server)
            for function in TESTS:
                name, begin = function.__name__.replace("_", " "), time.monotonic()
                try:
                    function(world)
                    passed += 1
                    print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
                except Exception:  # a test may fail in any way; the next one runs all the same
                    failed += 1
                    print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
            if failed:
                print("".join(belay.log), flush=True)
    finally:
        server.process.terminate()
        server.process.wait(PATIENCE_S)
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
