#!/usr/bin/env bash
# Guess: a framework with Anthropic's Messages API sends the blocks of the model's last answer back as they were, when it has run the tool
# that the answer asks for. The API wants the thoughts back unchanged and complete, and those of the type `redacted_thinking` are a part
# of them, which only the model can read.
# Seen with strands-agents 1.62.0 and llama-index-llms-anthropic 0.12.3 (both with anthropic 0.125.0) for Python, ai 7.0.173 with
# @ai-sdk/anthropic 4.0.105 and @langchain/anthropic 1.5.11 for Node: Strands and LlamaIndex leave the redacted thought out, from a stream
# and, with LlamaIndex, from a whole answer too, without an error or a warning. The thoughts on both sides of it stay. So the model goes on
# from other thoughts than it had. The two for Node send all blocks, in their order.
# Output seen (Python 3.11, Node 20.20.2): the blocks of the answer, and what the request with the result of the tool has of them
#   answer: thinking one, redacted_thinking two, thinking three, text, tool_use
#   strands, streamed: thinking one, thinking three, text, tool_use
#   llama-index, streamed: thinking one, thinking three, text, tool_use
#   llama-index, whole: thinking one, thinking three, text, tool_use
#   AI SDK, streamed: all
#   AI SDK, whole: all
#   LangChain, streamed: all
#   LangChain, whole: all
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${model:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check strands-agents==1.62.0 llama-index-llms-anthropic==0.12.3 \
    llama-index-core==0.14.25 anthropic==0.125.0 &
python=$!
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts ai@7.0.173 @ai-sdk/anthropic@4.0.105 @langchain/anthropic@1.5.11 @langchain/core@1.4.0 \
    zod@4.6.7 >log 2>&1
wait "$python"
cat >model.py <<'PY'
# The Messages API. The first answer asks for a tool; the blocks that come back are written into the file "back".
import json, pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CALL = [{"type": "thinking", "thinking": "one", "signature": "s1"}, {"type": "redacted_thinking", "data": "two"},
        {"type": "thinking", "thinking": "three", "signature": "s3"}, {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}]
END = [{"type": "text", "text": "Sunny."}]


def pieces(block):
    """A block as it begins in a stream, and its deltas."""
    match block["type"]:
        case "thinking":
            signature = {"type": "signature_delta", "signature": block["signature"]}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}, signature]
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "text":
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        case "tool_use":
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
    return block, []


def events(answer):
    yield {"type": "message_start", "message": {**answer, "content": [], "stop_reason": None}}
    for index, block in enumerate(answer["content"]):
        begin, deltas = pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": begin}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    delta = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 50}}
    yield {"type": "message_stop"}


class Model(BaseHTTPRequestHandler):
    log_message = lambda *_: None

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        back = [message["content"] for message in asked["messages"] if message["role"] == "assistant"]
        if back:
            pathlib.Path("back").write_text("all" if self.names(back[0]) == self.names(CALL) else ", ".join(self.names(back[0])))
        content, reason = (END, "end_turn") if back else (CALL, "tool_use")
        answer = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "content": content,
                  "stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
        self.end_headers()
        lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(answer)]
        self.wfile.write("".join(lines if asked.get("stream") else [json.dumps(answer)]).encode())

    @staticmethod
    def names(blocks):
        return [" ".join([block["type"], *(block[key] for key in ("thinking", "data") if key in block)]) for block in blocks]


print("answer:", ", ".join(Model.names(CALL)), flush=True)
server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
pathlib.Path("port.new").write_text(str(server.server_address[1]))
pathlib.Path("port.new").rename("port")
server.serve_forever()
PY
cat >ask.py <<'PY'
import asyncio, logging, pathlib, warnings
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.anthropic import Anthropic
from strands import Agent, tool
from strands.models.anthropic import AnthropicModel

logging.disable()
warnings.simplefilter("ignore")
url = f"http://127.0.0.1:{pathlib.Path('port').read_text()}"
MODEL, THINK = "claude-opus-4-5", {"type": "enabled", "budget_tokens": 1024}


def weather(city: str) -> str:
    """The weather of a city."""
    return "sunny"


async def with_strands():
    settings = {"client_args": {"base_url": url, "api_key": "none"}, "model_id": MODEL, "max_tokens": 4000, "params": {"thinking": THINK}}
    await Agent(model=AnthropicModel(**settings), tools=[tool(weather)], callback_handler=None).invoke_async("x")


async def with_llama_index(streaming):
    model = Anthropic(model=MODEL, base_url=url, api_key="none", max_tokens=4000, thinking_dict=THINK, temperature=1)
    await FunctionAgent(tools=[weather], llm=model, streaming=streaming).run("x")


ways = {"strands, streamed": with_strands, "llama-index, streamed": lambda: with_llama_index(True),
        "llama-index, whole": lambda: with_llama_index(False)}
for name, ask in ways.items():
    asyncio.run(ask())
    print(f"{name}: {pathlib.Path('back').read_text()}", flush=True)
    pathlib.Path("back").unlink()
PY
cat >ask.js <<'JS'
import { readFileSync, unlinkSync } from 'node:fs';
import { createAnthropic } from '@ai-sdk/anthropic';
import { ChatAnthropic } from '@langchain/anthropic';
import { HumanMessage, ToolMessage } from '@langchain/core/messages';
import { tool as langchainTool } from '@langchain/core/tools';
import { generateText, streamText, tool } from 'ai';
import * as z from 'zod';

const url = `http://127.0.0.1:${readFileSync('port', 'utf8')}`;
const model = 'claude-opus-4-5';
const show = (name) => {
  console.log(`${name}: ${readFileSync('back', 'utf8')}`);
  unlinkSync('back');
};
const schema = z.object({ city: z.string() });
const settings = {
  model: createAnthropic({ baseURL: `${url}/v1`, apiKey: 'none' })(model),
  prompt: 'x',
  tools: { weather: tool({ inputSchema: schema, execute: () => 'sunny' }) },
  stopWhen: ({ steps }) => steps.length > 1,
  providerOptions: { anthropic: { thinking: { type: 'enabled', budgetTokens: 1024 } } },
};
await streamText(settings).consumeStream();
show('AI SDK, streamed');
await generateText(settings);
show('AI SDK, whole');

const weather = langchainTool(() => 'sunny', { name: 'weather', description: 'The weather of a city.', schema });
const thinking = { type: 'enabled', budget_tokens: 1024 };
const chat = new ChatAnthropic({ model, anthropicApiUrl: url, apiKey: 'none', maxTokens: 4000, thinking }).bindTools([weather]);
const question = new HumanMessage('x');
const finish = (answer) => chat.invoke([question, answer, new ToolMessage({ content: 'sunny', tool_call_id: answer.tool_calls[0].id })]);
let whole;
for await (const piece of await chat.stream([question])) whole = whole ? whole.concat(piece) : piece;
await finish(whole);
show('LangChain, streamed');
await finish(await chat.invoke([question]));
show('LangChain, whole');
JS
python3 model.py >seen 2>errors &
model=$!
until [ -s port ]; do sleep 0.1; done
cat seen
{
    v/bin/python ask.py 2>errors
    node ask.js 2>errors
} | tee -a seen
diff seen - <<'TEXT'
answer: thinking one, redacted_thinking two, thinking three, text, tool_use
strands, streamed: thinking one, thinking three, text, tool_use
llama-index, streamed: thinking one, thinking three, text, tool_use
llama-index, whole: thinking one, thinking three, text, tool_use
AI SDK, streamed: all
AI SDK, whole: all
LangChain, streamed: all
LangChain, whole: all
TEXT
