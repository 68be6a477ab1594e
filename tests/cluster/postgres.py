"""A PostgreSQL server of our own on loopback, run by an unprivileged user. Its folder is removed at the end."""

import os
import pathlib
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from disk import Disk

# Where Debian and Ubuntu keep the programs of each version, which are in no PATH.
DEBIAN = pathlib.Path("/usr/lib/postgresql")
# Users that root runs the server as: the first one that exists.
UNPRIVILEGED = ("postgres", "nobody")
# The supervisor prints the process id of the server. It ends the server when its standard input ends, which is when this process ends, also by
# SIGKILL.
SUPERVISOR = """exec 3<&0
"$@" </dev/null >&2 3<&- &
server=$!
echo "$server"
exec >&2
( while read -r _; do :; done <&3; kill -QUIT "$server" 2>/dev/null ) &
watcher=$!
exec 3<&-
wait "$server"
kill "$watcher" 2>/dev/null
"""
# Longest wait for a start or an end of the server, in seconds.
PATIENCE = 60
# The lines of the log about a deadlock: the error, the processes, their statements.
DEADLOCK_LINES = 8
STOP = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT}


class Missing(Exception):
    """The machine has no PostgreSQL."""


def program(name):
    versions = sorted(DEBIAN.glob("*/bin"), key=lambda place: int(place.parent.name) if place.parent.name.isdigit() else 0, reverse=True)
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), *map(str, versions)])
    found = shutil.which(name, path=path)
    if not found:
        raise Missing(f"PostgreSQL is not installed: {name} is missing (apt install postgresql)")
    return str(pathlib.Path(found).resolve()) if name == "initdb" else found


def unprivileged():
    """The user and the group that run the server; None: those of this process, which is not root."""
    if os.geteuid() != 0:
        return None
    for name in UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
            return entry.pw_uid, entry.pw_gid
        except KeyError:
            continue
    raise Missing(f"root may not run PostgreSQL, and the machine has none of the users {UNPRIVILEGED}")


class Postgres:
    """A server with an empty database `belay`; or, with a primary server, its standby, which replicates it by streaming.

    `has_disk`: its data is on a disk of its own, which can be full (disk.py).
    """

    def __init__(self, directory=None, primary=None, has_disk=False):
        self.programs, self.psql = pathlib.Path(program("initdb")).parent, program("psql")
        self.directory, self.has_disk = directory, has_disk
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="belay-cluster-postgres-", dir=directory))
        self.account, self.password, self.port = unprivileged(), primary.password if primary else secrets.token_hex(16), free_port()
        self.supervisor, self.process = None, None
        (self.folder / "password").write_text(self.password)
        if self.account:
            for place in (self.folder, self.folder / "password"):
                os.chown(place, *self.account)
        self.disk = Disk(self.folder / "data", self.account) if has_disk else None
        if primary:
            address = f"host={primary.folder} port={primary.port} user=belay application_name=standby"
            arguments = ["--pgdata=data", "--write-recovery-conf", "--checkpoint=fast", "--no-sync", "--dbname", address]
            self.run([str(self.programs / "pg_basebackup"), *arguments])
            self.start()
        else:
            self.initialise()

    def initialise(self):
        arguments = ["--username=belay", "--pwfile=password", "--pgdata=data", "--no-sync", "--no-instructions", "--auth-host=scram-sha-256"]
        self.run([str(self.programs / "initdb"), *arguments, "--auth-local=trust", "--encoding=UTF8", "--locale=C.UTF-8"])
        # Without fsync: the faults end the server, never the machine. Little of the log is made in advance, so that a full disk matters.
        lines = ["fsync = off", "timezone = 'UTC'", "max_connections = 100", "wal_keep_size = '64MB'", "min_wal_size = '32MB'", "max_wal_size = '64MB'"]
        with open(self.folder / "data/postgresql.conf", "a") as file:
            file.write("\n".join(lines) + "\n")
        self.start()
        self.query("CREATE DATABASE belay", database="postgres")

    def start(self):
        """Starts the server. It has recovered, and accepts connections, when this returns."""
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self.folder}"]
        command = ["sh", "-c", SUPERVISOR, "sh", str(self.programs / "postgres"), "-D", "data", "-p", str(self.port), *options]
        with open(self.folder / "log", "ab") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            self.supervisor = subprocess.Popen(command, cwd=self.folder, env=self.environment(), **pipes, **self.ids())
        self.process = int(self.supervisor.stdout.readline())
        if not self.answers():
            raise RuntimeError(f"PostgreSQL does not start: {(self.folder / 'log').read_text()[-2000:]}")

    def answers(self):
        """Waits until the server accepts connections. Returns False if it has ended. Raises RuntimeError."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.query("SELECT 1", database="postgres")
                return True
            except RuntimeError:
                if self.supervisor.poll() is not None:
                    return False
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def revive(self):
        """Waits until the server has recovered, and starts it if it has ended, as a service manager would. Returns whether it had ended."""
        if self.answers():
            return False
        self.forget()
        self.start()
        return True

    def stop(self, how):
        """Ends the server: `fast` ends the connections; `immediate` is a crash, after which the next start recovers."""
        os.kill(self.process, STOP[how])
        self.supervisor.wait(PATIENCE)
        self.forget()

    def forget(self):
        self.supervisor.stdin.close()
        self.supervisor.stdout.close()

    def next_log_file(self):
        """Has the server begin another file of its write-ahead log. Nothing happens if it does not answer."""
        try:
            self.query("SELECT pg_switch_wal()")
        except RuntimeError:
            pass

    def refusals(self):
        """How often the server has found its disk full so far, by its log."""
        return (self.folder / "log").read_bytes().count(b"No space left on device")

    def deadlocks(self):
        """The deadlocks that the server has found so far, by its log: the lines of each."""
        lines = (self.folder / "log").read_text(errors="replace").splitlines()
        return [" ".join(lines[at : at + DEADLOCK_LINES]) for at, line in enumerate(lines) if "deadlock detected" in line]

    def standby(self):
        """Makes a standby. Each commit of this server waits for it from now on, so that a promotion loses none."""
        standby = Postgres(self.directory, primary=self, has_disk=self.has_disk)
        self.query("ALTER SYSTEM SET synchronous_standby_names = 'standby'", database="postgres")
        self.query("SELECT pg_reload_conf()", database="postgres")
        deadline = time.monotonic() + PATIENCE
        while self.query("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'", database="postgres") != "1":
            if time.monotonic() > deadline:
                raise RuntimeError("the standby does not replicate")
            time.sleep(0.05)
        return standby

    def promote(self):
        """Makes a standby accept writes."""
        if self.query("SELECT pg_promote(true, 60)", database="postgres") != "t":
            raise RuntimeError("the standby was not promoted")

    def close(self):
        if self.supervisor and self.supervisor.poll() is None:
            self.stop("immediate")
        if self.disk:
            self.disk.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, port):
        """The address of the database through a proxy on this port."""
        return f"postgres://belay:{self.password}@127.0.0.1:{port}/belay?sslmode=disable"

    def query(self, sql, database="belay"):
        """What psql prints for the statement, without a header."""
        return self.run([self.psql, "-h", str(self.folder), "-p", str(self.port), "-U", "belay", "-d", database, "-XAtqc", sql])

    def run(self, command):
        pipes = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
        done = subprocess.run(command, cwd=self.folder, env=self.environment(), **pipes, **self.ids())
        if done.returncode != 0:
            raise RuntimeError(f"{command[0]}: {done.stderr.strip()}")
        return done.stdout.strip()

    def environment(self):
        return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "HOME": str(self.folder)}

    def ids(self):
        return {"user": self.account[0], "group": self.account[1], "extra_groups": []} if self.account else {}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]
