#!/usr/bin/env bash
# Guess: an MCP client sends calls side by side when its program makes them side by side, as the protocol allows, and the way to its token
# changes nothing in that: `OAuthClientProvider` with a token that is good for an hour adds a header, as a program may do by itself.
# Seen with mcp 2.3.0 as client, and mcp 2.3.0 and @modelcontextprotocol/server 2.4.0 as servers: the provider holds a lock from before a
# request until the head of its answer. Servers of 2025-11-25 send the head of an event stream at once. In 2026-07-28, which client and
# servers choose by default, both answer with JSON when the tool has ended, so one call runs at a time. A quick call behind a slow one
# uses up its timeout before it is sent, and calls that wait for each other would wait until then. So a program that calls side by side
# has a client with a provider of its own for each call, or an `httpx2.Auth` of its own that locks the refresh alone.
# Output seen (Node 20.20.2, Python 3.11), for three calls, and for a quick call with a timeout of 2 s behind a slow one of 5 s:
#   TypeScript server, 2025-11-25, token from a header: 3 at a time, quick call answered
#   TypeScript server, 2025-11-25, token from a provider: 3 at a time, quick call answered
#   TypeScript server, 2026-07-28, token from a header: 3 at a time, quick call answered
#   TypeScript server, 2026-07-28, token from a provider: 1 at a time, quick call timed out
#   Python server, 2025-11-25, token from a header: 3 at a time, quick call answered
#   Python server, 2025-11-25, token from a provider: 3 at a time, quick call answered
#   Python server, 2026-07-28, token from a header: 3 at a time, quick call answered
#   Python server, 2026-07-28, token from a provider: 1 at a time, quick call timed out
set -euo pipefail
folder=$(mktemp -d)
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @modelcontextprotocol/server@2.4.0 zod@4.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check mcp==2.3.0
cat >server.js <<'JS'
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import { z } from 'zod';

let running = 0;
const mcp = createMcpHandler(() => {
  const server = new McpServer({ name: 'server', version: '1' });
  const inputSchema = z.object({ seconds: z.number() });
  server.registerTool('work', { inputSchema }, async ({ seconds }) => {
    const text = String(++running);
    await sleep(seconds * 1000);
    running--;
    return { content: [{ type: 'text', text }] };
  });
  return server;
});
const http = createServer(async (request, response) => {
  const { method, headers } = request;
  const parts = await request.toArray();
  const body = parts.length ? Buffer.concat(parts) : undefined;
  const answer = await mcp.fetch(new Request('http://127.0.0.1/mcp', { method, headers, body }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers)).flushHeaders();
  for await (const part of answer.body ?? []) response.write(part);
  response.end();
});
http.listen(0, '127.0.0.1', () => writeFileSync('typescript', `http://127.0.0.1:${http.address().port}/mcp`));
JS
cat >server.py <<'PY'
import asyncio, socket
import uvicorn
from mcp.server.mcpserver import MCPServer

server = MCPServer("server")
running = 0


@server.tool()
async def work(seconds: float) -> str:
    global running
    running += 1
    text = str(running)
    await asyncio.sleep(seconds)
    running -= 1
    return text


listener = socket.create_server(("127.0.0.1", 0))
with open("python", "w") as file:
    file.write(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp")
uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="error")).run(sockets=[listener])
PY
cat >client.py <<'PY'
import asyncio, sys
import httpx2
from mcp.client.auth import OAuthClientProvider
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata, OAuthToken
from mcp.shared.exceptions import MCPError


class Store:
    async def get_tokens(self):
        return OAuthToken(access_token="token", token_type="Bearer", expires_in=3600)

    async def get_client_info(self):
        return None


async def show(server, token_from, mode):
    with open(server.lower()) as file:
        url = file.read()
    metadata = OAuthClientMetadata(redirect_uris=["http://127.0.0.1/back"])
    provider = {"auth": OAuthClientProvider(url, metadata, Store())}
    header = {"headers": {"Authorization": "Bearer token"}}
    async with httpx2.AsyncClient(timeout=30, **(header if token_from == "header" else provider)) as http:
        async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
            async def call(seconds, **limit):
                return int((await client.call_tool("work", {"seconds": seconds}, **limit)).content[0].text)

            together = max(await asyncio.gather(*(call(2) for _ in range(3))))
            slow = asyncio.create_task(call(5))
            await asyncio.sleep(1)
            try:
                await call(0, read_timeout_seconds=2)
                quick = "answered"
            except MCPError:
                quick = "timed out"
            await slow
            print(f"{server} server, {client.protocol_version}, token from a {token_from}: {together} at a time, quick call {quick}")


async def main():
    for server in ("TypeScript", "Python"):
        for mode in ("legacy", "auto"):
            await show(server, "header", mode)
            await show(server, "provider", mode)


asyncio.run(asyncio.wait_for(main(), 200))
PY
node server.js 2>node.log &
servers+=($!)
v/bin/python -W ignore server.py 2>python.log &
servers+=($!)
for _ in {1..100}; do [ -s typescript ] && [ -s python ] && break; sleep 0.2; done
v/bin/python -W ignore client.py 2>client.log | tee seen
diff seen - <<'TEXT'
TypeScript server, 2025-11-25, token from a header: 3 at a time, quick call answered
TypeScript server, 2025-11-25, token from a provider: 3 at a time, quick call answered
TypeScript server, 2026-07-28, token from a header: 3 at a time, quick call answered
TypeScript server, 2026-07-28, token from a provider: 1 at a time, quick call timed out
Python server, 2025-11-25, token from a header: 3 at a time, quick call answered
Python server, 2025-11-25, token from a provider: 3 at a time, quick call answered
Python server, 2026-07-28, token from a header: 3 at a time, quick call answered
Python server, 2026-07-28, token from a provider: 1 at a time, quick call timed out
TEXT
