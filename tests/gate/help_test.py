"""`make help` lists each verb that a person types, in its group."""

import re
import subprocess
import unittest

from gate.output import ROOT

GROUPS = ["Use:", "Develop:", "Measure:"]


class Help(unittest.TestCase):
    def test_each_described_verb_is_in_one_group(self):
        described = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)
        lines = subprocess.run(["make", "--no-print-directory", "help"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        listed = [line.split()[1] for line in lines if line.startswith("  make ")]
        self.assertEqual([line for line in lines if not line.startswith("  make ")], GROUPS)
        self.assertEqual(sorted(listed), sorted(described))
        self.assertGreater(len(listed), 40)
