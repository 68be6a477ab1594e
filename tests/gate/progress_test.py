"""Tests of the line that says what is being done."""

import contextlib
import io
import os
import re
import subprocess
import unittest
from unittest import mock

from gate.progress import CLEAR, Progress
from waiting import Waiting


class Output(io.StringIO):
    """An output that keeps its text: a terminal or a pipe."""

    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


class Strict(io.TextIOWrapper):
    """A terminal with an encoding of its own."""

    def isatty(self):
        return True


def tick(progress):
    """Draws the line as often as its thread does in one second."""
    progress.tick(mock.Mock(wait=mock.Mock(side_effect=[False, True])))


class Line(unittest.TestCase):
    def printed(self, steps, is_terminal=True, errors=False, columns="80", **variables):
        """Returns the output of these steps, with a clock that they move. The line is drawn by the steps alone."""
        output, self.seconds = Output(is_terminal), 0.0
        progress = Progress(now=lambda: self.seconds)
        progress.ticking = mock.Mock()
        environment = {**{name: value for name, value in os.environ.items() if name != "CI"}, "TERM": "xterm", "COLUMNS": columns, **variables}
        with mock.patch.dict("os.environ", environment, clear=True), mock.patch("sys.stderr", Output(errors)), contextlib.redirect_stdout(output):
            steps(progress)
        return output.getvalue()

    def two_works(self, progress):
        with progress.doing("apt-get install"):
            self.seconds = 61.0
            with progress.doing("scenarios"):
                progress.say("a line")
        progress.say("the end")

    def test_a_pipe_gets_the_lines_alone(self):
        for variables in ({"is_terminal": False}, {"TERM": "dumb"}, {"TERM": ""}, {"CI": "true"}):
            self.assertEqual(self.printed(self.two_works, **variables), "a line\nthe end\n", variables)

    def test_a_terminal_shows_each_work_and_its_time_below_the_lines(self):
        first, both = "  0:00 apt-get install\r", "  1:01 apt-get install, 0:00 scenarios\r"
        expected = [first, both, f"a line\n{both}", "  1:01 apt-get install\r", "the end\n"]
        self.assertEqual(self.printed(self.two_works), CLEAR.join(expected))

    def test_the_time_goes_on_while_nothing_else_is_printed(self):
        def steps(progress):
            with progress.doing("a suite"):
                self.seconds = 7.0
                tick(progress)

        self.assertIn(f"{CLEAR}  0:07 a suite\r", self.printed(steps))

    def test_a_line_fits_the_terminal(self):
        def steps(progress):
            with progress.doing("a very long name of a suite that nobody can read"), progress.doing("another one"):
                pass

        printed = self.printed(steps, columns="40")
        self.assertIn("...", printed)
        self.assertEqual([part for part in printed.replace(CLEAR, "\r").split("\r") if len(part) > 39], [])

    def test_the_line_of_cargo_is_left_alone(self):
        def steps(progress):
            with progress.hidden(), progress.doing("pip install"):
                progress.say("a line")

        self.assertNotIn("pip", self.printed(steps, errors=True))
        self.assertIn("pip", self.printed(steps, errors=False), "cargo draws none where its errors go to a file")

    def test_work_that_fails_is_no_longer_shown(self):
        def steps(progress):
            with contextlib.suppress(OSError), progress.doing("pip install"):
                raise OSError
            progress.say("the end")

        self.assertTrue(self.printed(steps).endswith(f"pip install\r{CLEAR}the end\n"))

    def test_a_line_that_is_not_ours_stays(self):
        """A thread that draws nothing clears nothing: before any work, while the line is hidden, and after the last work."""

        def steps(progress):
            tick(progress)
            with progress.hidden(), progress.doing("build"):
                tick(progress)
            tick(progress)

        self.assertEqual(self.printed(steps, errors=True), "")

    def test_a_text_replaces_the_bar_of_cargo(self):
        def steps(progress):
            with progress.hidden(), progress.doing("build"):
                progress.say("a line")

        self.assertEqual(self.printed(steps, errors=True), f"{CLEAR}a line\n")

    def test_the_thread_ends_with_the_last_work(self):
        def steps(progress):
            progress.ticking = None
            with progress.doing("apt-get install"):
                with progress.doing("scenarios"):
                    first = progress.ticking
                self.assertIs(progress.ticking, first)
                self.assertTrue(first.is_alive())
            first.join(60)
            self.assertFalse(first.is_alive())
            self.assertIsNone(progress.ticking)
            with progress.doing("later"):
                self.assertTrue(progress.ticking.is_alive())
                progress.end()
            self.assertIsNone(progress.ticking)

        self.assertTrue(self.printed(steps).endswith(f"later\r{CLEAR}"))

    def test_an_output_that_cannot_show_a_character_gets_it_escaped(self):
        for encoding, expected in (("latin-1", "Job \\u201csum\\u201d é"), ("utf-8", "Job “sum” é")):
            raw = io.BytesIO()
            output = Strict(raw, encoding=encoding, errors="strict")
            progress, environment = Progress(), {"TERM": "xterm", "COLUMNS": "40", "CI": ""}
            with mock.patch.dict("os.environ", environment), contextlib.redirect_stdout(output):
                with progress.doing("Job “sum” é " + 40 * "long "):
                    progress.say("Job “sum” é")
            printed = raw.getvalue().decode(encoding)
            self.assertIn(f"{expected}\n", printed)
            self.assertIn(f"0:00 {expected} ", printed)
            self.assertIn("...", printed)
            self.assertEqual([part for part in re.split(r"[\r\n]", printed.replace(CLEAR, "\r")) if len(part) > 39], [])
            self.assertEqual(progress.works, {})

    def test_an_output_that_fails_ends_no_work(self):
        """A terminal that was closed takes nothing more."""
        done = []

        def steps(progress):
            with mock.patch("sys.stdout.write", side_effect=OSError), progress.doing("pip install"):
                progress.say("a line")
                done.append("installed")
            self.assertEqual(progress.works, {})

        self.printed(steps)
        self.assertEqual(done, ["installed"])

    def test_work_that_cannot_be_drawn_is_not_shown_for_ever(self):
        def steps(progress):
            with self.assertRaises(RuntimeError), mock.patch.object(progress, "begin_to_tick", side_effect=RuntimeError), progress.doing("pip install"):
                self.fail("the work began")
            self.assertEqual(progress.works, {})

        self.printed(steps)

    def test_a_download_that_is_too_late_is_reported_above_the_line(self):
        with mock.patch("waiting.say") as said, self.assertRaises(subprocess.TimeoutExpired):
            downloads = Waiting()
            downloads.limit_s = 0.01
            downloads.download(["sleep", "600"])
        said.assert_called_once_with("no end after 0.01 s: sleep 600; does the server of the packages answer?")
