#!/usr/bin/env python3
"""Builds the OCI image from $BELAY_BIN, unpacks it, and runs it as a container runtime would: tests/packages/image.py

Also checks the files of `make dist-files` (with Python 3.11), and the Kubernetes manifests with the programs that $KUBERNETES_VALIDATE
and $KUBECTL name. The image needs root, Debian or Ubuntu, mmdebstrap, umoci and bubblewrap; without one of them it says so and skips.
Prints a line for each check, then "N passed, N failed, N skipped".
Standard library only.
"""

import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
KEPT = ROOT / "build" / "image"
MANIFESTS = ROOT / "deploy" / "kubernetes"
PROGRAMS = ["mmdebstrap", "umoci", "bwrap"]
# Every wait ends; no check measures time by it. The first base takes a minute and a half from the mirror.
BUILD_LIMIT_S = 900
PATIENCE_S = 300
TOKEN = "token-of-the-client"


class Failed(Exception):
    """A check does not hold."""


def expect(fact, words):
    """Fails with these words unless the fact holds."""
    if not fact:
        raise Failed(words)


class Container:
    """The unpacked image, run by bubblewrap with what the image's configuration says."""

    def __init__(self, place, binary):
        layout = KEPT / "oci"
        build = [str(ROOT / "deploy" / "image" / "build.sh"), binary, str(layout)]
        done = subprocess.run(build, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=BUILD_LIMIT_S)
        expect(done.returncode == 0, f"the image is not built: {done.stdout[-2000:]}")
        bundle = pathlib.Path(place) / "bundle"
        unpack = ["umoci", "unpack", "--image", f"{layout}:belay", str(bundle)]
        subprocess.run(unpack, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=BUILD_LIMIT_S)
        self.root = bundle / "rootfs"
        self.process = json.loads((bundle / "config.json").read_text(encoding="utf-8"))["process"]
        self.user = self.process["user"]
        # The image itself says only whose the data is; a runtime gives a volume with that owner.
        self.data = pathlib.Path(place) / "data"
        self.data.mkdir(mode=0o700)
        os.chown(self.data, self.user["uid"], self.user["gid"])
        # The user has to pass both, which are made for root alone.
        for directory in (pathlib.Path(place), bundle):
            directory.chmod(0o755)
        self.log = open(pathlib.Path(place) / "log", "w+b")

    def command(self, arguments, more=()):
        """A command line that runs a program with the image's user, variables and directory on a root that cannot be written."""
        variables = [("--setenv", *pair.split("=", 1)) for pair in (*self.process["env"], *more)]
        inside = ["bwrap", "--ro-bind", str(self.root), "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--clearenv"]
        inside += ["--bind", str(self.data), "/var/lib/belay", "--die-with-parent", *(word for pair in variables for word in pair)]
        inside += ["--chdir", self.process["cwd"], "--", *arguments]
        return ["setpriv", f"--reuid={self.user['uid']}", f"--regid={self.user['gid']}", "--clear-groups", "--bounding-set=-all", "--", *inside]

    def run(self, *arguments):
        """Runs a program to its end."""
        return subprocess.run(
            self.command(arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S
        )

    def start(self, port):
        """Starts the daemon by the image's own command, with a token and the stand-in for a model."""
        more = [f"BELAY_TOKEN={TOKEN}", "BELAY__LLM__PROVIDER=rehearsal", f"BELAY__GATEWAY__LISTEN=127.0.0.1:{port}"]
        return subprocess.Popen(self.command(self.process["args"], more), stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def said(self):
        """The end of the daemon's output."""
        self.log.seek(0)
        return self.log.read().decode("utf-8", "replace")[-2000:]


def ask(port, method, path, body=None):
    """A request with the client's token: status and text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    headers = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    connection.request(method, path, json.dumps(body) if body else None, headers)
    response = connection.getresponse()
    return response.status, response.read().decode("utf-8", "replace")


def the_image_runs_as_a_user_without_rights(container):
    expect(container.user["uid"] != 0 and container.user["gid"] != 0, f"the user is {container.user}")
    who = container.run("/usr/bin/id", "-u").stdout.strip()
    expect(who == str(container.user["uid"]), f"it runs as {who}")
    write = container.run("/bin/sh", "-c", "touch /etc/belay/x")
    expect(write.returncode != 0, "its root can be written")


def its_program_fits_its_libraries(container):
    done = container.run("/usr/local/bin/belay", "--version")
    expect(done.returncode == 0 and done.stdout.startswith("belay "), done.stdout)


def an_address_for_everybody_is_refused_without_a_token(container):
    done = container.run(*container.process["args"])
    expect(done.returncode == 78 and "token" in done.stdout, f"ended with {done.returncode}: {done.stdout[-1000:]}")


def the_daemon_answers_reports_its_health_and_drains(container):
    port = free_port()
    daemon = container.start(port)
    try:
        end = time.monotonic() + PATIENCE_S
        while True:
            expect(daemon.poll() is None, f"it ended with {daemon.returncode}: {container.said()}")
            expect(time.monotonic() < end, f"it is not ready: {container.said()}")
            try:
                if ask(port, "GET", "/readyz")[0] == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        status, answer = ask(port, "POST", "/api/v1/messages", {"session": "me", "text": "calculate 17*23", "wait_ms": 30_000})
        expect(status == 200 and "391" in answer, f"{status}: {answer}")
        # The health command: it finds the daemon by the control socket in the data directory.
        health = container.run("/usr/local/bin/belay", "status", "--json")
        expect(health.returncode == 0, f"belay status ended with {health.returncode}: {health.stdout}")
        # bubblewrap passes no signal on, so the daemon gets it by its own number.
        subprocess.run(["pkill", "--signal", "TERM", "--parent", str(daemon.pid)], check=True)
        expect(daemon.wait(PATIENCE_S) == 0, f"it ended with {daemon.returncode}: {container.said()}")
        expect(container.run("/usr/local/bin/belay", "status").returncode != 0, "the health command does not notice the end")
    finally:
        if daemon.poll() is None:
            daemon.kill()
            daemon.wait()


def free_port():
    """A port of the loopback that nobody uses now."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def validate(*files):
    """Fails unless these manifests fit the schemas of Kubernetes."""
    command = [os.environ["KUBERNETES_VALIDATE"], "--strict", *map(str, files)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S)
    expect(done.returncode == 0, done.stdout)


def the_manifests_are_valid(_container):
    files = [file for file in sorted(MANIFESTS.glob("*.yaml")) if file.name != "kustomization.yaml"]
    expect(len(files) == 3, f"{files}")
    validate(*files)


def kustomize_builds_valid_manifests(_container):
    command = [os.environ["KUBECTL"], "kustomize", str(MANIFESTS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
    expect(done.returncode == 0, done.stderr)
    kinds = sorted(re.findall(r"^kind: (\w+)$", done.stdout, re.MULTILINE))
    expect(kinds == ["ConfigMap", "NetworkPolicy", "Service", "StatefulSet"], f"{kinds}")
    # The settings have a name with a digest, so that changed settings restart the daemon.
    settings = set(re.findall(r"name: (belay-[0-9a-z]{10})$", done.stdout, re.MULTILINE))
    expect(len(settings) == 1 and done.stdout.count(*settings) == 2, f"the settings are not mounted: {done.stdout}")
    expect("image: registry.example/belay:latest" in done.stdout, "the image is not the one of `images`")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as written:
        written.write(done.stdout)
        written.flush()
        validate(written.name)


def the_bill_of_materials_is_closed_and_the_checksums_hold(_container):
    with tempfile.TemporaryDirectory(prefix="belay-dist-") as place:
        (pathlib.Path(place) / "belay").write_bytes(b"a program")
        subprocess.run([sys.executable, str(ROOT / "deploy" / "dist-files.py"), place], check=True, timeout=PATIENCE_S)
        subprocess.run(["sha256sum", "--check", "--quiet", "--strict", "SHA256SUMS"], cwd=place, check=True)
        expect(len((pathlib.Path(place) / "SHA256SUMS").read_text(encoding="utf-8").splitlines()) == 2, "a file has no checksum")
        bill = json.loads((pathlib.Path(place) / "belay.cdx.json").read_text(encoding="utf-8"))
    own = bill["metadata"]["component"]["bom-ref"]
    parts = [part["bom-ref"] for part in bill["components"]]
    expect(len(set(parts)) == len(parts) and own not in parts, "a crate is listed twice")
    expect({edge["ref"] for edge in bill["dependencies"]} == {own, *parts}, "a crate has no entry of its dependencies")
    expect(all(one in parts for edge in bill["dependencies"] for one in edge["dependsOn"]), "a dependency is not listed")
    names = {part["name"] for part in bill["components"]}
    expect({"tokio", "rusqlite", "belay-store"} <= names, "a crate that belay links is missing")
    expect("proptest" not in names, "a crate of the tests is listed")


CHECKS = [
    the_image_runs_as_a_user_without_rights,
    its_program_fits_its_libraries,
    an_address_for_everybody_is_refused_without_a_token,
    the_daemon_answers_reports_its_health_and_drains,
]


def main():
    binary = os.environ.get("BELAY_BIN", str(ROOT / "target" / "debug" / "belay"))
    checks, skipped = [], 0
    if sys.version_info >= (3, 11):
        checks.append(the_bill_of_materials_is_closed_and_the_checksums_hold)
    else:
        skipped += 1
    if "KUBERNETES_VALIDATE" in os.environ:
        checks.append(the_manifests_are_valid)
        if "KUBECTL" in os.environ:
            checks.append(kustomize_builds_valid_manifests)
        else:
            print("the manifests are not built: set KUBECTL= to kubectl")
            skipped += 1
    lacking = [program for program in PROGRAMS if shutil.which(program) is None]
    if os.geteuid() != 0 or lacking or shutil.which("apt-get") is None:
        print(f"the image is not built: needs root, Debian or Ubuntu, and {', '.join(lacking or PROGRAMS)}")
        skipped += len(CHECKS)
    else:
        checks += CHECKS
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="belay-image-") as place:
        try:
            container = Container(place, binary) if CHECKS[0] in checks else None
        except (Failed, OSError, subprocess.SubprocessError) as why:
            print(f"FAILED the image: {why}")
            print(f"0 passed, 1 failed, {skipped} skipped")
            return 1
        for check in checks:
            words = check.__name__.replace("_", " ")
            try:
                check(container)
                passed += 1
                print(f"ok {words}", flush=True)
            except (Failed, OSError, subprocess.SubprocessError) as why:
                failed += 1
                print(f"FAILED {words}: {why}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
