"""A server of Open WebUI with its defaults, and a chat in a page of it."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

from belay_process import Failure

# Generous: the page, its model list and a first answer on a busy machine.
LIMIT_S = 240


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
        hub = data.parent / "hub"
        subprocess.run([sys.executable, pathlib.Path(__file__).with_name("embedder.py"), hub], check=True, capture_output=True)
        own = {"DATA_DIR": str(data), "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "of-the-test", "OFFLINE_MODE": "True", "HF_HUB_CACHE": str(hub)}
        served = {"ENABLE_OLLAMA_API": "False", "OPENAI_API_BASE_URL": f"{models}/v1", "OPENAI_API_KEY": "unused"}
        self.log = open(data.parent / "open-webui.log", "w", encoding="utf-8")
        program = pathlib.Path(sys.executable).parent / "open-webui"
        command = [str(program), "serve", "--host", "127.0.0.1", "--port", self.url.rsplit(":", 1)[1]]
        self.process = subprocess.Popen(command, cwd=data, env={**os.environ, **own, **served}, stdout=self.log, stderr=self.log)

    def __enter__(self):
        try:
            until("Open WebUI", self.is_healthy)
        except BaseException:
            self.__exit__()
            raise
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
    """A new chat in a page of the browser, the daemon behind it, and the model behind that."""

    def __init__(self, page, belay, model):
        self.page, self.belay, self.model = page, belay, model

    def say(self, text):
        self.page.locator("#chat-input").click()
        self.page.keyboard.insert_text(text)
        self.page.keyboard.press("Enter")

    def attach(self, name, media_type, content):
        """Adds a file to the message, and waits until Open WebUI has read it."""
        with self.page.expect_response(lambda answer: "/process/status" in answer.url, timeout=LIMIT_S * 1000) as read:
            self.page.locator("input[type=file]").first.set_input_files({"name": name, "mimeType": media_type, "buffer": content})
        read.value.finished()
        until(f"{name} without a spinner", lambda: not self.page.locator("form [class*=spinner]").count())

    def button(self, name):
        return self.page.get_by_role("button", name=name, exact=True)

    def shows(self, text, times=1):
        until(f"{text!r} in the page", lambda: self.page.locator("main, #messages-container").first.inner_text().count(text) >= times)

    def stored(self, path):
        """What Open WebUI has stored."""
        fetched = "async path => (await fetch(path, {headers: {authorization: `Bearer ${localStorage.token}`}})).json()"
        return self.page.evaluate(fetched, path)

    def get(self, path):
        with urllib.request.urlopen(f"{self.belay.url}{path}", timeout=LIMIT_S) as answer:
            return json.load(answer)

    def runs(self):
        return self.get("/api/v1/runs?limit=100")["runs"]
