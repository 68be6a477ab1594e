#!/usr/bin/env bash
# Guess: a client for server-sent events that connects again sends the id of the last event that it has read whole (HTML Standard, 9.2.6:
# an event counts at its blank line). An id without data counts too, as servers send it to mark a place, and an empty id takes the old one
# back.
# Seen with eventsource 4.1.1, eventsource-client 1.2.0, launchdarkly-eventsource 2.2.0, event-source-plus 0.1.15, extended-eventsource
# 2.1.0 and @microsoft/fetch-event-source 2.0.1 for Node, requests-sse 0.5.3, aiohttp-sse-client2 0.3.0 and launchdarkly-eventsource 1.7.4
# for Python, for a connection that breaks: extended-eventsource and fetch-event-source take the id as soon as its line has come. When the
# connection breaks within the data, they ask for what comes behind the event that they have not given to the program, and it is lost,
# without a sign. Five of the others do not keep an id without data, so they ask for old events again. event-source-plus and
# fetch-event-source keep an id that was taken back. aiohttp-sse-client2 raises an error instead. Only requests-sse does as guessed.
# Output seen (Python 3.11, Node 20.20.2): the Last-Event-ID of the second request, if the first answer is event 1 and then event 2 that is
# cut in its data, or `id: 2` alone, or an event with an empty id
#   by the standard: cut 1, alone 2, empty none
#   eventsource: cut 1, alone 1, empty none
#   eventsource-client: cut 1, alone 1, empty none
#   launchdarkly-eventsource: cut 1, alone 1, empty none
#   event-source-plus: cut 1, alone 1, empty 1
#   extended-eventsource: cut 2, alone 2, empty none
#   @microsoft/fetch-event-source: cut 2, alone 2, empty 1
#   requests-sse: cut 1, alone 2, empty none
#   aiohttp-sse-client2: cut an error, alone an error, empty an error
#   launchdarkly-eventsource for Python: cut 1, alone 1, empty none
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts eventsource@4.1.1 eventsource-client@1.2.0 launchdarkly-eventsource@2.2.0 \
    event-source-plus@0.1.15 extended-eventsource@2.1.0 @microsoft/fetch-event-source@2.0.1 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check requests-sse==0.5.3 aiohttp-sse-client2==0.3.0 launchdarkly-eventsource==1.7.4
cat >server.py <<'PY'
import pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FIRST = "retry: 100\nid: 1\ndata: one\n\n"
STREAMS = {"cut": FIRST + "id: 2\ndata: tw", "alone": FIRST + "id: 2\n\n", "empty": FIRST + "id\ndata: two\n\n"}
begun = set()


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_message = lambda *_: None

    def do_GET(self):
        self.close_connection = True
        if self.path in begun:
            new = pathlib.Path(f"new{self.path.replace('/', '.')}")
            new.write_text(self.headers.get("last-event-id") or "none")
            new.rename(f"seen{self.path.replace('/', '.')}")
            self.send_response(204)
            self.end_headers()
            return
        begun.add(self.path)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        text = STREAMS[self.path.split("/")[2]].encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(text), text))  # the connection ends without the last chunk


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
pathlib.Path("port.new").write_text(str(server.server_address[1]))
pathlib.Path("port.new").rename("port")
server.serve_forever()
PY
cat >clients.js <<'JS'
import { existsSync, readFileSync } from 'node:fs';
import { fetchEventSource } from '@microsoft/fetch-event-source';
import { EventSource } from 'eventsource';
import { createEventSource } from 'eventsource-client';
import { EventSourcePlus } from 'event-source-plus';
import { EventSource as Extended } from 'extended-eventsource';
import launchdarkly from 'launchdarkly-eventsource';

console.error = console.warn = console.info = () => {}; // extended-eventsource reports each connection
globalThis.window = globalThis; // fetch-event-source is for browsers
globalThis.document = { addEventListener() {}, removeEventListener() {} };
const clients = {
  eventsource: (url) => new EventSource(url),
  'eventsource-client': (url) => createEventSource({ url }),
  'launchdarkly-eventsource': (url) => {
    const source = new launchdarkly.EventSource(url, { initialRetryDelayMillis: 100, errorFilter: () => true });
    source.onerror = () => {};
  },
  'event-source-plus': (url) => new EventSourcePlus(url, { maxRetryInterval: 200 }).listen({ onMessage() {} }),
  'extended-eventsource': (url) => new Extended(url, { retry: 100 }),
  '@microsoft/fetch-event-source': (url) => fetchEventSource(url, { openWhenHidden: true, fetch, onopen() {} }).catch(() => {}),
};

async function asked(name, kind) {
  const path = name.split('/').at(-1);
  clients[name](`http://127.0.0.1:${readFileSync('port')}/${path}/${kind}`);
  for (let tries = 0; !existsSync(`seen.${path}.${kind}`) && tries < 300; tries++) await new Promise((resolve) => setTimeout(resolve, 100));
  return readFileSync(`seen.${path}.${kind}`, 'utf8');
}

for (const name of Object.keys(clients)) {
  const ids = [];
  for (const kind of ['cut', 'alone', 'empty']) ids.push(`${kind} ${await asked(name, kind)}`);
  process.stdout.write(`${name}: ${ids.join(', ')}\n`);
}
process.exit();
JS
cat >clients.py <<'PY'
import asyncio, contextlib, datetime, logging, pathlib, threading, time
import requests_sse
from aiohttp_sse_client2 import client as aiohttp_sse_client2
from ld_eventsource import SSEClient
from ld_eventsource.config import ConnectStrategy, ErrorStrategy

logging.disable(logging.CRITICAL)
soon = datetime.timedelta(milliseconds=100)


def with_requests_sse(url):
    with requests_sse.EventSource(url, reconnection_time=soon) as source:
        list(source)


def with_aiohttp(url):
    async def run():
        async with aiohttp_sse_client2.EventSource(url, reconnection_time=soon) as source:
            async for _ in source:
                pass

    asyncio.run(run())


def with_launchdarkly(url):
    list(SSEClient(ConnectStrategy.http(url), initial_retry_delay=0.1, error_strategy=ErrorStrategy.always_continue()).events)


def quietly(run, url):
    with contextlib.suppress(Exception):  # the answer to the second request has no events
        run(url)


def asked(name, run, kind):
    url = f"http://127.0.0.1:{pathlib.Path('port').read_text()}/{name}/{kind}"
    thread = threading.Thread(target=quietly, args=(run, url), daemon=True)
    thread.start()
    seen = pathlib.Path(f"seen.{name}.{kind}")
    for _ in range(300):
        if seen.exists():
            return seen.read_text()
        if not thread.is_alive():
            return "an error"
        time.sleep(0.1)
    return "nothing"


clients = {"requests-sse": with_requests_sse, "aiohttp-sse-client2": with_aiohttp, "launchdarkly-eventsource for Python": with_launchdarkly}
for name, run in clients.items():
    kinds = {kind: asked(name.replace(" ", "-"), run, kind) for kind in ("cut", "alone", "empty")}
    print(f"{name}: {', '.join(f'{kind} {id}' for kind, id in kinds.items())}")
PY
python3 server.py &
server=$!
until [ -e port ]; do
    kill -0 "$server"
    sleep 0.1
done
{
    echo "by the standard: cut 1, alone 2, empty none"
    node clients.js
    v/bin/python clients.py
} | tee seen
diff seen - <<'TEXT'
by the standard: cut 1, alone 2, empty none
eventsource: cut 1, alone 1, empty none
eventsource-client: cut 1, alone 1, empty none
launchdarkly-eventsource: cut 1, alone 1, empty none
event-source-plus: cut 1, alone 1, empty 1
extended-eventsource: cut 2, alone 2, empty none
@microsoft/fetch-event-source: cut 2, alone 2, empty 1
requests-sse: cut 1, alone 2, empty none
aiohttp-sse-client2: cut an error, alone an error, empty an error
launchdarkly-eventsource for Python: cut 1, alone 1, empty none
TEXT
