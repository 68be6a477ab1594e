"""`make help` lists each verb that a person types, in its group, and fits a terminal."""

import os
import pty
import re
import subprocess
import tempfile
import unittest

from gate.output import ROOT

COMMAND = ["make", "--no-print-directory", "help"]
GROUPS = ["Use:", "Develop:", "Measure:"]
# Columns of a terminal, and those in which a description begins.
WIDTH, INDENT = 80, 26
COLOUR = "\x1b["


def on_a_terminal(**variables):
    """The output of `make help` on a terminal with these variables; a variable that is `None` is not set."""
    ours, theirs = pty.openpty()
    environment = {**{key: value for key, value in os.environ.items() if key != "NO_COLOR"}, "TERM": "xterm", **variables}
    environment = {key: value for key, value in environment.items() if value is not None}
    with os.fdopen(ours, "rb", buffering=0) as output:
        process = subprocess.Popen(COMMAND, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=theirs, env=environment)
        os.close(theirs)
        printed = b""
        try:
            while part := output.read(65536):
                printed += part
        except OSError:  # the other end is closed
            pass
        assert process.wait() == 0
    return printed.decode().replace("\r\n", "\n")


class Help(unittest.TestCase):
    def setUp(self):
        self.text = subprocess.run(COMMAND, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout.decode()
        self.lines = self.text.splitlines()

    def test_each_described_verb_is_in_its_group(self):
        described = re.findall(r"^([a-z-]+):.*## (\w+): ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        group, listed = None, []
        for line in self.lines:
            group = line if line in GROUPS else group
            if line.startswith("  make "):
                listed.append((line.split()[1], group.lower().rstrip(":")))
        self.assertEqual(sorted(listed), sorted(described))
        self.assertGreater(len(listed), 40)
        self.assertEqual([line for line in self.lines[1:] if line and not line.startswith(" ")], GROUPS)

    def test_no_word_of_a_description_is_lost(self):
        descriptions = re.findall(r"## (?:use|develop|measure): (.*)", (ROOT / "Makefile").read_text(encoding="utf-8"))
        printed = " ".join(self.text.split())
        self.assertEqual([text for text in descriptions if " ".join(text.split()) not in printed], [])

    def test_it_fits_a_terminal_and_is_aligned(self):
        self.assertEqual([line for line in self.lines if len(line) > WIDTH], [])
        entries = [line for line in self.lines if line.startswith(" ")]
        self.assertEqual([line for line in entries if line[INDENT - 2 : INDENT] != "  " or line[INDENT : INDENT + 1] in ("", " ")], [])

    def test_colours_are_for_terminals_that_want_them(self):
        self.assertNotIn("\x1b", self.text)
        coloured = on_a_terminal()
        self.assertIn(COLOUR, coloured)
        self.assertEqual(re.sub(r"\x1b\[\d+m", "", coloured), self.text)
        for variables in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}, {"TERM": None}):
            self.assertEqual(on_a_terminal(**variables), self.text, variables)

    def test_it_is_listed_from_any_folder(self):
        command = ["make", "--no-print-directory", "-f", str(ROOT / "Makefile"), "help"]
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((process.stdout.decode(), process.stderr.decode()), (self.text, ""))
