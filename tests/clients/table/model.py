"""The scripted model behind the daemon. It answers with the pictures and the words of files that its request has. Standard library only."""

import base64
import json

from webui import model

from table import samples

# What comes before the bytes of a picture.
DATA = "data:image/png;base64,"
# A tool of the client that is the form of the answer, with one field `answer`.
FORM = "Answer"


class Model(model.Model):
    """The server. Its scripts for front ends are not used."""

    def script(self, asked):
        text = answer_to(asked)
        if FORM in asked.tools:
            function = {"name": FORM, "arguments": json.dumps({"answer": text})}
            yield {"tool_calls": [{"index": 0, "id": f"call-{len(self.asked)}", "type": "function", "function": function}]}, None
            yield {}, "tool_calls"
        else:
            yield {"role": "assistant", "content": text}, None
            yield {}, "stop"


def answer_to(asked):
    """A line for each picture, and one for each word of a file, in all messages of the user: a client may send a file in one of its own."""
    said = [message["content"] for message in asked.body["messages"] if message["role"] == "user"]
    parts = [part for content in said for part in (content if isinstance(content, list) else [{"type": "text", "text": content}])]
    pictures = [described(part["image_url"]["url"]) for part in parts if part["type"] == "image_url"]
    text = "\n".join(part["text"] for part in parts if part["type"] == "text")
    return "\n".join([*pictures, *samples.words(text)]) or samples.NOTHING


def described(url):
    """The description of a picture, or the beginning of an address that has none."""
    return samples.described(base64.b64decode(url.removeprefix(DATA))) if url.startswith(DATA) else f"picture at {url[:40]}"
