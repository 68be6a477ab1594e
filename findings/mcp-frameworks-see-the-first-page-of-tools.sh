#!/usr/bin/env bash
# Guess: an MCP server may give its tools in pages (`nextCursor`). An agent framework reads all pages, since a person who adds a server
# wants its tools, and `list_tools` of the two official SDKs means the same.
# Seen with openai-agents 0.24.0, mcp 2.3.0, llama-index-tools-mcp 0.6.0 and google-adk 2.13.0 for Python, @ai-sdk/mcp 2.0.99,
# @openai/agents 0.20.0 and @modelcontextprotocol/client 2.4.0 for Node: LlamaIndex and the Agent Development Kit read the first page. Their
# agents have no tool of the second page, without an error or a warning, so a server that begins to use pages, as it gets more tools, takes
# tools away from them. The SDKs differ: `listTools` of the one for TypeScript reads all pages and returns no cursor, and `list_tools` of
# the one for Python reads one.
# Output seen (Python 3.11, Node 20.20.2), for a server with "open" and "read" on its first page and "close" on its second one:
#   openai-agents: open, read, close
#   mcp: open, read
#   llama-index: open, read
#   google-adk: open, read
#   @ai-sdk/mcp: open, read, close
#   @openai/agents: open, read, close
#   @modelcontextprotocol/client: open, read, close
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check openai-agents==0.24.0 llama-index-tools-mcp==0.6.0 \
    llama-index-core==0.14.25 google-adk==2.13.0 mcp==2.3.0 &
python=$!
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @ai-sdk/mcp@2.0.99 @openai/agents@0.20.0 @modelcontextprotocol/client@2.4.0 >log 2>&1
wait "$python"
cat >server.py <<'PY'
# An MCP server with two pages of tools.
import json, sys

PAGES = {None: {"names": ["open", "read"], "nextCursor": "2"}, "2": {"names": ["close"]}}


def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        send(id=number, result={"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}})
    elif method == "tools/list":
        page = dict(PAGES[(message.get("params") or {}).get("cursor")])
        tools = [{"name": name, "description": f"{name} the door", "inputSchema": {"type": "object"}} for name in page.pop("names")]
        send(id=number, result={"tools": tools, **page})
    elif number is not None:
        send(id=number, error={"code": -32601, "message": "unknown method"})
PY
cat >tools.py <<'PY'
import asyncio, logging

logging.disable()
server = {"command": "python3", "args": ["server.py"]}


async def with_openai_agents():
    from agents.mcp import MCPServerStdio

    async with MCPServerStdio(params=server) as tools:
        return [tool.name for tool in await tools.list_tools()]


async def with_llama_index():
    from llama_index.tools.mcp import BasicMCPClient, McpToolSpec

    tools = await McpToolSpec(client=BasicMCPClient(server["command"], args=server["args"])).to_tool_list_async()
    return [tool.metadata.name for tool in tools]


async def with_google_adk():
    from google.adk.tools.mcp_tool import McpToolset, StdioConnectionParams
    from mcp import StdioServerParameters

    tools = McpToolset(connection_params=StdioConnectionParams(server_params=StdioServerParameters(**server), timeout=30))
    names = [tool.name for tool in await tools.get_tools()]
    await tools.close()
    return names


async def with_mcp():
    from mcp import Client, StdioServerParameters, stdio_client

    async with Client(stdio_client(StdioServerParameters(**server))) as client:
        return [tool.name for tool in (await client.list_tools()).tools]


ways = {"openai-agents": with_openai_agents, "mcp": with_mcp, "llama-index": with_llama_index, "google-adk": with_google_adk}
for name, read in ways.items():
    print(f"{name}: {', '.join(asyncio.run(read()))}", flush=True)
PY
cat >tools.js <<'JS'
import { createMCPClient } from '@ai-sdk/mcp';
import { Experimental_StdioMCPTransport } from '@ai-sdk/mcp/mcp-stdio';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { MCPServerStdio } from '@openai/agents';

const server = { command: 'python3', args: ['server.py'] };
const show = (name, tools) => console.log(`${name}: ${tools.join(', ')}`);
const vercel = await createMCPClient({ transport: new Experimental_StdioMCPTransport(server) });
show('@ai-sdk/mcp', Object.keys(await vercel.tools()));
await vercel.close();
const openai = new MCPServerStdio(server);
await openai.connect();
show('@openai/agents', (await openai.listTools()).map((tool) => tool.name));
await openai.close();
const client = new Client({ name: 'client', version: '1' });
await client.connect(new StdioClientTransport(server));
show('@modelcontextprotocol/client', (await client.listTools()).tools.map((tool) => tool.name));
await client.close();
JS
{
    v/bin/python tools.py 2>errors
    node tools.js
} | tee seen
diff seen - <<'TEXT'
openai-agents: open, read, close
mcp: open, read
llama-index: open, read
google-adk: open, read
@ai-sdk/mcp: open, read, close
@openai/agents: open, read, close
@modelcontextprotocol/client: open, read, close
TEXT
