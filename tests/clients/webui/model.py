"""The model behind the daemon: OpenAI chat completions, streamed. It keeps what it was asked. Standard library only.

The last message of the person decides the answer: `call TOOL {…}` calls a tool if any are offered, `hold` says three words and waits for
`go_on`, `count` says a word each tenth of a second. A task of Open WebUI gets the object that its template asks for. Else the answer says
what the request has: the pictures, and the SECRET of a file.
"""

import dataclasses
import itertools
import json
import re
import threading
import time

from crash.doubles import Double

TASK, WITH_FILES = "### Task:", "Respond to the user query"
TITLE, TAG, NEXT = "Words of the harbour", "harbour", "Where do the boats lie?"
# The words of a template → what it asks for, and the answer.
TASKS = {
    "title": ("title summarizing the chat", {"title": TITLE}),
    "tags": ("broad tags categorizing", {"tags": [TAG]}),
    "follow-ups": ("might naturally send next", {"follow_ups": [NEXT]}),
    "queries": ("generating search queries", {"queries": []}),
}
SECRET = "heliotrope"
# How Belay begins the prompt of `belay:text`.
TEXT_ONLY = "You complete a single request of a program with text."
CALL = re.compile(r"call (\w+) (\{.*\})")
# What Belay asks where a history ends with an answer.
CONTINUE = "continue"
HELD, RELEASED, CONTINUED = "one two three", "four five six", "and this is the rest"
# Generous: a browser on a busy machine.
HOLD_LIMIT_S = 240


@dataclasses.dataclass(frozen=True)
class Asked:
    """A request to the model."""

    body: dict

    @property
    def tools(self):
        return [tool["function"]["name"] for tool in self.body.get("tools") or []]

    @property
    def is_plain_text(self):
        """Whether Belay has asked as `belay:text`."""
        first = self.body["messages"][0]
        return not self.tools and first["role"] == "system" and first["content"].startswith(TEXT_ONLY)

    @property
    def said(self):
        """The parts of the person's last message."""
        content = next((message["content"] for message in reversed(self.body["messages"]) if message["role"] == "user"), "")
        return content if isinstance(content, list) else [{"type": "text", "text": content}]

    @property
    def text(self):
        return "\n".join(part["text"] for part in self.said if part["type"] == "text")

    @property
    def pictures(self):
        return [part["image_url"]["url"] for part in self.said if part["type"] == "image_url"]

    @property
    def results(self):
        """The results behind the person's last message."""
        behind = itertools.takewhile(lambda message: message["role"] != "user", reversed(self.body["messages"]))
        return [message["content"] for message in behind if message["role"] == "tool"][::-1]

    @property
    def task(self):
        """What a background request of Open WebUI asks for; None for a chat."""
        if TASK not in self.text or WITH_FILES in self.text:
            return None
        return next((name for name, (words, _) in TASKS.items() if words in self.text), "unknown")


class Model(Double):
    """The server, and its requests in their order."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.go_on = threading.Event()

    def post(self, handler):
        if handler.command == "GET":
            return handler.answer({"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        asked = Asked(json.loads(handler.body()))
        with self.lock:
            self.asked.append(asked)
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        try:
            for delta, finish in self.script(asked):
                choice = {"index": 0, "delta": delta, "finish_reason": finish}
                handler.wfile.write(f"data: {json.dumps({'id': 'scripted', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n".encode())
            handler.wfile.write(b"data: [DONE]\n\n")
        except OSError:
            pass  # the daemon has closed the connection, as a stop does
        handler.close_connection = True

    def script(self, asked):
        """The parts of an answer, each with the reason of the end if it is the last."""
        call = CALL.search(asked.text)
        if asked.task is None and call and asked.tools and not asked.results:
            function = {"name": call[1], "arguments": call[2]}
            yield {"tool_calls": [{"index": 0, "id": f"call-{len(self.asked)}", "type": "function", "function": function}]}, None
            yield {}, "tool_calls"
            return
        for words in self.words(asked):
            yield {"role": "assistant", "content": words}, None
        yield {}, "stop"

    def words(self, asked):
        if asked.task:
            yield json.dumps(TASKS[asked.task][1] if asked.task in TASKS else {})
        elif asked.results:
            yield "The tool says: " + "\n".join(map(str, asked.results))
        elif asked.pictures:
            yield f"I see {len(asked.pictures)} picture."
        elif SECRET in asked.text:
            yield f"The word is {SECRET}."
        elif asked.text.strip() == CONTINUE:
            yield f" {CONTINUED}"
        elif "hold" in asked.text:
            yield f"{HELD} "
            self.go_on.wait(HOLD_LIMIT_S)
            yield RELEASED
        elif "count" in asked.text:
            for number in range(6000):
                yield f"{number} "
                time.sleep(0.1)
        else:
            yield "I have no script for this."
