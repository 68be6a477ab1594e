"""Clients of several nodes. Each request goes to the next node, and to another one if a node does not answer."""

import itertools
import random
import threading
import time

from client import Gone, Http, Subscriber
from work import Work

# How long one node may take for an answer before the client asks another one, in seconds.
ANSWER_S = 10
# How long a client tries all nodes before it reports a failure, in seconds.
PATIENCE = 180
# What an answer that a client does not expect raises here, and how many of them an order may get before its client gives it up.
UNEXPECTED = (RuntimeError, KeyError, TypeError, AttributeError, ValueError, IndexError)
PROBLEMS = 5
# The events that report the end of a run, a job or a routine run, among others.
ENDINGS = ("run_ended", "job_changed", "routine_run_ended")


class RoundRobin:
    """Requests to all nodes in turn. All requests of the clients have keys or only read, so that they can be repeated anywhere."""

    def __init__(self, nodes):
        self.nodes, self.turn, self.retries = nodes, itertools.count(), itertools.count()

    def order(self):
        at = next(self.turn) % len(self.nodes)
        return [*self.nodes[at:], *self.nodes[:at]]

    def request(self, method, path, body=None):
        deadline, answer = time.monotonic() + PATIENCE, None
        while time.monotonic() < deadline:
            for node in self.order():
                if not node.is_ready():
                    continue
                try:
                    status, answer = Http(node.address).request(method, path, body, timeout=ANSWER_S)
                except Gone:
                    continue
                if not is_temporary(status, answer):
                    return status, answer
                next(self.retries)
            time.sleep(0.05)
        raise Gone(f"no node answers {method} {path}: {answer}")

    def events(self, path, seen):
        """All events to the end, from any node."""
        Http(self.ready().address).events(path, seen)

    def ready(self):
        """The next node that is ready, after a wait if there is none. Raises Gone."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            for node in self.order():
                if node.is_ready():
                    return node
            time.sleep(0.05)
        raise Gone("no node is ready")


def is_temporary(status, answer):
    error = answer.get("error") if isinstance(answer, dict) else None
    return status == 503 or (status >= 500 and isinstance(error, dict) and bool(error.get("retryable")))


class Reader(threading.Thread):
    """Follows all events, and connects to the next node after an end: the last seen number goes with it."""

    def __init__(self, robin, seen):
        super().__init__(daemon=True)
        self.robin, self.seen, self.closing = robin, seen, threading.Event()
        # When each event arrived that may be the end of an order, and the event.
        self.ends = []

    def run(self):
        while not self.closing.is_set():
            last = self.seen[-1][0] if self.seen else 0
            for node in self.robin.order():
                if node.is_ready():
                    Http(node.address).events(f"/api/v1/events?since={last}", self.note, timeout=ANSWER_S)
                    break
            self.closing.wait(0.05)

    def note(self, number, data):
        self.seen.append((number, data))
        if any(f'"type":"{kind}"' in data for kind in ENDINGS):
            self.ends.append((time.monotonic(), data))
        return not self.closing.is_set()


class Speaker:
    """A WebSocket client of one session. After an end it connects to the next node, from the last cursor on."""

    def __init__(self, robin, session, cursors):
        self.robin, self.session, self.cursors = robin, session, cursors
        self.subscriber, self.numbers = None, itertools.count()

    def call(self, method, params):
        deadline, answer = time.monotonic() + PATIENCE, None
        while time.monotonic() < deadline:
            try:
                if self.subscriber is None or not self.subscriber.is_alive():
                    self.connect()
                answer = self.subscriber.call(f"call-{next(self.numbers)}", method, params)
                if answer["ok"] or not answer["error"].get("retryable"):
                    return answer
            except Gone:
                self.close()
            time.sleep(0.05)
        raise Gone(f"no node answers {method}: {answer}")

    def connect(self):
        self.close()
        self.subscriber = Subscriber(self.robin.ready().address, self.session, self.cursors, timeout=ANSWER_S)
        self.subscriber.start()
        answer = self.subscriber.answered("subscribe")
        if not answer or not answer["ok"]:
            raise Gone(f"no subscription: {answer}")

    def close(self):
        if self.subscriber:
            self.subscriber.socket.close()
            self.subscriber.join()
            self.subscriber = None


class Load(Work):
    """The orders of all clients, and when each was sent and was seen to have ended."""

    def __init__(self, model, api, fleet, seen, seed):
        super().__init__(model, api, fleet, seen, random.Random(seed))
        self.http = RoundRobin(fleet.nodes)
        self.speaker = Speaker(self.http, "socket", self.cursors)
        self.closing, self.lock, self.problems = threading.Event(), threading.Lock(), []
        # Whether the verdict looks. Before it, a run that no node knows is a problem; then it is a lost one.
        self.is_judged = False

    def begin(self, what, channel, session):
        """A new order, sent now."""
        with self.lock:
            order = self.new(what, channel, session)
            if channel == "job":
                order.key = f"00000000-0000-4000-8000-{self.random.getrandbits(48):012x}"
            order.sent_at, order.ended_at = time.monotonic(), None
        return order

    def deliver(self, order):
        """Sends an order until it was accepted. Raises Gone."""
        if order.channel == "telegram":
            self.api.say(int(order.id[2:]), order.text)
        elif order.channel == "socket":
            params = {"message": order.text, "sessionKey": order.session, "idempotencyKey": order.key}
            answer = self.speaker.call("agent", params)
            order.run = (answer.get("payload") or {}).get("runId") if answer["ok"] else None
            if order.run is None:
                self.problems.append(f"{order.id} was refused: {answer}")
        else:
            super().deliver(order)

    def look(self, order):
        if order.channel != "telegram":
            try:
                return super().look(order)
            except RuntimeError as error:
                if not self.is_judged:
                    raise
                return {"reason": str(error)}, False
        if any(f"done {order.id}." in text for text in self.api.texts()):
            return {"status": "completed"}, True
        if self.api.confirmed <= int(order.id[2:]) or time.monotonic() < order.sent_at + 5:
            return {"status": "queued"}, False
        return {"status": "queued"}, self.has_no_reply(order)

    def incomplete(self, run):
        """Is a fault, and is asked again."""
        self.problem(f"a paused run does not say what it waits for: {run['run_id']}")
        time.sleep(0.1)

    def problem(self, text):
        """Notes a problem, once."""
        if text not in self.problems:
            self.problems.append(text)

    def finish(self, order):
        """Waits for the end of an order, as long as the load runs and settles. An answer that a client does not expect is a fault."""
        problems = 0
        while not order.is_ended and not self.closing.is_set():
            if (order.run is None and order.channel != "telegram") or problems == PROBLEMS:
                order.is_ended = True  # it was refused, or cannot be followed, which is a problem of its own
                return
            try:
                self.wait(order, time.monotonic() + 2)
            except UNEXPECTED as error:
                problems += 1
                self.problem(f"the look at {order.id}: {error!r}")
                time.sleep(1)
        order.ended_at = order.ended_at or time.monotonic()

    def open_since(self, moment):
        """The orders that were sent before this moment, and that have not ended."""
        return [order for order in list(self.orders) if order.sent_at <= moment and not order.is_ended]


class Talker(threading.Thread):
    """One conversation: sends orders in their order, and waits for the oldest one when so many are open as it allows itself."""

    def __init__(self, load, channel, session, mix, pause_s, depth=3):
        super().__init__(daemon=True)
        self.load, self.channel, self.session, self.mix, self.pause_s, self.depth = load, channel, session, mix, pause_s, depth
        self.random, self.stopping, self.orders = random.Random(f"{session}-{load.random.random()}"), threading.Event(), []

    def run(self):
        pending = []
        while not self.stopping.is_set() and not self.load.closing.is_set():
            self.guarded(lambda: pending.append(self.speak()))
            allowed = self.random.randint(0, self.depth - 1)
            while len(pending) > allowed:
                self.guarded(lambda: self.load.finish(pending[0]))
                pending.pop(0)
            self.stopping.wait(self.random.uniform(0, 2 * self.pause_s))
        for order in pending:
            self.guarded(lambda order=order: self.load.finish(order))

    def speak(self):
        order = self.load.begin(self.random.choice(self.mix), self.channel, self.session)
        self.orders.append(order)
        while not self.load.closing.is_set():
            try:
                self.load.deliver(order)
                break
            except Gone:
                continue  # the next message of this conversation may not overtake this one
        return order

    def guarded(self, action):
        guarded(self.load, f"{self.channel} {self.session}", action)

    def waits(self, begin, end):
        """The longest time that a message of this conversation waited for its end between two moments; None: no message was sent."""
        ends = [(order.sent_at, order.ended_at or time.monotonic()) for order in list(self.orders)]
        times = [ended - max(sent, begin) for sent, ended in ends if ended > begin and sent < end]
        return max(times, default=None)


class Waiter(threading.Thread):
    """Waits for the end of one order."""

    def __init__(self, load, order):
        super().__init__(daemon=True)
        self.load, self.order = load, order

    def run(self):
        guarded(self.load, self.order.session, lambda: self.load.finish(self.order))


def guarded(load, name, action):
    """An answer that a client does not expect is a fault, and does not end the client."""
    try:
        action()
    except Gone:
        pass
    except UNEXPECTED as error:
        load.problems.append(f"{name}: {error!r}")
