#!/usr/bin/env bash
# Guess: a streamed tool call whose arguments are cut, by the token limit (`finish_reason: length`) or by a stream that ends early, is no
# call. Its JSON is not complete, so an agent framework raises an error or tells the model, and runs the tool with nothing less than the
# model has written.
# Seen with langchain 1.5.2 with langchain-openai 1.7.4, pydantic-ai-slim 2.68.0, llama-index-core 0.14.25 with llama-index-llms-openai
# 0.8.3 and strands-agents 1.62.0 for Python, langchain 1.5.14 with @langchain/openai 1.5.8, ai 7.0.173 with @ai-sdk/openai 4.0.118 and
# @openai/agents 0.20.0 for Node: langchain for both languages and llama-index complete the cut JSON by themselves, with the function that
# shows a call while it is written, and run the tool. The model was about to write 1200, the tool pays 12, the model reads that it has
# worked, and the answer has no sign of it. The schema does not help, because half of a number or of a text fits too. The others raise an
# error, end with a reason, or give the model an error to read.
# Output seen (Python 3.11, Node 20.20.2): what the agent does with the call {"to": "Ann", "amount": 12 (end) of Chat Completions
#   langchain: limit: pay(Ann, 12); early end: pay(Ann, 12)
#   pydantic-ai: limit: the model reads an error; early end: the model reads an error
#   llama-index: limit: pay(Ann, 12); early end: pay(Ann, 12)
#   strands: limit: MaxTokensReachedException; early end: the model reads an error
#   langchain for Node: limit: pay(Ann, 12); early end: pay(Ann, 12)
#   AI SDK: limit: the model reads an error; early end: ends as "interrupted"
#   @openai/agents: limit: the model reads an error; early end: the model reads an error
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts langchain@1.5.14 @langchain/core@1.4.0 @langchain/openai@1.5.8 ai@7.0.173 \
    @ai-sdk/openai@4.0.118 @openai/agents@0.20.0 zod@4.6.7 >log 2>&1
for name in v w; do python3 -m venv $name; done
v/bin/pip install --quiet --no-compile --disable-pip-version-check openai==3.57.0 langchain==1.5.2 langchain-core==1.8.3 \
    langchain-openai==1.7.4 'pydantic-ai-slim[openai]==2.68.0'
w/bin/pip install --quiet --no-compile --disable-pip-version-check openai==2.54.0 llama-index-core==0.14.25 \
    llama-index-llms-openai==0.8.3 strands-agents==1.62.0
cat >server.py <<'PY'
import json, pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ABOUT = {"id": "c1", "created": 1, "model": "m", "object": "chat.completion.chunk"}
LAST = {**ABOUT, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}}


def piece(delta, finish=None):
    return {**ABOUT, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]}


def call(more, **message):
    return piece({**message, "tool_calls": [{"index": 0, **more}]})


# The model was about to write 1200.
BEGIN = {"id": "call_1", "type": "function", "function": {"name": "pay", "arguments": ""}}
CUT = [call(BEGIN, role="assistant", content=None), call({"function": {"arguments": '{"to": "Ann", '}}),
       call({"function": {"arguments": '"amount": 12'}})]
STREAMS = {"limit": [*CUT, piece({}, "length"), LAST], "early": CUT}
ANSWER = [piece({"role": "assistant", "content": "done"}), piece({}, "stop"), LAST]


class Server(BaseHTTPRequestHandler):
    log_message = lambda *_: None

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert asked["stream"]
        kind = self.path.split("/")[1]
        behind = any(message["role"] == "tool" for message in asked["messages"])
        lines = [json.dumps(line) for line in (ANSWER if behind else STREAMS[kind])]
        if behind or kind == "limit":
            lines.append("[DONE]")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {line}\n\n" for line in lines).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
pathlib.Path("port.new").write_text(str(server.server_address[1]))
pathlib.Path("port.new").rename("port")
server.serve_forever()
PY
cat >agents.py <<'PY'
import asyncio, logging, pathlib, sys

logging.disable(logging.CRITICAL)
paid = []


def pay(to: str, amount: int) -> str:
    """Pay an amount.

    Args:
        to: a person
        amount: in euros
    """
    paid.append(f"pay({to}, {amount})")
    return "paid"


def langchain(url):
    from langchain.agents import create_agent
    from langchain_openai import ChatOpenAI

    agent = create_agent(ChatOpenAI(model="m", base_url=url, api_key="k", streaming=True, max_retries=0), [pay])
    return agent.invoke({"messages": [("user", "Pay Ann.")]})["messages"][-1].content


def llama_index(url):
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai import OpenAI

    async def run():
        model = OpenAI(model="gpt-4o", api_base=url, api_key="k", max_retries=0)
        return str(await FunctionAgent(tools=[pay], llm=model).run("Pay Ann."))

    return asyncio.run(run())


def pydantic_ai(url):
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    async def run():
        agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="k")), tools=[pay])
        async with agent.run_stream("Pay Ann.") as result:
            return await result.get_output()

    return asyncio.run(run())


def strands(url):
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    model = OpenAIModel(client_args={"api_key": "k", "base_url": url, "max_retries": 0}, model_id="m")
    return str(Agent(model=model, tools=[tool(pay)], callback_handler=None)("Pay Ann.")).strip()


def seen(run, kind):
    paid.clear()
    try:
        answer = run(f"http://127.0.0.1:{pathlib.Path('port').read_text()}/{kind}/v1")
    except Exception as error:
        return type(error).__name__
    assert answer == "done"  # the answer behind the result of a tool
    return ", ".join(paid) or "the model reads an error"


for name in sys.argv[1:]:
    run = globals()[name]
    print(f"{name.replace('_', '-')}: limit: {seen(run, 'limit')}; early end: {seen(run, 'early')}")
PY
cat >agents.js <<'JS'
import { readFileSync } from 'node:fs';
import { createOpenAI } from '@ai-sdk/openai';
import { ChatOpenAI } from '@langchain/openai';
import { Agent, OpenAIProvider, Runner, tool as ofAgents } from '@openai/agents';
import { stepCountIs, streamText, tool as ofAi } from 'ai';
import { createAgent, tool as ofLangchain } from 'langchain';
import { z } from 'zod';

const [description, schema] = ['Pay an amount.', z.object({ to: z.string(), amount: z.number() })];
let paid = [];
const pay = async ({ to, amount }) => {
  paid.push(`pay(${to}, ${amount})`);
  return 'paid';
};

async function langchain(baseURL) {
  const model = new ChatOpenAI({ model: 'm', apiKey: 'k', configuration: { baseURL }, maxRetries: 0 });
  const agent = createAgent({ model, tools: [ofLangchain(pay, { name: 'pay', description, schema })] });
  let last = '';
  const messages = [{ role: 'user', content: 'Pay Ann.' }];
  for await (const [piece] of await agent.stream({ messages }, { streamMode: 'messages' })) last = piece.content || last;
  return last;
}

async function ai(baseURL) {
  const tools = { pay: ofAi({ description, inputSchema: schema, execute: pay }) };
  const model = createOpenAI({ baseURL, apiKey: 'k' }).chat('m');
  const result = streamText({ model, prompt: 'Pay Ann.', tools, stopWhen: stepCountIs(3), maxRetries: 0, onError() {} });
  return (await result.text) || `ends as "${await result.finishReason}"`;
}

async function agents(baseURL) {
  const agent = new Agent({ name: 'a', model: 'm', tools: [ofAgents({ name: 'pay', description, parameters: schema, execute: pay })] });
  const modelProvider = new OpenAIProvider({ baseURL, apiKey: 'k', useResponses: false });
  const result = await new Runner({ modelProvider, tracingDisabled: true }).run(agent, 'Pay Ann.', { stream: true });
  await result.completed;
  return result.finalOutput;
}

async function seen(run, kind) {
  paid = [];
  let answer;
  try {
    answer = await run(`http://127.0.0.1:${readFileSync('port')}/${kind}/v1`);
  } catch (error) {
    return error.name;
  }
  if (answer === 'done') return paid.join(', ') || 'the model reads an error';
  return paid.join(', ') + answer;
}

for (const [name, run] of [['langchain for Node', langchain], ['AI SDK', ai], ['@openai/agents', agents]])
  console.log(`${name}: limit: ${await seen(run, 'limit')}; early end: ${await seen(run, 'early')}`);
JS
python3 server.py &
server=$!
until [ -e port ]; do
    kill -0 "$server"
    sleep 0.1
done
{
    v/bin/python agents.py langchain pydantic_ai
    w/bin/python agents.py llama_index strands
    node agents.js
} 2>errors | tee seen || { cat errors >&2; exit 1; }
diff seen - <<'TEXT'
langchain: limit: pay(Ann, 12); early end: pay(Ann, 12)
pydantic-ai: limit: the model reads an error; early end: the model reads an error
llama-index: limit: pay(Ann, 12); early end: pay(Ann, 12)
strands: limit: MaxTokensReachedException; early end: the model reads an error
langchain for Node: limit: pay(Ann, 12); early end: pay(Ann, 12)
AI SDK: limit: the model reads an error; early end: ends as "interrupted"
@openai/agents: limit: the model reads an error; early end: the model reads an error
TEXT
