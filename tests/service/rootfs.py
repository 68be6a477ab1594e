"""A small Debian or Ubuntu with systemd, bubblewrap and Podman, built once and kept under build/."""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / "build" / "service"
# What the service needs (systemd, bubblewrap, and kill of procps for its reload), Podman for its workers, and no more.
PACKAGES = ["systemd", "systemd-sysv", "dbus", "bubblewrap", "podman", "runc", "catatonit", "procps", "usr-is-merged"]
LEFT_OUT = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*"]
MERGED_USR = "/usr/share/mmdebstrap/hooks/merged-usr"
# Far above what it takes (30 s on an idle machine, some minutes on a busy one); a mirror that hangs is not waited for.
BUILD_LIMIT_S = 1200


def release():
    """What /etc/os-release says of this machine."""
    found = {}
    for line in pathlib.Path("/etc/os-release").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition("=")
        found[name] = value.strip().strip('"')
    return found


def suite():
    """The suite of this machine, so that its C library fits the binary that was built here; None elsewhere than on Debian and Ubuntu."""
    try:
        found = release()
    except OSError:
        return None
    return found.get("VERSION_CODENAME") if found.get("ID") in ("debian", "ubuntu") else None


def prepare():
    """The directory of the root, which is built where it is missing. Raises CalledProcessError, TimeoutExpired or OSError."""
    command = [
        "mmdebstrap", "--mode=root", "--variant=essential", "--format=directory", f"--include={','.join(PACKAGES)}",
        f"--hook-dir={MERGED_USR}", "--dpkgopt=force-unsafe-io", *(f"--dpkgopt=path-exclude={glob}" for glob in LEFT_OUT), suite(),
    ]
    if release()["ID"] == "ubuntu":
        command.insert(1, "--components=main,universe")
    name = hashlib.sha256("\0".join(command).encode()).hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    root = KEPT / f"root-{name}"
    with open(KEPT / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.exists():
            return root
        for old in KEPT.glob("*-*"):
            shutil.rmtree(old)
        half = KEPT / f"half-{name}"
        print("$ " + " ".join(command) + f"   (into {half.relative_to(ROOT)})", flush=True)
        done = subprocess.run(
            [*command, str(half)], timeout=BUILD_LIMIT_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", env={**os.environ, "LC_ALL": "C"},
        )
        if done.returncode != 0:
            print(done.stdout[-4000:], flush=True)
            done.check_returncode()
        half.rename(root)
    return root
