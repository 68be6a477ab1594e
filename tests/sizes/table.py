"""The committed table of sizes: the machine code of the full and of the smallest build, and the packages that each compiles. Standard library only."""

import json
import os
import pathlib
import subprocess

from gate.output import CI, ROOT

TABLE = ROOT / "tests" / "sizes" / "table.json"
# Machine code may grow by this share before it needs a reason. Packages are counted exactly.
SHARE = 0.02
# The reason of a row whose reason is still to be written.
NO_REASON = "?"
# Cargo's arguments for each build.
BUILDS = {"full": (), "smallest": ("--no-default-features", "--features", "small")}


def kind_of_build():
    """What the size of a development build depends on besides the code: compiler, machine, units, and the points of `make crash`."""
    about = dict(line.split(": ", 1) for line in run("rustc", "-vV").splitlines() if ": " in line)
    units = os.environ.get("CARGO_PROFILE_DEV_CODEGEN_UNITS", "default")
    more = [f"incremental={os.environ[name]}" for name in ("CARGO_INCREMENTAL",) if name in os.environ]
    more += ["crash-points"] if CI else []
    return " ".join((about["release"], about["host"], f"units={units}", *more, *os.environ.get("RUSTFLAGS", "").split()))


def packages(build):
    """How many packages a build compiles, with those that run while it is built."""
    tree = run(os.environ.get("CARGO", "cargo"), "tree", "--locked", "-p", "belay-daemon", "-e", "normal,build", "--prefix", "none", *BUILDS[build])
    return len({line.removesuffix(" (*)") for line in tree.splitlines() if line})


def run(*command):
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True).stdout


def read(file=TABLE):
    return json.loads(pathlib.Path(file).read_text(encoding="utf8"))


def write(rows, file=TABLE):
    pathlib.Path(file).write_text(json.dumps(rows, indent=2, sort_keys=True) + "\n", encoding="utf8")


def judge(row, count, share):
    """What a count says beside its row: None if all is well, else a reason to fail.

    >>> judge({"count": 100, "first": 90}, 102, 0.02), judge({"count": 100, "first": 90}, 103, 0.02)
    (None, '103 instead of 100 (+3.0 %): make it smaller, or `make sizes UPDATE=1` and write why')
    >>> judge({"count": 100, "first": 90, "why": "?"}, 100, 0.02)
    'it has risen, and nobody has written why'
    """
    if row.get("why") == NO_REASON:
        return "it has risen, and nobody has written why"
    if count > row["count"] * (1 + share):
        return f"{count:,} instead of {row['count']:,} (+{100 * (count / row['count'] - 1):.1f} %): make it smaller, or `make sizes UPDATE=1` and write why"
    return None


def updated(row, count, share):
    """The row for a new count. One that has risen needs a new reason.

    >>> updated(None, 7, 0), updated({"count": 7, "first": 7}, 8, 0), updated({"count": 9, "first": 7, "why": "x"}, 8, 0)
    ({'count': 7, 'first': 7}, {'count': 8, 'first': 7, 'why': '?'}, {'count': 8, 'first': 7, 'why': 'x'})
    """
    if row is None:
        return {"count": count, "first": count}
    changed = {**row, "count": count}
    if count > row["count"] * (1 + share):
        changed["why"] = NO_REASON
    return changed
