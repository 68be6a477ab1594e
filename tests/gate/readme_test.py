"""The first page of the README can be followed from an empty machine, in its order."""

import unittest

from gate.output import ROOT


class FirstPage(unittest.TestCase):
    def setUp(self):
        self.text = (ROOT / "README.md").read_text(encoding="utf-8")

    def section(self, title):
        """The text below a title, up to the next one."""
        return self.text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]

    def test_it_names_each_thing_to_install(self):
        before, commands, _ = self.section("Two commands").partition("```sh\n")
        self.assertTrue(commands)
        for needed in ("Linux", " git", "`make`", "C compiler", "[rustup](https://rustup.rs)", "bubblewrap", "Python 3.9"):
            self.assertIn(needed, before)

    def test_it_names_the_tests_for_a_machine_without_root(self):
        self.assertIn("Without root and bubblewrap: make test QUICK=1\n", self.section("Two commands"))

    def test_it_says_where_the_program_is_before_it_is_typed(self):
        before, conversation, _ = self.section("One conversation").partition("```text\n")
        self.assertTrue(conversation)
        for needed in ("`export PATH=$PWD/target/debug:$PATH`", "end the daemon that `make run` has started, by `/quit`"):
            self.assertIn(needed, " ".join(before.split()))
