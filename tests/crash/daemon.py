"""One daemon with a directory of its own, over its starts and deaths."""

import os
import pathlib
import signal
import subprocess
import threading
import time

# The longest wait for a start, a death or an answer. It only decides how long a failure takes.
PATIENCE = 120

SETTINGS = """
[llm]
provider = "openai"
base_url = "{model}/v1"
model = "scripted"
api_key_env = ""
max_tokens = {output}
price_usd = {{ input = 1, output = 1 }}

[gateway]
listen = "127.0.0.1:0"

[agent]
drain_s = 0

[queue]
mode = "followup"

[limits]
usd_per_day = {cap}

[sessions.titles]
after_s = 0

[compaction]
keep_recent_tokens = 1
memory_flush = false

[jobs]
max_parallel = 4

[channels.telegram]
enabled = true
mode = "polling"
api_base = "{api}"
allow = [{person}]
operators = [{person}]
stream = "off"

[approvals]
untrusted_content = "ignore"

[[approvals.rules]]
tool = "run_command"
arguments = {{ argv = "*# ask*" }}
ask = "always"

[[approvals.rules]]
tool = "run_command"
ask = "never"
"""


class Effects:
    """The ledger of effects: each command appends the id of its order to a file with O_APPEND, synchronises it, and then answers."""

    def __init__(self, home):
        self.name = f"effects-{home.name}"
        self.file = home / "data/belay/workspace" / self.name
        self.file.parent.mkdir(parents=True)

    def command(self, order, what):
        after = {"hold": "; sleep 3", "effect": "; sleep 0.02"}.get(what, "")
        return f"echo {order} >> {self.name} && sync {self.name}{after}; echo written # {what} {order} "

    def lines(self):
        return self.file.read_text().split() if self.file.exists() else []

    def processes(self):
        """
        The processes of commands that are alive: the number of each, its start time in clock ticks, and what it is. One that has got KILL is
        dead: it never gets out of the call of the kernel in which it waits. Such a wait (mounting, unmounting, synchronising) can last seconds.
        """
        found = []
        for place in pathlib.Path("/proc").iterdir():
            if not place.name.isdigit():
                continue
            try:
                command = (place / "cmdline").read_bytes()
                if self.name.encode() in command:
                    status = fields((place / "status").read_text())
                    if not is_killed(status):
                        what = f"state {status['State']}, parent {status['PPid']}: {command[-120:]}"
                        found.append((int(place.name), started_at(place), what))
            except (OSError, KeyError):
                continue  # it has ended meanwhile
        return found


def fields(status):
    """The fields of a file `/proc/PID/status`."""
    return {name: value.strip() for name, _, value in (line.partition(":") for line in status.splitlines())}


def is_killed(status):
    """Whether the signal KILL waits for this process, or for its only thread."""
    return any(int(status[field], 16) >> (signal.SIGKILL - 1) & 1 for field in ("SigPnd", "ShdPnd"))


def started_at(place):
    return int((place / "stat").read_text().rsplit(")", 1)[1].split()[19])


class Daemon:
    def __init__(self, binary, home, settings):
        self.binary, self.home = binary, home
        (home / "config/belay").mkdir(parents=True)
        (home / "config/belay/belay.toml").write_text(settings)
        self.environment = {
            "PATH": os.environ.get("PATH", ""),
            "HOME": str(home),
            "XDG_DATA_HOME": str(home / "data"),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_RUNTIME_DIR": str(home),
            "TELEGRAM_BOT_TOKEN": "1234567:crash-test",
        }
        self.process = None
        self.address = None
        self.log = []

    def start(self, arm=None):
        """Starts the daemon, and waits until it is ready or dead. Returns the seconds until it was ready, or None."""
        environment = {**self.environment, **({"BELAY_CRASH": arm} if arm else {})}
        ready, begun = threading.Event(), time.monotonic()
        self.process = subprocess.Popen(
            [str(self.binary), "run"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=self.home
        )
        self.address, times = None, []

        def read(process, stream):
            for line in stream:
                line = line.decode("utf-8", "replace").rstrip()
                self.note(line)
                if "ready on http://" in line:
                    host, port = line.split("ready on http://", 1)[1].split(" ", 1)[0].rsplit(":", 1)
                    times.append(time.monotonic() - begun)
                    self.address = (host, int(port))
                    ready.set()
            ready.set()

        self.note(f"--- start, {arm or 'no point armed'}")
        threading.Thread(target=read, args=(self.process, self.process.stderr), daemon=True).start()
        if not ready.wait(PATIENCE):
            raise RuntimeError(f"the daemon is neither ready nor dead after {PATIENCE} s")
        return times[0] if times else None

    def note(self, line):
        self.log.append(line)
        with open(self.home / "log", "a") as file:
            file.write(line + "\n")

    def is_dead(self):
        return self.process.poll() is not None

    def ended(self, timeout=PATIENCE):
        """The exit status of the process, after its end."""
        return self.process.wait(timeout)

    def signal(self, number):
        if not self.is_dead():
            self.process.send_signal(number)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.ended()
