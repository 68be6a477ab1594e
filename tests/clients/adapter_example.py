#!/usr/bin/env python3
"""The IRC adapter of docs/examples/adapter-irc over a real ngIRCd, and the frames of an adapter, against a real daemon.

    BELAY_BIN=target/debug/belay NGIRCD=ngircd tests/clients/adapter_example.py

Needs the package `websockets`. Without NGIRCD the tests over IRC are skipped. Prints a line for each test and, as its last line,
"N passed, N failed, N skipped".
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.request

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import serve

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "clients")]
from belay_process import Belay, until  # noqa: E402

BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
NGIRCD = os.environ.get("NGIRCD")
TOKENS = {"irc": "token-of-the-adapter-test", "other": "token-of-the-other-adapter"}
LIMIT_S = 300
SETTINGS = {
    "llm.provider": "rehearsal",
    "channels.adapters": '{irc={token_env="IRC_TOKEN",allow=["ann"],operators=["olga"],groups=["#ops"],max_text=400},'
    'other={token_env="OTHER_TOKEN",allow=["ann","eve"],max_text=300}}',
}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


class Platform:
    """An adapter by hand."""

    def __init__(self, belay, name="other", **ready):
        address = f"{belay.url.replace('http', 'ws', 1)}/adapters/{name}"
        self.socket = connect(address, additional_headers={"Authorization": f"Bearer {TOKENS[name]}"})
        self.hello = self.frame("hello")
        self.tell("ready", **ready)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def tell(self, kind, **fields):
        self.socket.send(json.dumps({"type": kind, **fields}))

    def frame(self, kind):
        """The next frame of this kind. Frames of other kinds are left out."""
        while (frame := json.loads(self.socket.recv(timeout=LIMIT_S)))["type"] != kind:
            pass
        return frame

    def say(self, id, text, **fields):
        self.tell("message", id=id, sender={"id": "ann"}, text=text, **fields)
        return self.frame("ack")

    def delivered(self, **result):
        frame = self.frame("deliver")
        self.tell("delivered", key=frame["key"], **{"result": "sent", **result})
        return frame


@test
def a_wrong_token_is_refused(belay):
    try:
        connect(f"{belay.url.replace('http', 'ws', 1)}/adapters/irc", additional_headers={"Authorization": "Bearer guess"})
        raise AssertionError("a refusal was expected")
    except InvalidStatus as refused:
        assert refused.response.status_code == 401, refused


@test
def a_repeated_message_is_answered_once(belay):
    with Platform(belay) as platform:
        assert platform.say("twice", "calculate 17*23")["result"] == "accepted"
        assert "391" in platform.delivered()["text"]
        assert platform.say("twice", "calculate 17*23")["result"] == "accepted"
        assert platform.say("status", "/status")["result"] == "command"
        assert "running" in platform.delivered()["text"], "nothing was delivered in front of it"


@test
def people_and_conversations_that_are_not_listed_are_refused(belay):
    with Platform(belay) as platform:
        platform.tell("message", id="x", sender={"id": "mallory"}, text="hello")
        ack = platform.frame("ack")
        assert ack["result"] == "refused" and "channels.adapters.other.allow" in ack["detail"], ack
        ack = platform.say("y", "hello", conversation="#secret", addressed=True)
        assert ack["result"] == "refused" and "channels.adapters.other.groups" in ack["detail"], ack
        platform.tell("dance")
        assert "dance" in platform.frame("error")["detail"]
        platform.tell("message", id="")
        assert "sender" in platform.frame("error")["detail"]


@test
def a_delivery_without_an_answer_is_looked_up(belay):
    with Platform(belay, look_up=True) as platform:
        assert platform.say("lost-answer", "calculate 3*41")["result"] == "accepted"
        lost = platform.frame("deliver")
    with Platform(belay, look_up=True) as platform:  # the connection ended before the result
        asked = platform.frame("look_up")
        assert asked["key"] == lost["key"]
        platform.tell("looked_up", key=asked["key"], sent=True)
        assert platform.say("after", "calculate 5*5")["result"] == "accepted"
        assert "25" in platform.delivered()["text"], "the lost one was not delivered again"
        assert platform.say("not-there", "calculate 7*9")["result"] == "accepted"
        lost = platform.frame("deliver")
    with Platform(belay, look_up=True) as platform:
        asked = platform.frame("look_up")
        platform.tell("looked_up", key=asked["key"], sent=False)
        again = platform.delivered()
        assert (again["key"], again["text"]) == (lost["key"], lost["text"])


@test
def a_long_answer_comes_in_pieces_and_goes_on_behind_those_that_were_taken(belay):
    with Platform(belay) as platform:
        assert platform.say("long", "rehearse long 1000")["result"] == "accepted"
        first = platform.delivered()
        second = platform.delivered(result="retry", after_ms=1)
        again = platform.delivered()
        assert again["key"] == second["key"] and first["key"] != second["key"]
        assert max(len(frame["text"].encode()) for frame in (first, second)) <= 300
        while platform.delivered()["key"].rpartition("-")[2] != "3":
            pass
        assert platform.say("stop", "/stop")["result"] == "command"


@test
def a_cursor_is_kept_once_all_messages_before_it_are_durable(belay):
    with Platform(belay, "irc") as platform:
        assert platform.hello["cursor"] is None and platform.hello["channel"] == "irc", platform.hello
        platform.tell("message", id="c1", sender={"id": "ann"}, text="calculate 1+1")
        platform.tell("cursor", value="behind c1")
        assert platform.frame("ack")["result"] == "accepted"
        platform.delivered()

    def kept():
        with Platform(belay, "irc") as platform:
            return platform.hello["cursor"]

    until("the cursor is kept", lambda: kept() == "behind c1", LIMIT_S)


@test
def a_question_is_answered_by_a_button_of_somebody_who_may(belay):
    with Platform(belay) as platform:
        assert platform.say("ask", 'call run_command {"argv": ["uname", "-s"]}')["result"] == "accepted"
        while "question" not in (asked := platform.delivered()):
            pass  # what the test before has left
        approval = asked["question"]["approval"]
        platform.tell("decide", id="tap", sender={"id": "mallory"}, conversation="ann", approval=approval, decision="approve")
        assert platform.frame("ack")["result"] == "refused"
        platform.tell("decide", id="tap2", sender={"id": "ann"}, approval=approval, decision="deny")
        assert platform.frame("ack")["result"] == "command"
        platform.delivered()


@test
def a_text_that_the_person_did_not_write_commands_and_answers_nothing(belay):
    with Platform(belay) as platform:
        assert platform.say("asks", 'call run_command {"argv": ["uname", "-n"]}')["result"] == "accepted"
        while "question" not in platform.delivered():
            pass
        for mark in ("bot", "forwarded"):
            for text in ("/freeze", "/status", "yes"):
                ack = platform.say(f"{mark} {text}", text, **{mark: True})
                assert ack["result"] == "accepted", (mark, text, ack)
        assert platform.say("own no", "no")["result"] == "command", "the question is still open"
        assert platform.say("own stop", "/stop")["result"] == "command"


class Person:
    """A person on IRC, by lines."""

    def __init__(self, port, nick):
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self.lines = self.socket.makefile("r", encoding="utf-8", newline="\n")
        self.say(f"NICK {nick}", f"USER {nick} 0 * :{nick}", "JOIN #ops")
        self.until(lambda line: " 366 " in line)

    def say(self, *lines):
        self.socket.sendall("".join(f"{line}\r\n" for line in lines).encode())

    def until(self, fits):
        end = time.monotonic() + LIMIT_S
        for line in self.lines:
            assert time.monotonic() < end, "the line has not come"
            if line.startswith("PING"):
                self.say(line.strip().replace("PING", "PONG", 1))
            if fits(line):
                return line
        raise AssertionError("the server closed the connection")

    def hears(self, words):
        return self.until(lambda line: " PRIVMSG " in line and words in line)


def runs_of_ann(belay):
    with urllib.request.urlopen(f"{belay.url}/api/v1/runs", timeout=LIMIT_S) as answer:
        return [run for run in json.load(answer)["runs"] if run["session"] == "irc:ann"]


@contextlib.contextmanager
def irc_server():
    """A real ngIRCd, with its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "ngircd.conf")
        config.write_text(
            f"[Global]\nName = irc.test\nInfo = test\nListen = 127.0.0.1\nPorts = {port}\nMotdPhrase = hello\n"
            "[Limits]\nMaxConnectionsIP = 0\n[Options]\nDNS = no\nIdent = no\nPAM = no\nSyslogFacility = local1\n"
        )
        with subprocess.Popen([NGIRCD, "--nodaemon", "--config", str(config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                until("ngIRCd listens", lambda: reachable(port), LIMIT_S)
                yield port
            finally:
                server.terminate()


def reachable(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


@contextlib.contextmanager
def irc_adapter(address, port):
    script = ROOT / "docs" / "examples" / "adapter-irc" / "irc_adapter.py"
    command = [sys.executable, str(script), address, f"127.0.0.1:{port}", "belay", "#ops"]
    with subprocess.Popen(command, env={**os.environ, "ADAPTER_TOKEN": TOKENS["irc"]}, stderr=None) as process:
        try:
            yield
        finally:
            process.kill()


@test
def the_example_answers_a_ping_and_loses_nothing_while_belay_takes_no_messages(_):
    """Its peers are made here: Belay acknowledges nothing on the first connection, and everything on the next one."""
    count, taken, loses, complete = 300, set(), threading.Event(), threading.Event()

    def takes(link):
        link.send(json.dumps({"type": "hello", "protocol": 1, "channel": "irc", "cursor": None}))
        if not loses.is_set():
            loses.wait(LIMIT_S)
            return link.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(ConnectionClosed):  # the example is killed at the end
            for text in link:
                frame = json.loads(text)
                if frame["type"] == "message":
                    taken.add(frame["text"])
                    link.send(json.dumps({"type": "ack", "id": frame["id"], "result": "accepted"}))
                if len(taken) == count:
                    complete.set()

    with serve(takes, "127.0.0.1", 0) as server, socket.create_server(("127.0.0.1", 0)) as irc:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        irc.settimeout(LIMIT_S)
        address = f"ws://127.0.0.1:{server.socket.getsockname()[1]}/adapters/irc"
        with irc_adapter(address, irc.getsockname()[1]), contextlib.ExitStack() as stack:
            stack.callback(loses.set)
            first = stack.enter_context(irc.accept()[0])
            first.settimeout(LIMIT_S)
            said = "".join(f":ann!a@h PRIVMSG belay :number {number}\r\n" for number in range(count))
            first.sendall(f"{said}PING :behind\r\n".encode())
            assert any("PONG :behind" in line for line in first.makefile("r", encoding="utf-8", newline="\n")), "no answer to PING"
            loses.set()
            stack.enter_context(irc.accept()[0])
            assert complete.wait(LIMIT_S), f"{len(taken)} of {count} messages have come"
        server.shutdown()


def people_on_irc_are_answered(belay):
    """In the room and in private; a stranger gets nothing; an answer waits for an adapter that was killed."""
    address = f"{belay.url.replace('http', 'ws', 1)}/adapters/irc"
    with irc_server() as port:
        ann, eve = Person(port, "ann"), Person(port, "eve")
        with irc_adapter(address, port):
            ann.until(lambda line: line.startswith(":belay!") and " JOIN " in line)
            eve.say("PRIVMSG belay :calculate 1+1")
            ann.say("PRIVMSG #ops :nobody is addressed", "PRIVMSG #ops :belay: calculate 17*23")
            assert " PRIVMSG #ops :" in ann.hears("17*23 = 391")
            ann.say("PRIVMSG belay :calculate 6*7")
            assert " PRIVMSG ann :" in ann.hears("6*7 = 42")
            ann.say("PRIVMSG belay :/status")
            ann.hears("active conversations")
        # The answer must come while no adapter is there. On a slow machine it may come before: then it takes longer.
        for seconds in (3, 30, 300):
            with irc_adapter(address, port):
                ann.until(lambda line: line.startswith(":belay!") and " JOIN " in line)
                known = [run["run_id"] for run in runs_of_ann(belay)]
                ann.say(f"PRIVMSG belay :rehearse stall {seconds}")
                run = until("the run", lambda known=known: [run["run_id"] for run in runs_of_ann(belay) if run["run_id"] not in known], LIMIT_S)[0]
            if any(one["run_id"] == run and one["ended_at"] is None for one in runs_of_ann(belay)):
                break
        with irc_adapter(address, port):
            ann.hears(f"for {seconds} s")
        eve.say("PRIVMSG eve :the end of my lines")
        line = eve.until(lambda line: " PRIVMSG eve :" in line)
        assert "the end of my lines" in line, f"eve heard {line}"


def an_adapter_is_told_that_the_daemon_ends(belay):
    """The last test: it ends the daemon."""
    with Platform(belay) as platform:
        assert belay.stop() == 0
        try:
            while True:
                platform.socket.recv(timeout=LIMIT_S)
        except ConnectionClosed as closed:
            assert closed.rcvd and (closed.rcvd.code, closed.rcvd.reason) == (1001, "Belay is shutting down"), closed


def main():
    passed = failed = skipped = 0
    secrets = {"IRC_TOKEN": TOKENS["irc"], "OTHER_TOKEN": TOKENS["other"]}
    tests = [*TESTS, *([people_on_irc_are_answered] if NGIRCD else []), an_adapter_is_told_that_the_daemon_ends]
    if not NGIRCD:
        skipped = 1
        print("skipped: no ngIRCd (the package ngircd of Debian)", flush=True)
    with Belay(BINARY, SETTINGS, secrets) as belay:
        for function in tests:
            name, begin = function.__name__.replace("_", " "), time.monotonic()
            try:
                function(belay)
                passed += 1
                print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            except Exception:  # a test may fail in any way; the next one runs all the same
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        if belay.stop() != 0 or failed:
            print("".join(belay.log), flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
