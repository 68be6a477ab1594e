"""The model, the Bot API and the effects of a cluster: those of tests/crash, which here know the node that a request comes from."""

import json
import random
import threading
import time

from daemon import Effects
from doubles import BotApi, Model

# Seconds that the model thinks, at least and at most: so that faults meet runs in the middle of a model call.
THINKS_S = (0.02, 0.4)
# Seconds of a command that holds its run, at most: longer than any fault and the look at what is left of it. The fault releases it.
HOLDS_S = 90


class ClusterEffects(Effects):
    """The ledger of effects in the shared workspace. Each command names its order and its node."""

    def __init__(self, home):
        self.name, self.node = f"effects-{home.name}", threading.local()
        self.file = home / "workspace" / self.name
        self.file.parent.mkdir(parents=True)

    def command(self, order, what):
        after = {"hold": f"; for n in $(seq {5 * HOLDS_S}); do [ -e {self.released(order)} ] && break; sleep 0.2; done", "effect": "; sleep 0.2"}.get(what, "")
        return f"echo {order} >> {self.name} && sync {self.name}{after}; echo written # {what} {order} node={self.node.name} "

    def released(self, order):
        """The name of the file that ends a command that holds its run."""
        return f"released-{order}"

    def release(self, order):
        (self.file.parent / self.released(order)).touch()

    def of_node(self, node, before=None):
        """The processes of commands of a node that are alive, and that were started before this clock tick: their ids and orders."""
        return [(pid, text) for pid, at, text in self.processes() if f" node={node} " in text and (before is None or at < before)]


class ClusterModel(Model):
    def __init__(self, effects, seed):
        self.random = random.Random(seed)
        # When each answer was given, to which node, and its order.
        self.calls = []
        super().__init__(effects)

    def post(self, handler):
        self.effects.node.name = handler.path.split("/")[1]
        time.sleep(self.random.uniform(*THINKS_S))
        super().post(handler)

    def decide(self, messages):
        kind, order, delta = super().decide(messages)
        self.calls.append((time.monotonic(), self.effects.node.name, order))
        return kind, order, delta


class ClusterBotApi(BotApi):
    """A poll ends the poll of another client with 409, as at Telegram: "terminated by other getUpdates request"."""

    def __init__(self):
        self.newest, self.conflicts = 0, 0
        # When each text was shown, and the node that sent it; when another node began to poll, and that node.
        self.shown_by, self.polled_by = [], []
        super().__init__()

    def post(self, handler):
        if handler.path.split("?")[0].rsplit("/", 1)[-1] == "getUpdates":
            with self.lock:
                self.newest += 1
                handler.poll, node = self.newest, handler.path.split("/")[1]
                if not self.polled_by or self.polled_by[-1][1] != node:
                    self.polled_by.append((time.monotonic(), node))
            self.poll(handler)
        else:
            sent = len(self.sent)
            super().post(handler)
            if len(self.sent) > sent:
                self.shown_by.append((time.monotonic(), handler.path.split("/")[1], self.sent[-1][:20]))

    def poll(self, handler):
        fields = json.loads(handler.body() or b"{}")
        offset, deadline = int(fields.get("offset") or 0), time.monotonic() + 0.5
        while True:
            with self.lock:
                if self.newest != handler.poll:
                    self.conflicts += 1
                    break
                self.confirmed = max(self.confirmed, offset)
                due = [update for update in self.updates if update["update_id"] >= self.confirmed]
            if due or time.monotonic() > deadline:
                handler.answer({"ok": True, "result": due})
                return
            time.sleep(0.01)
        data = b'{"ok":false,"error_code":409,"description":"Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"}'
        handler.send_response(409)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

