#!/usr/bin/env bash
# Guess: the clients of model providers wait as long as the header `retry-after` of a 429 answer says, or raise the error at once where
# that is too long for them. None repeats the request earlier than it was told to.
# Seen with 8 clients for Python and 8 for Node (versions below), for 20, 90 and 3607 seconds and for a date 41 seconds ahead: five take
# the header for absent where its time is too long for them, and repeat the request after about a second. The two of OpenAI differ: one
# waits for 90 seconds and raises for an hour, and one repeats at once. Three wait for a minute and repeat then. (The one of Mistral for
# Node applies the longest interval of its settings, and the one for Python with the same settings does not.) Those of Google do not
# wait for the header's time at all. Five sleep for the whole hour inside the call.
# Output seen (Python 3.11, Node 20.20.2), in the order 20, 90, 3607, date; "soon" is less than six seconds:
#   Python openai: waits, waits, error, waits
#   Python anthropic: waits, waits, waits, waits
#   Python mistralai: waits, waits, waits, waits
#   Python groq: waits, soon, soon, waits
#   Python together: waits, soon, soon, waits
#   Python cerebras: waits, soon, soon, waits
#   Python cohere: waits, 60 s, 60 s, waits
#   Python google-genai: soon, soon, soon, soon
#   Node openai: waits, soon, soon, waits
#   Node @anthropic-ai/sdk: waits, waits, waits, waits
#   Node @mistralai/mistralai: waits, 60 s, 60 s, waits
#   Node groq-sdk: waits, waits, waits, waits
#   Node together-ai: waits, waits, waits, waits
#   Node cohere-ai: waits, 60 s, 60 s, waits
#   Node @google/genai: soon, soon, soon, soon
#   Node ai: waits, soon, soon, waits
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts openai@7.59.0 @anthropic-ai/sdk@1.14.0 groq-sdk@1.6.0 together-ai@0.52.0 cohere-ai@8.1.0 \
    @mistralai/mistralai@2.7.0 @google/genai@2.32.0 ai@7.0.173 @ai-sdk/openai@4.0.118 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check openai==3.57.0 anthropic==2.14.0 groq==1.7.0 together==3.1.1 \
    cerebras-cloud-sdk==1.91.0 cohere==7.3.1 mistralai==3.7.0 google-genai==3.6.1
cat >server.py <<'PY'
# The first segment of a path is one request of a client, with the header to send. The first answer to it is 429, and the next one 200.
import datetime, email.utils, json, pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CHAT = {"id": "c1", "object": "chat.completion", "created": 1, "model": "m", "usage": {
    "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}, "choices": [
    {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop", "logprobs": None}]}
ANSWERS = {
    "v1/messages": {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": "hi"}],
                    "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}},
    "v2/chat": {"id": "c1", "finish_reason": "COMPLETE", "message": {"role": "assistant", "content": [{"type": "text", "text": "hi"}]}},
    "generateContent": {"candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP"}]},
}
seen = set()


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    log_message = lambda *_: None

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        key = self.path.split("/")[1]
        first = key not in seen
        seen.add(key)
        after = key.split("-")[1]
        if after == "date":
            then = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=41)
            after = email.utils.format_datetime(then, usegmt=True)
        error = {"error": {"message": "slow down", "type": "rate_limit_error", "code": 429, "status": "RESOURCE_EXHAUSTED"}}
        body = json.dumps(error if first else next((a for end, a in ANSWERS.items() if end in self.path), CHAT)).encode()
        self.send_response(429 if first else 200)
        if first:
            self.send_header("retry-after", after)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
pathlib.Path("port").write_text(str(server.server_address[1]))
server.serve_forever()
PY
cat >clients.py <<'PY'
import logging, pathlib, time

waits = []
time.sleep = waits.append  # before the clients are loaded: no wait takes place
import anthropic, cohere, google.genai, groq, mistralai.client, openai, together
from cerebras.cloud.sdk import Cerebras
from google.genai.types import HttpOptions, HttpRetryOptions
from mistralai.client.utils import BackoffStrategy, RetryConfig

logging.disable()
port = pathlib.Path("port").read_text()
ask = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
# mistralai and google-genai do not repeat unless they are asked to.
backoff = RetryConfig("backoff", BackoffStrategy(500, 60000, 1.5, 36000000), True)
again = HttpRetryOptions(attempts=3)
CLIENTS = {
    "openai": lambda url: openai.OpenAI(base_url=f"{url}/v1", api_key="k").chat.completions.create(**ask),
    "anthropic": lambda url: anthropic.Anthropic(base_url=url, api_key="k").messages.create(max_tokens=5, **ask),
    "mistralai": lambda url: mistralai.client.Mistral(server_url=url, api_key="k", retry_config=backoff).chat.complete(**ask),
    "groq": lambda url: groq.Groq(base_url=url, api_key="k").chat.completions.create(**ask),
    "together": lambda url: together.Together(base_url=f"{url}/v1", api_key="k").chat.completions.create(**ask),
    "cerebras": lambda url: Cerebras(base_url=url, api_key="k", warm_tcp_connection=False).chat.completions.create(**ask),
    "cohere": lambda url: cohere.ClientV2(base_url=url, api_key="k").chat(**ask),
    "google-genai": lambda url: (client := google.genai.Client(api_key="k", http_options=HttpOptions(
        base_url=url, retry_options=again))) and client.models.generate_content(model="m", contents="x"),
}


def seen(client, after):
    waits.clear()
    try:
        CLIENTS[client](f"http://127.0.0.1:{port}/py.{client}-{after}")
    except Exception as error:
        return "error" if not waits else f"{type(error).__name__} after {waits}"
    told = 41 if after == "date" else int(after)
    # Some add up to a quarter to the time; a date has whole seconds.
    return "waits" if told - 3 <= max(waits) <= told * 1.25 else "soon" if sum(waits) < 3 else f"{max(waits):.0f} s"


for client in CLIENTS:
    print(f"Python {client}: {', '.join(seen(client, after) for after in ('20', '90', '3607', 'date'))}")
PY
cat >clients.js <<'JS'
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import Anthropic from '@anthropic-ai/sdk';
import Groq from 'groq-sdk';
import Together from 'together-ai';
import { CohereClientV2 } from 'cohere-ai';
import { Mistral } from '@mistralai/mistralai';
import { GoogleGenAI } from '@google/genai';
import { generateText } from 'ai';
import { createOpenAI } from '@ai-sdk/openai';

// A timer for the time that the client was told ends at once, and so does one for a minute, of the two that wait for a minute at most.
const port = readFileSync('port', 'utf8');
const timer = globalThis.setTimeout;
const minute = ['cohere-ai', '@mistralai/mistralai'];
let name;
let told = 0;
let waited = [];
globalThis.setTimeout = (run, ms, ...more) => {
  const one = ms / 1000;
  const skip = (one >= told - 3 && one <= told * 1.25) || (minute.includes(name) && one > 59 && one < 76);
  if (skip) waited.push(one);
  return timer(run, skip ? 0 : ms, ...more);
};
const apiKey = 'k';
const ask = { model: 'm', messages: [{ role: 'user', content: 'x' }] };
const backoff = { strategy: 'backoff', backoff: { initialInterval: 500, maxInterval: 60000, exponent: 1.5, maxElapsedTime: 36000000 } };
const clients = {
  openai: (url) => new OpenAI({ apiKey, baseURL: `${url}/v1` }).chat.completions.create(ask),
  '@anthropic-ai/sdk': (url) => new Anthropic({ apiKey, baseURL: url }).messages.create({ ...ask, max_tokens: 5 }),
  '@mistralai/mistralai': (url) => new Mistral({ apiKey, serverURL: url, retryConfig: backoff }).chat.complete(ask),
  'groq-sdk': (url) => new Groq({ apiKey, baseURL: url }).chat.completions.create(ask),
  'together-ai': (url) => new Together({ apiKey, baseURL: `${url}/v1` }).chat.completions.create(ask),
  'cohere-ai': (url) => new CohereClientV2({ token: apiKey, environment: url }).chat(ask),
  '@google/genai': (url) => {
    const client = new GoogleGenAI({ apiKey, httpOptions: { baseUrl: url, retryOptions: { attempts: 3 } } });
    return client.models.generateContent({ model: 'm', contents: 'x' });
  },
  ai: (url) => generateText({ model: createOpenAI({ apiKey, baseURL: `${url}/v1` }).chat('m'), prompt: 'x' }),
};
for (name of Object.keys(clients)) {
  const row = [];
  for (const after of ['20', '90', '3607', 'date']) {
    told = after === 'date' ? 41 : Number(after);
    waited = [];
    const begin = performance.now();
    const error = await clients[name](`http://127.0.0.1:${port}/js.${name.replaceAll(/\W/g, '')}-${after}`).then(() => null, (e) => e);
    const took = (performance.now() - begin) / 1000;
    const one = Math.max(...waited, 0);
    if (error) row.push(one ? String(error) : 'error');
    else row.push(one >= told - 3 ? 'waits' : one ? `${Math.round(one)} s` : took < 6 ? 'soon' : `${Math.round(took)} s`);
  }
  console.log(`Node ${name}: ${row.join(', ')}`);
}
process.exit();
JS
python3 server.py 2>errors & server=$!
until [ -s port ]; do
    kill -0 $server 2>/dev/null || { cat errors; exit 1; }
    sleep 0.1
done
{ v/bin/python clients.py && node clients.js; } | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
Python openai: waits, waits, error, waits
Python anthropic: waits, waits, waits, waits
Python mistralai: waits, waits, waits, waits
Python groq: waits, soon, soon, waits
Python together: waits, soon, soon, waits
Python cerebras: waits, soon, soon, waits
Python cohere: waits, 60 s, 60 s, waits
Python google-genai: soon, soon, soon, soon
Node openai: waits, soon, soon, waits
Node @anthropic-ai/sdk: waits, waits, waits, waits
Node @mistralai/mistralai: waits, 60 s, 60 s, waits
Node groq-sdk: waits, waits, waits, waits
Node together-ai: waits, waits, waits, waits
Node cohere-ai: waits, 60 s, 60 s, waits
Node @google/genai: soon, soon, soon, soon
Node ai: waits, soon, soon, waits
TEXT
