"""The daemons of one measurement: one on SQLite, one on PostgreSQL, or nodes of a cluster. Each start has an empty database."""

import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

from costs import Processes
from daemon import Daemon
from flights import CountingProxy

# How long a daemon may take to drain and end, in seconds.
END_S = 30
SETTINGS = """
[llm]
provider = "openai"
base_url = "{model}"
model = "scripted"
api_key_env = ""
max_tokens = 100
price_usd = {{ input = 1, output = 1 }}

[gateway]
listen = "127.0.0.1:0"

[agent]
max_concurrent_turns = 64

[queue]
mode = "followup"

[limits]
usd_per_day = 100000

[sessions.titles]
after_s = 0

[channels.stdin]
enabled = false

[tools]
workspace = "{workspace}"
"""
STORE = """
[store]
url = "{url}&schema={schema}"
"""
CLUSTER = """
[cluster]
enabled = true
name = "{name}"
"""


class Variant:
    """A kind of measurement. `nodes`: 0 for a daemon without a cluster."""

    def __init__(self, name, nodes=0, has_server=True, sticky=False):
        self.name, self.nodes, self.has_server, self.sticky = name, nodes, has_server, sticky


# The first one is the floor.
VARIANTS = [
    Variant("SQLite", has_server=False),
    Variant("PostgreSQL"),
    Variant("1 node", nodes=1),
    Variant("2 nodes", nodes=2),
    Variant("3 nodes", nodes=3),
    Variant("3 nodes, sticky", nodes=3, sticky=True),
]


class Daemons:
    """Running daemons of a variant. A context manager."""

    def __init__(self, binary, variant, model, database, counting=False):
        self.binary, self.variant, self.model, self.database = binary, variant, model, database
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="belay-speed-", dir=database.directory))
        self.schema = "s" + self.home.name.rsplit("-", 1)[1].lower()
        self.flights = []
        proxied = (variant.nodes or 1) if counting and variant.has_server else 0
        self.proxies = [CountingProxy(database.port, self.flights) for _ in range(proxied)]
        self.daemons = []

    def __enter__(self):
        try:
            for at in range(self.variant.nodes or 1):
                self.begin(f"node{at}", self.proxies[at].port if self.proxies else self.database.port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def begin(self, name, port):
        settings = SETTINGS.format(model=self.model.url, workspace=self.home / "workspace")
        if self.variant.has_server:
            settings += STORE.format(url=self.database.url(port), schema=self.schema)
        if self.variant.nodes:
            settings += CLUSTER.format(name=name)
        daemon = Daemon(self.binary, self.home / name, settings)
        if self.daemons:
            data = daemon.home / "data/belay"
            data.mkdir(parents=True, mode=0o700)
            shutil.copy(self.daemons[0].home / "data/belay/secret.key", data)
        self.daemons.append(daemon)
        if daemon.start() is None:
            raise RuntimeError(f"the daemon of {self.variant.name} did not start: {daemon.log[-5:]}")

    @property
    def addresses(self):
        return [daemon.address for daemon in self.daemons]

    def processes(self):
        return Processes([daemon.process.pid for daemon in self.daemons])

    def __exit__(self, failure=None, *_):
        for daemon in self.daemons:
            if daemon.process:
                daemon.signal(signal.SIGTERM)
        for daemon in self.daemons:
            if daemon.process:
                try:
                    daemon.ended(END_S)
                except subprocess.TimeoutExpired:
                    print(f"a daemon of {self.variant.name} did not end within {END_S} s", file=sys.stderr)
                daemon.kill()
        for proxy in self.proxies:
            proxy.close()
        if self.variant.has_server:
            self.database.query(f"DROP SCHEMA IF EXISTS {self.schema} CASCADE")
        if failure and self.daemons:
            print(f"the logs of the daemons are in {self.home}", file=sys.stderr)
        else:
            shutil.rmtree(self.home, ignore_errors=True)
