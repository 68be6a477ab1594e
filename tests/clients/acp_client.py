#!/usr/bin/env python3
"""`belay acp` as the agent of editors, against a real daemon: the official SDK for Node as the editor, and the wire itself.

    BELAY_BIN=target/debug/belay tests/clients/acp_client.py [FOLDER]

FOLDER holds the packages of tests/clients/editor; without it, the SDK's part is left out. Prints a line for each test and, as its last
line, "N passed, N failed, N skipped".
"""

import collections
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import Belay  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
PATIENCE_S = 300
LONGEST_LINE = 4 * 1024 * 1024
NOTICES = {"session": {"notices": {}}}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


class Editor:
    """`belay acp` as a child process, and each line of it."""

    def __init__(self, belay, *arguments, capabilities=None, **environment):
        command = [belay.binary, "acp", *arguments]
        variables = {**belay.environment(), **environment}
        self.process = subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.workspace = belay.settings.get("tools.workspace", "/")
        self.lines, self.updates, self.others, self.answers, self.last = queue.Queue(), [], [], {}, 0
        threading.Thread(target=self.read, daemon=True).start()
        self.hello = self.ask("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities or {}})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.stdin.close()
            equal(self.process.wait(PATIENCE_S), 0)

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def line(self, line):
        self.process.stdin.write(line if isinstance(line, bytes) else line.encode())
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def send(self, method, params):
        self.last += 1
        self.line(json.dumps({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params}))
        return self.last

    def notify(self, method, params):
        self.line(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}))

    def next(self):
        """The next message: nothing but messages is on standard output."""
        line = self.lines.get(timeout=PATIENCE_S)
        assert line is not None, "the agent has ended"
        message = json.loads(line)
        equal(message["jsonrpc"], "2.0")
        if message.get("method") == "session/update":
            self.updates.append(message["params"]["update"])
        elif "method" in message:
            self.others.append(message)
        else:
            self.answers.setdefault(message["id"], message)
        return message

    def answer(self, id):
        while id not in self.answers:
            self.next()
        return self.answers.pop(id)

    def wait_for(self, method):
        while not (found := next((one for one in self.others if one["method"] == method), None)):
            self.next()
        self.others.remove(found)
        return found

    def ask(self, method, params):
        return self.answer(self.send(method, params))

    def open(self, cwd=None, servers=()):
        """Opens a session. In the workspace, which is the default, the agent has nothing to remark."""
        return self.ask("session/new", {"cwd": str(cwd or self.workspace), "mcpServers": list(servers)})["result"]["sessionId"]

    def prompt(self, session, text):
        return self.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def begun(self, session, text):
        """Sends a prompt whose run works when this returns: a part of its answer is there."""
        id, said = self.prompt(session, text), self.said()
        while self.said() == said:
            self.next()
        return id

    def said(self):
        return "".join(update["content"]["text"] for update in self.updates if update["sessionUpdate"] == "agent_message_chunk")


def get(belay, path):
    with urllib.request.urlopen(belay.url + path, timeout=60) as answer:
        return json.load(answer)


def post(belay, path, body):
    request = urllib.request.Request(belay.url + path, method="POST", data=json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def runs_of(belay, session):
    return get(belay, f"/api/v1/runs?session={urllib.request.quote(session, safe='')}")["runs"]


@test
def lines_that_are_no_messages_are_answered_without_what_was_sent(belay):
    with Editor(belay) as editor:
        for line, code in [("{secret", -32700), ("[]", -32600), ("17", -32600), (b"\xff\xfe", -32700)]:
            editor.line(line)
            error = editor.answer(None)["error"]
            equal((error["code"], "data" in error), (code, False))
        editor.line(b"x" * (LONGEST_LINE + 1))
        equal(editor.answer(None)["error"]["code"], -32700)
        for method, params, code in [
            ("session/dance", {"env": "secret"}, -32601),
            ("_own/dance", {}, -32601),
            ("session/prompt", {"sessionId": 7}, -32002),
            ("session/load", {"sessionId": "acp:\u0000"}, -32002),
        ]:
            error = editor.ask(method, params)["error"]
            equal((error["code"], "data" in error), (code, False))
        session = editor.open()
        for prompt in ([], "text", [{"type": "text", "text": " "}]):
            equal(editor.ask("session/prompt", {"sessionId": session, "prompt": prompt})["error"]["code"], -32602)
        editor.notify("session/cancel", {"sessionId": "acp:nobody"})
        editor.notify("who/knows", {})
        equal(editor.answer(editor.prompt(session, "calculate 2*3"))["result"], {"stopReason": "end_turn"})


@test
def a_session_without_servers_or_directory_is_taken(belay):
    with Editor(belay) as editor:
        session = editor.ask("session/new", {})["result"]["sessionId"]
        strange = [{"type": "hologram", "text": "x"}, {"type": "text", "text": "calculate 2*4"}]
        answer = editor.ask("session/prompt", {"sessionId": session, "prompt": strange})
        equal(answer["result"]["stopReason"], "end_turn")


@test
def a_foreign_directory_and_servers_of_the_editor_are_named_once(belay):
    server = {"name": "m", "command": "/bin/x", "args": [], "env": [{"name": "KEY", "value": "secret"}]}
    for capabilities in (None, NOTICES):
        with Editor(belay, capabilities=capabilities) as editor:
            session = editor.open("/elsewhere", [server])
            for _ in range(2):
                equal(editor.answer(editor.prompt(session, "/ping"))["result"]["stopReason"], "end_turn")
            notices = [update for update in editor.updates if update["sessionUpdate"] == "notice"]
            words = editor.said() if capabilities is None else notices[0]["description"]
            equal(len(notices), 0 if capabilities is None else 1)
            equal(words.count("not in /elsewhere"), 1)
            assert "MCP servers of its own settings" in words and "secret" not in words, words
    with Editor(belay) as editor:
        editor.answer(editor.prompt(editor.open(belay.settings["tools.workspace"]), "/ping"))
        equal(editor.said(), "pong")


@test
def a_request_to_cancel_a_prompt_is_answered_as_cancelled(belay):
    with Editor(belay) as editor:
        session = editor.open()
        id = editor.begun(session, "rehearse stall 600")
        editor.notify("$/cancel_request", {"requestId": id})
        equal(editor.answer(id)["result"], {"stopReason": "cancelled"})
        equal(runs_of(belay, session)[0]["status"], "stopped")


@test
def a_question_that_is_answered_elsewhere_is_withdrawn_from_the_editor(belay):
    with Editor(belay) as editor:
        session = editor.open()
        id = editor.prompt(session, 'call write_file {"path":"elsewhere","content":"x"}')
        question = editor.wait_for("session/request_permission")
        [waiting] = get(belay, f"/api/v1/approvals?session={urllib.request.quote(session, safe='')}")["approvals"]
        post(belay, f"/api/v1/approvals/{waiting['id']}", {"decision": "approve"})
        equal(editor.wait_for("$/cancel_request")["params"], {"requestId": question["id"]})
        equal(editor.answer(id)["result"], {"stopReason": "end_turn"})
        assert pathlib.Path(belay.settings["tools.workspace"], "elsewhere").exists()


@test
def a_question_that_the_editor_cannot_show_stays_open_for_other_places(belay):
    with Editor(belay) as editor:
        session = editor.open()
        id = editor.prompt(session, 'call write_file {"path":"later","content":"x"}')
        question = editor.wait_for("session/request_permission")
        error = {"code": -32601, "message": "no such method"}
        editor.line(json.dumps({"jsonrpc": "2.0", "id": question["id"], "error": error}))
        while "belay approvals approve" not in editor.said():
            editor.next()
        equal(editor.answer(editor.prompt(session, "yes"))["result"], {"stopReason": "end_turn"})
        equal(editor.answer(id)["result"], {"stopReason": "end_turn"})
        assert pathlib.Path(belay.settings["tools.workspace"], "later").exists()


@test
def a_question_with_several_lines_shows_them_as_a_block(belay):
    with Editor(belay) as editor:
        content = "one\n- directory: /\n<!-- \u202e"
        id = editor.prompt(editor.open(), "call write_file " + json.dumps({"path": "lines", "content": content}))
        question = editor.wait_for("session/request_permission")
        words = "".join(part["content"]["text"] for part in question["params"]["toolCall"]["content"] if part["type"] == "content")
        assert "```\none\n- directory: /\n<!-- \\u{202e}\n```" in words, words
        answer = {"outcome": {"outcome": "selected", "optionId": "reject"}}
        editor.line(json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": answer}))
        equal(editor.answer(id)["result"], {"stopReason": "end_turn"})


@test
def a_conversation_that_is_loaded_during_its_own_prompt_is_told_to_the_end(belay):
    with Editor(belay) as editor:
        session = editor.open()
        id = editor.begun(session, "rehearse stall 600")
        load = {"sessionId": session, "cwd": editor.workspace, "mcpServers": []}
        assert "error" not in editor.ask("session/load", load)
        assert "Load it again later" not in editor.said(), editor.said()
        with Editor(belay) as other:
            other.ask("session/load", load)
            assert "Load it again later" in other.said(), other.said()
        editor.notify("session/cancel", {"sessionId": session})
        equal(editor.answer(id)["result"], {"stopReason": "cancelled"})


@test
def a_stop_that_the_daemon_does_not_confirm_is_said(belay):
    with Editor(belay) as editor:
        session = editor.open()
        id = editor.begun(session, "rehearse stall 600")
        belay.process.send_signal(signal.SIGSTOP)
        try:
            editor.notify("session/cancel", {"sessionId": session})
            equal(editor.answer(id)["result"], {"stopReason": "cancelled"})
        finally:
            belay.process.send_signal(signal.SIGCONT)
        assert "`belay status`" in editor.said(), editor.said()
        equal(editor.ask("session/close", {"sessionId": session})["result"], {})


@test
def the_runs_of_an_editor_that_vanishes_are_stopped(belay):
    for leave in (lambda process: process.stdin.close(), lambda process: process.send_signal(signal.SIGTERM)):
        with Editor(belay) as editor:
            session = editor.open()
            editor.begun(session, "rehearse stall 600")
            leave(editor.process)
            equal(editor.process.wait(PATIENCE_S), 0)
            equal(runs_of(belay, session)[0]["status"], "stopped")


@test
def a_second_prompt_is_answered_after_the_first_one_and_a_closed_session_stops_both(belay):
    with Editor(belay) as editor:
        session = editor.open()
        first = editor.begun(session, "rehearse stall 600")
        second = editor.prompt(session, "calculate 4*4")
        closed = editor.send("session/close", {"sessionId": session})
        equal(editor.answer(first)["result"], {"stopReason": "cancelled"})
        equal(editor.answer(second)["result"], {"stopReason": "cancelled"})
        equal(editor.answer(closed)["result"], {})


@test
def prompts_that_become_one_turn_are_answered_once_each(belay):
    with Editor(belay) as editor:
        session = editor.open()
        editor.answer(editor.prompt(session, "/queue collect debounce:100"))
        ids = [editor.begun(session, "rehearse stall 600"), *(editor.prompt(session, f"calculate {n}*{n}") for n in (11, 12))]
        # The first run ends only when both of the others wait for it, however slow the machine is.
        deadline = time.monotonic() + PATIENCE_S
        while len(runs := runs_of(belay, session)) < 3:
            assert time.monotonic() < deadline, runs
            time.sleep(0.05)
        post(belay, f"/api/v1/runs/{min(run['run_id'] for run in runs)}/stop", {})
        equal([editor.answer(id)["result"]["stopReason"] for id in ids], ["cancelled", "end_turn", "end_turn"])
        reasons = collections.Counter(run["reason"] for run in runs_of(belay, session))
        equal(reasons, {"operator_stop": 1, "final_text": 1, "joined": 1})


@test
def too_many_requests_are_answered_at_once(belay):
    with Editor(belay) as editor:
        sessions = [editor.open() for _ in range(65)]
        ids = [editor.prompt(session, "rehearse stall 600") for session in sessions]
        assert "too many requests" in editor.answer(ids[-1])["error"]["message"]
        for session in sessions:
            editor.notify("session/cancel", {"sessionId": session})
        ends = collections.Counter(editor.answer(id).get("result", {}).get("stopReason") for id in ids[:-1])
        equal(ends, {"cancelled": 64})


@test
def an_editor_without_a_daemon_or_with_a_wrong_token_is_told_what_to_do(belay):
    with Editor(belay, "--url", "unix:/nowhere/control.sock") as editor:
        error = editor.hello["error"]
        assert error["code"] == -32603 and "belay run" in error["message"], error
    with Belay(BINARY, {"llm.provider": "rehearsal"}, {"BELAY_TOKEN": "right"}) as other:
        with Editor(other, "--url", other.url, BELAY_TOKEN="wrong") as editor:
            error = editor.hello["error"]
            assert error["code"] == -32000 and "BELAY_TOKEN" in error["message"], error
        with Editor(other, "--url", other.url) as editor:
            capabilities = editor.hello["result"]["agentCapabilities"]["sessionCapabilities"]
            assert "delete" not in capabilities and "list" in capabilities, capabilities
            equal(editor.answer(editor.prompt(editor.open("/p"), "calculate 9*9"))["result"], {"stopReason": "end_turn"})


@test
def a_daemon_that_is_killed_answers_the_prompt_after_its_restart(belay):
    with Editor(belay) as editor:
        session = editor.open()
        id = editor.begun(session, "rehearse stall 5")
        belay.process.kill()
        belay.process.wait()
        belay.url = None
        belay.__enter__()
        equal(editor.answer(id)["result"], {"stopReason": "end_turn"})
        equal(runs_of(belay, session)[0]["status"], "completed")


def official(belay, folder):
    """The tests by the official SDK: their numbers."""
    node = shutil.which("node", path=os.environ.get("PATH")) or "node"
    script = ROOT / "tests" / "clients" / "acp_editor.mjs"
    command = [node, str(script), folder, belay.settings["tools.workspace"]]
    variables = {**belay.environment(), "BELAY_BIN": belay.binary}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=10 * PATIENCE_S)
    lines = done.stdout.splitlines()
    found = COUNTS.match(lines.pop()) if lines else None
    print("\n".join(lines), flush=True)
    if found is None:
        print(f"FAILED the official SDK\n{done.stderr}", flush=True)
        return 0, 1, 0
    return tuple(int(number) for number in found.groups())


def main():
    passed = failed = skipped = 0
    workspace = tempfile.mkdtemp(prefix="belay-acp-")
    settings = {"llm.provider": "rehearsal", "tools.workspace": workspace, "approvals.rules": '[{tool="run_command",ask="never"}]'}
    try:
        with Belay(BINARY, settings) as belay:
            if len(sys.argv) > 1:
                passed, failed, skipped = official(belay, str(pathlib.Path(sys.argv[1]).resolve()))
            else:
                skipped += 1
                print("skipped the official SDK: its packages are not there", flush=True)
            for function in TESTS:
                name = function.__name__.replace("_", " ")
                try:
                    function(belay)
                    passed += 1
                    print(f"ok {name}", flush=True)
                except Exception:  # a test may fail in any way; the next one runs all the same
                    failed += 1
                    print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
            status = belay.stop()
            if status != 0:
                failed += 1
                print(f"FAILED the daemon ended with {status}\n{''.join(belay.log)}", flush=True)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
