#!/usr/bin/env bash
# Guess: the helpers for streamed messages in the SDKs of Slack send what `append` is given. An `append` that raises has sent nothing, so
# a program may call it again with the same text; and those that are called side by side belong to one message.
# Seen with slack_sdk 3.47.0 for Python and @slack/web-api 8.2.0 for Node: `append` keeps its text when the request fails. The text is sent
# with the next piece, so a program that repeats the failed call shows it twice, and one that goes on shows it once. `stop` does the same.
# Calls side by side, before the first answer, each begin a message of their own, with all of the text so far, and `stop` ends one of
# them. The default buffer of 256 characters hides both from short tests; here it is 1.
# Output seen (Python 3.11, Node 20.20.2): the requests that Slack would get, "!" for one that it refuses with "internal_error"
#   Python, failed piece repeated: start "one " | append "two " ! | append "two two " | stop "three"
#   Python, failed piece not repeated: start "one " | append "two " ! | append "two three" | stop
#   Python, failed end repeated: start "one " | stop "two" ! | stop "twotwo"
#   Python, side by side: start "one " | start "one two " | start "one two three" | stop
#   Node, failed piece repeated: start "one " | append "two " ! | append "two two " | stop "three"
#   Node, failed piece not repeated: start "one " | append "two " ! | append "two three" | stop
#   Node, failed end repeated: start "one " | stop "two" ! | stop "twotwo"
#   Node, side by side: start "one " | start "one two " | start "one two three" | stop
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @slack/web-api@8.2.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check slack-sdk==3.47.0 aiohttp==3.14.5
cat >server.py <<'PY'
import http.server, json, urllib.parse

requests = []


class Slack(http.server.BaseHTTPRequestHandler):
    """Refuses the second request of /fails/, and shows the requests so far: those side by side sorted, as they arrive in any order."""

    def do_GET(self):
        self.answer(" | ".join(sorted(requests) if self.path == "/side/" else requests).encode())
        requests.clear()

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        fields = json.loads(body) if body.startswith("{") else dict(urllib.parse.parse_qsl(body))
        chunks = fields.get("chunks") or []
        texts = [json.dumps(chunk["text"]) for chunk in (json.loads(chunks) if isinstance(chunks, str) else chunks)]
        fails = self.path.startswith("/fails/") and len(requests) == 1
        name = self.path.split("chat.")[1].removesuffix("Stream")
        requests.append(" ".join([name, *texts, *(["!"] if fails else [])]))
        self.answer(json.dumps({"ok": False, "error": "internal_error"} if fails else {"ok": True, "ts": "1.2"}).encode())

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slack)
print(server.server_address[1], flush=True)
server.serve_forever()
PY
mkfifo ready
python3 server.py >ready &
server=$!
read -r port <ready
cat >stream.py <<'PY'
import asyncio, sys, urllib.request
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

base = f"http://127.0.0.1:{sys.argv[1]}"


async def show(name, kind, use):
    client = AsyncWebClient("token", base_url=f"{base}/{kind}/")
    await use(await client.chat_stream(channel="C", thread_ts="1.1", buffer_size=1))
    requests = await asyncio.to_thread(lambda: urllib.request.urlopen(f"{base}/{kind}/").read().decode())
    print(f"Python, {name}: {requests}")


async def fail(call):
    try:
        await call
    except SlackApiError as error:
        assert error.response["error"] == "internal_error"
    else:
        sys.exit("no error")


async def repeated(stream):
    await stream.append(markdown_text="one ")
    await fail(stream.append(markdown_text="two "))
    await stream.append(markdown_text="two ")
    await stream.stop(markdown_text="three")


async def not_repeated(stream):
    await stream.append(markdown_text="one ")
    await fail(stream.append(markdown_text="two "))
    await stream.append(markdown_text="three")
    await stream.stop()


async def end(stream):
    await stream.append(markdown_text="one ")
    await fail(stream.stop(markdown_text="two"))
    await stream.stop(markdown_text="two")


async def side_by_side(stream):
    await asyncio.gather(*(stream.append(markdown_text=text) for text in ("one ", "two ", "three")))
    await stream.stop()


async def main():
    await show("failed piece repeated", "fails", repeated)
    await show("failed piece not repeated", "fails", not_repeated)
    await show("failed end repeated", "fails", end)
    await show("side by side", "side", side_by_side)


asyncio.run(main())
PY
cat >stream.js <<'JS'
import assert from 'node:assert';
import { WebClient } from '@slack/web-api';

const base = `http://127.0.0.1:${process.argv[2]}`;
const piece = (text) => ({ markdown_text: text });
const fail = (call) => assert.rejects(call, /internal_error/);
const show = async (name, kind, use) => {
  const client = new WebClient('token', { slackApiUrl: `${base}/${kind}/` });
  await use(client.chatStream({ channel: 'C', thread_ts: '1.1', buffer_size: 1 }));
  console.log(`Node, ${name}: ${await (await fetch(`${base}/${kind}/`)).text()}`);
};
await show('failed piece repeated', 'fails', async (stream) => {
  await stream.append(piece('one '));
  await fail(stream.append(piece('two ')));
  await stream.append(piece('two '));
  await stream.stop(piece('three'));
});
await show('failed piece not repeated', 'fails', async (stream) => {
  await stream.append(piece('one '));
  await fail(stream.append(piece('two ')));
  await stream.append(piece('three'));
  await stream.stop();
});
await show('failed end repeated', 'fails', async (stream) => {
  await stream.append(piece('one '));
  await fail(stream.stop(piece('two')));
  await stream.stop(piece('two'));
});
await show('side by side', 'side', async (stream) => {
  await Promise.all(['one ', 'two ', 'three'].map((text) => stream.append(piece(text))));
  await stream.stop();
});
JS
{ v/bin/python stream.py "$port"; node stream.js "$port"; } | tee seen
diff seen - <<'TEXT'
Python, failed piece repeated: start "one " | append "two " ! | append "two two " | stop "three"
Python, failed piece not repeated: start "one " | append "two " ! | append "two three" | stop
Python, failed end repeated: start "one " | stop "two" ! | stop "twotwo"
Python, side by side: start "one " | start "one two " | start "one two three" | stop
Node, failed piece repeated: start "one " | append "two " ! | append "two two " | stop "three"
Node, failed piece not repeated: start "one " | append "two " ! | append "two three" | stop
Node, failed end repeated: start "one " | stop "two" ! | stop "twotwo"
Node, side by side: start "one " | start "one two " | start "one two three" | stop
TEXT
