#!/usr/bin/env bash
# Guess: a gateway that serves an MCP server of standard input and output over HTTP passes on what the two say: the
# progress of a call, errors with their codes, and `notifications/cancelled`, so that a tool stops when its caller gives
# it up.
# Seen with mcp-proxy 0.13.0 (mcp 1.30.0) and fastmcp 4.2.3 for Python, mcp-proxy 6.7.19 and supergateway 4.0.0 for
# Node, with the client of @modelcontextprotocol/sdk 1.32.2: mcp-proxy for Python says the caller's progress token to
# the server, but passes on neither progress nor the cancel. supergateway, as it serves Streamable HTTP by default,
# starts a process for each request, so the cancel goes to a new process that knows no such call. In both cases the tool
# works on to its end, and the caller sees only that it has stopped waiting. Both gateways for Python turn a JSON-RPC
# error into a tool result, without its code and data.
# Output seen (Python 3.11, Node 20.20.2):
#   mcp-proxy for Python: progress 0 of 2; after the cancel the tool works to its end; error -32001 with data comes as a result
#   fastmcp: progress 2 of 2; after the cancel the tool stops; error -32001 with data comes as a result
#   mcp-proxy for Node: progress 2 of 2; after the cancel the tool stops; error -32001 with data comes as -32001 with data
#   supergateway: progress 2 of 2; after the cancel the tool works to its end; error -32001 with data comes as -32001 with data
#   supergateway --stateful: progress 2 of 2; after the cancel the tool stops; error -32001 with data comes as -32001 with data
set -euo pipefail
folder=$(mktemp -d)
gateways=()
trap 'kill "${gateways[@]}" 2>/dev/null || true; wait; rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts mcp-proxy@6.7.19 supergateway@4.0.0 @modelcontextprotocol/sdk@1.32.2 >log 2>&1
python3 -m venv proxy
proxy/bin/pip install --quiet --no-compile --disable-pip-version-check mcp-proxy==0.13.0 mcp==1.30.0
python3 -m venv fast
fast/bin/pip install --quiet --no-compile --disable-pip-version-check fastmcp==4.2.3
cat >server.py <<'PY'
# An MCP server that writes what becomes of its tool "work" into the file that it is given.
import json, sys, threading, time

running = {}
lock = threading.Lock()


def send(**message):
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def work(call):
    stop = running[call["id"]] = threading.Event()
    token = call["params"].get("_meta", {}).get("progressToken")
    for step in (1, 2):
        if token is not None:
            send(method="notifications/progress", params={"progressToken": token, "progress": step})
        time.sleep(0.2)
    stopped = stop.wait(3)
    with open(sys.argv[1], "a") as seen:
        seen.write("stops" if stopped else "works to its end")
    if not stopped:
        send(id=call["id"], result={"content": [{"type": "text", "text": "done"}]})


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    if method == "initialize":
        info = {"name": "server", "version": "1"}
        send(id=message["id"], result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        send(id=message["id"], result={"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("work", "fail")]})
    elif method == "tools/call" and params["name"] == "work":
        threading.Thread(target=work, args=(message,)).start()
    elif method == "tools/call":
        send(id=message["id"], error={"code": -32001, "message": "no such order", "data": {"order": 7}})
    elif method == "notifications/cancelled" and params["requestId"] in running:
        running[params["requestId"]].set()
PY
cat >client.js <<'JS'
import { existsSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

const [name, port, file] = process.argv.slice(2);
const client = new Client({ name: 'client', version: '1' });
for (let tries = 1; ; tries += 1) {
  try {
    await client.connect(new StreamableHTTPClientTransport(new URL(`http://127.0.0.1:${port}/mcp`)));
    break;
  } catch (error) {
    if (tries === 100) throw error;
    await sleep(300);
  }
}
const error = await client.callTool({ name: 'fail', arguments: {} }).then(
  () => 'a result',
  ({ code, data }) => `${code}${data?.order === 7 ? ' with data' : ''}`,
);
let progress = 0;
const caller = new AbortController();
const options = { signal: caller.signal, onprogress: () => (progress += 1) };
const call = client.callTool({ name: 'work', arguments: {} }, undefined, options).catch(() => {});
await sleep(1500);
caller.abort();
await call;
while (!existsSync(file)) await sleep(100);
await sleep(100);
const end = readFileSync(file, 'utf8');
console.log(`${name}: progress ${progress} of 2; after the cancel the tool ${end}; error -32001 with data comes as ${error}`);
process.exit();
JS
see() { # the command, in which PORT stands for a free port; $name and $file say what to print and to read
    local port
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    "${@//PORT/$port}" >log 2>&1 &
    gateways+=($!)
    timeout 60 node client.js "$name" "$port" "$file"
}
bin=node_modules/.bin
echo '{"mcpServers": {"server": {"command": "python3", "args": ["server.py", "fast.seen"]}}}' >mcp.json
{
    name="mcp-proxy for Python" file=proxy.seen see proxy/bin/mcp-proxy --port PORT -- python3 server.py proxy.seen
    name=fastmcp file=fast.seen see fast/bin/fastmcp run mcp.json --transport http --port PORT --no-banner
    name="mcp-proxy for Node" file=node.seen see $bin/mcp-proxy --host 127.0.0.1 --port PORT -- python3 server.py node.seen
    name=supergateway file=super.seen see $bin/supergateway --stdio "python3 server.py super.seen" --outputTransport streamableHttp --port PORT
    name="supergateway --stateful" file=state.seen see $bin/supergateway --stdio "python3 server.py state.seen" \
        --outputTransport streamableHttp --stateful --port PORT
} >seen
cat seen
diff seen - <<'TEXT'
mcp-proxy for Python: progress 0 of 2; after the cancel the tool works to its end; error -32001 with data comes as a result
fastmcp: progress 2 of 2; after the cancel the tool stops; error -32001 with data comes as a result
mcp-proxy for Node: progress 2 of 2; after the cancel the tool stops; error -32001 with data comes as -32001 with data
supergateway: progress 2 of 2; after the cancel the tool works to its end; error -32001 with data comes as -32001 with data
supergateway --stateful: progress 2 of 2; after the cancel the tool stops; error -32001 with data comes as -32001 with data
TEXT
