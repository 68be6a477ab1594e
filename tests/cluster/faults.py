"""The faults. Each hits a node, all nodes or the database, takes it back, and returns what it hit."""

import glob
import time

from client import Gone, Http
from node import now_ticks
from pooler import Pooler, program

# Seconds that a stopped node sleeps: longer than its lease of 15 s.
STOPPED_S = 17
# Seconds after the beginning of a silence, at most, until a node has ended its processes: 8 s, and the slowest kind takes 2.2 s.
FENCED_S = 10.2
# What the measurement itself may take: one look at /proc beside other builds.
SLACK_S = 1.0
# The same on a machine of unknown speed. A command that holds a node lasts longer.
PATIENT_S = 60
# The one-way delay of a slow connection: 200 ms for a round trip.
SLOW_S = 0.1
# Seconds without the database: from less than the time after which a node gives up its work (8 s) to more than a lease (15 s).
AWAY_S = (1, 18)
# Seconds of a fault that a node should not notice, at least and at most: a slow connection, a pooler in session mode.
PASSING_S = (3, 8)
# Seconds with a pooler in transaction mode that lasts. In this time a node gives up its work (8 s), its lease ends (15 s), and the others answer
# its conversations.
LASTING_S = 35
# Seconds with a full disk: also longer than a node works without its lease.
FULL_S = (2, 10)

KINDS = ("kill", "stop", "cut", "silence", "slow", "database-restart", "database-crash", "rolling-restart", "promotion", "clock", "pooler", "transaction-pooler", "disk-full")
# What changes the clock of one process, from the Debian package libfaketime.
FAKETIME = "/usr/lib/*/faketime/libfaketime.so.1"


class Faults:
    """The faults of one run, and what they found: processes of a node that may not live."""

    def __init__(self, fleet, random, verdict, is_patient=False):
        self.fleet, self.random, self.verdict = fleet, random, verdict
        self.is_patient, self.fenced_s = is_patient, PATIENT_S if is_patient else FENCED_S + SLACK_S
        # Orders whose commands hold a node, and the hours that the clock of a node is ahead.
        self.held, self.clocks = [], {}
        # When something was hit, and the node; None: the database, or all nodes.
        self.hits = []

    def play(self, kind):
        """Plays a fault. Returns what it hit, or "none: " and the reason."""
        try:
            return getattr(self, kind.replace("-", "_"))()
        finally:
            for order in self.held:
                self.fleet.effects.release(order.id)
            self.held.clear()

    def kill(self):
        node = self.a_node()
        self.hold(node)
        self.hit(node)
        node.crash()
        time.sleep(self.random.uniform(0, 5))
        node.release()
        self.no_process(node, node.ticks(), "after its restart")
        return node.name

    def kill_only(self, until):
        """Kills the next node that is ready, lets it start again at once, and waits until a moment."""
        node = self.fleet.work.http.ready()
        self.hit(node)
        node.crash()
        node.is_held = False
        time.sleep(max(0, until - time.monotonic()))
        return node.name

    def stop(self):
        node = self.a_node()
        self.hold(node)
        before = now_ticks()
        self.hit(node)
        node.pause()
        time.sleep(STOPPED_S)
        node.resume()
        if self.fleet.is_cluster:
            self.fenced(node, before, time.monotonic(), f"a stop of {STOPPED_S} s")
        return node.name

    def cut(self):
        return self.without_database(lambda proxy: proxy.cut())

    def silence(self):
        return self.without_database(lambda proxy: proxy.silence())

    def without_database(self, begin):
        node, seconds = self.a_node(), self.random.uniform(*AWAY_S)
        self.hold(node)
        before, proxy = now_ticks(), self.proxy(node)
        self.hit(node)
        begin(proxy)
        begun = time.monotonic()
        if self.fleet.is_cluster and seconds > FENCED_S + SLACK_S:
            self.fenced(node, before, begun, "the loss of the database")
        time.sleep(max(0, begun + seconds - time.monotonic()))
        proxy.heal()
        return f"{node.name} for {seconds:.0f} s"

    def slow(self):
        node, seconds = self.a_node(), self.random.uniform(*PASSING_S)
        self.hit(node)
        self.proxy(node).slow(SLOW_S)
        time.sleep(seconds)
        self.proxy(node).heal()
        return f"{node.name} for {seconds:.0f} s"

    def database_restart(self):
        return self.restart_database("fast")

    def database_crash(self):
        return self.restart_database("immediate")

    def restart_database(self, how):
        seconds = self.random.uniform(0, 5)
        self.hit()
        self.fleet.database.stop(how)
        time.sleep(seconds)
        self.fleet.database.start()
        return f"{how}, away for {seconds:.0f} s"

    def rolling_restart(self):
        for node in self.fleet.nodes:
            self.hit(node)
            status = node.terminate()
            if status != 0:
                self.verdict.fault("other", f"node {node.name} ended with {status} at SIGTERM: {node.log[-3:]}")
            self.fleet.work.drains += 1
            node.release()
            self.no_process(node, node.ticks(), "after its restart")
        return "all"

    def promotion(self):
        """The primary server is lost, and its standby becomes the primary."""
        old, seconds = self.fleet.database, self.random.uniform(0, 3)
        new = old.standby()
        self.fleet.database = new
        self.hit()
        old.stop("immediate")
        time.sleep(seconds)
        new.promote()
        for proxy in self.fleet.proxies:
            proxy.target = new.port
        self.fleet.earlier_deadlocks += old.deadlocks()
        old.close()
        return f"a standby, after {seconds:.0f} s"

    def clock(self):
        """A node starts again with another clock, which it keeps until the next fault of this kind hits it."""
        node = self.a_node()
        hours = self.random.choice([hours for hours in (-1, 0, 1) if hours != self.clocks.get(node.name, 0)])
        library = next(glob.iglob(FAKETIME), None)
        if library is None:
            return "none: libfaketime is not installed"
        if time.gmtime(time.time() - 3600).tm_yday != time.gmtime(time.time() + 3600).tm_yday:
            self.fleet.day = None  # the nodes may have different days, and different budgets
        self.clocks[node.name] = hours
        self.hit(node)
        node.crash()
        node.environment.update({"LD_PRELOAD": library, "FAKETIME": f"{hours:+}h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"})
        node.release()
        return f"{node.name}, to {hours:+} h"

    def pooler(self):
        node = self.a_node()
        return self.pooled("session", node, self.random.uniform(*PASSING_S))

    def transaction_pooler(self):
        """A node gets a pooler that Belay refuses. In a quarter of the cases that lasts until the others have to have its conversations."""
        node, lasts = self.a_node(), self.random.random() < 1 / 4
        self.hold(node)
        return self.pooled("transaction", node, LASTING_S if lasts else self.random.uniform(*PASSING_S))

    def pooled(self, mode, node, seconds):
        """All connections of a node to the database pass a new pgbouncer for a while."""
        if program() is None:
            return "none: pgbouncer is not installed"
        pooler, proxy = Pooler(self.fleet.database, mode), self.proxy(node)
        self.hit(node)
        begun = time.monotonic()
        try:
            self.lead(proxy, pooler.port)
            time.sleep(seconds)
            if seconds >= LASTING_S and self.fleet.is_cluster and not self.is_patient:
                self.continued(begun, seconds)
        finally:
            self.lead(proxy, self.fleet.database.port)
            pooler.close()
        return f"{node.name} for {seconds:.0f} s"

    def continued(self, moment, seconds):
        """Orders from before this moment that have not ended count, although the fault lasts: the others continue the conversations of a node."""
        if left := self.fleet.work.open_since(moment):
            self.verdict.fault("other", f"{seconds} s with a pooler in transaction mode, and these have not ended: {[order.id for order in left]}")

    def disk_full(self):
        """The disk of the database has no space for a while. In half of the cases the server also needs a new file of its log, and crashes."""
        database, seconds, is_log = self.fleet.database, self.random.uniform(*FULL_S), self.random.random() < 0.5
        if database.disk is None:
            return f"none: {self.fleet.no_disk}"
        found = database.refusals()
        self.hit()
        database.disk.fill()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if is_log:
                database.next_log_file()
            time.sleep(0.2)
        database.disk.free()
        end = "started again" if database.revive() else "recovered"
        return f"the database for {seconds:.0f} s, {database.refusals() - found} refusals, {end}"

    # What faults need.

    def a_node(self):
        return self.random.choice(self.fleet.nodes)

    def proxy(self, node):
        return self.fleet.proxies[self.fleet.nodes.index(node)]

    def hit(self, node=None):
        """Notes that a node is hit now; None: the database."""
        self.hits.append((time.monotonic(), node.name if node else None))

    def lead(self, proxy, port):
        """Ends the connections of a node to the database, and leads new ones to this port."""
        proxy.cut()
        proxy.target = port
        proxy.heal()

    def hold(self, node):
        """Has a node run a command that lasts until the end of the fault, and waits until it runs."""
        work = self.fleet.work
        node.wait_ready()
        order = work.begin("hold", "http", f"held-{len(work.orders)}")
        self.held.append(order)
        body = {"session": order.session, "text": order.text, "idempotency_key": order.key}
        try:
            status, answer = Http(node.address).request("POST", "/api/v1/messages", body, timeout=10)
            order.run = answer["run_id"] if status in (200, 202) else None
        except Gone:
            pass
        while order.run is None:
            work.deliver(order)
        self.fleet.add_waiter(order)
        deadline = time.monotonic() + 20
        while order.id not in self.fleet.effects.lines() and time.monotonic() < deadline:
            time.sleep(0.02)
        if not self.fleet.effects.of_node(node.name):
            self.verdict.counts["faults without a held command"] += 1  # the budget is used up, for example

    def fenced(self, node, before, moment, cause):
        """Waits until a node without a lease has ended the commands that were started before a clock tick. Those that live too long count."""
        while time.monotonic() < moment + self.fenced_s and self.fleet.effects.of_node(node.name, before):
            time.sleep(0.1)
        self.no_process(node, before, f"{self.fenced_s:.1f} s after {cause}")

    def no_process(self, node, before, when):
        """Counts the commands of a node that were started before a clock tick and that still live."""
        for pid, text in self.fleet.effects.of_node(node.name, before):
            self.verdict.fault("left running", f"{when}, process {pid} of node {node.name} lives: {text}")

