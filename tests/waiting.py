"""Programs that wait for a server elsewhere, such as a mirror of packages: each has a limit, and ends with all its children.

>>> waiting, command = Waiting(), ["sh", "-c", "sleep 600 & echo $!; wait"]
>>> process = waiting.start(command, stdout=subprocess.PIPE)
>>> child = int(process.stdout.readline())
>>> waiting.end()
>>> process.returncode, state(child)
(-15, 'gone')

>>> waiting.download(["true"])
Traceback (most recent call last):
OSError: not started: true: the tests end

After the limit a download has ended too, and later ones get less time.

>>> waiting = Waiting()
>>> waiting.limit_s = 0.1
>>> waiting.download(["sh", "-c", "sleep 600 & wait"])
Traceback (most recent call last):
subprocess.TimeoutExpired: Command '['sh', '-c', 'sleep 600 & wait']' timed out after 0.1 seconds
>>> waiting.limit_s, waiting.running
(30, set())

>>> preparing = Preparing(waiting, "the machine", ["sleep", "600"], 0.1)
>>> preparing.wait(), preparing.wait() == preparing.wait()
('the machine is not prepared after 0.1 s; does the server of the packages answer?', True)
>>> preparing.process.returncode
-15
>>> Preparing(waiting, "the machine", ["false"]).wait()  # what has failed, the suite says

Standard library only.
"""

import os
import signal
import subprocess
import threading
import time

from gate.output import say

# Seconds for a download. Most take some seconds; a slow network may take minutes.
DOWNLOAD_LIMIT_S = 300
# Seconds for a download after one has reached its limit: the server does not answer, so the others are not waited for as long.
IMPATIENT_S = 30
# Seconds for the root of a machine or an image, from its beginning. They take a minute or two.
PREPARE_LIMIT_S = 1200
# Seconds between the request to end and the kill.
GRACE_S = 30


class Waiting:
    """The running programs, each with its children in a process group of its own. Ctrl-C does not reach those, so `end` has to."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.has_ended = False
        self.limit_s = DOWNLOAD_LIMIT_S

    def start(self, command, **more):
        """Starts a program. Raises OSError, also after `end`."""
        with self.lock:
            if self.has_ended:
                raise OSError(f"not started: {' '.join(map(str, command))}: the tests end")
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **more)
            self.running.add(process)
        return process

    def finish(self, process, limit_s):
        """Waits for the end of a program, and returns its status. Raises TimeoutExpired after the limit; then it has ended too."""
        try:
            return process.wait(limit_s)
        except BaseException:
            end_group(process)
            raise
        finally:
            with self.lock:
                self.running.discard(process)

    def download(self, command, **more):
        """Runs a program that downloads, and returns its status. Raises TimeoutExpired or OSError."""
        limit_s = self.limit_s
        try:
            return self.finish(self.start(command, **more), limit_s)
        except subprocess.TimeoutExpired:
            self.limit_s = IMPATIENT_S
            say(f"no end after {limit_s} s: {' '.join(map(str, command))}; does the server of the packages answer?")
            raise

    def end(self):
        """Ends all programs that still run. No other one starts."""
        with self.lock:
            self.has_ended = True
            running = list(self.running)
            self.running.clear()
        for process in running:
            end_group(process)


class Preparing:
    """A program that prepares something while other work goes on."""

    def __init__(self, waiting, what, command, limit_s=PREPARE_LIMIT_S):
        self.waiting, self.what, self.limit_s, self.begin = waiting, what, limit_s, time.monotonic()
        self.process = waiting.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.is_late = False

    def wait(self):
        """Waits for its end. Returns a sentence if it has not ended within its limit, which is then over for good, else `None`."""
        if not self.is_late:
            try:
                self.waiting.finish(self.process, max(0.0, self.begin + self.limit_s - time.monotonic()))
                return None
            except subprocess.TimeoutExpired:
                self.is_late = True
        return f"{self.what} is not prepared after {self.limit_s} s; does the server of the packages answer?"


def end_group(process):
    """Ends a program and all its children."""
    for number, grace_s in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, 1)):
        until = time.monotonic() + grace_s
        if is_alive(process):
            os.killpg(process.pid, number)
        while time.monotonic() < until and is_alive(process):
            time.sleep(0.05)
    process.wait()


def state(process_id):
    """`gone`, or the state of a process by /proc. A zombie has ended, whoever has to collect it."""
    try:
        with open(f"/proc/{process_id}/stat", encoding="ascii", errors="replace") as file:
            letter = file.read().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"
    return "gone" if letter in "ZX" else letter


def is_alive(process):
    """Whether any process of the group runs. Its leader is collected."""
    process.poll()
    try:
        os.killpg(process.pid, 0)
        return True
    except ProcessLookupError:
        return False
