#!/usr/bin/env python3
"""Open WebUI with untouched defaults, in Chromium, against a real daemon with a scripted model behind it.

    BELAY_BIN=target/debug/belay tests/clients/open_webui.py FOLDER [STEP…]

Needs `open-webui` and `playwright` in this Python, and Chromium (`make open-webui` installs them; 8 GB on the disk). FOLDER keeps the data
of Open WebUI. STEP: words of the names of the steps to run. Prints a line for each step and, as its last line, "N passed, N failed, N
skipped".
"""

import json
import os
import pathlib
import shutil
import sys
import traceback

from playwright.sync_api import sync_playwright

sys.path[:1] = [str(pathlib.Path(__file__).resolve().parents[at]) for at in (0, 1)]
from belay_process import Belay, Failure  # noqa: E402
from webui.front_end import LIMIT_S, Chat, OpenWebUi, until  # noqa: E402
from webui.model import CONTINUED, HELD, NEXT, RELEASED, SECRET, TAG, TASKS, TITLE, Model  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
ASKS = 'call run_command {"argv": ["touch", "made-by-yes"]}'
OWN_TOOL = "call get_current_timestamp {}"
PICTURE = ROOT / "docs" / "images" / "console-chat-light.png"


def hello_is_answered(chat):
    chat.say("hello")
    chat.shows("I have no script for this.")


def a_tool_of_belay_runs(chat):
    chat.say('call calculate {"expression": "12*12"}')
    chat.shows("The tool says: 144")


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


def an_answer_is_shown_before_it_is_complete(chat):
    chat.say("hold")
    chat.shows(HELD)
    if not [run for run in chat.runs() if run["status"] == "running"]:
        raise Failure("the words came when the run was over")
    chat.model.go_on.set()
    chat.shows(f"{HELD} {RELEASED}")


def the_stop_button_ends_the_run(chat):
    chat.say("count")
    chat.shows("20 21 22")
    chat.button("Stop").click()
    until("the end of the run", lambda: [run for run in chat.runs() if run.get("reason") == "client_gone"])


def a_stopped_answer_is_continued(chat):
    chat.say("count")
    chat.shows("5 6 7")
    chat.button("Stop").click()
    chat.button("Continue Response").click()
    chat.shows(CONTINUED)
    chat.shows("5 6 7")


def a_picture_reaches_the_model(chat):
    chat.attach(PICTURE.name, "image/png", PICTURE.read_bytes())
    chat.say("what is in it?")
    chat.shows("I see 1 picture.")


def the_text_of_a_file_reaches_the_model(chat):
    chat.attach("harbour.txt", "text/plain", f"The word of the day is {SECRET}.\n".encode())
    chat.say("what is the word of the day?")
    chat.shows(f"The word is {SECRET}.")


def a_chat_gets_its_title_tags_and_follow_up_questions(chat):
    chat.say("hello")
    until("the title", lambda: TITLE in chat.page.title())
    stored = "/api/v1/chats/" + chat.page.url.rsplit("/", 1)[1]
    until("the follow-up question", lambda: NEXT in str(chat.stored(stored)))
    until("the tag", lambda: TAG in str(chat.stored("/api/v1/chats/all/tags")))


def titles_tags_and_follow_ups_are_plain_text(chat):
    """Of all chats before, as the model and the daemon saw them."""
    for asked in chat.model.asked:
        if asked.is_plain_text != bool(asked.task):
            raise Failure(f"{asked.task or 'a chat'} came with {len(asked.tools)} tools: {asked.text[:300]!r}")
    texts = {json.dumps(answer) for _, answer in TASKS.values()}
    found = [run for run in chat.runs() if run.get("reply") in texts]
    seen = {asked.task for asked in chat.model.asked} - {None}
    if not seen >= {"title", "tags", "follow-ups"} or "unknown" in seen:
        raise Failure(f"Open WebUI has asked for {seen}")
    if len(found) < len(seen) or any(run["usage"]["tool_calls"] or run["usage"]["model_calls"] != 1 for run in found):
        raise Failure(f"runs of titles, tags and follow-ups: {found}")


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
    an_answer_is_shown_before_it_is_complete,
    the_stop_button_ends_the_run,
    a_stopped_answer_is_continued,
    a_picture_reaches_the_model,
    the_text_of_a_file_reaches_the_model,
    a_chat_gets_its_title_tags_and_follow_up_questions,
    titles_tags_and_follow_ups_are_plain_text,
    nothing_else_is_a_conversation_and_no_question_waits,
)


def main(folder, *words):
    passed = failed = 0
    model = Model()
    settings = {"llm.provider": "openai", "llm.base_url": f"{model.url}/v1", "llm.model": "scripted", "llm.vision": "true"}
    with Belay(BINARY, settings) as belay, OpenWebUi(folder, belay.url) as front_end, sync_playwright() as player:
        chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        browser = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for step in STEPS:
            name = step.__name__.replace("_", " ")
            if words and not any(word in name for word in words):
                continue
            page = browser.new_page()
            # The news of a version cover the chat of a new person.
            news = page.get_by_role("button", name="Okay, Let's Go!")
            page.add_locator_handler(news, news.click)
            try:
                page.goto(front_end.url, timeout=LIMIT_S * 1000)
                page.wait_for_selector("#chat-input", timeout=LIMIT_S * 1000)
                until("the model's name", lambda: page.locator("#model-selector-model-button").count())
                step(Chat(page, belay, model))
                passed += 1
                print(f"ok {name}", flush=True)
            except Exception:  # a step may fail in any way; the next one runs all the same
                failed += 1
                page.screenshot(path=pathlib.Path(folder) / f"{step.__name__}.png")
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
            page.close()
        browser.close()
    model.close()
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
