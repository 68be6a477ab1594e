"""The verdict about a cluster: that of tests/crash about one daemon, with the nodes in its place."""

import collections
import time

from client import Http
from judge import Verdict
from node import DATABASE_AWAY, LEASE


class ClusterVerdict(Verdict):
    def judge(self, life):
        """Judges nodes that run, after everything has had time to settle."""
        life.work.is_judged = True
        self.orders(life)
        self.effects(life)
        for session in dict.fromkeys(order.session for order in life.work.orders if order.channel in ("http", "socket")):
            self.conversation(life, session)
        self.runs(life)
        self.telegram(life)
        self.routines_and_jobs(life)
        self.events(life)
        self.money(life)
        self.nodes(life)
        self.deadlocks(life.deadlocks())
        for problem in life.model.invalid:
            self.fault("other", f"a request that no provider accepts: {problem}")
        for problem in life.work.problems:
            self.fault("other", problem)

    def money(self, life):
        """Each node counts at least what the model was paid by all, and that never exceeds the limit."""
        with life.model.lock:
            cost = life.model.cost
        if life.day != time.gmtime().tm_yday:
            return  # the budget of another day
        if cost > life.cap_micro_usd:
            self.fault("above the cap", f"the model was paid {cost}, and the limit is {life.cap_micro_usd}")
        for node in life.nodes:
            node.wait_ready()
            _, status = Http(node.address).request("GET", "/api/v1/status")
            if status["spent_today_micro_usd"] < cost:
                self.fault("above the cap", f"the model was paid {cost}, and node {node.name} counts {status['spent_today_micro_usd']}")

    def deadlocks(self, found):
        """The database ended no statement because two nodes waited for each other."""
        for lines in found:
            self.fault("deadlocks", lines)

    def nodes(self, life):
        """No node has ended by itself, but for one that lost its lease. No start was refused, but for the lease of its name and the database."""
        for node in life.nodes:
            self.statuses(node, node.ends, "ends of a node without a lease", [LEASE] if life.is_cluster else [])
            self.statuses(node, node.refused, "starts refused", [LEASE, DATABASE_AWAY])

    def statuses(self, node, statuses, kind, allowed):
        for status, count in collections.Counter(statuses).items():
            if status in allowed:
                self.counts[kind] += count
            else:
                self.fault("other", f"node {node.name} ended by itself {count} times with {status}")
