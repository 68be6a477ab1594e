"""What `make run` builds, `make test` uses: cargo gives the crates of the project the same features in both."""

import os
import subprocess
import unittest

from gate.output import ROOT


def features(edges):
    """The crates of the project, each with its features, as cargo builds them over these edges of the graph."""
    cargo = [os.environ.get("CARGO", "cargo"), "tree", "--locked", "--workspace", "--prefix", "none", "--format", "{p} {f}", "--edges", edges]
    lines = subprocess.run(cargo, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return {line.removesuffix(" (*)").rstrip() for line in lines if line.startswith("belay-")}


class Features(unittest.TestCase):
    def test_no_crate_is_built_twice(self):
        # A crate with another feature is another crate, and so is each one that imports it. The tests have their dev-dependencies too.
        run, test = features("normal,build"), features("normal,build,dev")
        self.assertGreater(len(run), 20)
        self.assertEqual(run - test, set(), "`make test` would build these again; crates/testkit/Cargo.toml has the features of tests")
