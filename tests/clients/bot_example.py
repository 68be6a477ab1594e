#!/usr/bin/env python3
"""The bot of docs/examples/bot-python, and the page docs/guide/programs.md about it, against a real daemon.

    BELAY_BIN=target/debug/belay tests/clients/bot_example.py

Standard library only. Prints a line for each test and, as its last line, "N passed, N failed, N skipped".
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "bot-python"
sys.path[:0] = [str(ROOT / "tests" / "clients"), str(EXAMPLE)]
from belay_process import Belay  # noqa: E402
from bot import Bot, Refused, sign  # noqa: E402

BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN, SECRET = "token-of-the-bot-test", "secret-of-the-bot-test"
LIMIT_S = 300
TESTS = []


def test(function):
    TESTS.append(function)
    return function


@test
def a_message_with_the_token_is_answered_by_a_callback(belay, bot):
    sent = bot.send("token", "calculate 17*23", key="k")
    end = bot.answer(sent["run_id"], LIMIT_S)
    assert (end["type"], end["status"], end["session"]) == ("run_ended", "completed", "token") and "391" in end["reply"], end
    again = bot.send("token", "calculate 17*23", key="k")
    assert (again["run_id"], again["duplicate"]) == (sent["run_id"], True), again


@test
def a_signed_message_is_answered_at_the_address_of_its_session(belay, bot):
    try:
        bot.send_signed("signed", f"/callback {bot.url}")
        raise AssertionError("a refusal was expected")
    except Refused as refused:
        assert (refused.error["code"], refused.error["param"]) == ("forbidden", "callback_url"), refused.error
    assert bot.say_where("signed")["status"] == "command"
    sent = bot.send_signed("signed", "calculate 6*7", key="d")
    assert "42" in bot.answer(sent["run_id"], LIMIT_S)["reply"]
    assert bot.send_signed("signed", "calculate 6*7", key="d")["run_id"] == sent["run_id"]


@test
def a_command_is_answered_at_once(belay, bot):
    answer = bot.send("command", "/status")
    assert answer["status"] == "command" and answer["reply"], answer


@test
def a_refusal_names_the_field(belay, bot):
    try:
        bot.send("", "hello")
        raise AssertionError("a refusal was expected")
    except Refused as refused:
        assert (refused.error["code"], refused.error["param"]) == ("invalid", "session"), refused.error


@test
def the_bot_takes_only_what_belay_has_signed_now_and_once(belay, bot):
    def body(**changes):
        return json.dumps({"type": "run_ended", "delivery_id": "1", "sent_at": time.time_ns() // 1_000_000, **changes}).encode()

    assert not bot.take(body(), "") and not bot.take(body(), sign("another secret", body()))
    old = body(sent_at=0)
    assert not bot.take(old, sign(SECRET, old))
    new = body()
    waiting = bot.ends.qsize()
    assert bot.take(new, sign(SECRET, new)) and bot.take(new, sign(SECRET, new)) and bot.ends.qsize() == waiting + 1


@test
def the_program_prints_the_answer_with_and_without_a_token(belay, bot):
    bot.send("bot", f"/callback http://127.0.0.1:{belay.port}/ended")
    for token in (TOKEN, None):
        kept = {key: value for key, value in os.environ.items() if key != "BELAY_TOKEN"}
        variables = {**kept, "BELAY_WEBHOOK_SECRET": SECRET, **({"BELAY_TOKEN": token} if token else {})}
        command = [sys.executable, str(EXAMPLE / "bot.py"), belay.url, f"127.0.0.1:{belay.port}", "calculate 17*23"]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0 and "391" in done.stdout, done.stdout + done.stderr


@test
def the_guide_shows_the_functions_of_the_bot(belay, bot):
    page, code = (ROOT / "docs" / "guide" / "programs.md").read_text(), (EXAMPLE / "bot.py").read_text()
    shown = page.split("<!-- bot.py -->\n```python\n")[1].split("```")[0]
    lines = [line.strip() for line in shown.splitlines() if line.strip() and not line.strip().startswith("#")]
    missing = [line for line in lines if line not in code]
    assert lines and not missing, missing


def free_ports(count):
    """Ports that nobody uses now, all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def main():
    passed = failed = 0
    own, other = free_ports(2)
    settings = {"llm.provider": "rehearsal", "tools.web.allow_private": f'["127.0.0.1:{own}", "127.0.0.1:{other}"]'}
    with Belay(BINARY, settings, {"BELAY_TOKEN": TOKEN, "BELAY_WEBHOOK_SECRET": SECRET}) as belay:
        belay.port = other
        bot = Bot(belay.url, f"127.0.0.1:{own}", SECRET, TOKEN)
        for function in TESTS:
            name = function.__name__
            try:
                function(belay, bot)
                passed += 1
                print(f"ok {name.replace('_', ' ')}", flush=True)
            except Exception:  # a test may fail in any way; the next one runs all the same
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        bot.close()
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
