#!/usr/bin/env python3
"""A server of tools over standard input and output, for tests: mcp_server.py FILE DESCRIPTION

`note` answers with the text it is given, `send` keeps it to itself; both write down in FILE what they were sent. DESCRIPTION
is what `send` says about itself. Standard library only.
"""

import json
import sys

FILE, DESCRIPTION = sys.argv[1], sys.argv[2]
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TOOLS = [
    {"name": "note", "description": "Gives a text back.", "inputSchema": SCHEMA},
    {"name": "send", "description": DESCRIPTION, "inputSchema": SCHEMA},
]


def result(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "helper", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        text = params.get("arguments", {}).get("text", "")
        if params["name"] == "send":
            with open(FILE, "a", encoding="utf-8") as file:
                file.write(text + "\n")
            text = "sent"
        return {"content": [{"type": "text", "text": text}]}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer = {"jsonrpc": "2.0", "id": message["id"], "result": result(message["method"], message.get("params", {}))}
        print(json.dumps(answer), flush=True)
