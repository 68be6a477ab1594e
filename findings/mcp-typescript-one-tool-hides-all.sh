#!/usr/bin/env bash
# Guess: a tool whose input has no JSON Schema is refused when it is registered, or is left out of the list.
# Seen with @modelcontextprotocol/sdk 1.32.2 and zod 4.3.5: registerTool accepts it, and then tools/list fails as a whole, so the
# client sees none of the tools. z.date() is enough. The error names the type but neither the tool nor the field.
# Output seen:
#   registered
#   tools/list: MCP error -32603: Date cannot be represented in JSON Schema
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @modelcontextprotocol/sdk@1.32.2 zod@4.3.5 >log 2>&1
cat >list.js <<'JS'
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { InMemoryTransport } from '@modelcontextprotocol/sdk/inMemory.js';
import { z } from 'zod';

const server = new McpServer({ name: 'server', version: '1' });
const nothing = async () => ({ content: [] });
server.registerTool('fine', { inputSchema: { text: z.string() } }, nothing);
server.registerTool('dated', { inputSchema: { when: z.date() } }, nothing);
console.log('registered');
const [here, there] = InMemoryTransport.createLinkedPair();
const client = new Client({ name: 'client', version: '1' });
await Promise.all([server.connect(here), client.connect(there)]);
const list = await client.listTools().then((all) => all.tools.map((tool) => tool.name), (error) => error.message);
console.log(`tools/list: ${list}`);
JS
node list.js | tee seen
diff seen - <<'SEEN'
registered
tools/list: MCP error -32603: Date cannot be represented in JSON Schema
SEEN
