"""The figures of a run: the times of each kind of fault, and the sums."""

import collections
import json
import sys
import time

from judge import HONEST, WRONG
from recovery import recoveries

# The sums, in the words of the table. Each has to be 0.
NAMES = {
    "lost": "lost",
    "twice": "answered twice",
    "not in the conversation": "not in the conversation",
    "without a start": "without a start",
    "effects twice": "effects twice",
    "effects lost": "effects lost",
    "out of order": "out of order",
    "events skipped": "events skipped",
    "above the cap": "above the cap",
    "left running": "processes of a fenced node that still live",
    "deadlocks": "deadlocks of the database",
    "other": "other faults",
}
OF_CRASH = ("not accepted", "starts refused by a lock")
HONESTLY = [kind for kind in HONEST if kind not in OF_CRASH] + ["ends of a node without a lease", "starts refused", "faults without a held command"]
# The heads of the columns, and their keys in a row.
COLUMNS = {"fault": "kind", "played": "played", "lasted, p50": "lasted p50 s", "recovery, p50": "p50 s", "p99": "p99 s", "conversations": "measured", "longest wait": "longest wait s"}
MEANING = "recovery: seconds from the moment of the fault to the first answer of each conversation that it affected"


class Ledger:
    def __init__(self, faults, form):
        assert set(NAMES) == {*WRONG, "deadlocks"}
        self.planned, self.form, self.begun = faults, form, time.monotonic()
        self.lasted, self.waits, self.played = collections.defaultdict(list), collections.defaultdict(list), 0
        # Kinds that cannot be played here, with the reason; what was hit: kind, moment, node, end of the fault.
        self.unplayed, self.hits = {}, []
        self.faults = []

    def lines(self, fleet):
        """All that the clients and the doubles saw, by time, to look into a fault."""
        seen = list(self.faults)
        for order in fleet.work.orders:
            seen.append((order.sent_at, f"{order.id} is sent to {order.channel}/{order.session}"))
            if order.ended_at:
                seen.append((order.ended_at, f"{order.id} was seen to have ended: run {order.run}"))
        seen.extend((at, f"node {node} shows {text!r}") for at, node, text in fleet.api.shown_by)
        now, wall = time.monotonic(), time.time()
        return [f"{time.strftime('%H:%M:%S', time.gmtime(wall - now + at))}.{int((wall - now + at) % 1 * 1000):03} {text}" for at, text in sorted(seen)]

    def note(self, kind, target, begun, ended, hits, waits, faults):
        """Notes a fault: its time, what it hit and when, the longest wait of each conversation, and what was found during it."""
        self.played, lasted = self.played + 1, ended - begun
        self.faults.append((ended, f"{kind} of {target} has ended, after {lasted:.1f} s"))
        if target.startswith("none: "):
            self.unplayed[kind] = target.removeprefix("none: ")
        else:
            self.lasted[kind].append(lasted)
            self.waits[kind].extend(waits)
            self.hits.extend((kind, moment, node, ended) for moment, node in hits)
        longest = f"{max(waits):.1f} s" if waits else "-"
        print(f"{self.played} of {self.planned}: {kind} of {target}, took {lasted:.1f} s, longest wait {longest}", file=sys.stderr, flush=True)
        for fault in faults:
            print(f"  {fault}", file=sys.stderr, flush=True)

    def end(self, fleet, verdict):
        """Prints the ledger. Returns the exit status."""
        figures = self.figures(fleet, verdict)
        if self.form == "json":
            print(json.dumps(figures, indent=1))
        else:
            print("\n".join(markdown(figures) if self.form == "markdown" else table(figures)))
            for fault in verdict.faults:
                print(f"  {fault}", file=sys.stderr)
        return 1 if any(figures["wrong"].values()) else 0

    def figures(self, fleet, verdict):
        times = recoveries(fleet, self.hits)
        kinds = {kind: self.row(kind, sorted(times.get(kind, []))) for kind in sorted(self.lasted)}
        return {
            "kinds": kinds,
            "not played": self.unplayed,
            "nodes": len(fleet.nodes),
            "faults": sum(row["played"] for row in kinds.values()),
            "orders": len(fleet.work.orders),
            "seconds": round(time.monotonic() - self.begun),
            "wrong": {NAMES[kind]: verdict.counts[kind] for kind in NAMES},
            "honest": {kind: verdict.counts[kind] for kind in HONESTLY},
            "found": verdict.faults,
        }

    def row(self, kind, times):
        recovery = {"p50 s": share(times, 50), "p99 s": share(times, 99), "measured": len(times)}
        waits = {"longest wait s": max(self.waits[kind], default=None)}
        return {"played": len(self.lasted[kind]), "lasted p50 s": share(sorted(self.lasted[kind]), 50), **recovery, **waits}


def table(figures):
    """The figures in lines for a terminal."""
    widths = [max(20, len(head)) if head == "fault" else len(head) + 2 for head in COLUMNS]
    lines = ["".join(f"{head:{width}}" if head == "fault" else f"{head:>{width}}" for head, width in zip(COLUMNS, widths))]
    for row in cells(figures):
        lines.append("".join(f"{cell:{width}}" if not at else f"{cell:>{width}}" for at, (cell, width) in enumerate(zip(row, widths))))
    return [*lines, MEANING, *sums(figures)]


def markdown(figures):
    """The figures as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * (len(COLUMNS) - 1)]
    lines.extend("| " + " | ".join([f"`{kind}`", *rest]) + " |" for kind, *rest in cells(figures))
    return [*lines, "", f"All times in seconds; {MEANING}.", *("\n" + line + "." for line in sums(figures))]


def cells(figures):
    for kind, row in figures["kinds"].items():
        yield [cell({"kind": kind, **row}[key]) for key in COLUMNS.values()]


def sums(figures):
    count, nodes = figures["faults"], figures["nodes"]
    yield f"{count} {'faults' if count != 1 else 'fault'}, {nodes} {'nodes' if nodes != 1 else 'node'}, {figures['orders']} orders, {figures['seconds']} s"
    if figures["not played"]:
        yield "not played: " + ", ".join(f"{kind} ({reason})" for kind, reason in figures["not played"].items())
    for group in ("honest", "wrong"):
        yield ", ".join(f"{count} {kind}" for kind, count in figures[group].items())


def share(times, percent):
    """The smallest time that `percent` of these sorted times do not exceed, in seconds; None: there is none."""
    return round(times[max(0, -(-len(times) * percent // 100) - 1)], 2) if times else None


def cell(value):
    if isinstance(value, float):
        return f"{value:.2f}" if value < 10 else f"{value:.1f}"
    return "–" if value is None else str(value)
