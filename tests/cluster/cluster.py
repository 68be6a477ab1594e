#!/usr/bin/env python3
"""Plays faults against daemons over one PostgreSQL, and judges them from outside.

    tests/cluster/cluster.py --belay PROGRAM [--faults N] [--seed N] [--minutes N] [--only KIND] [--alone] [--round-robin] [--patient]
                             [--falsify] [--markdown | --json]

Three nodes on loopback share a database, a workspace and the key of the vault; each reaches the database through a proxy of its own. Clients
send orders over HTTP, a WebSocket and a Bot API double, to any node in turn. Faults come one at a time in an order of the seed. After each
one all orders that were sent before its end have to end. At the end the checker compares its own ledgers (tests/crash/judge.py). `--alone`
has one daemon without `[cluster]`. `--round-robin` has one conversation, and kills a node every ten seconds. `--falsify` falsifies the ledgers
of the checker at the end, and expects that each count reports it. Ends with 1 if a count is wrong; the directory with the logs is then
kept; with 69 if PostgreSQL is missing. Standard library and PostgreSQL only; a full disk needs root.

Reading order: fleet.py, faults.py, load.py, verdict.py, falsify_nodes.py, node.py, outside.py, proxy.py, postgres.py, disk.py, pooler.py, recovery.py,
ledger.py.
"""

import argparse
import faulthandler
import pathlib
import random
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "crash"))

import disk
import falsify_nodes
from client import Gone
from faults import KINDS, Faults
from fleet import Fleet
from ledger import Ledger
from postgres import Missing
from verdict import ClusterVerdict

# How long orders may take to end after a fault before that counts as one, in seconds. Beside other builds a node may get a hundredth of a
# processor, and a command that holds its run takes 30 s.
SETTLE_S = 150
# The exit status without PostgreSQL: EX_UNAVAILABLE.
MISSING = 69
# Seconds between two kills of a round robin.
EVERY_S = 10


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--belay", required=True, type=pathlib.Path)
    parser.add_argument("--faults", type=int, default=200, help="how many faults to play (200)")
    parser.add_argument("--seed", type=int, default=1, help="the order of the faults and all that is random (1)")
    parser.add_argument("--minutes", type=float, default=1e6, help="no fault begins after so many minutes")
    parser.add_argument("--only", choices=KINDS, action="append", metavar="KIND", help=f"this kind of fault alone, or these: {', '.join(KINDS)}")
    parser.add_argument("--alone", action="store_true", help="one daemon, which uses the database alone")
    parser.add_argument("--round-robin", action="store_true", help=f"one conversation, and a kill every {EVERY_S} s")
    parser.add_argument("--cap", type=float, default=100.0, metavar="USD", help="the budget of the day (100)")
    parser.add_argument("--dir", type=pathlib.Path, help="where the directories are made")
    parser.add_argument("--patient", action="store_true", help="give the nodes more time to end their processes, for a machine that is slow")
    parser.add_argument("--falsify", action="store_true", help="falsify the ledgers at the end: each count has to report it")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--markdown", dest="form", action="store_const", const="markdown", help="print the figures as Markdown")
    forms.add_argument("--json", dest="form", action="store_const", const="json", help="print the figures for programs")
    options = parser.parse_args()
    faulthandler.register(signal.SIGUSR1)  # prints where each thread is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the nodes end with this process
    names = ["a"] if options.alone else ["a", "b", "c"]
    ledger, verdict = Ledger(options.faults, options.form), ClusterVerdict()
    no_disk = disk.own_mounts() if "disk-full" in (options.only or KINDS) else "it was not asked for"
    try:
        fleet = Fleet(options.belay.resolve(), names, options.seed, options.cap, options.dir, options.round_robin, no_disk)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return MISSING
    try:
        fleet.start()
        fleet.load()
        play(fleet, options, ledger, verdict)
        settle(fleet, verdict)
        verdict.judge(fleet)
        if options.falsify and not options.round_robin:
            for kind in falsify_nodes.unseen(fleet):
                verdict.fault("other", f"the verdict does not report a falsified ledger: {kind}")
    except KeyboardInterrupt:
        verdict.fault("other", "the run was interrupted")
    except (Gone, RuntimeError, OSError, LookupError, StopIteration, TypeError, AttributeError) as error:
        verdict.fault("other", f"the checker cannot go on: {error!r}")
    finally:
        fleet.close(is_kept=bool(verdict.faults))
    if verdict.faults:
        (fleet.home / "faults").write_text("\n".join(verdict.faults) + "\n")
        (fleet.home / "ledger").write_text("\n".join(ledger.lines(fleet)) + "\n")
        print(f"the logs of the nodes are in {fleet.home}", file=sys.stderr)
    return ledger.end(fleet, verdict)


def plan(options):
    """The kinds of all faults: each as often as the others, in an order of the seed."""
    kinds, order, planned = options.only or list(KINDS), random.Random(options.seed), []
    while len(planned) < options.faults:
        order.shuffle(kinds)
        planned.extend(kinds)
    return planned[: options.faults]


def play(fleet, options, ledger, verdict):
    faults, until = Faults(fleet, random.Random(options.seed), verdict, options.patient), time.monotonic() + 60 * options.minutes
    if options.round_robin:
        while time.monotonic() < until:
            begun = time.monotonic()
            measured(fleet, faults, "kill", lambda begun=begun: faults.kill_only(begun + EVERY_S), ledger, verdict, settles=False)
        return
    for kind in plan(options):
        if time.monotonic() > until:
            break
        time.sleep(faults.random.uniform(0.3, 1.2))  # so that the next fault meets work under way
        measured(fleet, faults, kind, lambda kind=kind: faults.play(kind), ledger, verdict)


def measured(fleet, faults, kind, fault, ledger, verdict, settles=True):
    """Plays a fault, waits until everything has recovered, and notes the times."""
    begun, known = time.monotonic(), len(verdict.faults)
    faults.hits.clear()
    target = fault()
    ended = time.monotonic()
    if settles:
        recovered(fleet, kind, target, ended, verdict)
    waits = [wait for talker in fleet.talkers if (wait := talker.waits(begun, ended)) is not None]
    ledger.note(kind, target, begun, ended, list(faults.hits), waits, verdict.faults[known:])


def recovered(fleet, kind, target, ended, verdict):
    """Waits until all nodes are ready, and until all orders that were sent before the end of the fault have ended."""
    for node in fleet.nodes:
        node.wait_ready()
    deadline = time.monotonic() + SETTLE_S
    while left := fleet.work.open_since(ended):
        if time.monotonic() > deadline:
            verdict.fault("lost", f"{SETTLE_S} s after {kind} of {target}, these have not ended: {[order.id for order in left]}")
            for order in left:
                order.is_ended = True
            break
        time.sleep(0.02)


def settle(fleet, verdict):
    if not fleet.unload(SETTLE_S):
        left = [order.id for order in fleet.work.orders if not order.is_ended]
        verdict.fault("lost", f"{SETTLE_S} s after the last order, these have not ended: {left}")


if __name__ == "__main__":
    sys.exit(main())
