"""Three daemons, or one, over one PostgreSQL: each with a data directory and a proxy of its own, all with one workspace and one key."""

import pathlib
import shutil
import tempfile
import time

from daemon import SETTINGS
from doubles import OUTPUT_TOKENS, PERSON
from load import Load, Reader, Talker, Waiter
from node import Node
from outside import ClusterBotApi, ClusterEffects, ClusterModel
from postgres import Postgres
from proxy import Proxy

STORE = """
[store]
url = "{url}"
statement_timeout_s = 12

[channels.stdin]
enabled = false

[tools]
workspace = "{workspace}"
"""
CLUSTER = """
[cluster]
enabled = true
name = "{name}"
"""
ROUTINE = {
    "name": "crash",
    "trigger": {"kind": "manual"},
    "action": {"mode": "lightweight", "prompt": "Do what the payload says.", "use_tools": False},
    "guard": {"cooldown_s": 0, "max_concurrent": 10, "dedup_window_s": 0, "max_failures": 1000},
    "notify": {"on_attention": False, "on_failure": False, "on_success": False},
}
# A budget of the day that no run uses up.
RICH_USD = 50
# The conversations: channel, session, what its orders do, and the mean pause between two of them in seconds.
CONVERSATIONS = [
    ("http", "one", ["say"], 0.5),
    ("http", "two", ["say", "say", "effect"], 0.7),
    ("http", "three", ["effect"], 0.9),
    ("http", "asking", ["ask", "say"], 1.5),
    ("socket", "socket", ["say", "effect"], 0.7),
    ("telegram", "telegram", ["say", "say", "effect", "long"], 1.2),
    ("job", "jobs", ["job"], 2.0),
    ("routine", "routine", ["say"], 1.5),
]


class Fleet:
    """Stands for all nodes where tests/crash has one daemon."""

    def __init__(self, binary, names, seed, cap_usd, directory=None, round_robin=False, no_disk="it was not asked for"):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="belay-cluster-", dir=directory))
        self.is_cluster, self.cap_micro_usd, self.is_poor = len(names) > 1, int(cap_usd * 1e6), cap_usd < RICH_USD
        self.day, self.seen = time.gmtime().tm_yday, []
        # Why the database has no disk that can be full, or None.
        self.no_disk = no_disk
        self.database = Postgres(directory, has_disk=no_disk is None)
        # Those of servers whose standby was promoted.
        self.earlier_deadlocks = []
        self.effects = ClusterEffects(self.home)
        self.model, self.api = ClusterModel(self.effects, seed), ClusterBotApi()
        self.proxies = [Proxy(self.database.port) for _ in names]
        self.nodes = [Node(binary, self.home / name, name, self.settings(name, proxy)) for name, proxy in zip(names, self.proxies)]
        self.work = Load(self.model, self.api, self, self.seen, seed)
        conversations = [("http", "one", ["say"], 0.05)] if round_robin else CONVERSATIONS
        self.talkers = [Talker(self.work, *conversation) for conversation in conversations]
        self.waiters = []
        self.reader = Reader(self.work.http, self.seen)

    def settings(self, name, proxy):
        base = SETTINGS.format(
            model=f"{self.model.url}/{name}", api=f"{self.api.url}/{name}", cap=self.cap_micro_usd / 1e6, person=PERSON, output=OUTPUT_TOKENS
        )
        base = base.replace("drain_s = 0", "drain_s = 3")
        more = STORE.format(url=self.database.url(proxy.port), workspace=self.home / "workspace")
        return base + more + (CLUSTER.format(name=name) if self.is_cluster else "")

    def start(self):
        """Starts the nodes, the first one before the others: it makes the tables and the key of the vault."""
        first = self.nodes[0]
        first.begin()
        key = first.home / "data/belay/secret.key"
        for node in self.nodes[1:]:
            other = node.home / "data/belay"
            other.mkdir(parents=True, mode=0o700)
            shutil.copy(key, other)
            node.begin()
        status, answer = self.work.http.request("POST", "/api/v1/routines", ROUTINE)
        if status != 201:
            raise RuntimeError(f"no routine: {status} {answer}")

    def load(self):
        """Starts all clients."""
        for thread in (self.reader, *self.talkers):
            thread.start()

    def add_waiter(self, order):
        """Waits for the end of an order that a fault has sent, beside the conversations."""
        waiter = Waiter(self.work, order)
        self.waiters.append(waiter)
        waiter.start()

    def unload(self, seconds):
        """Ends the clients once all their orders have ended. Returns whether that came within so many seconds."""
        for talker in self.talkers:
            talker.stopping.set()
        deadline = time.monotonic() + seconds
        threads = [*self.talkers, *self.waiters]
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in threads)

    def close(self, is_kept):
        """Ends everything. The logs of the nodes stay if they are to be looked into."""
        self.work.closing.set()
        self.reader.closing.set()
        for part in (*self.nodes, *self.proxies):
            part.close()
        self.work.speaker.close()
        if is_kept:
            shutil.copy(self.database.folder / "log", self.home / "postgres.log")
        else:
            shutil.rmtree(self.home, ignore_errors=True)
        for part in (self.database, self.model, self.api):
            part.close()

    def deadlocks(self):
        """The deadlocks that all servers so far have found."""
        return [*self.earlier_deadlocks, *self.database.deadlocks()]

    # What the checker of tests/crash asks a daemon.

    @property
    def daemon(self):
        return self

    @property
    def address(self):
        return self.work.http.ready().address

    @property
    def log(self):
        return [line for node in self.nodes for line in list(node.log)]

    def is_dead(self):
        return False
