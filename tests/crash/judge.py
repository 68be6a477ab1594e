"""The verdict about one daemon, from the ledgers of the checker: what clients were promised, what the Bot API, the model and the
tools saw, and which processes live. The daemon's own database is not read."""

import collections
import json
import pathlib
import subprocess
import time

from client import Socket, cursor_of
from work import ENDS

# What is counted, in the order of the table. Each has to be 0.
WRONG = (
    "lost", "twice", "not in the conversation", "without a start", "effects twice", "effects lost", "out of order", "events skipped", "above the cap", "left running", "other"
)
# Honest outcomes, which are counted and reported.
HONEST = ("answered", "ambiguous", "ambiguous in the log alone", "unknown", "given up", "stopped by a drain", "refused by the cap", "not accepted", "starts refused by a lock")


class Verdict:
    def __init__(self):
        self.counts = collections.Counter()
        self.faults = []

    def fault(self, kind, text):
        self.counts[kind] += 1
        self.faults.append(f"{kind}: {text}")

    def judge(self, life):
        """Judges a daemon that runs, after everything has had time to settle."""
        self.orders(life)
        self.effects(life)
        for session in ("one", "two", "socket", "asking", "short", "holding"):
            self.conversation(life, session)
        self.runs(life)
        self.telegram(life)
        self.routines_and_jobs(life)
        self.events(life)
        self.money(life)
        self.leftovers(life)
        for problem in life.model.invalid:
            self.fault("other", f"a request that no provider accepts: {problem}")

    def orders(self, life):
        work = life.work
        for order in work.orders:
            if order.channel == "telegram":
                continue
            if order.run is None:
                if order.key:
                    self.fault("lost", f"{order.id} was never accepted")
                continue
            record, is_ended = work.look(order)
            if not is_ended:
                self.fault("lost", f"{order.id} was accepted and has not ended: {short(record)}")
                continue
            self.end(life, order.id, record)

    def end(self, life, order, record):
        said = " ".join(str(record.get(field)) for field in ("reply", "result", "summary"))
        reason = record.get("reason") or f"{record.get('detail')} {record.get('summary')}"
        if f"done {order}." in said:
            self.counts["answered"] += 1
        elif "restart_limit" in reason or "crashed" in reason or "restarted" in reason:
            self.counts["given up"] += 1
        elif "shutdown" in reason and life.work.drains:
            self.counts["stopped by a drain"] += 1
        elif life.is_poor and ("cost_refused" in reason or "budget" in reason):
            self.counts["refused by the cap"] += 1
        else:
            self.fault("other", f"{order} has ended without its answer: {short(record)}")

    def effects(self, life):
        lines = collections.Counter(life.effects.lines())
        for order in life.work.orders:
            if order.what not in ("effect", "ask", "hold", "job"):
                continue
            shown = life.model.shown.get(order.id, set())
            if lines[order.id] > 1:
                self.fault("effects twice", f"{order.id} has {lines[order.id]} effects; the model was shown {shown}")
            if lines[order.id] == 0 and "ok" in shown:
                self.fault("effects lost", f"{order.id} has no effect, and the model was told of one")
            self.counts["unknown"] += "unknown" in shown

    def conversation(self, life, session):
        """Each message once, each answer at most once and behind its message, and all in the order in which they were accepted."""
        messages = life.work.messages(session)
        asked = [word(message) for message in messages if message["role"] == "user"]
        known = {order.id: order for order in life.work.orders if order.session == session}
        for order, count in collections.Counter(asked).items():
            if count > 1:
                self.fault("twice", f"the message {order} is {count} times in the conversation {session}")
        for order, count in collections.Counter(done(message) for message in messages if message["role"] == "assistant").items():
            if order and count > 1:
                self.fault("twice", f"{order} was answered {count} times in the conversation {session}")
        for order in known.values():
            if order.run is None and order.key is None and order.id not in asked:
                self.counts["not accepted"] += 1  # its client never got an answer to it, and did not ask again
            if order.run and order.id not in asked and not self.ended_early(life, order):
                self.fault("lost", f"{order.id} is not in the conversation {session}")
        sent = [order for order in known if order in asked]
        if [order for order in asked if order in known] != sent:
            self.fault("out of order", f"{session}: sent {sent}, stored {asked}")
        newest = None
        for message in messages:
            if message["role"] == "user":
                newest = word(message)
            elif message["role"] == "assistant" and (order := done(message)) and order != newest:
                self.fault("out of order", f"{session}: the answer to {order} is behind the message {newest}")

    def ended_early(self, life, order):
        """Whether an order ended before its first attempt, so that its message never entered the conversation."""
        record, _ = life.work.look(order)
        return record.get("status") in ("stopped", "failed")

    def runs(self, life):
        """Each completed run has begun at some time. In a conversation of people, its message and its reply are there, unless it
        joined another run or has no reply."""
        people = {"telegram:42" if order.channel == "telegram" else order.session for order in life.work.orders if order.channel not in ("job", "routine")}
        stored = {session: [(message["run_id"], message["role"], message["text"]) for message in life.work.messages(session)] for session in people}
        for run in life.work.completed():
            if run["reason"] == "joined":
                continue
            if run["started_at"] is None:
                self.fault("without a start", short(run))
            if run["session"] not in people or not run["reply"]:
                continue
            own = [(role, text) for run_id, role, text in stored[run["session"]] if run_id == run["run_id"]]
            if "user" not in [role for role, _ in own]:
                self.fault("not in the conversation", f"the message of {short(run)} in {run['session']}")
            if ("assistant", run["reply"]) not in own:
                self.fault("not in the conversation", f"the reply of {short(run)} in {run['session']}")

    def telegram(self, life):
        work, texts = life.work, life.api.texts()
        runs = {word(message): message["run_id"] for message in work.messages("telegram:42") if message["role"] == "user"}
        shown = []
        for order in (order for order in work.orders if order.channel == "telegram"):
            firsts = sum(f"done {order.id}." in text for text in texts)
            lasts = sum(f"end of {order.id}." in text for text in texts)
            if max(firsts, lasts) > 1:
                self.fault("twice", f"{order.id} was shown {max(firsts, lasts)} times on Telegram")
            run = runs.get(order.id)
            record = work.http.request("GET", f"/api/v1/runs/{run}")[1] if run else {}
            whole = firsts and (order.what != "long" or lasts)
            if whole:
                self.counts["answered"] += 1
                shown.append(order.id)
            elif not run:
                self.fault("lost", f"the update {order.id} was confirmed and has no run")
            elif record.get("status") not in ENDS:
                self.fault("lost", f"{order.id} has not ended: {short(record)}")
            elif f"done {order.id}." not in str(record.get("reply")):
                self.end(life, order.id, record)
            elif "ambiguous" in work.delivery_of(run):
                self.counts["ambiguous"] += 1
            elif work.is_ambiguous_by_log(run):
                self.counts["ambiguous in the log alone"] += 1
            else:
                self.fault("lost", f"the reply to {order.id} was not shown: {work.delivery_of(run)} {short(record)}")
        arrived = [order for text in texts if (order := done({"text": text}))]
        if [order for order in arrived if order in shown] != shown and len(set(arrived)) == len(arrived):
            self.fault("out of order", f"Telegram: sent {shown}, shown {arrived}")

    def routines_and_jobs(self, life):
        notices = [message["text"] for message in life.work.messages("jobs") if message["role"] == "system"]
        for order in (order for order in life.work.orders if order.channel == "job" and order.run):
            count = sum(order.run in notice for notice in notices)
            if count > 1:
                self.fault("twice", f"the end of the job {order.id} was reported {count} times")
            record, is_ended = life.work.look(order)
            if count == 0 and is_ended:
                self.fault("lost", f"the end of the job {order.id} was not reported: {short(record)}")
        runs = collections.Counter()
        after = ""
        while True:
            _, page = life.work.http.request("GET", f"/api/v1/routine-runs?limit=500{after}")
            runs.update(run["key"] for run in page["routine_runs"])
            if not page.get("next"):
                break
            after = f"&after={page['next']}"
        for key, count in runs.items():
            if count > 1:
                self.fault("twice", f"the start {key} of a routine made {count} runs")

    def events(self, life):
        """What a reader got that connected again after each crash, against a reader that reads all from the beginning."""
        fresh, work, deadline = [], life.work, time.monotonic() + 60
        _, refusal = work.http.request("GET", f"/api/v1/events?since={2**63 - 1}")
        newest = int(refusal["error"]["message"].rpartition(" ")[2])  # "…; the newest is 35"
        work.http.events("/api/v1/events?since=0", lambda number, data: fresh.append((number, data)) or number < newest)
        while (not life.seen or life.seen[-1][0] < newest) and time.monotonic() < deadline:
            time.sleep(0.01)
        seen = [number for number, _ in life.seen if number <= newest]
        if len(set(seen)) != len(seen) or seen != sorted(seen):
            self.fault("events skipped", "a number came twice or out of order")
        stored, known = dict(fresh), dict(life.seen)
        for number in stored.keys() - known.keys():
            self.fault("events skipped", f"{number} {stored[number][:200]}")
        for number in known.keys() - stored.keys():
            if json.loads(known[number]).get("session") != "deleted":
                self.fault("events skipped", f"{number} was shown and is not stored: {known[number][:200]}")
        for number in known.keys() & stored.keys():
            if known[number] != stored[number]:
                self.fault("events skipped", f"{number} was shown as {known[number][:200]} and is stored as {stored[number][:200]}")
        # The same for the cursors of one session over the WebSocket. One fact may have several events.
        replay, socket = [], Socket(life.daemon.address)
        last = max(work.cursors, default=0)
        if last:
            socket.send("subscribe", "sessions.subscribe", {"sessionKey": "socket", "since": 0})
            while not replay or replay[-1] < last:
                if (cursor := cursor_of(socket.read())) is not None:
                    replay.append(cursor)
            if collections.Counter(replay) != collections.Counter(work.cursors):
                got, has = collections.Counter(work.cursors), collections.Counter(replay)
                self.fault("events skipped", f"WebSocket: missing {dict(has - got)}, more than a replay has {dict(got - has)}")
        socket.close()

    def money(self, life):
        _, status = life.work.http.request("GET", "/api/v1/status")
        with life.model.lock:
            cost = life.model.cost
        if life.day != time.gmtime().tm_yday:
            return  # the budget of another day
        if cost > life.cap_micro_usd:
            self.fault("above the cap", f"the model was paid {cost}, and the cap is {life.cap_micro_usd}")
        if status["spent_today_micro_usd"] < cost:
            self.fault("above the cap", f"the model was paid {cost}, and the daemon counts {status['spent_today_micro_usd']}")

    def leftovers(self, life):
        """No half backup, and the newest whole one can be verified by the program."""
        backups = life.home / "data/belay/backups"
        files = sorted(backups.iterdir()) if backups.exists() else []
        for file in files:
            if file.name.startswith("."):
                self.fault("other", f"a killed backup has left {file.name}")
        whole = [file for file in files if not file.name.startswith(".")]
        if whole:
            verified = subprocess.run([life.daemon.binary, "backup", "verify", str(whole[-1])], env=life.daemon.environment, capture_output=True, text=True)
            if verified.returncode != 0:
                self.fault("other", f"a backup cannot be verified: {verified.stderr.strip()}")
        left = [place.name for place in pathlib.Path(life.home, "data/belay").iterdir() if place.name.startswith(".backup-staging")]
        if left:
            self.fault("other", f"a killed backup has left {left}")


def word(message):
    """The order in a message of a user."""
    return message["text"].partition("[")[2].partition("]")[0].rpartition(" ")[2]


def done(message):
    """The order that an answer is about."""
    head, found, rest = message["text"].partition("done ")
    return rest.partition(".")[0] if found and not head.strip() else None


def short(record):
    fields = ("status", "state", "reason", "evidence", "reply", "result", "summary", "detail", "attempt", "run_id")
    return {field: str(record[field])[:120] for field in fields if record.get(field)}
