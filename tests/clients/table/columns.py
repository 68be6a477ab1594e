"""What the scripts of the table share: the daemon that they talk to, and a line of JSON for each column. Standard library only.

A script has one function for each column, marked with `column`, and ends with `report()`. Its argument is the face of the API: `chat`,
`responses` or `messages`. The runner (run.py) has started the daemon, has run the lines of the guide, and sets BELAY_URL and BELAY_TOKEN.
"""

import json
import os
import sys
import time
import traceback
import urllib.request

URL, TOKEN = os.environ["BELAY_URL"], os.environ["BELAY_TOKEN"]
BASE = f"{URL}/v1"
FACE = sys.argv[1] if len(sys.argv) > 1 else "chat"
# The rehearsal answers these by a tool of Belay, two calls of a tool of the client, words for half a minute, and an error of its provider.
SUM, STALL, FAIL = "calculate 17*23", "rehearse stall 30", "rehearse error auth"
CALL = 'call get_weather {"city": "Oslo"}\ncall get_weather {"city": "Rome"}'
RESULT, FORECAST = "391", "rain in Oslo\nrain in Rome"
# Words of Belay about the error.
WORDS = "rejects the API key"
LIMIT_S = 60
CHECKS = []


def column(function):
    CHECKS.append(function)
    return function


def user(text):
    return [{"role": "user", "content": text}]


def holds(text, part):
    assert part in (text or ""), f"expected {part!r} in {text!r}"


def pieces(parts, result=RESULT):
    """Checks a streamed answer: more than one piece, and the result in all of them together."""
    parts = [part for part in parts if part]
    assert len(parts) > 1, f"one piece: {parts}"
    holds("".join(parts), result)


def runs():
    request = urllib.request.Request(f"{URL}/api/v1/runs?limit=100", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["runs"]


def until(what, condition):
    """Waits until `condition()` is something."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"not within {LIMIT_S} s: {what}"
        time.sleep(0.05)


def stopped():
    """Checks that the run whose stream was closed has ended for that reason."""
    until("the end of the run", lambda: [run for run in runs() if run["reason"] == "client_gone"])


def told_once(error):
    """Checks that a text for people has the words of Belay, and that the failed run was not done again."""
    holds(error, WORDS)
    failed = [run for run in runs() if run["status"] == "failed"]
    assert len(failed) == 1, f"{len(failed)} failed runs"


def failure(ask):
    """The text of the error that `ask` raises."""
    try:
        answer = ask()
    except Exception as error:  # each client has classes of its own
        return str(error)
    raise AssertionError(f"no error: {answer!r}")


def report():
    for check in CHECKS:
        why = None
        try:
            check()
        except Exception as error:  # a column may fail in any way; the next one is judged all the same
            traceback.print_exc()
            why = f"{type(error).__name__}: {error}"
        print(json.dumps({"column": check.__name__, "why": why}), flush=True)
