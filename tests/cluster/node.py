"""One daemon as a service manager runs it: started again whenever it ends, unless a fault holds it down."""

import os
import pathlib
import signal
import threading
import time

from daemon import Daemon, started_at

# Pause before the next start, in seconds, as RestartSec= of the service.
RESTART_S = 0.2
# Longest wait for a node to be ready, in seconds. It only decides how long a failure takes.
PATIENCE = 240
# The exit status of a node that lost its lease, and of a start while its former lease has not ended.
LEASE = 75
# The exit status of a start whose database goes away in its middle.
DATABASE_AWAY = 69


class Node(Daemon):
    def __init__(self, binary, home, name, settings):
        super().__init__(binary, home, settings)
        self.name = name
        self.environment["BELAY_NODE"] = name
        # Statuses of ends that no fault asked for, statuses of starts that were refused, and the seconds of all starts.
        self.ends, self.refused, self.starts = [], [], []
        self.is_held, self.is_expected, self.is_started, self.closing = False, False, False, threading.Event()
        self.thread = threading.Thread(target=self.keep, daemon=True)

    def begin(self):
        self.thread.start()
        self.wait_ready()

    def keep(self):
        """Starts the daemon whenever it does not run."""
        while not self.closing.is_set():
            if self.process is None or (self.is_dead() and not self.is_held):
                self.note_end()
                self.is_expected = False
                self.is_started = (ready := self.start()) is not None
                self.starts.extend([ready] if self.is_started else [])
            self.closing.wait(RESTART_S)

    def note_end(self):
        if self.process is None or self.is_expected:
            return
        (self.ends if self.is_started else self.refused).append(self.process.returncode)
        self.note(f"--- ended by itself with {self.process.returncode}")

    def is_ready(self):
        return self.address is not None and self.process is not None and not self.is_dead()

    def wait_ready(self):
        """Waits until the daemon is ready. Raises RuntimeError."""
        deadline = time.monotonic() + PATIENCE
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"node {self.name} is not ready after {PATIENCE} s: {self.log[-5:]}")
            time.sleep(0.02)

    def crash(self):
        """Kills the daemon. It stays down until release()."""
        self.is_held, self.is_expected = True, True
        self.kill()

    def terminate(self):
        """Has the daemon drain and end, and returns its exit status. It stays down until release()."""
        self.is_held, self.is_expected = True, True
        self.signal(signal.SIGTERM)
        return self.ended()

    def release(self):
        """Lets the daemon start again, and waits until it is ready."""
        self.is_held = False
        self.wait_ready()

    def pause(self):
        self.signal(signal.SIGSTOP)

    def resume(self):
        self.signal(signal.SIGCONT)

    def ticks(self):
        """When the process of the daemon was started, in clock ticks since the machine's start; 0: it does not run."""
        try:
            return started_at_of(self.process.pid)
        except OSError:
            return 0

    def close(self):
        self.closing.set()
        self.is_held = True
        self.resume()
        self.signal(signal.SIGKILL)
        if self.thread.is_alive():
            self.thread.join()
        if self.process:
            self.kill()


def started_at_of(pid):
    return started_at(pathlib.Path("/proc", str(pid)))


def now_ticks():
    """The present moment in the clock ticks of started_at()."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
