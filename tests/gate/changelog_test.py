"""Tests of `make changelog`: the form of a note, and what a release writes."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from changelog import items_of, main

CHANGELOG = "# Changelog\n\nHead.\n\n## Unreleased\n\n### Old\n\n- was here\n"


class Notes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.folder = self.root / "docs" / "changes"
        self.folder.mkdir(parents=True)
        (self.root / "CHANGELOG.md").write_text(CHANGELOG)
        (self.folder / "README.md").write_text("# The form\n")

    def call(self, *arguments):
        """The exit status, and what was printed."""
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
            status = main(list(arguments), self.root, "2026-11-29")
        return status, out.getvalue() + errors.getvalue()

    def test_a_release_writes_the_notes_before_what_was_there_and_removes_them(self):
        (self.folder / "b-fix.md").write_text("## Fixed\n\n- B\n  goes on\n")
        (self.folder / "a.md").write_text("## Fixed\n\n- A, see [x](../guide/x.md)\n\n## Added\n\n- new\n")
        text = "### Added\n\n- new\n\n### Fixed\n\n- A, see [x](docs/guide/x.md)\n- B\n  goes on\n"
        self.assertEqual(self.call(), (0, text + "\n"))
        self.assertEqual(self.call("--check", "0.2.0"), (0, ""))
        self.assertEqual((self.root / "CHANGELOG.md").read_text(), CHANGELOG)
        self.assertEqual(self.call("0.2.0"), (0, ""))
        expected = f"# Changelog\n\nHead.\n\n## Unreleased\n\n## 0.2.0 – 2026-11-29\n\n{text}\n### Old\n\n- was here\n"
        self.assertEqual((self.root / "CHANGELOG.md").read_text(), expected)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["README.md"])
        self.assertEqual(self.call(), (0, "docs/changes has no notes.\n"))
        self.assertEqual(self.call("0.2.0")[0], 1, "a version is written once")
        self.assertEqual(self.call("0.3.0"), (0, ""))
        self.assertIn("## Unreleased\n\n## 0.3.0 – 2026-11-29\n\n## 0.2.0", (self.root / "CHANGELOG.md").read_text())

    def test_a_wrong_note_is_named_and_nothing_is_written(self):
        (self.folder / "Bad_Name.md").write_text("## Added\n\n- x\n")
        (self.folder / "kind.md").write_text("## News\n\n- x\n")
        status, printed = self.call("0.2.0")
        self.assertEqual((status, (self.root / "CHANGELOG.md").read_text()), (1, CHANGELOG))
        self.assertIn("docs/changes/Bad_Name.md: a name has", printed)
        self.assertIn("docs/changes/kind.md: line 1: '## News' is none of", printed)
        self.assertEqual(self.call("--check")[0], 1)
        self.assertEqual(self.call("next")[0], 1)

    def test_a_note_has_items_below_headings_and_nothing_else(self):
        for text in ("", "- x\n", "## Added\n", "## Added\n\ntext\n", "# Added\n\n- x\n", "## Added\n  x\n", "## Added\n\n- x\n\n## Fixed\n"):
            with self.assertRaises(ValueError, msg=text):
                items_of(text)
