#!/usr/bin/env bash
# Guess: an answer of the Responses API that reaches its token limit ends its stream with `response.incomplete` instead of
# `response.completed`, and the clients give the text so far with the reason, as they do for `finish_reason: length` of chat completions.
# A call in such an answer is run by all of them or by none.
# Seen with openai 3.57.0 for Python and 7.59.0 for npm, openai-agents 0.24.0, pydantic-ai-slim 2.68.0, ai 7.0.173 with @ai-sdk/openai
# 4.0.118: the stream helper of openai for Python raises an error that names neither the limit nor the text; the one for npm returns
# normally. openai-agents raises, streamed or not, and the text is lost. pydantic-ai and the AI SDK give the text. A call that was
# complete before the cut is run by pydantic-ai, kept and not run by the AI SDK, and lost with openai-agents.
# Output seen (Python 3.11, Node 20.20.2):
#   text: openai for Python: RuntimeError, "Didn't receive a `response.completed` event."
#   text: openai-agents: ModelBehaviorError
#   text: pydantic-ai: "four and", length
#   call: openai-agents: ModelBehaviorError; runs of the tool: 0
#   call: pydantic-ai: "done", stop; runs of the tool: 1
#   text: openai for npm: "four and", incomplete
#   text: AI SDK: "four and", length; runs of the tool: 0
#   call: AI SDK: "", length; runs of the tool: 0
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${server:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts openai@7.59.0 ai@7.0.173 @ai-sdk/openai@4.0.118 zod@4.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check openai==3.57.0 openai-agents==0.24.0 'pydantic-ai-slim[openai]==2.68.0'
cat >server.py <<'PY'
# The model "text" is cut in its text, and the model "call" behind a whole call; asked again with the result, it says "done".
import json, pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def response(status, output, **more):
    usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": status, "model": "m", "output": output, "tools": [],
            "tool_choice": "auto", "parallel_tool_calls": True, "error": None, "incomplete_details": None, "usage": usage, **more}

def text(words, status):
    part = {"type": "output_text", "text": words, "annotations": []}
    at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": status, "content": [part]}, {"content": []}, [
        {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
        {"type": "response.output_text.delta", **at, "delta": words, "logprobs": []},
        {"type": "response.output_text.done", **at, "text": words, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part}]

def call(name, arguments):
    at = {"item_id": "fc_1", "output_index": 0}
    item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": name, "arguments": arguments, "status": "completed"}
    return item, {"arguments": ""}, [
        {"type": "response.function_call_arguments.delta", **at, "delta": arguments},
        {"type": "response.function_call_arguments.done", **at, "name": name, "arguments": arguments}]

def events(asked):
    cut = "function_call_output" not in json.dumps(asked["input"])
    status, reason = ("incomplete", {"reason": "max_output_tokens"}) if cut else ("completed", None)
    item, empty, between = call("pay", '{"sum":4}') if cut and asked["model"] == "call" else text("four and" if cut else "done", status)
    return [{"type": "response.created", "response": response("in_progress", [], usage=None)},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, **empty, "status": "in_progress"}}, *between,
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": f"response.{status}", "response": response(status, [item], incomplete_details=reason)}]

class Server(BaseHTTPRequestHandler):
    log_message = lambda *_: None

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        lines = [{**event, "sequence_number": number} for number, event in enumerate(events(asked))]
        stream = "".join(f"event: {line['type']}\ndata: {json.dumps(line)}\n\n" for line in lines)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        self.wfile.write((stream if asked.get("stream") else json.dumps(lines[-1]["response"])).encode())

server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
pathlib.Path("port").write_text(str(server.server_address[1]))
server.serve_forever()
PY
cat >clients.py <<'PY'
import asyncio, logging, pathlib
from agents import Agent as Agents, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI, OpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel as Model
from pydantic_ai.providers.openai import OpenAIProvider

logging.disable()
set_tracing_disabled(True)
base = dict(base_url=f"http://127.0.0.1:{pathlib.Path('port').read_text()}/v1", api_key="none", max_retries=0)
runs = []

def pay(sum: int) -> None:
    runs.append(sum)

async def with_agents(model):
    agent = Agents(name="a", model=OpenAIResponsesModel(model, AsyncOpenAI(**base)), tools=[function_tool(pay)])
    return f'"{(await Runner.run(agent, "x")).final_output}"'

async def with_pydantic(model):
    agent = Agent(Model(model, provider=OpenAIProvider(openai_client=AsyncOpenAI(**base))), tools=[pay])
    async with agent.run_stream("x") as result:
        return f'"{await result.get_output()}", {result.all_messages()[-1].finish_reason}'

def seen(ask, model):
    runs.clear()
    try:
        return asyncio.run(ask(model))
    except Exception as error:
        return type(error).__name__

try:
    with OpenAI(**base).responses.stream(model="text", input="x") as stream:
        print("text: openai for Python:", stream.until_done().get_final_response().output_text)
except RuntimeError as error:
    print(f'text: openai for Python: RuntimeError, "{error}"')
print("text: openai-agents:", seen(with_agents, "text"))
print("text: pydantic-ai:", seen(with_pydantic, "text"))
print(f"call: openai-agents: {seen(with_agents, 'call')}; runs of the tool: {len(runs)}")
print(f"call: pydantic-ai: {seen(with_pydantic, 'call')}; runs of the tool: {len(runs)}")
PY
cat >clients.js <<'JS'
import { readFileSync } from 'node:fs';
import OpenAI from 'openai';
import { createOpenAI } from '@ai-sdk/openai';
import { streamText, tool } from 'ai';
import { z } from 'zod';

const base = { baseURL: `http://127.0.0.1:${readFileSync('port', 'utf8')}/v1`, apiKey: 'none' };
const { output_text, status } = await new OpenAI({ ...base, maxRetries: 0 }).responses.stream({ model: 'text', input: 'x' }).finalResponse();
console.log(`text: openai for npm: "${output_text}", ${status}`);
for (const model of ['text', 'call']) {
  let runs = 0;
  const pay = tool({ description: 'pays', inputSchema: z.object({ sum: z.number() }), execute: async () => `paid ${++runs}` });
  const stopWhen = ({ steps }) => steps.length > 2;
  const result = streamText({ model: createOpenAI(base).responses(model), prompt: 'x', tools: { pay }, stopWhen, maxRetries: 0 });
  console.log(`${model}: AI SDK: "${await result.text}", ${await result.finishReason}; runs of the tool: ${runs}`);
}
JS
python3 server.py & server=$!
until [ -s port ]; do sleep 0.1; done
{ v/bin/python clients.py; node clients.js; } | tee seen
diff seen - <<'TEXT'
text: openai for Python: RuntimeError, "Didn't receive a `response.completed` event."
text: openai-agents: ModelBehaviorError
text: pydantic-ai: "four and", length
call: openai-agents: ModelBehaviorError; runs of the tool: 0
call: pydantic-ai: "done", stop; runs of the tool: 1
text: openai for npm: "four and", incomplete
text: AI SDK: "four and", length; runs of the tool: 0
call: AI SDK: "", length; runs of the tool: 0
TEXT
