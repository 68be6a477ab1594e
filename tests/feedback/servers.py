"""The two servers around the daemon: the tools of a world over MCP, and the model in front of the real one."""

import http.server
import json
import re
import threading
import urllib.request

import former

NOTICE = "Notice: this run seems to be in a loop"
MARKERS = re.compile(r'</?untrusted(?: source="[^"]*")? id="[^"]*">\n?')
SCRIPT_LIMIT = 60
PREFIX = "mcp_world_"


class Server:
    """An HTTP server on a free port of 127.0.0.1. `post` gets the parsed body, and gives the answer or nothing."""

    def __enter__(self):
        post = self.post

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                try:
                    answer, status = post(body), 200
                except OSError as error:
                    answer, status = {"error": {"message": str(error)}}, 500
                data = b"" if answer is None else json.dumps(answer).encode()
                self.send_response(202 if answer is None else status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


class Tools(Server):
    """The tools of a world."""

    def __init__(self, world):
        self.world = world

    def post(self, body):
        if "id" not in body:
            return None
        method, result = body.get("method"), {}
        if method == "initialize":
            version = body["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "world", "version": "1"}}
        elif method == "tools/list":
            result = {"tools": self.world.tools}
        elif method == "tools/call":
            text, failed = self.world.call(body["params"]["name"], body["params"].get("arguments") or {})
            result = {"content": [{"type": "text", "text": text}], "isError": failed}
        return {"jsonrpc": "2.0", "id": body["id"], "result": result}


class Model(Server):
    """Plays the script of a world until a strike; from then on asks the real model, `steps` times in a run.

    The real model gets the tools as text and answers with JSON after a schema: a call, or {"answer": …}. It is small, and would
    rarely call a tool otherwise. `arm` decides what becomes of the feedback: "new", "former" or "none".
    """

    def __init__(self, world, real, name, steps, temperature):
        self.world, self.real, self.name, self.steps, self.temperature = world, real, name, steps, temperature
        self.begin("new", 0)

    def begin(self, arm, seed):
        self.world.reset()
        self.arm, self.seed, self.scripted, self.notice, self.replies, self.known = arm, seed, 0, None, [], set()

    def post(self, body):
        notice = next((m["content"] for m in body["messages"] if m["role"] in ("system", "user") and NOTICE in str(m["content"])), None)
        if notice is None:
            if self.scripted >= SCRIPT_LIMIT:
                return self.reply({"content": "The script has ended without a strike."})
            name, arguments = self.world.loop(self.scripted)
            self.scripted += 1
            return self.reply(self.as_call(name, arguments))
        if self.notice is None:
            self.notice, self.known = notice, self.world.looping()
        if len(self.replies) >= self.steps:
            return self.reply({"content": "The benchmark ends here."})
        said = self.ask(body)
        self.replies.append(said)
        if "name" in said:
            return self.reply(self.as_call(said["name"], said["arguments"]))
        return self.reply({"content": said["answer"] or "-"})

    def ask(self, body):
        """One reply of the real model: a call or an answer. Without a model, nothing."""
        if not self.real:
            return {"answer": "no model"}
        tools = [{"name": t["name"], "description": t["description"], "parameters": t["inputSchema"]} for t in self.world.tools]
        listed = "\n".join(json.dumps(tool) for tool in tools)
        system = f"You solve a task with tools.\n\nTools:\n{listed}\n\nAnswer with a call, {{\"name\": …, \"arguments\": …}}, or with {{\"answer\": …}}."
        call = lambda tool: {
            "type": "object", "properties": {"name": {"const": tool["name"]}, "arguments": tool["parameters"]},
            "required": ["name", "arguments"], "additionalProperties": False,
        }
        answer = {
            "type": "object", "properties": {"answer": {"type": "string", "maxLength": 80}}, "required": ["answer"], "additionalProperties": False,
        }
        request = {
            "model": self.name, "max_tokens": 80, "temperature": self.temperature, "seed": self.seed, "cache_prompt": True,
            "messages": [{"role": "system", "content": system}, *self.plain(body["messages"])],
            "response_format": {"type": "json_schema", "json_schema": {"name": "reply", "schema": {"anyOf": [*map(call, tools), answer]}}},
        }
        asked = urllib.request.Request(self.real + "/chat/completions", json.dumps(request).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=300) as response:
            text = json.load(response)["choices"][0]["message"]["content"]
        try:
            return json.loads(text)
        except ValueError:
            return {"answer": text}

    def plain(self, messages):
        """The conversation in plain messages, with the feedback of this arm."""
        for message in messages:
            content = MARKERS.sub("", message.get("content") or "").strip()
            if NOTICE in content:
                content = self.feedback(content)
                if content is not None:
                    yield {"role": "user", "content": content}
            elif message["role"] == "tool":
                yield {"role": "user", "content": f"Result: {content}"}
            elif message.get("tool_calls"):
                for one in message["tool_calls"]:
                    name = one["function"]["name"].removeprefix(PREFIX)
                    arguments = json.loads(one["function"]["arguments"] or "{}")
                    yield {"role": "assistant", "content": json.dumps({"name": name, "arguments": arguments})}
            elif message["role"] != "system":
                yield {"role": message["role"], "content": content}

    def feedback(self, new):
        if self.arm == "none":
            return None
        if self.arm == "new":
            return new[new.index(NOTICE):]
        name, arguments = self.world.loop(self.scripted - 1)
        return former.sentence(self.world.name, f"{PREFIX}{name} {json.dumps(arguments, separators=(',', ':'))}"[:120])

    def as_call(self, name, arguments):
        function = {"name": PREFIX + name, "arguments": json.dumps(arguments)}
        return {"content": None, "tool_calls": [{"id": f"c{self.scripted}-{len(self.replies)}", "type": "function", "function": function}]}

    def reply(self, message):
        finish = "tool_calls" if message.get("tool_calls") else "stop"
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": self.name, "choices": [choice], "usage": usage}
