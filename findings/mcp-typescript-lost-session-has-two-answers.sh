#!/usr/bin/env bash
# Guess: a server over HTTP that does not know the session of a request answers 404, as MCP says ("Session Management").
# Seen with @modelcontextprotocol/sdk 1.32.2: a server that has been restarted answers 400 until somebody begins a session, and 404
# after that. Both errors have no id, so that a client which sorts answers by id never gets them.
# Output seen:
#   after a restart: 400 -32000 Bad Request: Server not initialized (id null)
#   beside another session: 404 -32001 Session not found (id null)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @modelcontextprotocol/sdk@1.32.2 >log 2>&1
cat >lost.js <<'JS'
import { createServer } from 'node:http';
import { randomUUID } from 'node:crypto';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';

const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: randomUUID });
await new McpServer({ name: 'server', version: '1' }).connect(transport);
const server = createServer((request, response) => transport.handleRequest(request, response));
await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
const headers = { accept: 'application/json, text/event-stream', 'content-type': 'application/json' };
const post = (method, params, more = {}) => fetch(`http://127.0.0.1:${server.address().port}/`, {
  method: 'POST', headers: { ...headers, ...more }, body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
});
const show = async (when) => {
  const answer = await post('tools/list', {}, { 'mcp-session-id': 'of-the-server-before' });
  const { id, error } = await answer.json();
  console.log(`${when}: ${answer.status} ${error.code} ${error.message} (id ${id})`);
};
await show('after a restart');
await post('initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'client', version: '1' } });
await show('beside another session');
process.exit(0);
JS
node lost.js | tee seen
diff seen - <<'SEEN'
after a restart: 400 -32000 Bad Request: Server not initialized (id null)
beside another session: 404 -32001 Session not found (id null)
SEEN
