#!/usr/bin/env python3
"""Open WebUI with untouched defaults, in Chromium, against a real daemon with the rehearsal as its model.

    BELAY_BIN=target/debug/belay tests/clients/open_webui.py FOLDER

Needs `open-webui` and `playwright` in this Python, and Chromium (`make open-webui` installs them; 8 GB on the disk). FOLDER keeps the data
of Open WebUI. Prints a line for each step and, as its last line, "N passed, N failed, N skipped".
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import traceback
import urllib.request

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import Belay, Failure  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
# Generous: the page, its model list and a first answer on a busy machine.
LIMIT_S = 240
ASKS = 'call run_command {"argv": ["touch", "made-by-yes"]}'
OWN_TOOL = "call get_current_timestamp {}"


def until(what, condition):
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.3)
    raise Failure(f"did not come within {LIMIT_S} s: {what}")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class OpenWebUi:
    """A server of Open WebUI whose only setting is the address of its model server."""

    def __init__(self, folder, models):
        self.url = f"http://127.0.0.1:{free_port()}"
        data = pathlib.Path(folder).resolve() / "data"
        shutil.rmtree(data, ignore_errors=True)
        data.mkdir(parents=True)
        own = {"DATA_DIR": str(data), "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "of-the-test", "OFFLINE_MODE": "True", "HF_HUB_OFFLINE": "1"}
        served = {"ENABLE_OLLAMA_API": "False", "OPENAI_API_BASE_URL": f"{models}/v1", "OPENAI_API_KEY": "unused"}
        self.log = open(data.parent / "open-webui.log", "w", encoding="utf-8")
        program = pathlib.Path(sys.executable).parent / "open-webui"
        command = [str(program), "serve", "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1]]
        self.process = subprocess.Popen(command, cwd=data, env={**os.environ, **own, **served}, stdout=self.log, stderr=self.log)

    def __enter__(self):
        until("Open WebUI", self.is_healthy)
        return self

    def is_healthy(self):
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()


class Chat:
    """A new chat in a page of the browser, and the daemon behind it."""

    def __init__(self, page, belay):
        self.page, self.belay = page, belay

    def say(self, text):
        self.page.locator("#chat-input").click()
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Enter")

    def shows(self, text, times=1):
        until(f"{text!r} in the page", lambda: self.page.locator("main, #messages-container").first.inner_text().count(text) >= times)

    def get(self, path):
        with urllib.request.urlopen(f"{self.belay.url}{path}", timeout=30) as answer:
            return json.load(answer)

    def runs(self):
        return self.get("/api/v1/runs?limit=100")["runs"]


def hello_is_answered(chat):
    chat.say("hello")
    chat.shows("calculate 17*23")


def a_tool_of_belay_runs(chat):
    chat.say("calculate 12*12")
    chat.shows("= 144")


def a_tool_of_open_webui_runs_within_one_run(chat):
    chat.say(OWN_TOOL)
    chat.shows("user_timezone")
    until("the run of the tool", lambda: [run for run in chat.runs() if run["usage"]["model_calls"] == 2 and "user_timezone" in (run.get("reply") or "")])


def a_bare_yes_approves_once(chat):
    chat.say(ASKS)
    chat.shows("May I do this?")
    chat.say("yes")
    chat.shows("[exit code 0]")
    made = list(chat.belay.home.rglob("made-by-yes"))
    if len(made) != 1:
        raise Failure(f"the command has made {made}")


def the_stop_button_ends_the_run(chat):
    chat.say("rehearse stall 600")
    chat.shows("20 21 22")
    chat.page.get_by_role("button", name="Stop", exact=True).click()
    until("the end of the run", lambda: [run for run in chat.runs() if run.get("reason") == "client_gone"])


def nothing_else_is_a_conversation_and_no_question_waits(chat):
    busy = lambda: [run for run in chat.runs() if run["status"] not in ("completed", "stopped", "failed")]  # noqa: E731
    until("the end of all runs", lambda: not busy())
    if waiting := chat.get("/api/v1/approvals")["approvals"]:
        raise Failure(f"questions wait: {waiting}")
    if sessions := chat.get("/api/v1/sessions")["sessions"]:
        raise Failure(f"lasting conversations: {sessions}")
    if failed := [run for run in chat.runs() if run["status"] == "failed"]:
        raise Failure(f"failed runs: {failed}")


STEPS = (
    hello_is_answered,
    a_tool_of_belay_runs,
    a_tool_of_open_webui_runs_within_one_run,
    a_bare_yes_approves_once,
    the_stop_button_ends_the_run,
    nothing_else_is_a_conversation_and_no_question_waits,
)


def main(folder):
    passed = failed = 0
    with Belay(BINARY, {"llm.provider": "rehearsal"}) as belay, OpenWebUi(folder, belay.url) as front_end, sync_playwright() as player:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for step in STEPS:
            name = step.__name__.replace("_", " ")
            page = browser.new_page()
            # The news of a version cover the chat of a new person.
            news = page.get_by_role("button", name="Okay, Let's Go!")
            page.add_locator_handler(news, news.click)
            try:
                page.goto(front_end.url, timeout=LIMIT_S * 1000)
                page.wait_for_selector("#chat-input", timeout=LIMIT_S * 1000)
                until("the model's name", lambda: page.locator("#model-selector-model-button").count())
                step(Chat(page, belay))
                passed += 1
                print(f"ok {name}", flush=True)
            except Exception:  # a step may fail in any way; the next one runs all the same
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
            page.close()
        browser.close()
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
