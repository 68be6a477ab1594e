"""Tests of `make test QUICK=1`: each suite runs in it or is named as left out."""

import contextlib
import io
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

from gate import quick
from gate.output import ROOT
from gate.rust import OFFICIAL_MCP
from gate.tally import Outcome
from run import first, last, tally_of

SUITES = [{"target": target, "name": target} for target in ("programs", "confined", "scenarios")]


class Quick(unittest.TestCase):
    def jobs(self, bubblewrap):
        with mock.patch("gate.quick.which", lambda program: bubblewrap):
            return quick.quick(SUITES, {})

    def test_each_suite_runs_or_is_named_as_left_out(self):
        runs = {job.__name__ for job, *_ in self.jobs("/usr/bin/bwrap")[0]}
        everything = {job.__name__ for job, *_ in [*first(SUITES, "budget", {}), *last({}, None, None)]}
        self.assertEqual(runs | set(quick.LEFT_OUT), everything)
        self.assertEqual(runs & set(quick.LEFT_OUT), set())
        self.assertIn("mail_client", runs, "no default build has the channel e-mail")

    def test_tests_of_the_sandbox_need_bubblewrap(self):
        for bubblewrap, expected in (("/usr/bin/bwrap", ["programs", "confined", "scenarios"]), (None, ["programs", "scenarios"])):
            jobs, without = self.jobs(bubblewrap)
            name = "rust" if bubblewrap else "without_bubblewrap"
            rust = [job for job in jobs if job[0].__name__ == name]
            self.assertEqual([job[1]["target"] for job in rust], expected)
            self.assertEqual(rust[0][3][:2], ["--skip", OFFICIAL_MCP])
            self.assertEqual(bool(without), bubblewrap is None)
            text = "\n".join(quick.left_out(without))
            self.assertEqual("bubblewrap" in text, bubblewrap is None, text)

    def test_a_test_that_names_bubblewrap_is_skipped_without_it(self):
        lines = ("the output",)
        failures = {"a": ("Commands need Bubblewrap.",), "b": ("wrong",)}
        both = quick.excused(Outcome(passed=3, failed=2, lines=lines, failures=failures))
        self.assertEqual((both.passed, both.failed, both.skipped, list(both.failures), both.lines), (3, 1, 1, ["b"], lines))
        one = quick.excused(Outcome(passed=3, failed=1, lines=lines, failures={"a": failures["a"]}))
        self.assertEqual((one.failed, one.skipped, one.lines), (0, 1, ()))
        log = ["a daemon says: bubblewrap is missing", "thread 'c' panicked at c.rs:1:", "no answer"]
        other = quick.excused(Outcome(failed=1, failures={"c": log}))
        self.assertEqual((other.failed, other.skipped), (1, 0), "another fault behind a log that names it")
        died = quick.excused(Outcome(failed=1, note="died"))
        self.assertEqual(died.failed, 1)

    def test_a_suite_that_has_passed_in_it_runs_again_in_the_gate(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch("run.ALL", False), contextlib.redirect_stdout(io.StringIO()):
            root = pathlib.Path(folder)
            (root / ".gitignore").write_text("build\n")
            subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
            program = str(root / ".gitignore")
            for arguments in (["--quick"], []):
                tally = tally_of(arguments, root)
                self.assertFalse(tally.cached("scenarios", program), arguments)
                quick.WithoutBubblewrap(tally).suite("scenarios", lambda test=None: Outcome(passed=3))
                tally.remember()
                self.assertTrue(tally_of(arguments, root).cached("scenarios", program), arguments)

    def test_each_named_test_is_there(self):
        folders = {"confined": "crates/tools/tests/confined", "programs": "crates/tools/tests/programs", "scenarios": "tests/scenarios"}
        for target, names in quick.NEED_BUBBLEWRAP.items():
            files = list((ROOT / folders[target]).rglob("*.rs"))
            for module, _, name in (name.rpartition("::") for name in names):
                module = module.split("::")[-1]
                of_module = [path for path in files if module in ("", path.stem, path.parent.name)]
                self.assertTrue(any(f"fn {name}" in path.read_text(encoding="utf-8") for path in of_module), f"{target}: {module}::{name}")
