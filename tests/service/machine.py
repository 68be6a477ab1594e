"""A booted machine: a root of its own over the kept one, in namespaces that take everything with them when they end."""

import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import time

# Every wait ends; no test measures time by it. A loaded machine with two cores boots in 10 s.
PATIENCE_S = 300
# Where nspawn leaves what the machine prints.
CONSOLE = "console.log"


class Failed(Exception):
    """A check does not hold."""


def expect(fact, words):
    """Fails with these words unless the fact holds."""
    if not fact:
        raise Failed(words)


def until(what, look, limit_s=None):
    """What `look` returns once that is true. A `Failed` after a time; an exception of `look` counts as "not yet"."""
    limit_s = limit_s or PATIENCE_S
    end, seen = time.monotonic() + limit_s, None
    while True:
        try:
            if seen := look():
                return seen
        except (OSError, ValueError, http.client.HTTPException) as why:
            seen = why
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {limit_s} s (last seen: {seen!r})")
        time.sleep(0.1)


class Unix(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Machine:
    """One machine. Has to be started in mount and PID namespaces of its own: what is mounted and started here ends with them."""

    def __init__(self, lower, place):
        self.place = pathlib.Path(place)
        self.root = self.place / "root"
        upper, work = self.place / "upper", self.place / "work"
        for directory in (self.root, upper, work):
            directory.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "belay-service", "-o", options, str(self.root)], check=True)
        self.nspawn = None
        self.leader = None

    def inside_root(self, path):
        """A path of the machine's own files, before it has booted."""
        return self.root / path.lstrip("/")

    def write(self, path, text, mode=0o644):
        """Writes a file of the machine, also while it runs."""
        file = self.inside_root(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        file.chmod(mode)

    def boot(self):
        """Boots, and waits until its system bus answers."""
        environment = {**os.environ, "SYSTEMD_SECCOMP": "0", "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"}
        command = [
            "systemd-nspawn", "--boot", f"--directory={self.root}", "--machine=belay-service", "--register=no", "--keep-unit",
            "--private-network", "--capability=all", "--console=pipe", "--quiet", "--link-journal=no", "--resolv-conf=off",
        ]
        console = open(self.place / CONSOLE, "wb")
        self.nspawn = subprocess.Popen(command, env=environment, cwd="/", stdin=subprocess.DEVNULL, stdout=console, stderr=console)
        console.close()
        self.leader = until("the machine's first process", self.find_leader)
        until("the machine's system manager", lambda: self.run("systemctl", "is-system-running", check=False).stdout.strip() in ("running", "degraded"))

    def find_leader(self):
        """The number of the machine's first process, here."""
        if self.nspawn.poll() is not None:
            raise Failed(f"systemd-nspawn ended with {self.nspawn.returncode}:\n{self.console()}")
        children = pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text(encoding="ascii").split()
        named = [pid for pid in children if pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "systemd"]
        return int(named[0]) if named else None

    def console(self):
        """The end of what it has printed."""
        return (self.place / CONSOLE).read_text(encoding="utf-8", errors="replace")[-4000:]

    def run(self, *command, check=True, limit_s=PATIENCE_S, stdin=None):
        """Runs a command in the machine as root. What it printed is in `stdout`, both outputs together."""
        enter = ["nsenter", f"--target={self.leader}", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"]
        clean = ["env", "-i", "PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", "HOME=/root", "LC_ALL=C.UTF-8"]
        feed = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
        try:
            done = subprocess.run(
                [*enter, *clean, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=limit_s, **feed
            )
        except subprocess.TimeoutExpired as why:
            raise Failed(f"{' '.join(command)}: no end within {limit_s} s") from why
        if check and done.returncode != 0:
            raise Failed(f"{' '.join(command)}: ended with {done.returncode}: {done.stdout[-2000:]}")
        return done

    def inside(self, path):
        """A path of the machine as this process sees it, with everything that is mounted there."""
        return pathlib.Path(f"/proc/{self.leader}/root{path}")

    def ask(self, method, path, body=None, limit_s=PATIENCE_S):
        """A request over the control socket, as root: status and JSON."""
        # The path goes through links that are relative, so that it stays in the machine.
        connection = Unix(str(self.inside("/run/belay/control.sock")), limit_s)
        try:
            data = json.dumps(body) if body is not None else None
            connection.request(method, path, data, {"content-type": "application/json"} if data else {})
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        finally:
            connection.close()
        return response.status, json.loads(text) if text.startswith(("{", "[")) else text

    def tcp_status(self, path, token=None):
        """The status of a GET over TCP, in the machine's network."""
        script = (
            "import sys, http.client as h\n"
            "c = h.HTTPConnection('127.0.0.1', 8787, timeout=30)\n"
            "c.request('GET', sys.argv[1], headers={'authorization': 'Bearer ' + sys.argv[2]} if sys.argv[2:] else {})\n"
            "print(c.getresponse().status)\n"
        )
        command = ["nsenter", f"--target={self.leader}", "--net", "--", sys.executable, "-c", script, path, *([token] if token else [])]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise Failed(f"GET {path}: {done.stdout[-500:]}")
        return int(done.stdout)

    def show(self, *properties, unit="belay.service"):
        """Properties of a unit as systemd shows them."""
        lines = self.run("systemctl", "show", unit, *(f"--property={name}" for name in properties)).stdout.splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def journal(self, since=0.0, lines=200, unit="belay.service"):
        """The end of what a unit has logged, and what systemd says of it, since a time in seconds since 1970."""
        command = ["journalctl", "--no-pager", "--output=cat", f"--unit={unit}", f"--lines={lines}", f"--since=@{since:.6f}"]
        return self.run(*command, check=False).stdout

    def processes(self, pattern):
        """The numbers, in the machine, of processes whose command line matches."""
        found = []
        for directory in self.inside("/proc").glob("[0-9]*"):
            try:
                args = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue  # it has ended meanwhile
            if re.search(pattern, args):
                found.append(int(directory.name))
        return found

    def power_off(self):
        """Ends it, whatever state it is in."""
        if self.nspawn and self.nspawn.poll() is None:
            self.nspawn.terminate()
            try:
                self.nspawn.wait(30)
            except subprocess.TimeoutExpired:
                self.nspawn.kill()
                self.nspawn.wait(30)
        subprocess.run(["umount", "--lazy", str(self.root)], check=False, stdin=subprocess.DEVNULL)
        shutil.rmtree(self.place, ignore_errors=True)
