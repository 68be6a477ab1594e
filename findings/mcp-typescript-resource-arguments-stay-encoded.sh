#!/usr/bin/env bash
# Guess: a resource template of an MCP server is a URI template (RFC 6570). A client puts its values into it, and the server takes the same
# values out again, decoded, with both SDKs. A value of `{?page,state}` may be left out, as the RFC has it, and the handler gets the others.
# Seen with mcp 2.3.0 for Python and @modelcontextprotocol/client and @modelcontextprotocol/server 2.4.0 for Node: the server for
# TypeScript gives its handler the values as they stand in the URI, so "a b" is "a%20b" and "50%" is "50%25". A handler that looks for a
# note of that name finds none. A URI in which one of the values of the query is left out is no resource for it, though its own
# `UriTemplate` wrote the URI. So all are required there, in their order. The server for Python does as guessed. A handler that has worked
# with names without spaces decodes them itself, and a template with a query gets all its values.
# Output seen (Python 3.11, Node 20.20.2): values, the URI that the SDK for TypeScript makes of them, and what the handler gets
#   {"name":"report"} note://report | Python: report | TypeScript: report
#   {"name":"a b"} note://a%20b | Python: a b | TypeScript: a%20b
#   {"name":"50%"} note://50%25 | Python: 50% | TypeScript: 50%25
#   {"owner":"ann","page":"2","state":"done"} list://ann/items?page=2&state=done | Python: ann 2 done | TypeScript: ann 2 done
#   {"owner":"ann","page":"2"} list://ann/items?page=2 | Python: ann 2 open | TypeScript: not found
#   {"owner":"ann"} list://ann/items | Python: ann 1 open | TypeScript: not found
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/server@2.4.0 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check mcp==2.3.0
cat >server.py <<'PY'
from mcp.server.mcpserver import MCPServer

server = MCPServer("notes")


@server.resource("note://{name}")
def note(name: str) -> str:
    return name


@server.resource("list://{owner}/items{?page,state}")
def items(owner: str, page: str = "1", state: str = "open") -> str:
    return f"{owner} {page} {state}"


server.run()
PY
cat >server.js <<'JS'
import { McpServer, ResourceTemplate } from '@modelcontextprotocol/server';
import { StdioServerTransport } from '@modelcontextprotocol/server/stdio';

const server = new McpServer({ name: 'notes', version: '1' });
function add(name, template, text) {
  const read = (uri, values) => ({ contents: [{ uri: uri.href, text: text(values) }] });
  server.registerResource(name, new ResourceTemplate(template, { list: undefined }), {}, read);
}
add('note', 'note://{name}', ({ name }) => name);
add('items', 'list://{owner}/items{?page,state}', ({ owner, page = '1', state = 'open' }) => `${owner} ${page} ${state}`);
await server.connect(new StdioServerTransport());
JS
cat >client.js <<'JS'
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { UriTemplate } from '@modelcontextprotocol/server';

async function connect(command, ...args) {
  const client = new Client({ name: 'client', version: '1' });
  await client.connect(new StdioClientTransport({ command, args, stderr: 'ignore' }));
  return client;
}
const clients = { Python: await connect('v/bin/python', 'server.py'), TypeScript: await connect('node', 'server.js') };
const names = ['report', 'a b', '50%'].map((name) => ({ name }));
const lists = [{ owner: 'ann', page: '2', state: 'done' }, { owner: 'ann', page: '2' }, { owner: 'ann' }];
for (const values of [...names, ...lists]) {
  const uri = new UriTemplate('name' in values ? 'note://{name}' : 'list://{owner}/items{?page,state}').expand(values);
  const seen = [];
  for (const [language, client] of Object.entries(clients)) {
    const read = client.readResource({ uri });
    const text = await read.then(({ contents }) => contents[0].text, (error) => error.message.match(/not found/)[0]);
    seen.push(`${language}: ${text}`);
  }
  console.log([`${JSON.stringify(values)} ${uri}`, ...seen].join(' | '));
}
for (const client of Object.values(clients)) await client.close();
JS
node client.js | tee seen
diff seen - <<'TEXT'
{"name":"report"} note://report | Python: report | TypeScript: report
{"name":"a b"} note://a%20b | Python: a b | TypeScript: a%20b
{"name":"50%"} note://50%25 | Python: 50% | TypeScript: 50%25
{"owner":"ann","page":"2","state":"done"} list://ann/items?page=2&state=done | Python: ann 2 done | TypeScript: ann 2 done
{"owner":"ann","page":"2"} list://ann/items?page=2 | Python: ann 2 open | TypeScript: not found
{"owner":"ann"} list://ann/items | Python: ann 1 open | TypeScript: not found
TEXT
