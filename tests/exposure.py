#!/usr/bin/env python3
"""Has systemd rate the exposure of deploy/belay.service, as it is and with the drop-in for a Belay without commands.

    tests/exposure.py

Prints a line for each, then "N passed, N failed, N skipped": a figure above its mark fails. Standard library only.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

DEPLOY = pathlib.Path(__file__).resolve().parent.parent / "deploy"
UNIT = "belay.service"
DROP_IN = "belay.service.d/no-commands.conf"
FIGURE = re.compile(r"Overall exposure level for belay\.service: ([\d.]+)")

# What we hold ourselves to. systemd says "OK" below 3.2; without commands there is no excuse.
MARKS = [("with commands", False, 2.6), ("without commands (drop-in)", True, 1.5)]


def rate(with_drop_in):
    """The figure of systemd, in a directory of its own: a drop-in that lies beside a unit is read with it."""
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        shutil.copy(DEPLOY / UNIT, place)
        if with_drop_in:
            (place / DROP_IN).parent.mkdir()
            shutil.copy(DEPLOY / DROP_IN, place / DROP_IN)
        command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(place / UNIT)]
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True).stdout
    found = FIGURE.search(said)
    return float(found[1]) if found else None


def main():
    if shutil.which("systemd-analyze") is None:
        print("systemd-analyze is not installed: on Debian and Ubuntu, apt install systemd")
        print(f"0 passed, 0 failed, {len(MARKS)} skipped")
        return 0
    passed = 0
    for name, with_drop_in, most in MARKS:
        figure = rate(with_drop_in)
        good = figure is not None and figure <= most
        passed += good
        print(f"{'ok' if good else 'FAILED'} exposure {name}: {figure} (at most {most})")
    print(f"{passed} passed, {len(MARKS) - passed} failed, 0 skipped")
    return 0 if passed == len(MARKS) else 1


if __name__ == "__main__":
    sys.exit(main())
