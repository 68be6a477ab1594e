"""Tests of what is run again, and how it is counted: with programs that print what a test binary prints."""

import contextlib
import io
import os
import pathlib
import stat
import tempfile
import unittest

from gate.faults import is_proof
from gate.rust import outcome_of, read, rust
from gate.scripts import script
from gate.tally import MANY, Outcome, Tally, first_reason

# A test binary of three tests. `unsure` fails as often as its file says, `broken` and `broken1` always do, and `dies` ends the whole binary so often.
BINARY = """#!/bin/sh
echo "$*" >>calls
left() { n=$(cat "$1" 2>/dev/null || echo 0); [ "$n" -gt 0 ] && echo $((n - 1)) >"$1"; }
if left dies; then echo "running 3 tests"; echo "test fine ... ok"; exit 134; fi
passed=0 failed=""
for test in $TESTS; do
  case " $* " in *" --exact "*) case " $* " in *" $test "*) ;; *) continue ;; esac ;; esac
  if [ "${test%%[0-9]*}" = broken ] || { [ "$test" = unsure ] && left unsure; }; then
    failed="$failed $test"; echo "test $test ... FAILED"
  else
    passed=$((passed + 1)); echo "test $test ... ok"
  fi
done
set -- $failed
if [ $# -gt 0 ]; then
  printf '\\nfailures:\\n\\n'
  for test in $failed; do printf -- '---- %s stdout ----\\nthread panicked at src/%s.rs:1:2:\\n%s is wrong\\n\\n' $test $test $test; done
  printf '\\nfailures:\\n'; for test in $failed; do printf '    %s\\n' $test; done
fi
printf '\\ntest result: x. %s passed; %s failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\\n' $passed $#
[ $# = 0 ]
"""


class Again(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.printed = io.StringIO()

    def enterContext(self, context):
        """As of Python 3.11."""
        entered = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return entered

    def program(self, name, text):
        file = self.folder / name
        file.write_text(text)
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
        return str(file)

    def gate(self, tests="fine unsure", arguments=(), flaky_fails=False, **left):
        """Runs a suite of these tests, with what is left to fail, and again what has failed."""
        for name, count in left.items():
            (self.folder / name).write_text(str(count))
        binary = self.program("suite", BINARY)
        suite = {"file": binary, "target": "suite", "folder": self.folder, "programs": [binary]}
        tally = Tally(True, flaky_fails, self.folder)
        with contextlib.redirect_stdout(self.printed):
            rust(tally, suite, "a suite", list(arguments), {"TESTS": tests})
            tally.again()
        return tally

    def calls(self):
        return (self.folder / "calls").read_text().splitlines()

    def counts(self, tally):
        return [tally.total(column) for column in ("passed", "failed", "skipped")]

    def test_a_test_that_passes_the_second_time_is_flaky_and_passed(self):
        tally = self.gate(unsure=1)
        self.assertEqual((self.counts(tally), tally.failures), ([2, 0, 0], []))
        self.assertEqual(tally.flaky, [("a suite: unsure", "thread panicked at src/unsure.rs:1:2: unsure is wrong")])
        self.assertEqual(self.calls(), ["", "--exact unsure"])
        self.assertIn("flaky  a suite: unsure: passed at try 2", self.printed.getvalue())

    def test_a_test_that_passes_the_third_time_is_flaky(self):
        tally = self.gate(unsure=2)
        self.assertEqual((self.counts(tally), len(tally.flaky), tally.failures), ([2, 0, 0], 1, []))

    def test_a_test_that_fails_three_times_has_failed_and_others_do_not_hide_it(self):
        tally = self.gate("fine broken unsure", unsure=1)
        self.assertEqual((self.counts(tally), tally.failures), ([2, 1, 0], ["a suite: broken"]))
        self.assertEqual([what for what, _ in tally.flaky], ["a suite: unsure"])
        self.assertEqual(self.calls(), ["", "--exact broken", "--exact broken", "--exact unsure"])

    def test_a_test_that_would_pass_the_fourth_time_has_failed(self):
        tally = self.gate(unsure=3)
        self.assertEqual((self.counts(tally), tally.flaky, tally.failures), ([1, 1, 0], [], ["a suite: unsure"]))

    def test_flaky_tests_fail_on_request(self):
        tally = self.gate(unsure=1, flaky_fails=True)
        self.assertEqual((self.counts(tally), tally.failures), ([1, 1, 0], ["a suite: unsure (flaky)"]))

    def test_a_binary_that_dies_is_run_again_whole(self):
        tally = self.gate(dies=1)
        self.assertEqual((self.counts(tally), [what for what, _ in tally.flaky]), ([2, 0, 0], ["a suite"]))
        self.assertEqual(self.calls(), ["", ""])
        self.assertEqual(self.counts(self.gate(dies=3)), [0, 1, 0])

    def test_a_binary_that_dies_and_then_fails_is_not_flaky(self):
        tally = self.gate("fine broken", dies=1)
        self.assertEqual((tally.flaky, tally.failures), ([], ["a suite"]))
        self.assertEqual(self.counts(tally)[1], 1)

    def test_many_failures_are_run_again_as_one(self):
        tally = self.gate(" ".join(f"broken{number}" for number in range(MANY + 1)))
        self.assertEqual(self.calls(), [""] * 3)
        self.assertEqual((self.counts(tally), tally.failures), ([0, MANY + 1, 0], ["a suite"]))

    def test_the_arguments_of_a_suite_hold_for_one_test_without_its_filter(self):
        self.gate(arguments=["--include-ignored", "--test-threads=4", "un"], unsure=1)
        self.assertEqual(self.calls()[1], "--include-ignored --test-threads=4 --exact unsure")
        (self.folder / "calls").unlink()
        self.gate(arguments=["--skip", "some::"], unsure=1)
        self.assertEqual(self.calls()[1], "--exact unsure")

    def test_a_test_that_is_not_found_again_has_not_passed(self):
        binary = self.program("suite", BINARY)
        outcome = outcome_of([binary, "--exact", "renamed"], cwd=self.folder, env={**os.environ, "TESTS": "fine"})
        self.assertFalse(outcome.is_good())

    def test_the_name_of_a_test_that_should_panic_is_its_own(self):
        outcome = read(["test a::b - should panic ... FAILED", RESULT_OF_ONE], 101)
        self.assertEqual(list(outcome.failures), ["a::b"])

    def test_a_suite_that_cannot_be_run_again_has_failed(self):
        tally, outcomes = Tally(True, False, self.folder), [Outcome(failed=1)]
        with contextlib.redirect_stdout(self.printed):
            tally.suite("gone", lambda test=None: outcomes.pop())
            tally.again()
        self.assertEqual((self.counts(tally), tally.failures), ([0, 1, 0], ["gone"]))

    def test_something_lost_is_a_failure_even_if_it_is_not_lost_again(self):
        for wrong, failed, left in (({"lost": 1, "other": 0}, 1, 1), ({"lost": 0, "other": 1}, 0, 0)):
            tally, outcomes = Tally(True, False, self.folder), [Outcome(passed=1), Outcome(failed=1, is_proof=is_proof(wrong))]
            with contextlib.redirect_stdout(self.printed):
                tally.suite("kills", lambda test=None: outcomes.pop())
                tally.again()
            self.assertEqual((self.counts(tally)[1], len(tally.failures), len(outcomes)), (failed, failed, left))

    def test_a_script_is_run_again_whole(self):
        once = "echo call >>calls; if [ $(wc -l <calls) -lt 2 ]; then echo 'FAILED it'; echo '1 passed, 1 failed, 0 skipped'; exit 1; fi"
        program = self.program("script.sh", f"cd {self.folder}; {once}; echo '2 passed, 0 failed, 0 skipped'")
        tally = Tally(True, False, self.folder)
        with contextlib.redirect_stdout(self.printed):
            script(tally, "a script", ["sh", program], {})
            tally.again()
        self.assertEqual((self.counts(tally), tally.flaky), ([2, 0, 0], [("a script", "FAILED it")]))

    def test_what_a_busy_machine_could_not_tell_is_run_again_and_is_not_flaky(self):
        for second, counts in (("3 passed, 0 failed, 0 skipped", [3, 0, 0]), ("2 passed, 1 failed, 0 skipped", [2, 1, 0])):
            (self.folder / "calls").write_text("")
            busy = "echo call >>calls; if [ $(wc -l <calls) -lt 2 ]; then echo 'Too busy: it'; echo '2 passed, 0 failed, 1 skipped'; exit; fi"
            program = self.program("script.sh", f"cd {self.folder}; {busy}; echo '{second}'")
            tally = Tally(True, False, self.folder)
            with contextlib.redirect_stdout(self.printed):
                script(tally, "a script", ["sh", program], {})
                self.assertEqual(self.counts(tally), [2, 0, 1])
                tally.again()
            self.assertEqual((self.counts(tally), tally.flaky, len(tally.failures)), (counts, [], counts[1]))

    def test_only_a_suite_without_a_flaky_test_is_remembered(self):
        known = []
        for unsure in (1, 0):
            tally = self.gate(unsure=unsure)
            tally.passed.add = lambda name, *_: known.append((unsure, name))
            tally.remember()
        self.assertEqual(known, [(0, "a suite")])

    def test_what_did_not_run_fails_without_another_try(self):
        tally = Tally(True, False, self.folder)
        with contextlib.redirect_stdout(self.printed):
            tally.add("the build", 0, 1, 0, 1.0, " (not built)")
            tally.again()
        self.assertEqual((self.counts(tally), tally.failures), ([0, 1, 0], ["the build (not built)"]))

    def test_the_reason_is_the_panic_or_the_first_error(self):
        self.assertEqual(first_reason(["starting", "thread 'x' panicked at a.rs:1:2:", "no answer", "note"]), "thread 'x' panicked at a.rs:1:2: no answer")
        self.assertEqual(first_reason(["fine", "FAILED the page"]), "FAILED the page")
        self.assertEqual(first_reason([]), "")


RESULT_OF_ONE = "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s"

if __name__ == "__main__":
    unittest.main()
