"""Remembers which suites have passed, so that a second `make test` runs only those that a change can reach.

A suite passed with a key: its program, the programs that it starts, every file of the project besides sources in Rust,
and what it finds on the machine (tests/run.py). It is run again when one of them has changed. Programs are compared by
path, size and time, since cargo writes a program only when something in it has changed; files by their bytes. Without
git, and in continuous integration, every suite runs. `make test QUICK=1` has a file of its own: it skips tests, so a
suite that has passed there runs again in `make test`. Standard library only.
"""

import hashlib
import json
import os
import subprocess


# Files of build/: the suites that have passed in `make test`, and in `make test QUICK=1`.
GATE, QUICK = "passed.json", "passed-quick.json"


class Passed:
    """The suites that have passed here, in a file of build/."""

    def __init__(self, root, everything, name=GATE):
        self.file = root / "build" / name
        self.files = None if everything else digest(root)
        self.known = read(self.file) if self.files else {}

    def key(self, programs, extra=()):
        """The key of a suite that starts these programs; `None`: it always runs."""
        if self.files is None:
            return None
        states = [os.stat(program) for program in programs]
        parts = [f"{program} {state.st_size} {state.st_mtime_ns}" for program, state in zip(programs, states)]
        return hashlib.sha256("\n".join([self.files, *parts, *extra]).encode()).hexdigest()

    def counts(self, name, key):
        """How many tests passed and were skipped when the suite passed with this key, or `None`."""
        found = self.known.get(name) if key else None
        return (found["passed"], found["skipped"]) if found and found["key"] == key else None

    def forget(self, name):
        """A suite is run: until it has passed, it has not."""
        self.known.pop(name, None)

    def add(self, name, key, passed, skipped):
        """A suite has passed."""
        if key:
            self.known[name] = {"key": key, "passed": passed, "skipped": skipped}

    def write(self):
        """Keeps what is known for the next time."""
        if self.files is None:
            return
        self.file.parent.mkdir(exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.known, indent=1))
        new.replace(self.file)


def read(file):
    """What an earlier run has written; nothing where it is missing or damaged."""
    try:
        found = json.loads(file.read_text())
        return {name: {part: suite[part] for part in ("key", "passed", "skipped")} for name, suite in found.items()}
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return {}


def digest(root):
    """One hash of all files besides the sources in Rust, or `None` without git."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, stdout=subprocess.PIPE, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    total = hashlib.sha256()
    for name in sorted(set(listed.stdout.decode("utf-8", "surrogateescape").split("\0"))):
        path = root / name
        if name and not name.endswith(".rs") and path.is_file():
            total.update(name.encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
