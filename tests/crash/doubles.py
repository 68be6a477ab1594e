"""The model and the Bot API that the daemon talks to. Both write down what reaches them: these are the ledgers of the checker."""

import collections
import http.server
import json
import re
import threading
import time

# The order in a message: what the model shall do, and the id of the work.
ORDER = re.compile(r"\[(say|long|effect|ask|hold|job) ([a-z]+\d+)\]")
TOKEN = "1234567:crash-test"
# The user on Telegram.
PERSON = 42
# Output tokens of each answer. The daemon's limit is the same, so the real cost is close to the reserved cost.
OUTPUT_TOKENS = 100


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def handle_error(self, request, client_address):
        """A daemon that was killed leaves broken connections behind; that is no error here."""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def body(self):
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class Double:
    """A server on a free port, with a lock for its ledger."""

    def __init__(self):
        self.lock = threading.Lock()
        double = self
        handler = type("Bound", (Handler,), {"do_POST": lambda self: double.post(self), "do_GET": lambda self: double.post(self)})
        self.server = Server(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Model(Double):
    """An OpenAI-compatible model that does what the newest order of a conversation says, and keeps no state for it."""

    def __init__(self, effects):
        self.effects = effects
        # The cost of all requests in millionths of a dollar, at 1 dollar for a million tokens.
        self.cost = 0
        self.requests = 0
        # The answers to each order, in order of arrival: (request number, "text" or "call").
        self.answers = collections.defaultdict(list)
        # What the model was shown about each call: "ok" or "unknown", or the first words of another result.
        self.shown = collections.defaultdict(set)
        # Requests that no provider would accept.
        self.invalid = []
        # When the first request after mark() came.
        self.first_at = None
        super().__init__()

    def mark(self):
        with self.lock:
            self.first_at = None

    def post(self, handler):
        body = handler.body()
        now = time.monotonic()
        request = json.loads(body or b"{}")
        messages = request.get("messages") or []
        usage = {"prompt_tokens": len(body) // 5, "completion_tokens": OUTPUT_TOKENS}
        usage["total_tokens"] = sum(usage.values())
        with self.lock:
            self.requests += 1
            self.cost += usage["total_tokens"]
            self.first_at = self.first_at or now
            if problem := invalid(messages):
                self.invalid.append(problem)
            kind, order, delta = self.decide(messages)
            self.answers[order].append((self.requests, kind))
        finish = "tool_calls" if kind == "call" else "stop"
        text = delta.get("content") or ""
        pieces = [{**delta, "content": text[: len(text) // 2]}, {"content": text[len(text) // 2 :]}] if text else [delta]
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream")
        handler.send_header("connection", "close")
        handler.end_headers()
        for piece in pieces:
            handler.wfile.write(chunk({"choices": [{"index": 0, "delta": piece, "finish_reason": None}]}))
            handler.wfile.flush()
        last = chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
        handler.wfile.write(last + chunk({"choices": [], "usage": usage}) + b"data: [DONE]\n\n")
        handler.close_connection = True

    def decide(self, messages):
        """The kind of the answer, its order, and the answer."""
        at, what, order = newest_order(messages)
        if order is None:
            return "text", "", {"content": "A summary of the conversation."}
        # A call that the conversation has is not made again, whatever its result was.
        results = {message.get("tool_call_id"): str(message.get("content")) for message in messages if message["role"] == "tool"}
        made = [call for message in messages for call in message.get("tool_calls") or [] if f"{order} " in call["function"]["arguments"]]
        for call in made:
            self.shown[order].add(seen(results.get(call["id"], "")))
        if what in ("effect", "ask", "hold", "job") and not made:
            return "call", order, call_of(order, "run_command", {"argv": ["sh", "-c", self.effects.command(order, what)]})
        if what == "job":
            return "call", order, call_of(f"{order}-end", "terminate", {"status": "success", "summary": f"done {order}."})
        text = f"done {order}."
        if what == "long":
            text = f"{text}\n\n" + "\n\n".join(f"Line {n} of a long answer, which needs more than one message." for n in range(90)) + f"\n\nend of {order}."
        return "text", order, {"content": text}


def newest_order(messages):
    for at in range(len(messages) - 1, -1, -1):
        if messages[at]["role"] == "user":
            found = ORDER.findall(text_of(messages[at]))
            if found:
                return at, *found[-1]
    return None, None, None


def text_of(message):
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def seen(result):
    if "outcome unknown" in result:
        return "unknown"
    return "ok" if "written" in result else result[:80]


def call_of(call, name, arguments):
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"tool_calls": [{"index": 0, "id": f"call_{call}", "type": "function", "function": function}]}


def chunk(fields):
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"data: " + json.dumps({**head, **fields}).encode() + b"\n\n"


def invalid(messages):
    """Why a provider would refuse these messages: a call without a result, or a result without a call."""
    open_calls = set()
    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") not in open_calls:
                return "a result without a call"
            open_calls.discard(message.get("tool_call_id"))
        elif open_calls:
            return "a call without a result"
        for call in message.get("tool_calls") or []:
            open_calls.add(call["id"])
    return "a call without a result at the end" if open_calls else None


class BotApi(Double):
    """A Bot API with one private chat. Updates come again until the bot confirms them by a later offset."""

    def __init__(self):
        self.updates = []
        self.confirmed = 0
        self.sent = []
        super().__init__()

    def say(self, number, text):
        person = {"id": PERSON, "is_bot": False, "first_name": "Tester"}
        chat = {"id": PERSON, "type": "private", "first_name": "Tester"}
        message = {"message_id": number, "date": int(time.time()), "text": text, "from": person, "chat": chat}
        with self.lock:
            self.updates.append({"update_id": number, "message": message})

    def texts(self):
        with self.lock:
            return list(self.sent)

    def post(self, handler):
        body, method = handler.body(), handler.path.split("?")[0].rsplit("/", 1)[-1]
        try:
            fields = json.loads(body) if body else {}
        except ValueError:
            fields = {}
        result = True
        if method == "getMe":
            result = {"id": 1234567, "is_bot": True, "first_name": "Belay", "username": "belay_crash_bot"}
        elif method == "getUpdates":
            result = self.due(int(fields.get("offset") or 0))
        elif method == "sendMessage":
            with self.lock:
                self.sent.append(fields.get("text", ""))
                number = len(self.sent)
            result = {"message_id": number, "date": 1, "chat": {"id": PERSON, "type": "private"}, "text": fields.get("text")}
        elif method == "getMyCommands":
            result = []
        handler.answer({"ok": True, "result": result})

    def due(self, offset):
        """The updates from an offset on, which confirms the earlier ones. Confirmed updates never come again, as at Telegram."""
        deadline = time.monotonic() + 0.3  # a short long poll
        while True:
            with self.lock:
                self.confirmed = max(self.confirmed, offset)
                due = [update for update in self.updates if update["update_id"] >= self.confirmed]
            if due or time.monotonic() > deadline:
                return due
            time.sleep(0.01)
