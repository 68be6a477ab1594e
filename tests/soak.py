#!/usr/bin/env python3
"""Runs the long measurements with their full figures; `make test` has a small part of each.

    tests/soak.py [--minutes N]

Builds the workspace with its tests, then runs one measurement after the other and prints what each prints. With --minutes, none begins
later than that many minutes after the start, and the first one always does. The last line is "N passed, N failed, N skipped". Ends with
1 when anything failed. Standard library only.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
# Everything is selected and built as `make test` does it, so that nothing is built a second time.
TEST = [CARGO, "test", "--locked", "--quiet", "--workspace"]

# What is measured, its command, and the variables with the full figures.
MEASUREMENTS = [
    (
        "1,000 stops of processes of every kind that resists",
        [str(pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "debug" / "belay-brakes"), "--stops", "1000", "--times", "off"],
        {},
    ),
    ("20,000 damaged histories through each wire format", [*TEST, "--lib", "validity"], {"BELAY_HISTORIES": "20000"}),
    ("20 nights of crashes", [*TEST, "--test", "outer_loop", "--", "--nocapture", "after_a_night"], {"BELAY_NIGHTS": "20"}),
    ("10,000 sleeping sessions", [*TEST, "--test", "outer_loop", "--", "--nocapture", "thousands_of_sessions"], {"BELAY_SESSIONS": "10000"}),
    ("an overload of 8,000 messages", [*TEST, "--test", "scenarios", "--", "--nocapture", "overload::"], {"BELAY_OVERLOAD_MESSAGES": "8000"}),
    ("20 times as many random cases of the properties that leave their number open", [*TEST, "--lib", "--tests", "--", "propert"], {"PROPTEST_CASES": "5120"}),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, help="begin no measurement later than this")
    minutes = parser.parse_args().minutes
    os.chdir(ROOT)
    subprocess.run([CARGO, "test", "--locked", "--workspace", "--no-run"], check=True, stdin=subprocess.DEVNULL)
    begin, passed, failed, skipped = time.monotonic(), 0, 0, 0
    for name, command, variables in MEASUREMENTS:
        if minutes is not None and passed + failed > 0 and time.monotonic() - begin > minutes * 60:
            skipped += 1
            continue
        print(f"\n== {name}\n$ {' '.join([f'{key}={value}' for key, value in variables.items()] + command)}", flush=True)
        own = time.monotonic()
        done = subprocess.run(command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL)
        print(f"{'ok' if done.returncode == 0 else 'FAILED'} after {time.monotonic() - own:.0f} s", flush=True)
        passed, failed = passed + int(done.returncode == 0), failed + int(done.returncode != 0)
    print(f"\n{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
