#!/usr/bin/env bash
# Guess: a model that refuses answers with the field `refusal` in the place of `content`, in whole answers and in streams, as the API of
# chat completions has had it since structured outputs. All clients hand its words on, as text or as an error.
# Seen with openai 3.3.0, openai-agents 0.24.0, pydantic-ai-slim 2.38.0, langchain-openai 1.7.4, litellm 1.110.2 and instructor 1.17.0 for
# Python, openai 7.59.0, @openai/agents 0.20.0, ai 7.0.173 with @ai-sdk/openai 4.0.118 and @langchain/openai 1.5.8 for Node: the streams of
# LangChain and LiteLLM end with an empty text and the reason "stop", and the refusal is nowhere in their result; whole answers of both
# for Python have it. LangChain for Node loses it in whole answers too, and its typed answer is an error about JSON. instructor with tools
# raises at once, and with a schema it sends the model its empty answer back as JSON to correct, three times. openai-agents and pydantic-ai
# raise with the words. The AI SDK returns them like any text with the reason "content-filter", and its typed answer is an error about JSON.
# Output seen (Python 3.11, Node 20.20.2): "lost" is an empty text, ended by "stop", without the refusal
#   whole: Python openai: words; openai-agents: error with the words; pydantic-ai: error with the words; langchain: words; litellm: words
#   stream: Python openai: words; openai-agents: error with the words; pydantic-ai: error with the words; langchain: lost; litellm: lost
#   typed: Python instructor, tools: 1 request; instructor, schema: 4 requests, repeated with "" and "Correct your JSON"; langchain: error with the words
#   whole: Node openai: words; agents: error with the words; AI SDK: words, content-filter; langchain: lost
#   stream: Node openai: words; agents: error with the words; AI SDK: words, content-filter; langchain: lost
#   typed: Node agents: error with the words; AI SDK: error about JSON; langchain: error about JSON
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts openai@7.59.0 @openai/agents@0.20.0 ai@7.0.173 @ai-sdk/openai@4.0.118 \
    @langchain/openai@1.5.8 @langchain/core@1.4.0 zod@4.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check openai==3.3.0 openai-agents==0.24.0 'pydantic-ai-slim[openai]==2.38.0' \
    langchain-openai==1.7.4 litellm==1.110.2 instructor==1.17.0
cat >server.py <<'PY'
import json, pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ABOUT = {"id": "c1", "created": 1, "model": "m"}
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def piece(delta, finish=None):
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {**ABOUT, "object": "chat.completion.chunk", "choices": [choice]}


WHOLE = {**ABOUT, "object": "chat.completion", "usage": USAGE, "choices": [{
    "index": 0, "logprobs": None, "finish_reason": "stop",
    "message": {"role": "assistant", "content": None, "refusal": "I will not."}}]}
STREAM = [piece({"role": "assistant", "content": None, "refusal": ""}), piece({"refusal": "I will"}), piece({"refusal": " not."}),
          piece({}, "stop"), {**ABOUT, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}]


class Server(BaseHTTPRequestHandler):
    log_message = lambda *_: None

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        stream = "".join(f"data: {json.dumps(line)}\n\n" for line in STREAM) + "data: [DONE]\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        self.wfile.write((stream if asked.get("stream") else json.dumps(WHOLE)).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
pathlib.Path("port").write_text(str(server.server_address[1]))
server.serve_forever()
PY
cat >clients.py <<'PY'
import asyncio, logging, os, pathlib, warnings

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no request for a list of prices
import instructor, litellm
from agents import Agent as Agents, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

warnings.simplefilter("ignore")
logging.disable()
set_tracing_disabled(True)
base = dict(base_url=f"http://127.0.0.1:{pathlib.Path('port').read_text()}/v1", api_key="none", max_retries=0)
ask = {"model": "m", "messages": [{"role": "user", "content": "x"}]}


class Sum(BaseModel):
    sum: int


async def agents(stream):
    agent = Agents(name="a", model=OpenAIChatCompletionsModel("m", AsyncOpenAI(**base)))
    if not stream:
        return (await Runner.run(agent, "x")).final_output
    run = Runner.run_streamed(agent, "x")
    async for _ in run.stream_events():
        pass
    return run.final_output


async def pydantic_ai(stream):
    agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=AsyncOpenAI(**base))))
    if not stream:
        return (await agent.run("x")).output
    async with agent.run_stream("x") as result:
        return await result.get_output()


def openai(stream):
    if not stream:
        return OpenAI(**base).chat.completions.create(**ask).model_dump()
    with OpenAI(**base).chat.completions.stream(**ask) as events:
        return events.get_final_completion().model_dump()


def langchain(stream):
    model = ChatOpenAI(model="m", use_responses_api=False, **base)
    if not stream:
        return model.invoke("x").model_dump()
    whole = None
    for one in model.stream("x"):
        whole = one if whole is None else whole + one
    return whole.model_dump()


def with_litellm(stream):
    answer = litellm.completion(**{**ask, "model": "openai/m"}, api_base=base["base_url"], api_key="none", stream=stream)
    return (litellm.stream_chunk_builder(list(answer)) if stream else answer).model_dump()


def langchain_typed(_):
    return ChatOpenAI(model="m", use_responses_api=False, **base).with_structured_output(Sum).invoke("x")


def seen(call, stream):
    try:
        answer = str(call(stream))
    except Exception as error:
        return "error with the words" if "I will not." in str(error) else "other error"
    if "I will not." in answer:
        return "words"
    return "lost" if "stop" in answer and "I will" not in answer else answer


def requests(mode):
    client = OpenAI(**base)
    create, sent = client.chat.completions.create, []
    client.chat.completions.create = lambda **more: sent.append(list(more["messages"])) or create(**more)
    try:
        instructor.from_openai(client, mode=mode).chat.completions.create(response_model=Sum, **ask)
    except Exception:
        repeated = {(messages[-2]["content"], messages[-1]["content"][:17]) for messages in sent[1:]}
        return ", ".join([f"{len(sent)} request{'s' * (len(sent) > 1)}", *(f'repeated with "{one}" and "{two}"' for one, two in repeated)])


clients = {"openai": openai, "openai-agents": lambda stream: asyncio.run(agents(stream)),
           "pydantic-ai": lambda stream: asyncio.run(pydantic_ai(stream)), "langchain": langchain, "litellm": with_litellm}
for word, stream in (("whole", False), ("stream", True)):
    print(f"{word}: Python {'; '.join(f'{name}: {seen(call, stream)}' for name, call in clients.items())}")
tools, schema = (requests(mode) for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA))
print(f"typed: Python instructor, tools: {tools}; instructor, schema: {schema}; langchain: {seen(langchain_typed, False)}")
PY
cat >clients.js <<'JS'
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { Agent, OpenAIChatCompletionsModel, run, setTracingDisabled } from '@openai/agents';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText, Output, streamText } from 'ai';
import { ChatOpenAI } from '@langchain/openai';
import { z } from 'zod';

setTracingDisabled(true);
const baseURL = `http://127.0.0.1:${readFileSync('port', 'utf8')}/v1`;
const client = new OpenAI({ baseURL, apiKey: 'none', maxRetries: 0 });
const ask = { model: 'm', messages: [{ role: 'user', content: 'x' }] };
const schema = z.object({ sum: z.number() });
const agent = new Agent({ name: 'a', model: new OpenAIChatCompletionsModel(client, 'm') });
const sdk = { model: createOpenAI({ baseURL, apiKey: 'none' }).chat('m'), prompt: 'x', maxRetries: 0, onError() {} };
const chain = new ChatOpenAI({ model: 'm', apiKey: 'none', maxRetries: 0, configuration: { baseURL }, useResponsesApi: false });

const whole = {
  openai: () => client.chat.completions.create(ask),
  agents: async () => (await run(agent, 'x')).finalOutput,
  'AI SDK': async () => {
    const { text, finishReason } = await generateText(sdk);
    return { text, finishReason };
  },
  langchain: () => chain.invoke('x'),
};
const stream = {
  openai: () => client.chat.completions.stream(ask).finalChatCompletion(),
  agents: async () => {
    const result = await run(agent, 'x', { stream: true });
    await result.completed;
    return result.finalOutput;
  },
  'AI SDK': async () => {
    const { text, finishReason } = streamText(sdk);
    return { text: await text, finishReason: await finishReason };
  },
  langchain: async () => {
    let all;
    for await (const one of await chain.stream('x')) all = all ? all.concat(one) : one;
    return all;
  },
};
const typed = {
  agents: async () => (await run(agent.clone({ outputType: schema }), 'x')).finalOutput,
  'AI SDK': async () => (await generateText({ ...sdk, output: Output.object({ schema }) })).output,
  langchain: () => chain.withStructuredOutput(schema).invoke('x'),
};

async function seen(call) {
  try {
    const answer = JSON.stringify(await call());
    if (answer.includes('I will not.')) return answer.includes('"content-filter"') ? 'words, content-filter' : 'words';
    return answer.includes('"stop"') && !answer.includes('I will') ? 'lost' : answer;
  } catch (error) {
    if (error.message.includes('I will not.')) return 'error with the words';
    return [error, error.cause].some((one) => one?.message.includes('JSON')) ? 'error about JSON' : 'other error';
  }
}

for (const [word, calls] of Object.entries({ whole, stream, typed })) {
  const row = [];
  for (const [name, call] of Object.entries(calls)) row.push(`${name}: ${await seen(call)}`);
  console.log(`${word}: Node ${row.join('; ')}`);
}
JS
python3 server.py 2>errors & server=$!
until [ -s port ]; do
    kill -0 $server 2>/dev/null || { cat errors; exit 1; }
    sleep 0.1
done
{ v/bin/python clients.py && node clients.js; } 2>>errors | grep -E '^(whole|stream|typed): ' | tee seen || { cat errors; exit 1; }
diff seen - <<'TEXT'
whole: Python openai: words; openai-agents: error with the words; pydantic-ai: error with the words; langchain: words; litellm: words
stream: Python openai: words; openai-agents: error with the words; pydantic-ai: error with the words; langchain: lost; litellm: lost
typed: Python instructor, tools: 1 request; instructor, schema: 4 requests, repeated with "" and "Correct your JSON"; langchain: error with the words
whole: Node openai: words; agents: error with the words; AI SDK: words, content-filter; langchain: lost
stream: Node openai: words; agents: error with the words; AI SDK: words, content-filter; langchain: lost
typed: Node agents: error with the words; AI SDK: error about JSON; langchain: error about JSON
TEXT
