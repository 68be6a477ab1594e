"""What tests/crash/falsify.py falsifies, for several nodes, and what only they have."""

import threading

import falsify
from faults import Faults
from verdict import ClusterVerdict


def unseen(fleet):
    """The counts that do not report what was falsified for them. The conversations have to be those of fleet.py, not that of a round robin."""
    kinds = {**falsify.KINDS, "left running": left_running, "deadlocks": deadlocks}
    return [kind for kind, is_seen in falsify.seen(fleet, ClusterVerdict, kinds).items() if not is_seen]


def left_running(fleet, _verdict):
    """A process with the words of a command of a node, which no node knows."""
    verdict, node = ClusterVerdict(), fleet.nodes[0]
    with falsify.running(f"read -r _ # {fleet.effects.name} node={node.name} "):
        Faults(fleet, None, verdict).no_process(node, None, "after nothing")
        return verdict.counts


def deadlocks(fleet, verdict):
    """Two sessions that take two locks in opposite order."""
    known = len(fleet.deadlocks())

    def lock(first, second):
        try:
            fleet.database.query(f"SELECT pg_advisory_lock({first}); SELECT pg_sleep(1); SELECT pg_advisory_lock({second})", database="postgres")
        except RuntimeError:
            pass  # one of the two is the victim

    sessions = [threading.Thread(target=lock, args=order) for order in ((1, 2), (2, 1))]
    for session in sessions:
        session.start()
    for session in sessions:
        session.join()
    return falsify.judged(verdict, lambda found: found.deadlocks(fleet.deadlocks()[known:]))
