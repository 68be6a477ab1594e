"""Tests of what `make test` says before it installs anything."""

import os
import pathlib
import re
import tempfile
import unittest
from unittest import mock

from gate import install, missing
from gate.output import ROOT

IMPOSSIBLE = "missing, and only root on Debian or Ubuntu installs them:"


def apt_get(program):
    """A machine that has only apt-get."""
    return "/usr/bin/apt-get" if program == "apt-get" else None


class Missing(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def lines(self, uid, has=lambda program: None, ci=False, download="12 MB"):
        """The lines in an empty clone, for a user with this number, on a machine that has these programs."""
        which = mock.patch("shutil.which", lambda program, path=None: has(program))
        asked = mock.patch("gate.missing.to_download", lambda system: download)
        with mock.patch("gate.missing.ROOT", self.root), mock.patch("os.geteuid", lambda: uid), mock.patch("gate.missing.CI", ci), which, asked:
            return "\n".join(missing.lines())

    def fill(self, folders):
        """Has the packages of Python and these folders in build/."""
        for package, folder in missing.PYTHON.items():
            (self.root / "build" / folder).mkdir(parents=True, exist_ok=True)
            (self.root / "build" / folder / package).touch()
        for folder in folders:
            (self.root / "build" / folder).mkdir(parents=True, exist_ok=True)

    def test_everything_is_named_before_it_is_installed(self):
        said = self.lines(0, apt_get)
        for package in [*install.PROGRAMS.values(), install.CHROMIUM_PACKAGE, *missing.PYTHON, "prometheus", "nginx", "build/service"]:
            self.assertIn(package, said)
        self.assertIn("by apt-get, on this machine (12 MB): bubblewrap, chromium", said)
        self.assertIn("build/service (195 MB): ", said)
        self.assertIn("by apt-get, on this machine: bubblewrap", self.lines(0, apt_get, download=""))

    def test_continuous_integration_says_all_of_it_in_two_lines(self):
        said = self.lines(0, apt_get, ci=True)
        for name in [*install.PROGRAMS.values(), *missing.PYTHON.values(), *missing.FOLDERS, "prometheus", "nginx", "12 MB", "more than 1,513 MB"]:
            self.assertIn(name, said)
        self.assertEqual(len(said.splitlines()), 2)

    def test_each_size_is_of_a_folder_that_is_filled(self):
        tools = (install.PROMTOOL, install.KUBECTL, *install.PROXIES.values(), install.NGIRCD, install.LIBIDENT)
        filled = {*missing.PYTHON.values(), *missing.FOLDERS, *(package for package, _ in tools)}
        self.assertEqual(set(missing.SIZES) - filled, set())
        self.assertEqual(filled - set(missing.SIZES), {"node", "kubernetes-client"})
        self.assertEqual([missing.size(folders) for folders in (["node"], ["mcp", "oauth"], ["mcp", "node"])], ["", "74 MB", "more than 70 MB"])

    def test_each_folder_of_packages_of_node_is_said(self):
        text = (ROOT / "tests" / "gate" / "scripts.py").read_text(encoding="utf-8")
        folders = {name.rpartition("/")[2] for name in re.findall(r'node_modules\(.*, "([^"]+)"\)', text)}
        self.assertGreater(len(folders), 4)
        self.assertEqual(folders - set(missing.FOLDERS), set())

    def test_the_download_is_the_sum_of_what_apt_would_fetch(self):
        for printed, status, expected in (
            ("'http://a/b_1.deb' b_1.deb 1500000 MD5Sum:0\n'http://a/c_2.deb' c_2.deb 1000 MD5Sum:1\n", 0, "2 MB to download"),
            ("", 0, ""),
            ("E: Unable to locate package b\n", 100, ""),
        ):
            program = self.root / "apt-get"
            program.write_text(f"#!/bin/sh\necho \"$*\" >'{self.root}/asked'\nprintf '%s' \"{printed}\"\nexit {status}\n")
            program.chmod(0o755)
            with mock.patch.dict("os.environ", {"PATH": f"{self.root}:{os.environ['PATH']}"}):
                self.assertEqual(missing.to_download(["b"]), expected)
            # Without this option apt-get would install them.
            self.assertIn("--print-uris ", (self.root / "asked").read_text())

    def test_without_root_nothing_is_installed_on_the_machine(self):
        for ci in (False, True):
            said = self.lines(1000, apt_get, ci=ci)
            self.assertNotIn("by apt-get", said)
            self.assertEqual([line.partition(" bubblewrap")[0] for line in said.splitlines() if "bubblewrap" in line], [IMPOSSIBLE])

    def test_folders_of_root_are_named_to_root_alone(self):
        for uid, has, size in ((0, apt_get, "1,513 MB"), (1000, apt_get, "1,118 MB"), (0, lambda program: None, "983 MB")):
            said, in_ci = self.lines(uid, has), self.lines(uid, has, ci=True)
            self.assertIn(f"To be installed, more than {size} of it in build/ (", said)
            self.assertIn(f"into build/ (more than {size}): ", in_ci)
            for folder in missing.OF_ROOT:
                self.assertEqual(f"build/{folder}" in said, uid == 0 and has is apt_get, (uid, folder))
                self.assertEqual(f", {folder}" in in_ci, uid == 0 and has is apt_get, (uid, folder))

    def test_the_documents_say_the_same_size(self):
        for_all = sum(megabytes for folder, megabytes in missing.SIZES.items() if folder not in missing.OF_ROOT)
        said = f"{for_all / 1000:.1f} GB in `build`, or {sum(missing.SIZES.values()) / 1000:.1f} GB as root"
        for document in ("README.md", "docs/develop/testing.md"):
            self.assertIn(said, " ".join((ROOT / document).read_text(encoding="utf-8").split()), document)

    def test_what_a_user_cannot_install_is_no_reason_to_announce_an_installation(self):
        self.fill(folder for folder in missing.FOLDERS if folder not in missing.OF_ROOT)
        self.assertTrue(self.lines(1000).startswith(IMPOSSIBLE))
        self.assertEqual(len(self.lines(1000).splitlines()), 1)

    def test_nobody_is_asked_to_interrupt(self):
        """Nothing waits for an answer: apt-get begins at once."""
        self.assertNotIn("interrupt", self.lines(0, apt_get))
        self.assertIn("(`make test QUICK=1` installs nothing):", self.lines(0, apt_get))

    def test_nothing_is_said_where_all_is_there(self):
        self.fill(folder for folder in missing.FOLDERS if folder not in missing.OF_ROOT)
        self.assertEqual(self.lines(1000, lambda program: "/usr/bin/" + program), "")
        self.fill(missing.OF_ROOT)
        self.assertEqual(self.lines(0, lambda program: "/usr/bin/" + program), "")
