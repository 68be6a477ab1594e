#!/usr/bin/env python3
"""Runs every suite three times beside three busy loops on two processors, and once pinned to one, and names the tests that ever failed.

    tests/flaky.py [--minutes N] [--only PART OF A NAME] [--round PART OF A NAME]

Suites run side by side as `make test` runs them, so a test has the busy loops and other tests beside it. That takes hours. build/flaky.jsonl has a line for each suite and round, with the digest of the suite's programs; a later call runs what is
missing. A suite whose programs have changed begins anew. After N minutes no suite begins. Ends with 1 when a test failed. Standard library only.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import secrets
import subprocess
import sys
import threading
import time

from gate import install
from gate.machines import prepare_image, prepare_service
from gate.output import ROOT, SEED, say
from gate.progress import clock
from gate.rust import build
from gate.tally import Result, Tally, first_reason
from run import first, last, run

JOURNAL = ROOT / "build" / "flaky.jsonl"
# Rounds by name: how many processors, and how many busy loops beside the suites.
ROUNDS = {"busy 1": (2, 3), "busy 2": (2, 3), "busy 3": (2, 3), "one processor": (1, 0)}
# As many tests of a suite at once also on one processor.
THREADS = {"RUST_TEST_THREADS": "2"}
# Ends with its parent, however that ends.
BUSY_LOOP = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"


class Recorder(Tally):
    """Runs a suite of a round unless the journal has it, and writes what has failed into the journal. Runs nothing again."""

    def __init__(self, journal, belay, until=None, only=""):
        super().__init__(everything=True)
        self.journal, self.belay, self.until, self.only = journal, belay, until, only
        self.round, self.seed = None, None
        self.programs, self.digests = {}, {}
        self.runs, self.missing = [], []
        self.writing = threading.Lock()

    def cached(self, name, *programs):
        self.programs[name] = programs
        return False

    def add(self, name, passed, failed, skipped, seconds, note=""):
        say(f"  {name} did not run{note}")
        self.missing.append((name, self.round))

    def suite(self, name, once, files=()):
        if self.only not in name:
            return
        with self.writing:
            digest = self.digest(self.programs.get(name, (self.belay,)), files)
        known = self.journal.find(name, self.round, digest)
        if known is None and self.until is not None and time.monotonic() > self.until:
            self.missing.append((name, self.round))
            return
        self.runs.append(known or self.measure(name, once, digest))

    def measure(self, name, once, digest):
        begin = time.monotonic()
        outcome = once()
        seconds = time.monotonic() - begin
        self.report(Result(name, outcome, seconds))
        failed = {test: first_reason(lines) for test, lines in outcome.failures.items()}
        if outcome.failed > len(failed):
            failed[""] = f"{first_reason(outcome.lines)}{outcome.note}"
        counts = {"passed": outcome.passed, "skipped": outcome.skipped, "seconds": round(seconds, 1), "load": os.getloadavg()[0]}
        run = {"suite": name, "round": self.round, "digest": digest, "failed": failed, "seed": self.seed, **counts}
        with self.writing:
            self.journal.add(run)
        return run

    def digest(self, programs, files):
        """The digest of what a suite runs: its programs, and its files that are no programs."""
        inside = (path for file in files for path in sorted(file.rglob("*") if file.is_dir() else [file]))
        scripts = [path for path in inside if path.is_file() and "__pycache__" not in path.parts]
        total = hashlib.sha256()
        for path in (*map(pathlib.Path, programs), *scripts):
            state = path.stat()
            key = (path, state.st_size, state.st_mtime_ns)
            if key not in self.digests:
                self.digests[key] = hashlib.sha256(path.read_bytes()).digest()
            total.update(path.name.encode() + self.digests[key])
        return total.hexdigest()


class Journal:
    """The runs of suites so far, one JSON object a line. A line that was cut off is not read."""

    def __init__(self, file):
        self.file, self.runs = file, []
        with contextlib.suppress(FileNotFoundError):
            for line in file.read_text().splitlines():
                with contextlib.suppress(ValueError):
                    self.runs.append(json.loads(line))

    def find(self, suite, round_name, digest):
        wanted = (suite, round_name, digest)
        return next((run for run in self.runs if (run["suite"], run["round"], run["digest"]) == wanted), None)

    def add(self, run):
        self.file.parent.mkdir(exist_ok=True)
        with self.file.open("a+b") as file:
            file.seek(0, os.SEEK_END)
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(json.dumps(run).encode() + b"\n")
        self.runs.append(run)


@contextlib.contextmanager
def loaded(processors, loops):
    """This process and what it starts have these processors, which busy loops have too."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:processors])
    busy = [subprocess.Popen([sys.executable, "-c", BUSY_LOOP], stdin=subprocess.DEVNULL) for _ in range(loops)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()
        os.sched_setaffinity(0, before)


def rounds(recorder, suites, budget_program, belay, chosen):
    """The chosen rounds of all suites. Each round draws the cases of property tests by a seed of its own."""
    preparing = prepare_service(), prepare_image()
    for name, load in ((name, load) for name, load in ROUNDS.items() if chosen in name):
        recorder.round, recorder.seed = name, str(secrets.randbits(63))
        environment = {"BELAY_BIN": belay, SEED: recorder.seed, **THREADS}
        say(f"{name}:")
        with loaded(*load):
            run(recorder, first(suites, budget_program, environment))
            run(recorder, last(environment, *preparing))


def end(recorder):
    """Prints which tests failed, how often, and what is still to do. Returns the exit status."""
    failed = {}
    for run in recorder.runs:
        for test, why in run["failed"].items():
            failed.setdefault((run["suite"], test), []).append(f"{run['round']}: {why}")
    for (suite, test), times in sorted(failed.items()):
        say(f"\n{suite}{': ' if test else ''}{test}")
        for why in times:
            say(f"    {why}")
    say(f"\n{len(recorder.runs)} runs of suites, {len(recorder.missing)} to do, {len(failed)} flaky or broken")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, help="no suite begins later than this")
    parser.add_argument("--only", default="", help="only suites with this in their names")
    parser.add_argument("--round", default="", help="only rounds with this in their names: " + ", ".join(ROUNDS))
    options, begin = parser.parse_args(), time.monotonic()
    os.chdir(ROOT)
    try:
        install.programs()
        suites, belay, budget_program = build(Tally(everything=True))
        if belay is None:
            return 1
        install.install()
        until = None if options.minutes is None else begin + 60 * options.minutes
        recorder = Recorder(Journal(JOURNAL), belay, until, options.only)
        rounds(recorder, suites, budget_program, belay, options.round)
        return end(recorder)
    finally:
        install.DOWNLOADS.end()
        say(f"{clock(time.monotonic() - begin)} in all")


if __name__ == "__main__":
    sys.exit(main())
