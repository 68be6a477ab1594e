#!/usr/bin/env bash
# Guess: a tool of an MCP server that fails says so with `isError`, or with a JSON-RPC error. An agent framework gives
# the model the words of the server with a mark that the call has failed, and the run goes on, in both cases.
# Seen with openai-agents 0.24.0 and pydantic-ai-slim 2.68.0, langchain 1.5.2 with langchain-mcp-adapters 0.3.2,
# llama-index-core 0.14.25 with llama-index-tools-mcp 0.6.0, ai 7.0.173 with @ai-sdk/mcp 2.0.99, all with OpenAI's chat
# completions: only pydantic-ai marks both. Of a result with `isError`, openai-agents, langchain and the AI SDK give the
# bare text, as that of a tool that has worked. Of a JSON-RPC error, openai-agents and llama-index do not give the words
# of the server, and openai-agents asks the model to try again. langchain ends the run.
# Output seen (Python 3.11, Node 20.20.2), what the model reads of a tool that says "the shop is shut":
#   openai-agents: isError: [{"type": "text", "text": "the shop is shut"}]
#   openai-agents: JSON-RPC error: An error occurred while running the tool. Please try again.
#   pydantic-ai: isError: {"error":"the shop is shut"}
#   pydantic-ai: JSON-RPC error: {"error":"the shop is shut"}
#   langchain: isError: [{"type": "text", "text": "the shop is shut"}]
#   langchain: JSON-RPC error: nothing, the run ends with McpError
#   llama-index: isError: meta=None content=[TextContent(type='text', text='the shop is shut', annotations=None, meta=None)] ... is_error=True ...
#   llama-index: JSON-RPC error: unhandled errors in a TaskGroup (1 sub-exception)
#   AI SDK: isError: [{"type":"text","text":"the shop is shut"}]
#   AI SDK: JSON-RPC error: {"error":"MCPClientError: the shop is shut"}
set -euo pipefail
folder=$(mktemp -d)
trap 'kill "${model:-}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts ai@7.0.173 @ai-sdk/mcp@2.0.99 @ai-sdk/openai@4.0.118 >log 2>&1
install() { # the name of the environment, and packages
    python3 -m venv "$1"
    "$1/bin/pip" install --quiet --no-compile --disable-pip-version-check "${@:2}"
}
install one openai-agents==0.24.0 'pydantic-ai-slim[openai,mcp]==2.68.0' fastmcp-slim==4.2.3 openai==3.57.0 mcp==2.3.0
install two langchain==1.5.2 langchain-mcp-adapters==0.3.2 langchain-openai==1.7.4 mcp==1.30.0
install three llama-index-core==0.14.25 llama-index-tools-mcp==0.6.0 llama-index-llms-openai-like==0.8.1 mcp==2.3.0
cat >server.py <<'PY'
# An MCP server. Its tool fails in the way that its argument says.
import json, sys

WORDS = "the shop is shut"


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    method, params, number = message.get("method"), message.get("params", {}), message.get("id")
    if method == "initialize":
        send(id=number, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list":
        schema = {"type": "object", "properties": {"way": {"type": "string"}}}
        send(id=number, result={"tools": [{"name": "order", "description": "orders", "inputSchema": schema}]})
    elif method == "tools/call" and params["arguments"]["way"] == "isError":
        send(id=number, result={"isError": True, "content": [{"type": "text", "text": WORDS}]})
    elif method == "tools/call":
        send(id=number, error={"code": -32000, "message": WORDS})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": "unknown method"})
PY
cat >model.py <<'PY'
# Chat completions. The model's name is the way in which it lets the tool fail.
# It writes what it reads of the tool into the file "read".
import json, pathlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model(BaseHTTPRequestHandler):
    log_message = lambda *_: None

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        results = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
        if results:
            pathlib.Path("read").write_text(results[0] if isinstance(results[0], str) else json.dumps(results[0]))
            message, reason = {"role": "assistant", "content": "It is shut."}, "stop"
        else:
            function = {"name": "order", "arguments": json.dumps({"way": asked["model"]})}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
            reason = "tool_calls"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choices = [{"index": 0, "message": message, "finish_reason": reason}]
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": choices, "usage": usage}
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
pathlib.Path("port.new").write_text(str(server.server_address[1]))
pathlib.Path("port.new").rename("port")
server.serve_forever()
PY
cat >ask.py <<'PY'
import asyncio, logging, pathlib, re, sys

logging.disable()
name, way = sys.argv[1:]
url = f"http://127.0.0.1:{pathlib.Path('port').read_text()}/v1"
server = {"command": "python3", "args": ["server.py"]}


async def with_openai_agents():
    from agents import Agent, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
    from agents.mcp import MCPServerStdio
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    async with MCPServerStdio(params=server) as tools:
        model = OpenAIChatCompletionsModel(way, AsyncOpenAI(base_url=url, api_key="none"))
        await Runner.run(Agent(name="a", model=model, mcp_servers=[tools]), "x")


async def with_pydantic_ai():
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel(way, provider=OpenAIProvider(base_url=url, api_key="none"))
    async with Agent(model, toolsets=[MCPToolset(StdioTransport(**server))]) as agent:
        await agent.run("x")


async def with_langchain():
    from langchain.agents import create_agent
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_openai import ChatOpenAI

    tools = await MultiServerMCPClient({"server": {**server, "transport": "stdio"}}).get_tools()
    agent = create_agent(ChatOpenAI(model=way, base_url=url, api_key="none"), tools)
    await agent.ainvoke({"messages": [{"role": "user", "content": "x"}]})


async def with_llama_index():
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    tools = await McpToolSpec(client=BasicMCPClient(server["command"], args=server["args"])).to_tool_list_async()
    model = OpenAILike(model=way, api_base=url, api_key="none", is_chat_model=True, is_function_calling_model=True)
    await FunctionAgent(tools=tools, llm=model, streaming=False).run("x")


ways = {"openai-agents": with_openai_agents, "pydantic-ai": with_pydantic_ai, "langchain": with_langchain, "llama-index": with_llama_index}
read = pathlib.Path("read")
read.unlink(missing_ok=True)
try:
    asyncio.run(ways[name]())
    seen = re.sub(r"structured_content=\S+|result_type=\S+", "...", read.read_text())
except Exception as error:
    seen = f"nothing, the run ends with {type(error).__name__}"
print(f"{name}: {'isError' if way == 'isError' else 'JSON-RPC error'}: {seen}")
PY
cat >ask.js <<'JS'
import { readFileSync } from 'node:fs';
import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport } from '@ai-sdk/mcp/mcp-stdio';
import { createOpenAI } from '@ai-sdk/openai';
import { generateText } from 'ai';

const baseURL = `http://127.0.0.1:${readFileSync('port', 'utf8')}/v1`;
for (const way of ['isError', 'JSON-RPC error']) {
  const client = await createMCPClient({ transport: new Experimental_StdioMCPTransport({ command: 'python3', args: ['server.py'] }) });
  const model = createOpenAI({ baseURL, apiKey: 'none' }).chat(way);
  await generateText({ model, prompt: 'x', tools: await client.tools(), stopWhen: ({ steps }) => steps.length > 2 });
  console.log(`AI SDK: ${way}: ${readFileSync('read', 'utf8')}`);
  await client.close();
}
JS
python3 model.py 2>errors &
model=$!
until [ -s port ]; do sleep 0.1; done
{
    for pair in one/openai-agents one/pydantic-ai two/langchain three/llama-index; do
        for way in isError "JSON-RPC error"; do
            "${pair%/*}/bin/python" ask.py "${pair#*/}" "$way" 2>errors
        done
    done
    node ask.js
} | tee seen
diff seen - <<'TEXT'
openai-agents: isError: [{"type": "text", "text": "the shop is shut"}]
openai-agents: JSON-RPC error: An error occurred while running the tool. Please try again.
pydantic-ai: isError: {"error":"the shop is shut"}
pydantic-ai: JSON-RPC error: {"error":"the shop is shut"}
langchain: isError: [{"type": "text", "text": "the shop is shut"}]
langchain: JSON-RPC error: nothing, the run ends with McpError
llama-index: isError: meta=None content=[TextContent(type='text', text='the shop is shut', annotations=None, meta=None)] ... is_error=True ...
llama-index: JSON-RPC error: unhandled errors in a TaskGroup (1 sub-exception)
AI SDK: isError: [{"type":"text","text":"the shop is shut"}]
AI SDK: JSON-RPC error: {"error":"MCPClientError: the shop is shut"}
TEXT
