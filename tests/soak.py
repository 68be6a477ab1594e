#!/usr/bin/env python3
"""Watches a daemon under steady load, then runs the long measurements with their full figures; `make test` has a small part of each.

    tests/soak.py [--minutes N]

Builds the workspace with its tests. First, a daemon is under load for N minutes (30 without the option): its memory, file descriptors and
files are printed over time, and growth without end is a failure. Then one measurement runs after the other, each printing its figures;
with --minutes, none of them begins later than N minutes after the load, and the first one always does. A measurement whose command finds
no test is a failure. The last line is "N passed, N failed, N skipped". Ends with 1 when anything failed. Standard library only.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
PROGRAMS = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target")) / "debug"
# Everything is selected and built as `make test` does it, so that nothing is built a second time.
TEST = [CARGO, "test", "--locked", "--quiet", "--workspace"]
# Minutes of the steady load if nothing is said.
LOAD_MINUTES = 30

# A result of a test binary; with --nocapture it may follow the text of a test in the same line.
RESULT = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed;")

# What is measured, its command, and the variables with the full figures.
MEASUREMENTS = [
    (
        "1,000 stops of processes of every kind that resists",
        [str(PROGRAMS / "belay-brakes"), "--stops", "1000", "--times", "off"],
        {},
    ),
    ("20,000 damaged histories through each wire format", [*TEST, "--lib", "validity"], {"BELAY_HISTORIES": "20000"}),
    ("20 nights of crashes", [*TEST, "--test", "outer_loop", "--", "--nocapture", "after_a_night"], {"BELAY_NIGHTS": "20"}),
    ("10,000 sleeping sessions", [*TEST, "--test", "outer_loop", "--", "--nocapture", "thousands_of_sessions"], {"BELAY_SESSIONS": "10000"}),
    ("an overload of 8,000 messages", [*TEST, "--test", "scenarios", "--", "--nocapture", "overload::"], {"BELAY_OVERLOAD_MESSAGES": "8000"}),
    ("20 times as many random cases of the properties that leave their number open", [*TEST, "--lib", "--tests", "--", "propert"], {"PROPTEST_CASES": "5120"}),
]


def load(minutes):
    """The measurement of a daemon under steady load."""
    name = f"a daemon under steady load for {minutes:g} minutes"
    command = [str(PROGRAMS / "belay-bench"), "--belay", str(PROGRAMS / "belay"), "--only", "soak", "--minutes", f"{minutes:g}"]
    return name, command, {}


def fault(is_test, lines, status):
    """Why a measurement with this output and exit status has failed, or `None`.

    >>> ok = "test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 9 filtered out; finished in 0.01s"
    >>> none = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 12 filtered out; finished in 0.00s"
    >>> fault(True, ["running 2 tests", ok, none], 0)
    >>> fault(True, [". 3 nights: " + ok], 0)
    >>> fault(True, [none, none], 0)
    'no test has the name that the command asks for'
    >>> fault(True, [], 0)
    'no test has the name that the command asks for'
    >>> fault(True, [ok], 101)
    'it ended with 101'
    >>> fault(False, ["10 stops"], 0)
    >>> fault(False, [], 1)
    'it ended with 1'
    """
    if status != 0:
        return f"it ended with {status}"
    ran = sum(int(count) for line in lines for counts in RESULT.findall(line) for count in counts)
    return "no test has the name that the command asks for" if is_test and ran == 0 else None


def measure(name, command, variables):
    """Runs a measurement and prints what it prints. Returns whether it has passed."""
    print(f"\n== {name}\n$ {' '.join([f'{key}={value}' for key, value in variables.items()] + command)}", flush=True)
    own, results = time.monotonic(), []
    process = subprocess.Popen(
        command, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    )
    for line in process.stdout:
        print(line, end="", flush=True)
        if RESULT.search(line):
            results.append(line)
    why = fault(command[: len(TEST)] == TEST, results, process.wait())
    print(f"{f'FAILED ({why})' if why else 'ok'} after {time.monotonic() - own:.0f} s", flush=True)
    return why is None


def minutes_of(text):
    """A number of minutes that belay-bench accepts.

    >>> minutes_of("30")
    30.0
    >>> minutes_of("nan")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: write a number from 0.5 to 10080
    """
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if 0.5 <= minutes <= 10080:
        return minutes
    raise argparse.ArgumentTypeError("write a number from 0.5 to 10080")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=minutes_of, help="minutes of the load; later than that after it, no measurement begins")
    minutes = parser.parse_args().minutes
    os.chdir(ROOT)
    build = [CARGO, "test", "--locked", "--workspace", "--no-run"]
    subprocess.run(build, check=True, stdin=subprocess.DEVNULL)
    results = [measure(*load(LOAD_MINUTES if minutes is None else minutes))]
    begin, skipped = time.monotonic(), 0
    for measurement in MEASUREMENTS:
        if minutes is not None and len(results) > 1 and time.monotonic() - begin > minutes * 60:
            skipped += 1
        else:
            results.append(measure(*measurement))
    print(f"\n{sum(results)} passed, {results.count(False)} failed, {skipped} skipped")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
