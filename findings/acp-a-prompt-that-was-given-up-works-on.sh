#!/usr/bin/env bash
# Guess: a client of the Agent Client Protocol that gives a prompt up in the way of its language, with an AbortSignal or the timeout of a
# task, stops waiting at once, and the agent learns of it, as the protocol has `$/cancel_request` for any request.
# Seen with @agentclientprotocol/sdk 2.4.0 for TypeScript and agent-client-protocol 0.12.1 for Python: one pair of four stops the agent.
# TypeScript sends `$/cancel_request` and waits for the answer all the same, unless it is given `stopWaitingOnCancel`. The agent's side
# for Python does not know the message, logs an error and works to the end, as if nobody had given up. The client for Python returns at
# once and sends nothing, so that an agent may write files for a prompt that its client believes to be over. `session/cancel` is heard in
# all four pairs, and a client has to send it itself.
# Output seen (Node 20.20.2, Python 3.11), for a prompt of 4 s that is given up after 1 s:
#   TypeScript client, TypeScript agent: client waits for the answer, agent stopped; session/cancel: told
#   TypeScript client, Python agent: client waits for the answer, agent worked to the end; session/cancel: told
#   Python client, TypeScript agent: client returns, agent worked to the end; session/cancel: told
#   Python client, Python agent: client returns, agent worked to the end; session/cancel: told
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @agentclientprotocol/sdk@2.4.0 zod@4.6.7 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check agent-client-protocol==0.12.1
cat >agent.js <<'JS'
import { appendFileSync } from 'node:fs';
import { Readable, Writable } from 'node:stream';
import { agent, methods, ndJsonStream } from '@agentclientprotocol/sdk';

const note = (text) => appendFileSync('notes', `${text}\n`);
const { initialize, session } = methods.agent;
const worker = agent({ name: 'worker' })
  .onRequest(initialize, () => ({ protocolVersion: 1, agentCapabilities: {} }))
  .onRequest(session.new, () => ({ sessionId: 's' }))
  .onNotification(session.cancel, () => note('told'))
  .onRequest(session.prompt, async ({ signal }) => {
    signal.addEventListener('abort', () => note('stopped'));
    await new Promise((resolve) => setTimeout(resolve, 4000));
    if (!signal.aborted) note('worked to the end');
    return { stopReason: signal.aborted ? 'cancelled' : 'end_turn' };
  });
worker.connect(ndJsonStream(Writable.toWeb(process.stdout), Readable.toWeb(process.stdin)));
JS
cat >agent.py <<'PY'
import asyncio
import acp


def note(text):
    with open("notes", "a") as file:
        print(text, file=file)


class Worker(acp.Agent):
    def on_connect(self, client):
        pass

    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(protocol_version=1)

    async def new_session(self, cwd, **_):
        return acp.NewSessionResponse(session_id="s")

    async def cancel(self, session_id, **_):
        note("told")

    async def prompt(self, prompt, session_id, **_):
        try:
            await asyncio.sleep(4)
        except asyncio.CancelledError:
            note("stopped")
            raise
        note("worked to the end")
        return acp.PromptResponse(stop_reason="end_turn")


asyncio.run(acp.run_agent(Worker()))
PY
cat >client.js <<'JS'
import { spawn } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { client, methods, ndJsonStream } from '@agentclientprotocol/sdk';

const { initialize, session } = methods.agent;
const agents = { TypeScript: ['node', 'agent.js'], Python: ['v/bin/python', 'agent.py'] };
for (const [name, [command, ...args]] of Object.entries(agents)) {
  writeFileSync('notes', '');
  const child = spawn(command, args, { stdio: ['pipe', 'pipe', 'ignore'] });
  const stream = ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  await client({ name: 'asker' }).connectWith(stream, async (context) => {
    await context.request(initialize, { protocolVersion: 1, clientCapabilities: {} });
    await context.request(session.new, { cwd: '/', mcpServers: [] });
    const begin = Date.now();
    const params = { sessionId: 's', prompt: [{ type: 'text', text: 'go' }] };
    await context.request(session.prompt, params, { cancellationSignal: AbortSignal.timeout(1000) }).catch(() => {});
    const waited = Date.now() - begin > 3000 ? 'waits for the answer' : 'returns';
    await sleep(6000 - (Date.now() - begin));
    const notes = readFileSync('notes', 'utf8').trim();
    await context.notify(session.cancel, { sessionId: 's' });
    await sleep(1000);
    const told = readFileSync('notes', 'utf8').trim().split('\n').at(-1);
    console.log(`TypeScript client, ${name} agent: client ${waited}, agent ${notes}; session/cancel: ${told}`);
  });
  child.kill();
}
process.exit(0);
JS
cat >client.py <<'PY'
import asyncio, sys, time
import acp

AGENTS = {"TypeScript": ["node", "agent.js"], "Python": [sys.executable, "agent.py"]}


class Asker(acp.Client):
    async def session_update(self, session_id, update, **_):
        pass


def notes():
    with open("notes") as file:
        return file.read().strip()


async def main():
    for name, command in AGENTS.items():
        open("notes", "w").close()
        async with acp.spawn_agent_process(Asker(), *command) as (agent, _):
            await agent.initialize(protocol_version=1)
            session = await agent.new_session(cwd="/", mcp_servers=[])
            begin = time.monotonic()
            try:
                async with asyncio.timeout(1):
                    await agent.prompt(session_id=session.session_id, prompt=[acp.text_block("go")])
            except TimeoutError:
                pass
            waited = "waits for the answer" if time.monotonic() - begin > 3 else "returns"
            await asyncio.sleep(6 - (time.monotonic() - begin))
            done = notes()
            await agent.cancel(session_id=session.session_id)
            await asyncio.sleep(1)
            print(f"Python client, {name} agent: client {waited}, agent {done}; session/cancel: {notes().split(chr(10))[-1]}")


asyncio.run(asyncio.wait_for(main(), 60))
PY
{ timeout 60 node client.js; v/bin/python client.py; } | tee seen
diff seen - <<'TEXT'
TypeScript client, TypeScript agent: client waits for the answer, agent stopped; session/cancel: told
TypeScript client, Python agent: client waits for the answer, agent worked to the end; session/cancel: told
Python client, TypeScript agent: client returns, agent worked to the end; session/cancel: told
Python client, Python agent: client returns, agent worked to the end; session/cancel: told
TEXT
