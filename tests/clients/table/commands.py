"""What the scripts for clients that are commands share. Standard library only."""

import os
import signal
import subprocess

from columns import LIMIT_S, STALL, runs, stopped

# The beginning of the answer to STALL, which takes half a minute.
FIRST = "1 2 3"


def printed(command):
    """Everything that a command prints."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S)
    return done.stdout


class Running:
    """A command whose output is read while it runs, and which is killed at the end."""

    def __init__(self, command):
        unbuffered = {**os.environ, "PYTHONUNBUFFERED": "1"}
        # A shell starts commands in the background with interruptions ignored, and Python then never raises one.
        heed = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=unbuffered, preexec_fn=heed
        )

    def shows(self, words):
        """Waits for words in its output, however its lines are broken."""
        seen = b""
        while words not in " ".join(seen.decode(errors="replace").split()):
            piece = os.read(self.process.stdout.fileno(), 4096)
            assert piece, f"it ended with {seen.decode(errors='replace')[-300:]!r}"
            seen += piece

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def streams(command):
    """Checks that the words of a long answer are shown before its end."""
    with Running([*command, STALL]) as running:
        running.shows(FIRST)
        assert any(run["status"] == "running" for run in runs()), "the words came when the run was over"


def stops(command):
    """Checks that an interruption, as by a person, ends the run."""
    with Running([*command, STALL]) as running:
        running.shows(FIRST)
        running.process.send_signal(signal.SIGINT)
        stopped()
