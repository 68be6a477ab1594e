#!/usr/bin/env python3
"""Builds the Debian package, and installs, upgrades and purges it in a booted machine: tests/packages/packages.py [--verbose]

The binary is $BELAY_BIN, else target/debug/belay. `make install` and `make uninstall` are tested in a directory. The machine is that of
tests/service: it needs root, Debian or Ubuntu, and the packages mmdebstrap and systemd-container; without one of them its checks are
skipped. lintian checks the package, if it is installed. Prints a line for each check, then "N passed, N failed, N skipped". Standard library only.
"""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "service"))

import rootfs  # noqa: E402
import service  # noqa: E402
from machine import Machine, expect, until  # noqa: E402

BINARY = pathlib.Path(os.environ.get("BELAY_BIN") or ROOT / "target" / "debug" / "belay").resolve()
SETTINGS, DATA = "/etc/belay/belay.toml", "/var/lib/belay"
# A setting that an operator adds; the upgrade has to keep it.
ADDED = "\n[llm]\nprovider = \"rehearsal\"\n"


def sh(*command, **variables):
    """The output of a command that has to succeed."""
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, errors="replace",
    )
    expect(done.returncode == 0, f"{' '.join(command)}: ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def files(directory):
    """The files below a directory."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir())


def uninstall_is_the_inverse_of_install(place):
    tree = place / "tree"
    man = tree / "usr/local/share/man/man1"
    foreign = man / "belay-other.1"
    man.mkdir(parents=True)
    foreign.write_text("a page of another program\n", encoding="utf-8")
    make = ("make", "--no-print-directory")
    sh(*make, "install", f"DESTDIR={tree}", f"BINARY={BINARY}")
    installed = files(tree)
    for name in ("bin/belay", "lib/systemd/system/belay.service", "share/man/man1/belay.1", "share/man/man1/belay-approvals-approve.1"):
        expect(f"usr/local/{name}" in installed, f"{name} is not installed: {installed}")
    expect(not (man / "belay-worker.1").exists(), "a hidden command has a page")
    sh(*make, "uninstall", f"DESTDIR={tree}")
    expect(files(tree) == [str(foreign.relative_to(tree))], f"left after make uninstall: {files(tree)}")


def build(place, revision):
    """The path of a package with this revision."""
    return pathlib.Path(sh("deploy/deb/build.sh", str(BINARY), str(place), COMPRESSION="none", REVISION=revision).strip())


def the_package_is_reproducible(place):
    first, second = build(place / "1", "1"), build(place / "again", "1")
    expect(first.read_bytes() == second.read_bytes(), "two builds of the same source differ")
    build(place / "2", "2")


def lintian_finds_no_error(place):
    package = next((place / "1").glob("*.deb"))
    # The packages of this test are not compressed, which saves time.
    uncompressed = "uses-no-compression-for-control-tarball,uses-no-compression-for-data-tarball"
    sh("lintian", "--allow-root", "--fail-on", "error", "--suppress-tags", uncompressed, str(package))


class Installed:
    """The machine, and the two packages in it."""

    def __init__(self, machine, packages):
        self.machine = machine
        self.packages = []
        for package in packages:
            shutil.copy(package, machine.inside_root(f"/{package.name}"))
            self.packages.append(f"/{package.name}")

    def data(self):
        """What the data directory holds."""
        return self.machine.run("ls", "-A", f"{DATA}/").stdout.split()

    def answers(self):
        """Whether the daemon answers its readiness over the control socket."""
        return self.machine.ask("GET", "/readyz")[0] == 200


def an_installation_starts_nothing_and_its_unit_is_valid(world):
    run = world.machine.run
    run("dpkg", "--install", world.packages[0])
    expect(world.machine.show("ActiveState")["ActiveState"] == "inactive", "the installation started the service")
    expect(run("id", "--user", "belay").stdout.strip() != "0", "there is no user belay")
    said = run("systemd-analyze", "verify", "/usr/lib/systemd/system/belay.service").stdout
    expect("belay.service" not in said, f"systemd-analyze verify: {said}")


def the_service_runs_as_its_user(world):
    machine = world.machine
    settings = machine.inside(SETTINGS)
    settings.write_text(settings.read_text(encoding="utf-8") + ADDED, encoding="utf-8")
    machine.run("systemctl", "enable", "--now", "belay.service")
    until("the daemon", world.answers)
    main = machine.show("MainPID")["MainPID"]
    owner = machine.run("stat", "--format=%U %u", f"/proc/{main}").stdout.split()
    expect(owner[0] == "belay", f"the service runs as {owner}")
    expect(world.data(), "the data directory is empty")


def an_upgrade_restarts_the_service_and_keeps_data_and_settings(world):
    machine = world.machine
    before, data = machine.show("MainPID")["MainPID"], world.data()
    machine.run("dpkg", "--install", world.packages[1])
    until("the daemon", world.answers)
    version = machine.run("dpkg-query", "--show", "--showformat=${Version}", "belay").stdout
    expect(version.endswith("-2"), f"the version is {version}")
    expect(machine.show("MainPID")["MainPID"] != before, "the service was not restarted")
    expect(ADDED in machine.inside(SETTINGS).read_text(encoding="utf-8"), "the settings were replaced")
    expect(set(data) <= set(world.data()), f"data before: {data}, after: {world.data()}")


def a_removal_stops_the_service_and_keeps_data_and_settings(world):
    machine = world.machine
    machine.run("dpkg", "--remove", "belay")
    expect(not machine.processes(r"/usr/bin/belay run"), "the daemon still runs")
    expect(world.data(), "the removal deleted the data")
    expect(machine.inside(SETTINGS).exists(), "the removal deleted the settings")
    expect(not machine.inside("/usr/bin/belay").exists(), "the binary is still there")


def a_purge_deletes_data_and_settings(world):
    machine = world.machine
    machine.run("dpkg", "--purge", "belay")
    places = [DATA, "/var/lib/private/belay", "/etc/belay", "/etc/systemd/system/multi-user.target.wants/belay.service"]
    left = [path for path in places if os.path.lexists(machine.inside(path))]
    expect(not left, f"left after the purge: {left}")


IN_DIRECTORY = [uninstall_is_the_inverse_of_install, the_package_is_reproducible]
IN_MACHINE = [
    an_installation_starts_nothing_and_its_unit_is_valid,
    the_service_runs_as_its_user,
    an_upgrade_restarts_the_service_and_keeps_data_and_settings,
    a_removal_stops_the_service_and_keeps_data_and_settings,
    a_purge_deletes_data_and_settings,
]


def passes(check, subject):
    """Runs a check and prints its line."""
    begin, name = time.monotonic(), check.__name__.replace("_", " ")
    try:
        check(subject)
        print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
        return True
    except Exception as why:  # the other kinds of failure are failures too
        print(f"FAILED {name}: {type(why).__name__}: {why}", flush=True)
        return False


def inside(place):
    """The checks in the machine. Each needs those before it, so the first failure ends them."""
    packages = [next((place / name).glob("*.deb")) for name in ("1", "2")]
    machine = Machine(rootfs.prepare(), place)
    passed = failed = 0
    try:
        world = Installed(machine, packages)
        machine.boot()
        for check in IN_MACHINE:
            if not passes(check, world):
                failed = 1
                print("\n".join(f"    | {line}" for line in machine.journal(lines=20).splitlines()), flush=True)
                break
            passed += 1
    except Exception as why:
        failed = 1
        print(f"FAILED the machine: {type(why).__name__}: {why}\n{machine.console()}", flush=True)
    finally:
        machine.power_off()
    print(f"{passed} {failed}", file=open(os.environ["COUNTS"], "w", encoding="ascii"))
    return failed


def main(arguments):
    if arguments[:1] == ["--inside"]:
        for name in ("1", "2"):
            shutil.copytree(os.environ["PACKAGES"] + f"/{name}", pathlib.Path(arguments[1]) / name)
        return inside(pathlib.Path(arguments[1]))
    place = pathlib.Path(tempfile.mkdtemp(prefix="belay-packages-"))
    passed = failed = skipped = 0
    # lintian reads the package while the machine runs.
    pool, reading = concurrent.futures.ThreadPoolExecutor(1), None
    try:
        for check in IN_DIRECTORY:
            good = passes(check, place)
            passed, failed = passed + good, failed + (not good)
        if shutil.which("lintian") is None:
            print("the package is not checked by lintian, which is not installed")
            skipped += 1
        elif not failed:
            reading = pool.submit(passes, lintian_finds_no_error, place)
        if why := service.missing():
            print(f"the package is not installed: {why}")
            skipped += len(IN_MACHINE)
        elif not failed:
            counts = place / "counts"
            os.environ.update(PACKAGES=str(place), COUNTS=str(counts))
            status = service.outside([], __file__)
            good, bad = map(int, counts.read_text(encoding="ascii").split()) if counts.exists() else (0, 1)
            passed, failed = passed + good, failed + max(bad, int(status != 0))
        if reading:
            good = reading.result()
            passed, failed = passed + good, failed + (not good)
    finally:
        pool.shutdown()
        shutil.rmtree(place, ignore_errors=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
