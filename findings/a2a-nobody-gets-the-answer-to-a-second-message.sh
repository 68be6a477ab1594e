#!/usr/bin/env bash
# Guess: a second message to a task that is still working (Agent2Agent protocol, a message with `taskId`) waits for the first one, or is
# handled beside it. Either way its sender gets the answer to this message, all that the agent says is stored once, and a completed task
# stays as it is.
# Seen with a2a-sdk 1.3.0 for Python and @a2a-js/sdk 1.3.0, each with its own request handler and task store: nobody gets the answer to
# the second message. The server for Python answers with the task as the first message has completed it, and only then handles the second:
# the completed task works again, and completes again. The server for Node handles both side by side. The answer comes when the first has
# ended, what the second one says later is not stored, and pieces that come while both run are stored twice.
# Output seen (Python 3.11, Node 20); the agent answers "first" in two pieces, which are one artifact, and "second" in two others:
#   Python, answer to the second message: completed, first 1 + first 2
#   Python, the task then: working, first 1 + first 2; second 1
#   Python, the task in the end: completed, first 1 + first 2; second 1 + second 2
#   Node, answer to the second message: completed, first 1 + first 2 + first 2; second 1
#   Node, the task then: completed, first 1 + first 2 + first 2; second 1
#   Node, the task in the end: completed, first 1 + first 2 + first 2; second 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv v
v/bin/pip install --quiet --disable-pip-version-check 'a2a-sdk[http-server]==1.3.0' uvicorn==0.54.0
npm init --yes >log
npm install --silent --no-audit --no-fund @a2a-js/sdk@1.3.0 express@5.3.0 >log
cat >server.py <<'PY'
import asyncio, os, sys
import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types.a2a_pb2 import AgentCapabilities, AgentCard, AgentInterface
from starlette.applications import Starlette

folder, port = sys.argv[1], int(sys.argv[2])


class Executor(AgentExecutor):
    """Writes an answer in two pieces, the second when the client allows it."""

    async def execute(self, context, queue):
        if not context.current_task:
            await queue.enqueue_event(new_task_from_user_message(context.message))
        name = context.get_user_input()
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        await updater.start_work()
        await updater.add_artifact([new_text_part(f"{name} 1")], artifact_id=name)
        while not os.path.exists(f"{folder}/{name}"):
            await asyncio.sleep(0.05)
        await updater.add_artifact([new_text_part(f"{name} 2")], artifact_id=name, append=True)
        await updater.complete()

    async def cancel(self, context, queue):
        raise NotImplementedError


card = AgentCard(
    name="agent", description="agent", version="1", capabilities=AgentCapabilities(streaming=True),
    supported_interfaces=[AgentInterface(url=f"http://127.0.0.1:{port}/", protocol_binding="JSONRPC", protocol_version="1.0")],
)
handler = DefaultRequestHandler(Executor(), InMemoryTaskStore(), card)
uvicorn.run(Starlette(routes=create_jsonrpc_routes(handler, "/")), port=port, log_level="error")
PY
cat >server.mjs <<'JS'
import { existsSync } from 'node:fs';
import express from 'express';
import { TaskState } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { UserBuilder, jsonRpcHandler } from '@a2a-js/sdk/server/express';

const [folder, port] = process.argv.slice(2);
const executor = {
  async execute({ taskId, contextId, task, userMessage }, bus) {
    const status = (state) => ({ state, timestamp: new Date().toISOString() });
    bus.publish(AgentEvent.task(
      task ?? { id: taskId, contextId, status: status(TaskState.TASK_STATE_SUBMITTED), history: [userMessage], artifacts: [] },
    ));
    const name = userMessage.parts[0].content.value;
    const update = (state) => bus.publish(AgentEvent.statusUpdate({ taskId, contextId, status: status(state) }));
    const piece = (text, append) => bus.publish(AgentEvent.artifactUpdate({
      taskId, contextId, append, lastChunk: append,
      artifact: { artifactId: name, name: '', description: '', parts: [{ content: { $case: 'text', value: text } }], extensions: [] },
    }));
    update(TaskState.TASK_STATE_WORKING);
    piece(`${name} 1`, false);
    while (!existsSync(`${folder}/${name}`)) await new Promise((resolve) => setTimeout(resolve, 50));
    piece(`${name} 2`, true);
    update(TaskState.TASK_STATE_COMPLETED);
  },
  async cancelTask() {
    throw new Error('not implemented');
  },
};
const card = {
  name: 'agent', description: 'agent', version: '1', capabilities: { streaming: true, extensions: [] }, skills: [],
  defaultInputModes: ['text/plain'], defaultOutputModes: ['text/plain'], securitySchemes: {}, securityRequirements: [], signatures: [],
  supportedInterfaces: [{ url: `http://127.0.0.1:${port}/`, protocolBinding: 'JSONRPC', protocolVersion: '1.0', tenant: '' }],
};
const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), executor);
express().use('/', jsonRpcHandler({ requestHandler, userBuilder: UserBuilder.noAuthentication })).listen(Number(port), '127.0.0.1');
JS
cat >client.py <<'PY'
import asyncio, json, pathlib, subprocess, sys, tempfile, urllib.error, urllib.request, uuid


def rpc(port, method, params):
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", body, headers), timeout=60) as answer:
        return json.load(answer)["result"]


def message(text, **more):
    return {"message": {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": [{"text": text}], **more}}


async def call(*arguments):
    """The answer of the server, as soon as there is one."""
    for _ in range(600):
        try:
            return await asyncio.to_thread(rpc, *arguments)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            await asyncio.sleep(0.1)


def show(task):
    artifacts = [" + ".join(part["text"] for part in artifact["parts"]) for artifact in task["artifacts"]]
    return f"{task['status']['state'].removeprefix('TASK_STATE_').lower()}, {'; '.join(artifacts)}"


async def poll(port, task, part, seconds=60):
    """The task when it has an artifact with that part, or after that time."""
    for _ in range(seconds * 10):
        found = await call(port, "GetTask", {"id": task})
        if any(part == each["text"] for artifact in found.get("artifacts", []) for each in artifact["parts"]):
            break
        await asyncio.sleep(0.1)
    return found


async def main(name, command, port):
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([*command, folder, port], stderr=subprocess.DEVNULL)
        try:
            started = await call(port, "SendMessage", {**message("first"), "configuration": {"returnImmediately": True}})
            task = started["task"]["id"]
            await poll(port, task, "first 1")
            second = asyncio.create_task(call(port, "SendMessage", message("second", taskId=task)))
            if name == "Node":
                await poll(port, task, "second 1")
            else:  # nothing shows that the message has arrived
                await asyncio.sleep(3)
            pathlib.Path(folder, "first").touch()
            print(f"{name}, answer to the second message: {show((await second)['task'])}")
            print(f"{name}, the task then: {show(await poll(port, task, 'second 1'))}")
            pathlib.Path(folder, "second").touch()
            await poll(port, task, "second 2", 5)
            await asyncio.sleep(0.5)
            print(f"{name}, the task in the end: {show(await call(port, 'GetTask', {'id': task}))}")
        finally:
            server.kill()
            server.wait()


asyncio.run(main(sys.argv[1], sys.argv[3:], sys.argv[2]))
PY
free() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
{
    v/bin/python client.py Python "$(free)" v/bin/python server.py
    v/bin/python client.py Node "$(free)" node server.mjs
} | tee seen
diff seen - <<'TEXT'
Python, answer to the second message: completed, first 1 + first 2
Python, the task then: working, first 1 + first 2; second 1
Python, the task in the end: completed, first 1 + first 2; second 1 + second 2
Node, answer to the second message: completed, first 1 + first 2 + first 2; second 1
Node, the task then: completed, first 1 + first 2 + first 2; second 1
Node, the task in the end: completed, first 1 + first 2 + first 2; second 1
TEXT
