"""Times builds in a copy of the sources: all of it, and again after a change of one line. Standard library only."""

import os
import resource
import shutil
import subprocess
import time

from gate.output import ROOT, say
from sizes.table import BUILDS

COPY = ROOT / "build" / "sizes"
# Crates in whose `lib.rs` a line is added.
CHANGED = ("protocol", "run", "store")


def time_all():
    """Each build and rebuild, with its seconds by the clock and of the processors."""
    sources, times = COPY / "src", []
    shutil.rmtree(COPY, ignore_errors=True)
    for name in subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (sources / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, sources / name)
    try:
        for build, features in BUILDS.items():
            program = "belay" if build == "full" else "belay-small"
            command = [os.environ.get("CARGO", "cargo"), "build", "--locked", "--quiet", "-p", "belay-daemon", *features, "--bin", program]
            command += ["--target-dir", str(COPY / build)]
            times.append({"build": build, "what": "everything", **timed(command, sources)})
            for crate in CHANGED:
                with (sources / "crates" / crate / "src" / "lib.rs").open("a", encoding="utf8") as file:
                    file.write(f"\n/// A line of `make sizes`.\npub const LINE_OF_{build.upper()}: u8 = 1;\n")
                times.append({"build": build, "what": f"one line of {crate}", **timed(command, sources)})
    finally:
        shutil.rmtree(COPY, ignore_errors=True)
    return times


def timed(command, folder):
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, cwd=folder, check=True, stdin=subprocess.DEVNULL)
    seconds, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": round(seconds, 1), "processor_seconds": round(used, 1)}


def show(times):
    if times:
        say(f"{'build':<10} {'after a change of':<22} {'seconds':>8} {'of processors':>14}")
    for one in times:
        say(f"{one['build']:<10} {one['what'].removeprefix('one line of '):<22} {one['seconds']:>8} {one['processor_seconds']:>14}")
