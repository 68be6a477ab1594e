#!/usr/bin/env bash
# Guess: a client of the Agent Client Protocol handles the updates of a session one after another, as they were sent, and a prompt
# returns when the updates before its answer have been handled. The protocol sends text in pieces, and says nothing about their numbers.
# Seen with @agentclientprotocol/sdk 2.4.0 for TypeScript and agent-client-protocol 0.12.1 for Python: both begin each update while the
# ones before it still wait, so a handler that waits for a file or a lock may put the pieces of an answer in another order. In Python the
# prompt returns after all of them; in TypeScript it returns at once, and the end of the turn is seen before its text.
# A handler has to put updates into a queue before it waits for anything.
# Output seen (Node 20.20.2, Python 3.11):
#   TypeScript: begun one, begun two, begun three, prompt returned, three, two, one
#   Python: begun one, begun two, begun three, three, two, one, prompt returned
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @agentclientprotocol/sdk@2.4.0 zod@4.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check agent-client-protocol==0.12.1
cat >order.js <<'JS'
import { agent, client, methods } from '@agentclientprotocol/sdk';

const { initialize, session } = methods.agent;
const { update } = methods.client.session;
const pieces = ['one', 'two', 'three'];
const piece = (text) => ({ sessionId: 's', update: { sessionUpdate: 'agent_message_chunk', content: { type: 'text', text } } });
const writer = agent({ name: 'writer' })
  .onRequest(initialize, () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest(session.new, () => ({ sessionId: 's' }))
  .onRequest(session.prompt, async (context) => {
    for (const text of pieces) await context.client.notify(update, piece(text));
    return { stopReason: 'end_turn' };
  });

const seen = [];
const waiting = {};
let all, returns;
const handled = new Promise((resolve) => (all = resolve));
const returned = Promise.race([new Promise((resolve) => (returns = resolve)), new Promise((resolve) => setTimeout(resolve, 5000))]);
const reader = client({ name: 'reader' }).onNotification(update, async ({ params }) => {
  const { text } = params.update.content;
  seen.push(`begun ${text}`);
  if (text !== 'three') await new Promise((resolve) => (waiting[text] = resolve)); // until the piece behind it is handled
  else await returned; // at most five seconds
  seen.push(text);
  ({ three: waiting.two, two: waiting.one, one: all })[text]();
});
await reader.connectWith(writer, async (context) => {
  await context.request(initialize, { protocolVersion: 1, clientCapabilities: {} });
  await context.request(session.new, { cwd: '/', mcpServers: [] });
  await context.request(session.prompt, { sessionId: 's', prompt: [{ type: 'text', text: 'go' }] });
  seen.push('prompt returned');
  returns();
  await handled;
});
console.log(`TypeScript: ${seen.join(', ')}`);
JS
cat >writer.py <<'PY'
import asyncio
import acp

class Writer(acp.Agent):
    def on_connect(self, client):
        self.client = client

    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(protocol_version=1)

    async def new_session(self, cwd, **_):
        return acp.NewSessionResponse(session_id="s")

    async def prompt(self, prompt, session_id, **_):
        for text in ("one", "two", "three"):
            await self.client.session_update(session_id, acp.update_agent_message_text(text))
        return acp.PromptResponse(stop_reason="end_turn")

asyncio.run(acp.run_agent(Writer()))
PY
cat >order.py <<'PY'
import asyncio, sys
import acp

seen = []

class Reader(acp.Client):
    def __init__(self):
        self.handled = {text: asyncio.Event() for text in ("one", "two", "three")}

    async def session_update(self, session_id, update, **_):
        text = update.content.text
        seen.append(f"begun {text}")
        if text != "three":  # until the piece behind it is handled
            await self.handled[{"one": "two", "two": "three"}[text]].wait()
        seen.append(text)
        self.handled[text].set()

async def main():
    reader = Reader()
    async with acp.spawn_agent_process(reader, sys.executable, "writer.py") as (agent, _):
        await agent.initialize(protocol_version=1)
        session = await agent.new_session(cwd="/", mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("go")])
        seen.append("prompt returned")
        await reader.handled["one"].wait()

asyncio.run(asyncio.wait_for(main(), 60))
print(f"Python: {', '.join(seen)}")
PY
{ timeout 60 node order.js; v/bin/python order.py; } | tee seen
diff seen - <<'TEXT'
TypeScript: begun one, begun two, begun three, prompt returned, three, two, one
Python: begun one, begun two, begun three, three, two, one, prompt returned
TEXT
