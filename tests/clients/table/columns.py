"""What the scripts of the table share: the daemon that they talk to, and a line of JSON for each column. Standard library only.

A script has one function for each column, marked with `column`, and ends with `report()`. Its argument is the face of the API: `chat`,
`responses` or `messages`. The runner (run.py) has started the daemon, has run the lines of the guide, and sets BELAY_URL, BELAY_TOKEN and
BELAY_COLUMNS, the columns to judge. The picture and the files of samples.py are in the folder where the script runs.
"""

import base64
import json
import os
import pathlib
import sys
import time
import traceback
import urllib.request

import samples

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
# The columns to judge, and the question beside a picture or a file.
ASKED, LOOK = os.environ["BELAY_COLUMNS"].split(), "what do you get?"
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


def encoded(file):
    """A sample in base64."""
    return base64.b64encode(pathlib.Path(file).read_bytes()).decode()


def data_url(file, media_type):
    return f"data:{media_type};base64,{encoded(file)}"


def listed(names):
    """Checks that a list of models has the name that the guide configures."""
    names = list(names)
    assert "belay" in names, f"no belay in {names}"


def saw(answer):
    """Checks that the model has got the picture, by the size and the colour that it says."""
    holds(answer, samples.SEEN)


def read(answer, *said):
    """Checks that the model has got the text of files, by the words that it says."""
    for words in said or (samples.READ_PDF,):
        holds(answer, words)


def runs():
    request = urllib.request.Request(f"{URL}/api/v1/runs?limit=100", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=300) as answer:
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
    for check in (check for check in CHECKS if check.__name__ in ASKED):
        why = None
        try:
            check()
        except Exception as error:  # a column may fail in any way; the next one is judged all the same
            traceback.print_exc()
            why = f"{type(error).__name__}: {error}"
        print(json.dumps({"column": check.__name__, "why": why}), flush=True)
