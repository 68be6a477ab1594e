"""Tests of what `make test` says before it installs anything."""

import pathlib
import tempfile
import unittest
from unittest import mock

from gate import install, missing


class Missing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def lines(self, uid, has=lambda program: None):
        """What is said in an empty clone, by a user with this number, on a machine that has these programs."""
        which = mock.patch("shutil.which", lambda program, path=None: has(program))
        with mock.patch("gate.missing.ROOT", self.root), mock.patch("os.geteuid", lambda: uid), which:
            return "\n".join(missing.lines())

    def test_everything_is_named_before_it_is_installed(self):
        said = self.lines(0, lambda program: "/usr/bin/apt-get" if program == "apt-get" else None)
        for package in [*install.PROGRAMS.values(), install.CHROMIUM_PACKAGE, *missing.PYTHON, "prometheus", "nginx", "build/service"]:
            self.assertIn(package, said)
        self.assertIn("by apt-get, on this machine: bubblewrap, chromium", said)

    def test_without_root_nothing_is_installed_on_the_machine(self):
        said = self.lines(1000)
        self.assertNotIn("by apt-get", said)
        self.assertIn("not, since only root on Debian or Ubuntu can: bubblewrap", said)

    def test_nothing_is_said_where_all_is_there(self):
        for package, folder in missing.PYTHON.items():
            (self.root / "build" / folder).mkdir(parents=True)
            (self.root / "build" / folder / package).touch()
        for folder in missing.FOLDERS:
            (self.root / "build" / folder).mkdir(parents=True, exist_ok=True)
        self.assertEqual(self.lines(0, lambda program: "/usr/bin/" + program), "")
