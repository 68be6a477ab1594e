"""What people and programs do with a daemon while it may die at any moment, and what they were promised."""

import itertools
import json
import signal
import time
import uuid

from client import Gone, Http, Subscriber, quoted

ENDS = ("completed", "stopped", "failed")


class Order:
    """A piece of work. `run` is the id of its run, job or routine run, once that was promised."""

    def __init__(self, number, what, channel, session, key):
        self.id, self.what, self.channel, self.session, self.key = f"{what[0]}{channel[0]}{number}", what, channel, session, key
        self.text = f"[{what} {self.id}] please"
        self.run = None
        self.kills = 0
        self.is_ended = False


class Work:
    """The clients of one daemon. A client repeats a request under the same key until it has an answer, as a client should."""

    def __init__(self, model, api, daemon, seen, random):
        self.model, self.api, self.daemon, self.seen, self.random = model, api, daemon, seen, random
        self.orders, self.unsent = [], []
        self.http, self.subscriber = None, None
        self.cursors, self.numbers = [], itertools.count(1)
        self.deleted, self.undeleted = 0, None
        self.drains = 0

    def connect(self, address):
        """Connects to a new start, and sends again what had no answer."""
        self.http = Http(address)
        self.subscriber = Subscriber(address, "socket", self.cursors)
        self.subscriber.start()
        while self.unsent:
            self.deliver(self.unsent[0])
            self.unsent.pop(0)
        if self.undeleted:
            self.remove()

    def disconnect(self):
        if self.subscriber:
            self.subscriber.socket.close()
            self.subscriber.join()
            self.subscriber = None

    def new(self, what, channel, session, keyed=True):
        number = next(self.numbers)
        order = Order(number, what, channel, session, f"key-{number}" if keyed else None)
        self.orders.append(order)
        return order

    def send(self, order):
        try:
            self.deliver(order)
        except Gone:
            if order.key:
                self.unsent.append(order)
            raise

    def deliver(self, order):
        if order.channel == "socket":
            params = {"message": order.text, "sessionKey": order.session, "idempotencyKey": order.key}
            answer = self.subscriber.call(f"{order.key}-{time.monotonic()}", "agent", params)
            order.run = (answer.get("payload") or {}).get("runId") if answer["ok"] else None
        elif order.channel == "job":
            order.run = order.key
            status, answer = self.http.request("POST", "/api/v1/jobs", {"task": order.text, "job_id": order.key, "session": order.session})
            check(status, (202,), answer)
        elif order.channel == "routine":
            body = {"payload": order.text, "idempotency_key": order.key}
            for _ in range(200):
                status, answer = self.http.request("POST", "/api/v1/routines/crash/fire", body)
                if status != 429:
                    break
                time.sleep(0.05)  # the routine has as many runs as it may have
            check(status, (202,), answer)
            order.run = routine_run_of(answer)
        else:
            body = {"session": order.session, "text": order.text}
            if order.key:
                body["idempotency_key"] = order.key
            status, answer = self.http.request("POST", "/api/v1/messages", body)
            check(status, (200, 202), answer)
            order.run = answer.get("run_id")

    # What passes the points.

    def say(self):
        self.send(self.new("say", "http", self.random.choice(["one", "two"]), keyed=self.random.random() < 0.8))

    def queue(self):
        for _ in range(3):
            self.send(self.new("say", "http", "one"))

    def effect(self):
        self.send(self.new("effect", self.random.choice(["http", "socket"]), "socket"))

    def socket(self):
        self.send(self.new("say", "socket", "socket"))

    def ask(self):
        order = self.new("ask", "http", "asking")
        self.send(order)
        self.answer(order)

    def telegram(self):
        self.type("say")

    def long(self):
        self.type("long")

    def type(self, what):
        order = self.new(what, "telegram", "telegram")
        self.api.say(int(order.id[2:]), order.text)

    def routine(self):
        self.send(self.new("say", "routine", "routine"))

    def job(self):
        order = self.new("job", "job", "jobs")
        order.key = str(uuid.UUID(int=self.random.getrandbits(128), version=4))
        self.send(order)

    def drain(self, daemon):
        self.drains += 1
        self.telegram()
        self.send(self.new("say", "http", "one"))
        self.send(self.new(self.random.choice(["hold", "effect"]), "http", "holding"))
        time.sleep(self.random.random() * 0.2)  # so that the shutdown comes at different moments of the work
        daemon.signal(signal.SIGTERM)

    def compact(self):
        for _ in range(2):
            order = self.new("say", "http", "short")
            self.send(order)
            self.wait(order)
        status, answer = self.http.request("POST", "/api/v1/messages", {"session": "short", "text": "/compact"})
        check(status, (200,), answer)

    def delete(self):
        status, answer = self.http.request("POST", "/api/v1/messages", {"session": "deleted", "text": "[say xx0] please", "wait_ms": 10000})
        check(status, (200, 202), answer)
        self.undeleted = "deleted"
        self.remove()

    def remove(self):
        for _ in range(200):
            status, answer = self.http.request("DELETE", f"/api/v1/sessions/{self.undeleted}")
            if status in (200, 404):
                self.undeleted, self.deleted = None, self.deleted + 1
                return
            time.sleep(0.05)  # a message of it is still being answered
        raise RuntimeError(f"the session cannot be deleted: {status} {answer}")

    def backup(self):
        status, answer = self.http.request("POST", "/api/v1/backups", {})
        check(status, (200, 201), answer)

    # Waiting for what was promised.

    def answer(self, order):
        """Approves the call of an order as soon as it is asked for."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            run = self.run(order)
            if run["status"] in ENDS:
                return
            if run["status"] == "paused":
                if "waiting_for" not in run:
                    self.incomplete(run)
                    continue
                approval = run["waiting_for"]["approval"]
                status, answer = self.http.request("POST", f"/api/v1/approvals/{approval}", {"decision": "approve"})
                check(status, (200, 404, 409), answer)
                if status == 200:
                    return
            time.sleep(0.01)

    def incomplete(self, run):
        """A paused run without its question."""
        raise RuntimeError(f"a paused run does not say what it waits for: {run}")

    def run(self, order, timeout_ms=2000):
        status, run = self.http.request("GET", f"/api/v1/runs/{order.run}/wait?timeout_ms={timeout_ms}")
        check(status, (200,), run)
        return run

    def open(self):
        return [order for order in self.orders if not order.is_ended and order.run]

    def wait(self, order, deadline=None):
        """Waits for the end of an order. Returns its record, or None at the deadline."""
        deadline = deadline or time.monotonic() + 120
        while time.monotonic() < deadline:
            record, is_ended = self.look(order)
            if is_ended:
                order.is_ended = True
                return record
            if order.what == "ask" and record["status"] == "paused":
                self.answer(order)
            time.sleep(0.01)
        return None

    def look(self, order):
        """The record of an order, and whether it has ended."""
        if order.channel == "job":
            status, job = self.http.request("GET", f"/api/v1/jobs/{order.run}")
            check(status, (200,), job)
            return job, job["state"] in ("submitted", "accepted", "failed", "cancelled")
        if order.channel == "routine":
            status, run = self.http.request("GET", f"/api/v1/routine-runs/{order.run}")
            check(status, (200,), run)
            return run, run["ended_at"] is not None
        run = self.run(order)
        if run["reason"] == "joined" and run["evidence"]["mode"] == "duplicate":
            order.run = run["evidence"]["run"]  # the first attempt was accepted too, by another node
            run = self.run(order)
        return run, run["status"] in ENDS

    def settle(self, seconds):
        """Waits until everything that was promised has ended, and every reply was sent or given up. Returns whether that came:
        it has not if so many seconds bring no further end. Raises Gone."""
        done = all(self.wait(order, time.monotonic() + seconds) is not None for order in self.open())
        return done and self.replies_settled(seconds)

    def replies_settled(self, seconds):
        typed = [order for order in self.orders if order.channel == "telegram" and not order.is_ended]
        for order in typed:
            number, deadline = int(order.id[2:]), time.monotonic() + seconds
            while not order.is_ended:
                if self.daemon.is_dead():
                    raise Gone("the daemon is dead")
                texts = self.api.texts()
                shown = any(f"done {order.id}." in text for text in texts)
                if shown and self.api.confirmed > number:
                    order.is_ended = True
                elif time.monotonic() > deadline:
                    return False
                elif self.api.confirmed > number and self.has_no_reply(order):
                    order.is_ended = True
                else:
                    time.sleep(0.01)
        return True

    def has_no_reply(self, order):
        """Whether the run of an update has ended without its answer, or nobody can know whether the answer was shown."""
        run = self.run_of_update(order)
        record = self.http.request("GET", f"/api/v1/runs/{run}")[1] if run else {}
        if record.get("status") not in ENDS:
            return False
        return f"done {order.id}." not in str(record["reply"]) or ("ambiguous" in self.delivery_of(run) or self.is_ambiguous_by_log(run))

    def is_ambiguous_by_log(self, run):
        """Whether the log says that a start has found the reply of a run between its mark and its result."""
        return any(run in line and "may or may not have been delivered" in line for line in list(self.daemon.log))

    def run_of_update(self, order):
        for message in self.messages(f"telegram:42"):
            if message["role"] == "user" and order.id in message["text"]:
                return message["run_id"]
        return None

    def delivery_of(self, run):
        """The outcomes of the deliveries of a run, as the reader of all events has them: they come after the end of the run."""
        facts = [data for _, data in list(self.seen) if run in data and '"type":"delivered"' in data]
        return [json.loads(data)["outcome"] for data in facts]

    def messages(self, session):
        """All messages of a session, oldest first."""
        return self.pages(f"/api/v1/sessions/{quoted(session)}/messages?limit=200", "messages")

    def completed(self):
        """All completed runs, newest first."""
        return self.pages("/api/v1/runs?status=completed&limit=500", "runs")

    def pages(self, path, name):
        """All entries of a list; none if nothing is there."""
        found, after = [], ""
        while True:
            status, page = self.http.request("GET", path + after)
            if status == 404:
                return found
            check(status, (200,), page)
            found.extend(page[name])
            if page.get("next") is None:
                return found
            after = f"&after={page['next']}"


def routine_run_of(answer):
    """The id of the routine run in the answer to a start by hand."""
    return answer["routine_run_id"]


def check(status, wanted, answer):
    if status not in wanted:
        if status == 503:
            raise Gone(f"{status} {answer}")  # the daemon drains
        raise RuntimeError(f"{status} {answer}")
