"""Suites that run at the end: the unit, the booted service, the packages and the image. Standard library only."""

import sys
import time

from gate.install import DOWNLOADS, KUBECTL, KUBERNETES, installed, taken_out
from gate.output import ROOT
from gate.progress import PROGRESS
from gate.scripts import script
from waiting import Preparing

SERVICE = [sys.executable, str(ROOT / "tests" / "service" / "service.py")]


def booted(tally, environment, preparing):
    """What has to do with systemd and with packages, one after the other: two of them boot a machine with the same root."""
    exposure(tally)
    static(tally)
    service(tally, environment, preparing)
    packages(tally, environment, preparing)


def exposure(tally):
    """What systemd says of the unit that we ship."""
    script(tally, "exposure of the unit", [sys.executable, str(ROOT / "tests" / "exposure.py")], {})


def static(tally):
    """The command of `make static`, and a static binary that was built before."""
    command = [sys.executable, str(ROOT / "tests" / "packages" / "static.py")]
    script(tally, "static binary", command, {})


def prepare_service():
    """Begins to build the machine's root, which waits for the network and the disk most of the time. What becomes of it, the suite says."""
    return Preparing(DOWNLOADS, "the root of the machine", [*SERVICE, "--prepare"])


def service(tally, environment, preparing):
    """The installed service in a machine that is booted for it."""
    name, begin = "the service, booted", time.monotonic()
    if is_late(tally, name, begin, preparing):
        return
    if not tally.cached(name, environment["BELAY_BIN"]):
        script(tally, name, SERVICE, environment)


def is_late(tally, name, begin, preparing):
    """Whether a suite cannot run, because what it needs was not prepared within its limit. Then it is counted."""
    with PROGRESS.doing(preparing.what):
        late = preparing.wait()
    if late:
        tally.add(name, 0, 1, 0, time.monotonic() - begin, f" ({late})")
    return late is not None


def packages(tally, environment, preparing):
    """The Debian package, installed and removed in a machine that is booted for it. Runs after the service, whose root it shares."""
    name, begin = "the packages", time.monotonic()
    if is_late(tally, name, begin, preparing):
        return
    if not tally.cached(name, environment["BELAY_BIN"]):
        script(tally, name, [sys.executable, str(ROOT / "tests" / "packages" / "packages.py")], environment)


def prepare_image():
    """Begins to build the base of the image, as `prepare_service`."""
    build = [str(ROOT / "deploy" / "image" / "build.sh"), "--base", str(ROOT / "build" / "image" / "oci")]
    return Preparing(DOWNLOADS, "the base of the image", build)


def image(tally, environment, preparing):
    """The OCI image, unpacked and run, and the manifests for Kubernetes."""
    name, begin = "image and manifests", time.monotonic()
    if is_late(tally, name, begin, preparing):
        return
    if python := installed(tally, name, KUBERNETES, "kubernetes"):
        programs = {"KUBERNETES_VALIDATE": str(python.parent / "kubernetes-validate")}
        if kubectl := taken_out(*KUBECTL):
            programs["KUBECTL"] = str(kubectl)
        script(tally, name, [sys.executable, str(ROOT / "tests" / "packages" / "image.py")], {**environment, **programs})
