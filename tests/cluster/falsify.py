"""Falsifies the records of the checker, one after the other, to see that the verdict reports it. Each is put back.

A checker that reads nothing finds nothing. So this asks of each count whether it can differ from 0.
"""

import subprocess
import time

from faults import Faults
from verdict import ClusterVerdict


def unseen(fleet):
    """The counts that do not report what was falsified for them. The conversations have to be those of fleet.py, not that of a round robin."""
    kinds = dict(KINDS)
    if fleet.day != time.gmtime().tm_yday:
        del kinds["above the cap"]  # the verdict leaves money out if the day has changed
    return [kind for kind, falsify in kinds.items() if not falsify(fleet)[kind]]


def judged(judge):
    verdict = ClusterVerdict()
    judge(verdict)
    return verdict.counts


def on_telegram(fleet, change):
    """What the verdict says if other texts were shown on Telegram."""
    texts = fleet.api.texts()
    answers = [at for at, text in enumerate(texts) if text.startswith("done ") and "[" not in text]
    with fleet.api.lock:
        fleet.api.sent[:] = change(texts, answers[0], answers[-1])
    try:
        return judged(lambda verdict: verdict.telegram(fleet))
    finally:
        with fleet.api.lock:
            fleet.api.sent[:] = texts


def lost(fleet):
    return on_telegram(fleet, lambda *_: [])


def twice(fleet):
    return on_telegram(fleet, lambda texts, _, last: [*texts, texts[last]])


def out_of_order(fleet):
    return on_telegram(fleet, lambda texts, first, last: [*texts[:first], texts[last], *texts[first + 1 : last], texts[first], *texts[last + 1 :]])


def with_effects(fleet, change):
    before = fleet.effects.file.read_text()
    order = next(order.id for order in fleet.work.orders if "ok" in fleet.model.shown.get(order.id, ()))
    fleet.effects.file.write_text(change(before, order))
    try:
        return judged(lambda verdict: verdict.effects(fleet))
    finally:
        fleet.effects.file.write_text(before)


def effects_twice(fleet):
    return with_effects(fleet, lambda text, order: f"{text}{order}\n")


def effects_lost(fleet):
    return with_effects(fleet, lambda text, order: "".join(line for line in text.splitlines(keepends=True) if line.strip() != order))


def events_skipped(fleet):
    at = len(fleet.seen) // 2
    event = fleet.seen.pop(at)
    try:
        return judged(lambda verdict: verdict.events(fleet))
    finally:
        fleet.seen.insert(at, event)


def above_the_cap(fleet):
    with fleet.model.lock:
        fleet.model.cost += fleet.cap_micro_usd
    try:
        return judged(lambda verdict: verdict.money(fleet))
    finally:
        with fleet.model.lock:
            fleet.model.cost -= fleet.cap_micro_usd


def left_running(fleet):
    """A process with the words of a command of a node, which no node knows."""
    verdict, node = ClusterVerdict(), fleet.nodes[0]
    words = f"read -r _ # {fleet.effects.name} node={node.name} "
    process = subprocess.Popen(["sh", "-c", words], stdin=subprocess.PIPE)
    try:
        Faults(fleet, None, verdict).no_process(node, None, "after nothing")
        return verdict.counts
    finally:
        process.stdin.close()
        process.wait()


KINDS = {
    "lost": lost,
    "twice": twice,
    "effects twice": effects_twice,
    "effects lost": effects_lost,
    "out of order": out_of_order,
    "events skipped": events_skipped,
    "above the cap": above_the_cap,
    "left running": left_running,
}
