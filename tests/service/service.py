#!/usr/bin/env python3
"""Boots a machine with the installed service, and looks at what an operator would: tests/service/service.py [--verbose] [NAME…]

    service.py --prepare      builds the root of the machine (build/service), and nothing else

Needs root, Debian or Ubuntu, and the packages mmdebstrap and systemd-container; without one of them it says so and skips. The
binary is $BELAY_BIN, else target/debug/belay. With names, only the checks whose name contains one of them are run, and what they
need before them. Prints a line for each check, then "N passed, N failed, N skipped". Standard library only.

Everything happens in a PID namespace and a mount namespace, in control groups of their own: whatever happens to this program, no
machine, mount or process is left behind.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import rootfs

GROUPS = pathlib.Path("/sys/fs/cgroup")
PROGRAMS = {"mmdebstrap": "mmdebstrap", "systemd-nspawn": "systemd-container", "unshare": "util-linux", "nsenter": "util-linux"}
# Longest the whole may take. Eight times what it takes on two idle cores.
LIMIT_S = 1500


def missing():
    """Why there can be no machine here, or None."""
    if os.geteuid() != 0:
        return "needs root"
    if rootfs.suite() is None:
        return "needs Debian or Ubuntu"
    lacking = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    if lacking:
        return f"not installed: {', '.join(lacking)}"
    return None


def group_roots():
    """Where systemd-nspawn makes control groups: the second version, and what systemd calls its own of the first."""
    return [place for place in (GROUPS / "unified", GROUPS / "systemd", GROUPS) if (place / "cgroup.procs").exists()]


def remove_group(group):
    """Kills what is in a control group and removes it with those below. What was killed takes a moment to end."""
    if (group / "cgroup.kill").exists():
        (group / "cgroup.kill").write_text("1", encoding="ascii")
    end = time.monotonic() + 20
    while group.exists():
        for directory, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(directory)
            except OSError as why:
                if time.monotonic() > end:
                    print(f"the control group {directory} stays: {why}", flush=True)
                    return
        time.sleep(0.05)


def die_with_parent():
    """Has the kernel kill this process when its parent ends (PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def outside(arguments, program=__file__):
    """Runs the checks of this program (`--inside DIR`) in namespaces and control groups of their own, and removes what they leave."""
    groups = [root / f"belay-service-{os.getpid()}" for root in group_roots()]
    place = tempfile.mkdtemp(prefix="belay-service-")

    def enter():
        die_with_parent()
        for group in groups:
            (group / "cgroup.procs").write_text("0", encoding="ascii")

    def interrupted(_number, _frame):
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupted)
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    here = [sys.executable, str(pathlib.Path(program).resolve()), "--inside", place, *arguments]
    child = None
    try:
        for group in groups:
            group.mkdir()
        child = subprocess.Popen([*command, *here], preexec_fn=enter, stdin=subprocess.DEVNULL)
        return child.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        print(f"the whole did not end within {LIMIT_S} s", flush=True)
        return 1
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130
    finally:
        if child is not None and child.poll() is None:
            child.kill()
            child.wait()
        for group in groups:
            remove_group(group)
        shutil.rmtree(place, ignore_errors=True)


def main(arguments):
    if arguments[:1] == ["--inside"]:
        import checks

        return checks.run(pathlib.Path(arguments[1]), arguments[2:])
    if why := missing():
        print(f"the service is not booted: {why}")
        print("0 passed, 0 failed, 1 skipped")
        return 0
    if arguments == ["--prepare"]:
        rootfs.prepare()
        return 0
    return outside(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
