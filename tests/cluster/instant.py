"""An OpenAI-compatible model that answers at once, always the same. It is a process of its own, so that its work is not that of the clients.

It prints its port, and ends when its standard input ends.
"""

import asyncio
import json
import subprocess
import sys

REPLY = "Take an umbrella with you: it rains in Tokyo tomorrow."
USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
# How long the process may take to begin and to end, in seconds.
PATIENCE = 20


class Instant:
    """The process, as the harness sees it."""

    def __init__(self):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, __file__], **pipes)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/v1"

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


def event(fields):
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"data: " + json.dumps({**head, **fields}).encode() + b"\n\n"


def response(kind, body):
    return f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def stream():
    """The whole answer to each request of a completion."""
    choices = [{"delta": {"role": "assistant", "content": REPLY}, "finish_reason": None}, {"delta": {}, "finish_reason": "stop"}]
    events = [event({"choices": [{"index": 0, **choice}]}) for choice in choices]
    return response("text/event-stream", b"".join([*events, event({"choices": [], "usage": USAGE}), b"data: [DONE]\n\n"]))


async def serve(reader, writer, answers):
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line)
            await reader.readexactly(int(fields.get(b"content-length", b"0")))
            writer.write(answers[head.split(b" ", 1)[0]])
    except (asyncio.IncompleteReadError, OSError):
        writer.close()  # the daemon has closed the connection


async def main():
    answers = {b"POST": stream(), b"GET": response("application/json", b'{"data":[]}')}
    server = await asyncio.start_server(lambda reader, writer: serve(reader, writer, answers), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
