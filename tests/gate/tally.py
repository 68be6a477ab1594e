"""Counts suites, and runs their failed tests again, alone: a fault fails each time, a test that needs a fast machine does not.

A suite is a function that runs it and returns an `Outcome`. Given the name of one of its tests, it runs that test only; a suite that does not
name what has failed is run again whole. Standard library only.
"""

import dataclasses
import os
import threading
import time

from gate.install import PROGRAMS, which
from gate.output import ROOT, say
from gate.progress import PROGRESS
from passed import GATE, Passed

# How often a failed test is run in all.
TRIES = 3
# A suite with more failed tests than this is run again whole, so that a fault in the middle of everything does not take hours.
MANY = 20


@dataclasses.dataclass
class Outcome:
    """What one run of a suite, or of one of its tests, has found."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""
    # What the suite printed besides the tests that passed.
    lines: tuple = ()
    # Some of it was not compared, because the machine was too busy.
    is_busy: bool = False
    # What failed is a fault, such as something lost, even if it does not happen again.
    is_proof: bool = False
    # The failed tests that are known by name, each with the lines that it printed.
    failures: dict = dataclasses.field(default_factory=dict)

    def is_good(self):
        """Whether something ran, and nothing failed. A test that a filter did not find has not passed."""
        return self.passed > 0 and self.failed == 0


@dataclasses.dataclass
class Result:
    """What the table has for a suite."""

    name: str
    outcome: Outcome
    seconds: float
    # How to run it; `None`: it is not run again.
    once: object = None
    flaky: int = 0

    def run_again(self, test=None):
        """Runs it, or one test of it. A suite that cannot be run any more has failed, and the others are still counted."""
        try:
            with PROGRESS.doing(f"again: {test or self.name}"):
                return self.once(test) if test else self.once()
        except Exception as error:  # as for the suites that run side by side
            return Outcome(failed=1, note=f" ({error!r})")


class Tally:
    """The suites that ran, and their sums. Suites report from several threads; each report is printed in one piece."""

    def __init__(self, everything, flaky_fails=False, root=ROOT, remembered=GATE):
        self.passed = Passed(root, everything, remembered)
        self.flaky_fails = flaky_fails
        self.keys = {}
        self.results = []
        self.flaky, self.failures = [], []
        self.lock = threading.Lock()

    def suite(self, name, once, files=()):
        """Runs a suite and counts it. What fails is run again by `again`. Its own files are named for `make flaky`."""
        begin = time.monotonic()
        with PROGRESS.doing(name):
            outcome = once()
        self.report(Result(name, outcome, time.monotonic() - begin, once))

    def add(self, name, passed, failed, skipped, seconds, note=""):
        """Counts a suite that did not run here."""
        self.report(Result(name, Outcome(passed, failed, skipped, note), seconds))

    def report(self, result):
        outcome = result.outcome
        with self.lock:
            self.results.append(result)
            for line in outcome.lines:
                say(f"         {line}")
            if outcome.passed or outcome.failed or outcome.skipped:
                mark = ("again" if result.once and not outcome.is_proof else "FAILED") if outcome.failed else "ok"
                row(mark, result.name, outcome, result.seconds)

    def cached(self, name, *programs):
        """Whether a suite that starts these programs has passed as it is. If so, its tests are counted; otherwise it has to be run."""
        variables = [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith(("BELAY_", "PROPTEST_"))]
        machine = [os.uname().release, *(f"{program}: {which(program)}" for program in PROGRAMS)]
        key = self.passed.key(programs, variables + machine)
        counts = self.passed.counts(name, key)
        if counts is None:
            with self.lock:
                self.keys[name] = key
                self.passed.forget(name)
            return False
        self.add(name, counts[0], 0, counts[1], 0.0, " (cached)")
        return True

    def again(self):
        """Runs again what was too busy to tell and what has failed, one test after the other and beside no other one. A proof is enough."""
        for result in [result for result in self.results if result.once and result.outcome.is_busy]:
            say(f"  again  {result.name}: the machine was too busy")
            result.outcome = result.run_again()
            row("FAILED" if result.outcome.failed else "ok", result.name, result.outcome, 0.0)
        for result in [result for result in self.results if result.outcome.failed]:
            if result.once is None or result.outcome.is_proof:
                self.failures.append(f"{result.name}{result.outcome.note}")
                continue
            failures = result.outcome.failures
            is_named = len(failures) == result.outcome.failed <= MANY
            for test in list(failures) if is_named else [None]:
                self.once_more(result, test)

    def once_more(self, result, test):
        """Runs one test of a suite again, or all of it, until it has passed or has failed three times. Either is counted and printed."""
        what = result.name if test is None else f"{result.name}: {test}"
        first, begin = result.outcome, time.monotonic()
        lines = list(first.failures.get(test, ()) if test else [*first.failures, *first.lines])
        for number in range(2, TRIES + 1):
            outcome = result.run_again(test)
            if outcome.is_good():
                break
            for line in outcome.lines:
                say(f"         {line}")
        seconds, is_flaky = time.monotonic() - begin, outcome.is_good()
        if is_flaky:
            self.count_flaky(result, test, outcome)
            self.flaky.append((what, first_reason(lines) or first.note.strip()))
            say(f"  flaky  {what}: passed at try {number}, {seconds:.1f} s. The first failure:")
            for line in lines:
                say(f"           {line}")
        if not is_flaky or self.flaky_fails:
            self.failures.append(f"{what}{' (flaky)' if is_flaky else ''}")
        if not is_flaky:
            say(f"  FAILED {what}: {TRIES} times, {seconds:.1f} s")

    def count_flaky(self, result, test, outcome):
        """Changes the counts of a suite after a test of it has passed, or all of it."""
        first = result.outcome
        result.flaky += 1
        if self.flaky_fails:
            return
        if test is None:
            result.outcome = dataclasses.replace(outcome, note=first.note)
        else:
            result.outcome = dataclasses.replace(first, passed=first.passed + 1, failed=first.failed - 1)

    def remember(self):
        """Keeps which suites have passed, for the next `make test`. A suite with a flaky test has not."""
        for result in self.results:
            if result.outcome.is_good() and not result.flaky and not result.outcome.is_busy:
                self.passed.add(result.name, self.keys.get(result.name), result.outcome.passed, result.outcome.skipped)
        self.passed.write()

    def total(self, column):
        return sum(getattr(result.outcome, column) for result in self.results)


def row(mark, name, outcome, seconds):
    """A line of the table."""
    counts = f"{outcome.passed:5} passed {outcome.failed:3} failed {outcome.skipped:3} skipped"
    say(f"  {mark:6} {name:44} {counts} {seconds:7.1f} s{outcome.note}")


def first_reason(lines):
    """The line that says best why a test has failed."""
    told = [line.strip() for line in lines if line.strip()]
    panics = [index for index, line in enumerate(told) if "panicked at" in line]
    if panics:
        return " ".join(told[panics[0] : panics[0] + 2])
    return next((line for line in told if "FAILED" in line or "rror" in line), told[0] if told else "")
