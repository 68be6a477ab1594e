"""Falsifies the records of the checker, one after the other, to see that the verdict reports it. Each is put back.

A checker that reads nothing finds nothing. So this asks of each count whether it can differ from 0. `life`: a daemon, or the nodes of tests/cluster.
"""

import contextlib
import pathlib
import subprocess
import time

# The beginning of the count of a falsified ledger that the verdict has reported.
SEEN = "falsified and reported: "


def seen(life, verdict, kinds):
    """Whether the verdict of this class reports what was falsified for each of its counts; None: there was nothing to falsify."""
    kinds = dict(kinds)
    if life.day != time.gmtime().tm_yday:
        del kinds["above the cap"]  # the verdict leaves money out if the day has changed
    return {kind: reports(life, verdict, kind, falsify) for kind, falsify in kinds.items()}


def reports(life, verdict, kind, falsify):
    try:
        return bool(falsify(life, verdict)[kind])
    except LookupError:
        return None


def judged(verdict, judge):
    found = verdict()
    judge(found)
    return found.counts


def on_telegram(life, verdict, change):
    """What the verdict says if other texts were shown on Telegram."""
    texts = life.api.texts()
    answers = [at for at, text in enumerate(texts) if text.startswith("done ") and "[" not in text]
    with life.api.lock:
        life.api.sent[:] = change(texts, answers[0], answers[-1])
    try:
        return judged(verdict, lambda found: found.telegram(life))
    finally:
        with life.api.lock:
            life.api.sent[:] = texts


def lost(life, verdict):
    return on_telegram(life, verdict, lambda *_: [])


def twice(life, verdict):
    return on_telegram(life, verdict, lambda texts, _, last: [*texts, texts[last]])


def out_of_order(life, verdict):
    def swapped(texts, first, last):
        if first == last:
            raise LookupError("one answer has no order")
        return [*texts[:first], texts[last], *texts[first + 1 : last], texts[first], *texts[last + 1 :]]

    return on_telegram(life, verdict, swapped)


def with_effects(life, verdict, change):
    order = [order.id for order in life.work.orders if "ok" in life.model.shown.get(order.id, ())][0]
    before = life.effects.file.read_text()
    life.effects.file.write_text(change(before, order))
    try:
        return judged(verdict, lambda found: found.effects(life))
    finally:
        life.effects.file.write_text(before)


def effects_twice(life, verdict):
    return with_effects(life, verdict, lambda text, order: f"{text}{order}\n")


def effects_lost(life, verdict):
    return with_effects(life, verdict, lambda text, order: "".join(line for line in text.splitlines(keepends=True) if line.strip() != order))


def events_skipped(life, verdict):
    at = len(life.seen) // 2
    event = life.seen.pop(at)
    try:
        return judged(verdict, lambda found: found.events(life))
    finally:
        life.seen.insert(at, event)


def above_the_cap(life, verdict):
    with life.model.lock:
        life.model.cost += life.cap_micro_usd
    try:
        return judged(verdict, lambda found: found.money(life))
    finally:
        with life.model.lock:
            life.model.cost -= life.cap_micro_usd


def with_answers(life, verdict, name, change):
    """What the verdict says if the daemon gives other answers to the reads of this name."""
    if not life.work.completed():
        raise LookupError("no run is completed")
    read = getattr(life.work, name)
    setattr(life.work, name, lambda *session: change(read(*session)))
    try:
        return judged(verdict, lambda found: found.runs(life))
    finally:
        delattr(life.work, name)


def not_in_the_conversation(life, verdict):
    """Both a reply and a message that are missing have to be reported."""
    counts = [
        with_answers(life, verdict, "messages", lambda messages, role=role: [message for message in messages if message["role"] != role])
        for role in ("user", "assistant")
    ]
    return min(counts, key=lambda count: count["not in the conversation"])


def without_a_start(life, verdict):
    return with_answers(life, verdict, "completed", lambda runs: [{**run, "started_at": None} for run in runs])


@contextlib.contextmanager
def running(words):
    """A process with these words in its command line, as /proc shows it."""
    process = subprocess.Popen(["sh", "-c", words], stdin=subprocess.PIPE)
    try:
        # The words are there a moment after the program has begun.
        while words.encode() not in pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes() and process.poll() is None:
            time.sleep(0.001)
        yield
    finally:
        process.stdin.close()
        process.wait()


KINDS = {
    "lost": lost,
    "twice": twice,
    "not in the conversation": not_in_the_conversation,
    "without a start": without_a_start,
    "effects twice": effects_twice,
    "effects lost": effects_lost,
    "out of order": out_of_order,
    "events skipped": events_skipped,
    "above the cap": above_the_cap,
}
