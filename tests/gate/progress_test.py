"""Tests of the line that says what is being done."""

import contextlib
import io
import os
import unittest
from unittest import mock

from gate.progress import CLEAR, Progress


class Output(io.StringIO):
    """What is printed, on a terminal or in a pipe."""

    def __init__(self, is_terminal):
        super().__init__()
        self.is_terminal = is_terminal

    def isatty(self):
        return self.is_terminal


class Line(unittest.TestCase):
    def printed(self, steps, is_terminal=True, errors=False, columns="80", **variables):
        """What these steps print, with a clock that they move. The line is drawn by the steps alone."""
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
        for variables in ({"is_terminal": False}, {"TERM": "dumb"}, {"CI": "true"}):
            self.assertEqual(self.printed(self.two_works, **variables), "a line\nthe end\n", variables)

    def test_a_terminal_shows_each_work_and_its_time_below_the_lines(self):
        first, both = "  0:00 apt-get install\r", "  1:01 apt-get install, 0:00 scenarios\r"
        expected = [first, both, f"a line\n{both}", "  1:01 apt-get install\r", "", "the end\n"]
        self.assertEqual(self.printed(self.two_works), "".join(CLEAR + part for part in expected))

    def test_the_time_goes_on_while_nothing_else_is_printed(self):
        def steps(progress):
            progress.ended.wait = mock.Mock(side_effect=[False, True])
            with progress.doing("a suite"):
                self.seconds = 7.0
                progress.tick()

        self.assertIn(f"{CLEAR}  0:07 a suite\r", self.printed(steps))

    def test_a_line_fits_the_terminal(self):
        def steps(progress):
            with progress.doing("a very long name of a suite that nobody can read"), progress.doing("another one"):
                pass

        printed = self.printed(steps, columns="40")
        self.assertIn("…", printed)
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

        self.assertTrue(self.printed(steps).endswith(f"{CLEAR}{CLEAR}the end\n"))
