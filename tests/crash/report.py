"""The figures of all daemons, their table, and the file from which an interrupted run continues."""

import collections
import json
import sys
import time

import falsify
from judge import HONEST, WRONG
from points import POINTS


# Seconds between two lines of progress where no person watches.
LINE_EVERY_S = 30


class Remote:
    """What one life reports, sent to the process that prints. `life` is its seed."""

    def __init__(self, pipe, life):
        self.pipe, self.life = pipe, life
        self.pending = None

    def send(self, **message):
        self.pipe.send({"life": self.life, **message})

    def recovered(self, point, ready, first_call):
        """A start after a death is ready. The time of its first model call is known when it has died or settled."""
        self.pending = (point, ready, first_call)

    def killed(self, point, passage, reached):
        self.flush()
        self.send(killed=point, passage=passage, reached=reached)

    def flush(self):
        if self.pending:
            point, ready, first_call = self.pending
            self.send(recovered=point, ready=ready, first_call=first_call())
            self.pending = None

    def judged(self, verdict):
        self.flush()
        self.send(counts=dict(verdict.counts), faults=verdict.faults)


class Journal:
    """A file with the messages of each life that was judged, one life a line. `earlier` are those of this seed. Without a
    file it keeps nothing."""

    def __init__(self, path, seed):
        self.path, self.messages, self.earlier = path, collections.defaultdict(list), {}
        if path and path.exists():
            for line in path.read_text().splitlines():
                messages = json.loads(line)
                if messages[0]["life"].startswith(f"{seed}-"):
                    self.earlier[messages[0]["life"]] = messages

    def keep(self, message):
        """Keeps a message. Returns all messages of its life, once that was judged."""
        self.messages[message["life"]].append(message)
        if "counts" not in message:
            return []
        messages = self.messages.pop(message["life"])
        if self.path:
            with open(self.path, "a") as file:
                file.write(json.dumps(messages) + "\n")
        return messages


class Report:
    def __init__(self, kills, as_json, journal, is_falsified=False):
        self.is_falsified = is_falsified
        self.kills, self.as_json, self.journal = kills, as_json, journal
        self.begun, self.kills_before = time.monotonic(), 0
        self.reached, self.missed = collections.Counter(), collections.Counter()
        self.ready, self.first = collections.defaultdict(list), collections.defaultdict(list)
        self.counts, self.faults, self.lives = collections.Counter(), [], 0
        self.shown_at = self.begun
        for messages in journal.earlier.values():
            for message in messages:
                self.add(message)
        self.kills_before = self.kills_done()

    def kills_done(self):
        return self.reached.total() + self.missed.total()

    def take(self, message):
        """Takes what a life reports. The kills of a life count once it was judged."""
        for message in self.journal.keep(message):
            self.add(message)
        self.progress()

    def add(self, message):
        if "killed" in message:
            (self.reached if message["reached"] else self.missed)[message["killed"]] += 1
        elif "recovered" in message:
            self.ready[message["recovered"]].append(message["ready"])
            if message["first_call"]:
                self.first[message["recovered"]].append(message["first_call"])
        else:
            self.lives += 1
            self.counts.update(message["counts"])
            for fault in message["faults"]:
                self.faults.append(f"{message['life']}: {fault}")
                print(f"  {self.faults[-1]}", file=sys.stderr, flush=True)

    def broken(self):
        self.faults.append("a process of the checker ended early")
        self.counts["other"] += 1

    def progress(self):
        """The kills so far, their rate, and the ledger: on one line for a person, else on a new line now and then."""
        is_watched, now = sys.stderr.isatty(), time.monotonic()
        if now - self.shown_at < (0.5 if is_watched else LINE_EVERY_S):
            return
        self.shown_at, done = now, self.kills_done()
        rate = 60 * (done - self.kills_before) / (now - self.begun)
        left = f", {(self.kills - done) / rate:.0f} minutes left" if rate and done < self.kills else ""
        found = ", ".join(f"{self.counts[kind]} {kind}" for kind in WRONG if self.counts[kind]) or "no fault"
        line = f"{done} of {self.kills} kills, {rate:.0f} per minute{left}; {self.lives} daemons judged: {found}"
        print(f"\r\033[K{line}" if is_watched else line, end="" if is_watched else "\n", file=sys.stderr, flush=True)

    def end(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        if self.is_falsified:
            self.proofs()
        wrong = {kind: self.counts[kind] for kind in WRONG}
        if self.as_json:
            print(json.dumps(self.figures(wrong), indent=1))
        else:
            self.table(wrong)
        if (unreached := self.unreached()) and not self.as_json:
            print(f"MISSED: no kill at {', '.join(unreached)}: the work of these points does not pass them")
        if (left := self.kills - self.kills_done()) > 0 and not self.as_json:
            print(f"{left} kills are left" + (f"; the same command continues from {self.journal.path}" if self.journal.path else ""))
        return 1 if any(wrong.values()) or unreached else 0

    def proofs(self):
        """A count that reported no falsified ledger of any daemon proves nothing."""
        for kind in (kind for kind in WRONG if kind != "other" and not self.counts[f"{falsify.SEEN}{kind}"]):
            self.faults.append(f"no daemon had a ledger that could be falsified for: {kind}")
            self.counts["other"] += 1
            print(f"  {self.faults[-1]}", file=sys.stderr, flush=True)

    def unreached(self):
        """The points that were tried, and at which no daemon died."""
        return [point for point in POINTS if self.missed[point] and not self.reached[point]]

    def figures(self, wrong):
        points = {point: {"kills": self.reached[point], "not passed": self.missed[point], **self.times(point)} for point in [*POINTS, "outside"]}
        sums = {"at points": self.reached.total(), "outside": self.missed.total(), "seconds": round(time.monotonic() - self.begun, 1)}
        return {"points": points, **sums, "wrong": wrong, "honest": {kind: self.counts[kind] for kind in HONEST}, "faults": self.faults}

    def times(self, *points):
        ready = sorted(time for point in points for time in self.ready[point])
        first = sorted(time for point in points for time in self.first[point])
        figures = {"ready": (ready, 50, 99), "first call": (first, 50, 99)}
        return {f"{name} p{share} ms": milliseconds(times, share) for name, (times, *shares) in figures.items() for share in shares}

    def table(self, wrong):
        print(f"{'killed at':32}{'kills':>7}{'not passed':>12}{'ready p50':>11}{'p99':>8}{'first call p50':>16}{'p99':>8}   (ms from the next start on)")
        for point in [*POINTS, "outside"]:
            if self.reached[point] or self.missed[point] or self.ready[point]:
                self.row(point, self.reached[point], self.missed[point], self.times(point))
        self.row("all", self.reached.total(), self.missed.total(), self.times(*POINTS, "outside"))
        seconds = time.monotonic() - self.begun
        print(f"{self.reached.total()} kills at points and {self.missed.total()} from outside, {self.lives} daemons, {seconds:.0f} s")
        print(", ".join(f"{self.counts[kind]} {kind}" for kind in HONEST))
        print(", ".join(f"{count} {kind}" for kind, count in wrong.items()))

    def row(self, name, kills, missed, times):
        cells = ["-" if value is None else f"{value:.0f}" for value in times.values()]
        print(f"{name:32}{kills:>7}{missed or '':>12}{cells[0]:>11}{cells[1]:>8}{cells[2]:>16}{cells[3]:>8}")


def milliseconds(times, share):
    """The smallest time that `share` percent of these sorted times do not exceed."""
    if not times:
        return None
    return 1000 * times[max(0, -(-len(times) * share // 100) - 1)]
