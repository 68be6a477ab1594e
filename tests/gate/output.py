"""What all parts of the gate share: the root of the project, its options, and printing. Standard library only."""

import os
import pathlib
import secrets
import sys

from gate.progress import PROGRESS

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERBOSE = "--verbose" in sys.argv[1:]
CI = os.environ.get("CI") == "true"
ALL = "--all" in sys.argv[1:] or CI
# The feature of `make crash`. Continuous integration tests programs with it, in which the points do nothing until a variable names one: that
# saves a second build of half of the workspace. Elsewhere that second build is kept, and the tests run what people run.
CRASH_POINTS = ("--features", "belay-daemon/crash-points")
FEATURES = CRASH_POINTS if CI else ()

# Property tests draw their cases by it. A test that is run again draws the same ones, so that another seed does not hide a fault.
SEED = "PROPTEST_RNG_SEED"


def say(line):
    PROGRESS.say(line)


def announced(command, where=""):
    """Prints a command, and shows on a terminal how long it runs. A context manager."""
    say(f"$ {command}{where}")
    return PROGRESS.doing(command)


def cargo(*arguments):
    """A command of cargo, which is printed."""
    command = [os.environ.get("CARGO", "cargo"), *arguments]
    say("$ " + " ".join(command))
    return command


def environment_of(belay):
    """The variables of all suites. Prints the seed of the property tests."""
    environment = {"BELAY_BIN": belay, SEED: os.environ.get(SEED) or str(secrets.randbits(63))}
    say(f"{SEED}={environment[SEED]}")
    return environment
