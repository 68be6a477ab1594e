#!/usr/bin/env bash
# Guess: a command line that calls a tool of an MCP server reads its schema, so a value for a parameter of type string arrives as it was
# typed. A newer version of one does not change that.
# Seen with @modelcontextprotocol/inspector 0.15.0 and 2.12.0 (with --cli), mcporter 0.12.3 and fastmcp 4.2.3, and a server of
# @modelcontextprotocol/sdk 1.32.2: the inspector kept texts in 0.15.0. 2.12.0 reads each value as JSON, whatever the schema says: versions,
# numbers of accounts and texts in quotes become other values, from which the server cannot restore the text. It leaves "007", which is no
# JSON. mcporter keeps what looks like a number if the schema says string, and reads true, null, lists and objects as JSON all the same.
# fastmcp keeps all. A server that checks its input can refuse the values that are no strings, but it cannot see that quotes are gone.
# Neither version of the inspector can send an empty text (`text=`), which it says is no pair of key and value.
# Output seen (Python 3.11, Node 20.20.2):
#   typed: 007 1.10 12345678901234567890 1e5 true null "Home" [1]
#   inspector 0.15.0: "007" "1.10" "12345678901234567890" "1e5" "true" "null" "\"Home\"" "[1]"
#   inspector 2.12.0: "007" 1.1 12345678901234567000 100000 true null "Home" [1]
#   mcporter: "007" "1.10" "12345678901234567890" "1e5" true null "\"Home\"" [1]
#   fastmcp: "007" "1.10" "12345678901234567890" "1e5" "true" "null" "\"Home\"" "[1]"
#   inspector 0.15.0, empty: Invalid parameter format: id=
#   inspector 2.12.0, empty: Invalid parameter format: id=
set -euo pipefail
folder=$(mktemp -d)
trap '[ $? = 0 ] || cat "$folder/log" || true; rm -rf "$folder"' EXIT
cd "$folder"
export HOME=$folder
echo '{"private":true,"type":"module"}' >package.json
npm install --no-audit --no-fund --ignore-scripts old@npm:@modelcontextprotocol/inspector@0.15.0 \
    new@npm:@modelcontextprotocol/inspector@2.12.0 mcporter@0.12.3 @modelcontextprotocol/sdk@1.32.2 >log 2>&1
python3 -m venv v
v/bin/pip install --quiet --no-compile --disable-pip-version-check fastmcp==4.2.3
cat >server.js <<'JS'
import { writeFileSync } from 'node:fs';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';

const names = ['id', 'version', 'account', 'hash', 'word', 'name', 'title', 'list'];
const inputSchema = { type: 'object', properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])) };
const server = new Server({ name: 'notes', version: '1' }, { capabilities: { tools: {} } });
server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [{ name: 'note', description: 'notes', inputSchema }] }));
server.setRequestHandler(CallToolRequestSchema, ({ params }) => {
  writeFileSync('call', Object.values(params.arguments).map((value) => JSON.stringify(value)).join(' '));
  return { content: [{ type: 'text', text: 'noted' }] };
});
await server.connect(new StdioServerTransport());
JS
echo '{"mcpServers":{"notes":{"command":"node","args":["server.js"]}}}' >servers.json
typed=(id=007 version=1.10 account=12345678901234567890 hash=1e5 word=true name=null 'title="Home"' 'list=[1]')
inspect() { # NAME FILE: calls the tool with the inspector of that folder
    rm -f call
    node "$2" --cli node server.js --method tools/call --tool-name note --tool-arg "${typed[@]}" </dev/null >>log 2>&1
    echo "$1: $(cat call)"
}
empty() { # NAME FILE
    rm -f call
    if node "$2" --cli node server.js --method tools/call --tool-name note --tool-arg id= </dev/null 2>&1 | tee -a log >said; then
        echo "$1, empty: $(cat call)"
    else
        echo "$1, empty: $(grep -o 'Invalid parameter format: id=' said | head -n 1)"
    fi
}
old=node_modules/old/cli/build/cli.js
new=node_modules/new/clients/launcher/build/index.js
{
    echo "typed: ${typed[*]#*=}"
    inspect 'inspector 0.15.0' $old
    inspect 'inspector 2.12.0' $new
    rm -f call
    node_modules/.bin/mcporter call --stdio 'node server.js' note "${typed[@]}" </dev/null >>log 2>&1
    echo "mcporter: $(cat call)"
    rm -f call
    v/bin/fastmcp call servers.json note "${typed[@]}" </dev/null >>log 2>&1
    echo "fastmcp: $(cat call)"
    empty 'inspector 0.15.0' $old
    empty 'inspector 2.12.0' $new
} | tee seen
diff seen - <<'TEXT'
typed: 007 1.10 12345678901234567890 1e5 true null "Home" [1]
inspector 0.15.0: "007" "1.10" "12345678901234567890" "1e5" "true" "null" "\"Home\"" "[1]"
inspector 2.12.0: "007" 1.1 12345678901234567000 100000 true null "Home" [1]
mcporter: "007" "1.10" "12345678901234567890" "1e5" true null "\"Home\"" [1]
fastmcp: "007" "1.10" "12345678901234567890" "1e5" "true" "null" "\"Home\"" "[1]"
inspector 0.15.0, empty: Invalid parameter format: id=
inspector 2.12.0, empty: Invalid parameter format: id=
TEXT
