"""Kills at named points, and faults against several daemons. Standard library only."""

import json
import os
import pathlib
import subprocess
import sys
import time

from gate.output import CRASH_POINTS, FEATURES, ROOT, VERBOSE, cargo
from gate.progress import PROGRESS
from gate.tally import Outcome

# Kills of `make test`: each of the named points at least once.
CRASHES = "80"
# Faults of `make test` against several daemons, each once: 80 s on an idle machine. With this seed the cut is longer than a node lives without
# the database.
CLUSTER, CLUSTER_SEED = ("kill", "cut", "rolling-restart"), "5"
# The end of tests/cluster/cluster.py without PostgreSQL.
MISSING = 69


def is_proof(wrong):
    """Whether something was lost, doubled or the like: a rare fault does not happen again at once. Other faults may come of a slow machine."""
    return any(count for kind, count in wrong.items() if not kind.startswith("other"))


def crashes(tally, environment):
    """Kills of a daemon at each named point, once. Its program needs a feature of its own, and is built here unless the other ones have it."""
    name, begin = "kills at named points", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    program = pathlib.Path(environment["BELAY_BIN"]).with_name("belay-crash-points")
    build = ("build", "--locked", "--workspace", "--quiet", *CRASH_POINTS, "--bin", program.name)
    with PROGRESS.doing(f"build of {program.name}"):
        is_built = FEATURES or subprocess.run(cargo(*build), cwd=ROOT, stdin=subprocess.DEVNULL).returncode == 0
    if not is_built:
        tally.add(name, 0, 1, 0, time.monotonic() - begin, " (not built)")
        return
    script = ROOT / "tests" / "crash" / "main.py"
    command = [sys.executable, str(script), "--belay", str(program), "--kills", CRASHES, "--falsify", "--json"]

    def once():
        process = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        try:
            figures = json.loads(process.stdout)
        except ValueError:
            return Outcome(failed=1, note=f" (ended with {process.returncode} without a result)")
        passed = sum(1 for figure in figures["points"].values() if figure["kills"])
        unreached = sum(1 for where, point in figures["points"].items() if where != "outside" and point["not passed"] and not point["kills"])
        broken = process.returncode != 0 and not (any(figures["wrong"].values()) or unreached)
        failed = sum(figures["wrong"].values()) + unreached + int(broken)
        lines = tuple(figures["faults"]) if failed else ()
        return Outcome(passed, failed, 0, "", lines, is_proof=is_proof(figures["wrong"]))

    tally.suite(name, once, files=[script.parent])


def cluster(tally, environment):
    """Faults against three daemons over one PostgreSQL, each kind once. At the end the checker proves that each of its counts can differ from 0."""
    name = "faults against several daemons"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    script = ROOT / "tests" / "cluster" / "cluster.py"
    command = [sys.executable, str(script), "--belay", environment["BELAY_BIN"], "--faults", str(len(CLUSTER)), "--seed", CLUSTER_SEED]
    command += ["--patient", "--falsify", "--json", *(argument for kind in CLUSTER for argument in ("--only", kind))]

    def once():
        process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        if process.returncode == MISSING:
            # As for the tests of the store: only continuous integration has to have it.
            missing_is_failure = os.environ.get("CI") == "true"
            return Outcome(0, int(missing_is_failure), int(not missing_is_failure), f" ({process.stderr.strip()})")
        lines = tuple(process.stderr.splitlines())
        try:
            figures = json.loads(process.stdout)
        except ValueError:
            return Outcome(failed=1, note=f" (ended with {process.returncode} without a result)", lines=lines)
        failed = sum(figures["wrong"].values()) or int(process.returncode != 0)
        shown = (*lines, *figures["found"]) if failed or VERBOSE else ()
        return Outcome(figures["faults"], failed, len(CLUSTER) - figures["faults"], "", shown, is_proof=is_proof(figures["wrong"]))

    tally.suite(name, once, files=[script.parent])
