"""pgbouncer before a PostgreSQL server, run by the same user."""

import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time

from postgres import free_port

# Runs the pooler until the standard input ends, which it does with this process.
SUPERVISOR = '"$1" pgbouncer.ini & read -r _; kill "$!"; wait "$!"'
# Longest wait for a start or an end, in seconds.
PATIENCE = 60


class Pooler:
    """`mode`: `session`, or `transaction`, in which two transactions of a client may have different sessions of the server."""

    def __init__(self, database, mode):
        self.port, name = free_port(), program()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pgbouncer-", dir=database.folder))
        lines = ["[databases]", f"* = host=127.0.0.1 port={database.port}", "[pgbouncer]", "listen_addr = 127.0.0.1", f"listen_port = {self.port}"]
        lines += ["unix_socket_dir =", "auth_type = trust", "auth_file = users.txt", f"pool_mode = {mode}", "logfile = pgbouncer.log"]
        (self.folder / "pgbouncer.ini").write_text("\n".join(lines) + "\n")
        (self.folder / "users.txt").write_text(f'"belay" "{database.password}"\n')
        if database.account:
            for place in (self.folder, self.folder / "pgbouncer.ini", self.folder / "users.txt"):
                os.chown(place, *database.account)
        silent = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        command = ["sh", "-c", SUPERVISOR, "sh", name]
        self.process = subprocess.Popen(command, cwd=self.folder, env=database.environment(), **silent, **database.ids())
        self.wait_ready()

    def wait_ready(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                if time.monotonic() > deadline:
                    log = self.folder / "pgbouncer.log"
                    raise RuntimeError(f"pgbouncer does not start: {log.read_text() if log.exists() else 'no log'}") from None
                time.sleep(0.02)

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def program():
    """The path of pgbouncer, or None."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))
