"""Tests of `make flaky`: its journal, and what it runs again."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest

from flaky import Journal, Recorder, end, loaded
from gate.tally import Outcome


class Rounds(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.journal, self.program = self.folder / "build" / "flaky.jsonl", self.folder / "program"
        self.program.write_text("one")
        self.calls = 0

    def call(self, outcome, **more):
        """A call of `make flaky` with one suite of two rounds, and what it printed."""

        def once(test=None):
            self.calls += 1
            return outcome

        recorder, printed = Recorder(Journal(self.journal), str(self.program), **more), io.StringIO()
        with contextlib.redirect_stdout(printed):
            for recorder.round in ("busy 1", "one processor"):
                recorder.suite("a suite", once)
            status = end(recorder)
        return status, printed.getvalue().splitlines()[-1]

    def test_a_later_call_runs_only_what_is_missing(self):
        good = Outcome(passed=2)
        self.assertEqual(self.call(good, until=0.0), (0, "0 runs of suites, 2 to do, 0 flaky or broken"))
        self.assertEqual(self.call(good), (0, "2 runs of suites, 0 to do, 0 flaky or broken"))
        self.assertEqual(self.call(good, until=0.0), (0, "2 runs of suites, 0 to do, 0 flaky or broken"))
        self.assertEqual(self.calls, 2)

    def test_a_changed_program_begins_anew(self):
        bad = Outcome(passed=1, failed=1, failures={"a::test": ["panicked at x.rs:", "no answer"]})
        self.assertEqual(self.call(bad), (1, "2 runs of suites, 0 to do, 1 flaky or broken"))
        self.assertEqual(self.call(bad)[0], 1)
        self.assertEqual(self.calls, 2)
        self.program.write_text("another")
        self.assertEqual(self.call(Outcome(passed=2)), (0, "2 runs of suites, 0 to do, 0 flaky or broken"))
        self.assertEqual(self.calls, 4)
        failed = [json.loads(line)["failed"] for line in self.journal.read_text().splitlines()]
        self.assertEqual(failed, [{"a::test": "panicked at x.rs: no answer"}] * 2 + [{}] * 2)

    def test_a_failure_without_a_name_is_one(self):
        died = Outcome(failed=1, note=" (ended with 134 without a result)")
        self.assertEqual(self.call(died), (1, "2 runs of suites, 0 to do, 1 flaky or broken"))

    def test_a_line_that_was_cut_off_is_run_again_and_does_not_spoil_the_next(self):
        self.call(Outcome(passed=2))
        self.journal.write_text(self.journal.read_text()[:-10])
        self.call(Outcome(passed=2))
        self.assertEqual(self.calls, 3)
        self.call(Outcome(passed=2))
        self.assertEqual(self.calls, 3)

    def test_the_load_ends(self):
        before = os.sched_getaffinity(0)
        with loaded(1, 1):
            self.assertEqual(len(os.sched_getaffinity(0)), 1)
        self.assertEqual(os.sched_getaffinity(0), before)


if __name__ == "__main__":
    unittest.main()
