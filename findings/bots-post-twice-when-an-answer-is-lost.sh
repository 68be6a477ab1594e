#!/usr/bin/env bash
# Guess: a library for chat bots repeats a message by itself only where the server can see that it is the same one, by a nonce or a
# transaction id. Where the service has no such key, a lost answer is an error, and the program decides.
# Seen with slack_sdk 3.47.0, discord.py 2.7.1 and matrix-nio 0.26.0 for Python, @slack/web-api 8.2.0 and discord.js 14.28.1 for Node: the
# Slack clients repeat `chat.postMessage` by default, without a key, when the connection is closed after the server has read it, and the
# one for Node also after a status 502. discord.js repeats after a 502, and says `enforce_nonce: false`, so that Discord does not compare
# the two; discord.py sends a nonce with `enforce_nonce: true`. matrix-nio repeats with the same transaction id. Each call returns one
# message and no error, so a program cannot tell that the room shows two. Turning it off takes `retry_handlers=[]`,
# `retryConfig: {retries: 0}` and `rest: {retries: 0}`.
# Output seen (Python 3.11, Node 20.20.2): what the server has read, by the way in which the first answer is lost
#   slack_sdk: closed: 2 posts without a key | 502: 1 post, error
#   discord.py: closed: 1 post, error | 502: 2 posts with one key
#   matrix-nio: closed: 2 posts with one key | 502: 1 post, error
#   @slack/web-api: closed: 2 posts without a key | 502: 2 posts without a key
#   discord.js: closed: 1 post, error | 502: 2 posts without a key
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @slack/web-api@8.2.0 discord.js@14.28.1 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check slack-sdk==3.47.0 discord.py==2.7.1 matrix-nio==0.26.0 aiohttp==3.14.5
cat >server.py <<'PY'
import http.server, json

AUTHOR = {"id": "1", "username": "bot", "discriminator": "0", "avatar": None}
MESSAGE = {"id": "5", "channel_id": "1", "author": AUTHOR, "content": "hi", "timestamp": "2026-11-30T00:00:00+00:00", "type": 0, "flags": 0,
           "edited_timestamp": None, "tts": False, "mention_everyone": False, "pinned": False,
           "mentions": [], "mention_roles": [], "attachments": [], "embeds": [], "components": []}
ANSWER = {**MESSAGE, "ok": True, "ts": "1.1", "channel": "C1", "event_id": "$event"}
posts = []


def key(path, body):
    """The key by which the server could see a repeated message, or None."""
    if "/_matrix/" in path:
        return path
    fields = json.loads(body) if body.startswith("{") else {}
    return fields.get("nonce") if fields.get("enforce_nonce") else None


class Service(http.server.BaseHTTPRequestHandler):
    """Reads each post. The answer to the first one is lost: /closed/ has none, and /502/ has that of a proxy."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        posts.append(key(self.path, self.rfile.read(int(self.headers["Content-Length"])).decode()))
        if len(posts) > 1:
            self.answer(200, ANSWER)
        elif self.path.startswith("/closed/"):
            self.close_connection = True
        else:
            self.answer(502, {"error": "bad gateway"})

    do_PUT = do_POST

    def do_GET(self):
        if self.path != "/posts":  # discord.py asks who it is
            return self.answer(200, AUTHOR)
        kind = "without a key" if None in posts else "with one key" if len(set(posts)) == 1 else "with two keys"
        self.answer(200, "1 post" if len(posts) == 1 else f"{len(posts)} posts {kind}")
        posts.clear()

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
print(server.server_address[1], flush=True)
server.serve_forever()
PY
mkfifo ready
python3 server.py >ready &
server=$!
read -r port <ready
cat >post.py <<'PY'
import asyncio, json, sys, urllib.request
import aiohttp, discord, discord.http, nio, slack_sdk

base = f"http://127.0.0.1:{sys.argv[1]}"


async def with_slack(url):
    client = slack_sdk.WebClient("token", base_url=f"{url}/api/")
    await asyncio.to_thread(client.chat_postMessage, channel="C1", text="hi")


async def with_discord(url):
    discord.http.Route.BASE = url
    client = discord.Client(intents=discord.Intents.none())
    async with client:
        await client.http.static_login("token")
        await client.get_partial_messageable(1).send("hi")


async def with_nio(url):
    client = nio.AsyncClient(url, "@bot:example.org")
    client.access_token = "token"
    try:
        answer = await client.room_send("!room:example.org", "m.room.message", {"msgtype": "m.text", "body": "hi"})
        if isinstance(answer, nio.RoomSendError):
            raise RuntimeError(answer)
    finally:
        await client.close()


async def show(name, send):
    seen = []
    for way in ("closed", "502"):
        try:
            await send(f"{base}/{way}")
            error = ""
        except Exception:
            error = ", error"
        posts = await asyncio.to_thread(lambda: json.load(urllib.request.urlopen(f"{base}/posts")))
        seen.append(f"{way}: {posts}{error}")
    print(f"{name}: {' | '.join(seen)}", flush=True)


async def main():
    await show("slack_sdk", with_slack)
    await show("discord.py", with_discord)
    await show("matrix-nio", with_nio)


asyncio.run(main())
PY
cat >post.js <<'JS'
import { LogLevel, WebClient } from '@slack/web-api';
import { Client, DMChannel } from 'discord.js';

const base = `http://127.0.0.1:${process.argv[2]}`;
const withSlack = (url) =>
  new WebClient('token', { slackApiUrl: `${url}/api/`, logLevel: LogLevel.ERROR }).chat.postMessage({ channel: 'C1', text: 'hi' });
const withDiscord = (url) => {
  const client = new Client({ intents: [], rest: { api: url } });
  client.rest.setToken('token');
  const recipients = [{ id: '2', username: 'ann', discriminator: '0', avatar: null }];
  return Reflect.construct(DMChannel, [client, { id: '1', type: 1, recipients }]).send('hi');
};
for (const [name, send] of [['@slack/web-api', withSlack], ['discord.js', withDiscord]]) {
  const seen = [];
  for (const way of ['closed', '502']) {
    const error = await send(`${base}/${way}`).then(() => '', () => ', error');
    seen.push(`${way}: ${await (await fetch(`${base}/posts`)).json()}${error}`);
  }
  console.log(`${name}: ${seen.join(' | ')}`);
}
process.exit();
JS
{ v/bin/python post.py "$port" 2>errors; node post.js "$port"; } | tee seen
diff seen - <<'TEXT'
slack_sdk: closed: 2 posts without a key | 502: 1 post, error
discord.py: closed: 1 post, error | 502: 2 posts with one key
matrix-nio: closed: 2 posts with one key | 502: 1 post, error
@slack/web-api: closed: 2 posts without a key | 502: 2 posts without a key
discord.js: closed: 1 post, error | 502: 2 posts without a key
TEXT
