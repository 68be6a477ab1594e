#!/usr/bin/env python3
"""Prints how large the full and the smallest build are, and compares both with the committed table.

    tests/sizes/main.py [--belay PROGRAM] [--check | --update] [--builds] [--json]

Of each development build: bytes of machine code (debug information and names do not count), the crates that they belong to, and the packages
that it compiles. --check prints a line for each row of tests/sizes/table.json and "N passed, N failed, N skipped"; a program that is not there,
or that another compiler or other options have built, is skipped. --update writes the table. --builds times a build of everything and rebuilds
after a change of one line (minutes). The smallest build is the program `belay-small` beside PROGRAM. Standard library only.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from gate.output import ROOT, say  # noqa: E402
from sizes import builds, table  # noqa: E402
from sizes.elf import NoProgram, Program  # noqa: E402

PROGRAMS = {"full": "belay", "smallest": "belay-small"}
# Crates in the list of a build.
LISTED = 15
BAR = 30


def measure(belay):
    """Of each build: its packages and, if the program is there, its bytes of machine code by crate."""
    found = {}
    for build, name in PROGRAMS.items():
        found[build] = {"packages": table.packages(build), "code_bytes": None, "crates": []}
        program = belay.with_name(name)
        if program.exists():
            parts = Program(program)
            found[build].update(code_bytes=parts.code_bytes(), crates=parts.by_crate())
    return found


def rows(measured):
    """Each row of the table: its path in it, the count of today (None: the program is not there), and the share by which it may rise."""
    for build, sizes in measured.items():
        yield (build, "packages"), sizes["packages"], 0
        yield (build, f"code bytes, {table.kind_of_build()}"), sizes["code_bytes"], table.SHARE


def check(measured):
    """Compares, prints a line for each row, and returns the exit status."""
    known, counts = table.read(), {"ok": 0, "FAILED": 0, "skipped": 0}
    for (build, name), count, share in rows(measured):
        row = known.get(build, {}).get(name)
        why_not = "the program is not built" if count is None else None if row else "no row for this compiler and these options"
        wrong = None if why_not else table.judge(row, count, share)
        verdict = "skipped" if why_not else "FAILED" if wrong else "ok"
        counts[verdict] += 1
        since = "" if why_not else f": {count:,}, {count / row['first']:.2f} of the first"
        say(f"{verdict} {build} build, {name}{since}{': ' + (why_not or wrong) if why_not or wrong else ''}")
    say(f"{counts['ok']} passed, {counts['FAILED']} failed, {counts['skipped']} skipped")
    return 1 if counts["FAILED"] else 0


def update(measured):
    known = table.read()
    for (build, name), count, share in rows(measured):
        if count is not None:
            of_build = known.setdefault(build, {})
            of_build[name] = table.updated(of_build.get(name), count, share)
    table.write(known)
    say(f"written: {table.TABLE.relative_to(ROOT)}")
    return 0


def show(measured):
    """For a person: the sums, and the largest crates with bars."""
    for build, sizes in measured.items():
        code = f"{sizes['code_bytes'] / 1e6:.1f} MB of machine code" if sizes["code_bytes"] else "not built"
        say(f"{build} build ({PROGRAMS[build]}): {sizes['packages']} packages, {code}")
        largest = sizes["crates"][0][1] if sizes["crates"] else 1
        for crate, size in sizes["crates"][:LISTED]:
            say(f"  {crate:<32} {size / 1e6:6.2f} MB  {'█' * max(1, round(BAR * size / largest))}")
        if more := sizes["crates"][LISTED:]:
            say(f"  {f'{len(more)} others':<32} {sum(size for _, size in more) / 1e6:6.2f} MB")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--belay", type=pathlib.Path, default=ROOT / "target" / "debug" / "belay", help="the full development build")
    parser.add_argument("--check", action="store_true", help="compare with the table")
    parser.add_argument("--update", action="store_true", help="write the table")
    parser.add_argument("--builds", action="store_true", help="time builds too")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    try:
        measured = measure(options.belay)
    except NoProgram as error:
        sys.exit(f"sizes: {error}")
    if options.check or options.update:
        return (check if options.check else update)(measured)
    timed = builds.time_all() if options.builds else []
    if options.json:
        say(json.dumps({"builds": measured, "times": timed}))
        return 0
    show(measured)
    builds.show(timed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
