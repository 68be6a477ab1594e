#!/usr/bin/env bash
# Guess: a tool on the MCP SDK that asks the person in the middle of its work (elicitation) waits there for the answer and goes on. The
# revision 2026-07-28 changes the messages; a tool is run once for each call, with the clients of both revisions.
# Seen with mcp 2.3.0 for Python, @modelcontextprotocol/server and client 2.4.0 for TypeScript: there are two ways to ask. `ctx.elicit`
# and `elicitInput` wait, and with a client of 2026-07-28 they fail, behind the work that the tool has done before its question. The new way
# (`inputRequired`, `Resolve` with `Elicit`) works with all clients, and begins again from the top with the answer: the work before the
# question is done twice, in TypeScript with clients of both revisions, in Python with those of 2026-07-28 only. So the work before a
# question must be one that can be repeated. The client for Python speaks 2026-07-28 by default, and the one for TypeScript 2025-11-25,
# so each SDK tested with its own client shows something else. The one for TypeScript starts a server twice when it asks for the revision.
# Output seen (Python 3.11, Node 20.20.2); how often a server was started and the work before the question was done:
#   by default: Python client 2026-07-28, TypeScript client 2025-11-25
#   Python client, Python server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 1
#   Python client, Python server, 2026-07-28: started 1; waiting: fails, work 1; new way: accepted, work 2
#   Python client, TypeScript server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 2
#   Python client, TypeScript server, 2026-07-28: started 1; waiting: fails, work 1; new way: accepted, work 2
#   TypeScript client, Python server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 1
#   TypeScript client, Python server, 2026-07-28: started 2; waiting: fails, work 1; new way: accepted, work 2
#   TypeScript client, TypeScript server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 2
#   TypeScript client, TypeScript server, 2026-07-28: started 2; waiting: fails, work 1; new way: accepted, work 2
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @modelcontextprotocol/server@2.4.0 @modelcontextprotocol/client@2.4.0 zod@4.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check mcp==2.3.0
cat >server.py <<'PY'
from typing import Annotated
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel


class Answer(BaseModel):
    ok: bool


def note(text):
    with open("done", "a") as file:
        print(text, file=file)


note("started")
server = MCPServer("server")


@server.tool()
async def waiting(ctx: Context) -> str:
    note("waiting")
    return "accepted" if (await ctx.elicit("Go on?", Answer)).action == "accept" else "declined"


async def work_and_ask(ctx: Context):
    note("new")
    return Elicit("Go on?", Answer)


@server.tool()
async def new(answer: Annotated[Answer, Resolve(work_and_ask)]) -> str:
    return "accepted" if answer.ok else "declined"


server.run("stdio")
PY
cat >server.js <<'JS'
import { appendFileSync } from 'node:fs';
import { acceptedContent, inputRequired, McpServer } from '@modelcontextprotocol/server';
import { serveStdio } from '@modelcontextprotocol/server/stdio';
import { z } from 'zod';

const note = (text) => appendFileSync('done', `${text}\n`);
const inputSchema = z.object({});
const requestedSchema = z.object({ ok: z.boolean() });
const plainSchema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };
const answer = (ok) => ({ content: [{ type: 'text', text: ok ? 'accepted' : 'declined' }] });
note('started');
serveStdio(() => {
  const server = new McpServer({ name: 'server', version: '1' });
  server.registerTool('waiting', { inputSchema }, async (_, { mcpReq }) => {
    note('waiting');
    return answer((await mcpReq.elicitInput({ message: 'Go on?', requestedSchema: plainSchema })).action === 'accept');
  });
  server.registerTool('new', { inputSchema }, async (_, { mcpReq }) => {
    note('new');
    const given = acceptedContent(mcpReq.inputResponses, 'go', requestedSchema);
    if (given) return answer(given.ok);
    return inputRequired({ inputRequests: { go: inputRequired.elicit({ message: 'Go on?', requestedSchema }) } });
  });
  return server;
});
JS
cat >client.py <<'PY'
import asyncio, os
import mcp_types
from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

SERVERS = {"Python": ["v/bin/python", "-W", "ignore", "server.py"], "TypeScript": ["node", "server.js"]}


async def accept(context, params):
    return mcp_types.ElicitResult(action="accept", content={"ok": True})


async def call(client, tool):
    try:
        result = await client.call_tool(tool, {})
        return "fails" if result.is_error else result.content[0].text
    except Exception:
        return "fails"


async def show(server, **mode):
    command, *arguments = SERVERS[server]
    open("done", "w").close()
    with open(os.devnull, "w") as errors:
        transport = stdio_client(StdioServerParameters(command=command, args=arguments), errlog=errors)
        async with Client(transport, elicitation_callback=accept, **mode) as client:
            waiting, new = await call(client, "waiting"), await call(client, "new")
            revision = client.protocol_version
    with open("done") as file:
        done = file.read().split()
    counts = [done.count(name) for name in ("started", "waiting", "new")]
    print(f"Python client, {server} server, {revision}: started {counts[0]}; waiting: {waiting}, work {counts[1]}; "
          f"new way: {new}, work {counts[2]}")
    return revision


async def main():
    for server in SERVERS:
        await show(server, mode="legacy")
        default = await show(server)
    print("default", default)


asyncio.run(main())
PY
cat >client.js <<'JS'
import { readFileSync, writeFileSync } from 'node:fs';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

const servers = { Python: ['v/bin/python', '-W', 'ignore', 'server.py'], TypeScript: ['node', 'server.js'] };
const call = (client, name) =>
  client.callTool({ name, arguments: {} }).then(({ isError, content }) => (isError ? 'fails' : content[0].text), () => 'fails');
const show = async (server, mode) => {
  const [command, ...args] = servers[server];
  writeFileSync('done', '');
  const client = new Client({ name: 'client', version: '1' }, { capabilities: { elicitation: {} }, ...mode });
  client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { ok: true } }));
  await client.connect(new StdioClientTransport({ command, args, stderr: 'ignore' }));
  const [waiting, changed] = [await call(client, 'waiting'), await call(client, 'new')];
  const revision = client.getNegotiatedProtocolVersion();
  await client.close();
  const done = readFileSync('done', 'utf8').split('\n');
  const count = (name) => done.filter((line) => line === name).length;
  const ways = `waiting: ${waiting}, work ${count('waiting')}; new way: ${changed}, work ${count('new')}`;
  console.log(`TypeScript client, ${server} server, ${revision}: started ${count('started')}; ${ways}`);
  return revision;
};
let byDefault;
for (const server of Object.keys(servers)) {
  byDefault = await show(server, {});
  await show(server, { versionNegotiation: { mode: 'auto' } });
}
console.log('default', byDefault);
JS
v/bin/python -W ignore client.py >python-client
timeout 120 node client.js >typescript-client
revision() {
    sed -n 's/^default //p' "$1"
}
{
    echo "by default: Python client $(revision python-client), TypeScript client $(revision typescript-client)"
    grep -hv '^default' python-client typescript-client
} | tee seen
diff seen - <<'TEXT'
by default: Python client 2026-07-28, TypeScript client 2025-11-25
Python client, Python server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 1
Python client, Python server, 2026-07-28: started 1; waiting: fails, work 1; new way: accepted, work 2
Python client, TypeScript server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 2
Python client, TypeScript server, 2026-07-28: started 1; waiting: fails, work 1; new way: accepted, work 2
TypeScript client, Python server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 1
TypeScript client, Python server, 2026-07-28: started 2; waiting: fails, work 1; new way: accepted, work 2
TypeScript client, TypeScript server, 2025-11-25: started 1; waiting: accepted, work 1; new way: accepted, work 2
TypeScript client, TypeScript server, 2026-07-28: started 2; waiting: fails, work 1; new way: accepted, work 2
TEXT
