"""The page that gradio's `load_chat` makes, in Chromium: the lines of the guide are its server."""

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request

from columns import FAIL, LIMIT_S, LOOK, RESULT, STALL, SUM, column, holds, report, runs, told_once, until
from playwright.sync_api import sync_playwright
from samples import PICTURE, READ_TEXT, SEEN, TEXT


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(url):
    try:
        return urllib.request.urlopen(url, timeout=5).status == 200
    except urllib.error.URLError:
        return False


class Chat:
    """A new page."""

    def __init__(self, browser, url):
        self.page = browser.new_page()
        self.page.set_default_timeout(LIMIT_S * 1000)
        self.page.goto(url)
        self.text = self.page.locator("textarea").first

    def say(self, text):
        self.text.fill(text)
        self.text.press("Enter")

    def attach(self, file):
        """Adds a file to the message, and waits until the page has sent it to its server."""
        with self.page.expect_response(lambda answer: "/upload" in answer.url and answer.request.method == "POST") as sent:
            self.page.locator("input[type=file]").first.set_input_files(file)
        sent.value.finished()
        self.page.locator(".thumbnails > *").first.wait_for()

    def shows(self, text):
        self.page.get_by_text(text).first.wait_for()
        return self.page.locator("body").inner_text()


def judge(browser, url):
    @column
    def hello():
        chat = Chat(browser, url)
        chat.say(SUM)
        chat.shows(f"= {RESULT}")
        # Its field takes no text while an answer comes, and does not say when that is over.
        chat.page.get_by_role("button", name="Retry").and_(chat.page.locator(":enabled")).first.wait_for()
        chat.say("what did I say before?")
        chat.shows(f'Before this you said: "{SUM}"')

    @column
    def error():
        chat = Chat(browser, url)
        chat.say(FAIL)
        told_once(chat.shows("rejects the API key"))

    @column
    def stream():
        chat = Chat(browser, url)
        chat.say(STALL)
        holds(chat.shows("1 2 3"), "1 2 3")
        assert any(run["status"] == "running" for run in runs()), "the words came when the run was over"

    def asked_about(file):
        chat = Chat(browser, url)
        chat.attach(file)
        chat.say(LOOK)
        return chat

    @column
    def images():
        asked_about(PICTURE).shows(SEEN)

    @column
    def files():
        asked_about(TEXT).shows(READ_TEXT)

    report()


def main():
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "GRADIO_SERVER_PORT": str(port)}
    with subprocess.Popen([sys.executable, os.environ["BELAY_LINES"]], env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            until("the page", lambda: answers(url))
            with sync_playwright() as player:
                judge(player.chromium.launch(executable_path=os.environ["BELAY_CHROMIUM"], args=["--no-sandbox"]), url)
        finally:
            server.kill()


main()
