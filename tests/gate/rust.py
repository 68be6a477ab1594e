"""Builds the workspace, and runs its test binaries and the examples of its documentation. Standard library only."""

import json
import os
import pathlib
import re
import subprocess
import time

from gate.install import MCP, installed
from gate.output import FEATURES, ROOT, VERBOSE, cargo
from gate.tally import Outcome

# Test binaries that always run: they read the sources of the whole project.
READS_SOURCES = ["repository"]
# Packages whose tests start the daemon.
STARTS_BELAY = ["tests", "daemon"]
# Suites that take longest begin first, so that none of them runs alone at the end.
LONGEST = ["suite", "scenarios", "outer_loop", "belay_tools", "http", "programs"]
# The scenarios of the smallest build: conversations, what is stopped, what survives a kill, and the parts that it lacks.
SMALL = ("conversation::", "parts::", "stopping::", "surviving::")
# Tests by the official MCP SDK, in the test binary `programs`: a suite of their own, since they need the SDK.
MCP_SUITE = "official MCP SDK"
# The channel e-mail is in no default build.
MAIL = "the client of e-mail"
OFFICIAL_MCP = "mcp::official::"

RESULT = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored; .*finished in ([\d.]+)s")
CASE = re.compile(r"^test (?P<name>.+?)(?: - should panic)? \.\.\. (?P<how>ok|ignored.*|FAILED.*)$")
# What a test prints that skips itself, since the test harness of Rust counts it as passed (crates/testkit/src/postgres/programs.rs).
SKIPPED = re.compile(r"\bskipped \S+: this test needs ")
# Before the output of a failed test, and after that of the last one.
CAPTURED = re.compile(r"^---- (?P<name>.+) stdout ----$")
LISTED = "failures:"


def build(tally):
    """Builds everything once: the test binaries, and the programs that they start. Returns the test binaries, each with the programs
    of its package, and the paths of belay and of the budget.

    One command, because cargo would build the daemon anew for a second one that selects other packages.
    """
    begin = time.monotonic()
    command = cargo("test", "--locked", "--workspace", *FEATURES, "--no-run", "--message-format=json-render-diagnostics")
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
    """Runs one test binary, as cargo would."""
    if suite["target"] not in READS_SOURCES and tally.cached(name, *suite["programs"]):
        return
    folder = str(suite["folder"])
    variables = {**os.environ, "CARGO": os.environ.get("CARGO", "cargo"), "CARGO_MANIFEST_DIR": folder, **environment}

    def once(test=None):
        selected = arguments if test is None else [*selecting(arguments), "--exact", test]
        outcome = outcome_of([suite["file"], *selected], cwd=folder, env=variables)
        if name == MCP_SUITE and outcome.passed + outcome.failed == 0:
            return Outcome(failed=1, note=" (no test has this name)")
        return outcome

    tally.suite(name, once)


def small(tally, suite, environment):
    """Builds the daemon without the parts that a build may leave out, and runs scenarios with it. A warning of the compiler is a failure."""
    name = "the smallest build"
    if tally.cached(name, environment["BELAY_BIN"], suite["file"]):
        return
    program = pathlib.Path(environment["BELAY_BIN"]).with_name("belay-small")
    features = ("--no-default-features", "--features", "belay-daemon/small")
    build = cargo("build", "--locked", "--workspace", "--quiet", *features, "--bin", program.name)

    def once(test=None):
        built = subprocess.run(build, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if built.returncode != 0 or "warning" in built.stderr:
            return Outcome(failed=1, note=" (not built)", lines=tuple(built.stderr.splitlines()))
        selected = SMALL if test is None else ("--exact", test)
        variables = {**os.environ, **environment, "BELAY_BIN": str(program)}
        return outcome_of([suite["file"], *selected], cwd=str(suite["folder"]), env=variables)

    tally.suite(name, once)


def mail_client(tally, environment):
    """Builds the tests of the channel e-mail, which the default build lacks, and runs them. They need no server.

    Its package alone: with the workspace, its libraries would have half of the workspace built again.
    """
    begin = time.monotonic()
    command = cargo("test", "--locked", "--quiet", "--package", "belay-mail", "--features", "client", "--lib", "--no-run", "--message-format=json-render-diagnostics")
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    built = (json.loads(line) for line in process.stdout.splitlines())
    files = [message["executable"] for message in built if message.get("executable") and message["profile"]["test"]]
    if process.returncode != 0 or len(files) != 1:
        tally.add(MAIL, 0, 1, 0, time.monotonic() - begin, " (not built)")
        return
    suite = {"target": "belay_mail", "file": files[0], "folder": ROOT / "crates" / "mail", "programs": files}
    rust(tally, suite, MAIL, [], environment)


def selecting(arguments):
    """The arguments of a suite without those that select some of its tests."""
    return [argument for argument in arguments if argument.startswith("--") and argument != "--skip"]


def outcome_of(command, **more):
    """Runs a test binary once."""
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, **more)
    return read(process.stdout.decode("utf-8", "replace").splitlines(), process.returncode)


def read(output, status):
    """What a test binary has printed. One that died without a result counts as one failure, which has no name."""
    found, lines, failures, captured = None, [], {}, None
    for line in output:
        if case := CASE.match(line):
            if case["how"].startswith("FAILED"):
                failures[case["name"]] = []
            if VERBOSE or not case["how"].startswith("ok"):
                lines.append(f"{case['name']} ... {case['how']}")
            continue
        if match := RESULT.match(line):
            found = match
            continue
        if match := CAPTURED.match(line):
            captured = failures.setdefault(match["name"], [])
        elif line == LISTED:
            captured = None
        elif captured is not None:
            captured.append(line)
        if line and not re.match(r"^running \d+ tests?$", line):
            lines.append(line)
    if found is None:
        return Outcome(failed=1, note=f" (ended with {status} without a result)", lines=tuple(lines))
    passed, failed, ignored = (int(found[i]) for i in (1, 2, 3))
    skipped = sum(1 for line in output if SKIPPED.search(line))
    return Outcome(passed - skipped, failed or int(status != 0), ignored + skipped, "", tuple(lines), failures=failures)


def examples(tally, environment):
    """The examples in the documentation of the code."""
    command = cargo("test", "--locked", "--workspace", *FEATURES, "--doc", "--no-fail-fast")

    def once():
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
        failed = failed or int(process.returncode != 0)
        return Outcome(passed, failed, ignored, "", tuple(output) if failed or VERBOSE else ())

    tally.suite("examples in the documentation", once)


def mcp_servers(tally, suite, environment):
    """Servers by the official MCP SDK, as tools: plain `cargo test` leaves these tests out, since they need it.

    One at a time, because each server imports the SDK, which takes seconds of processor time, and has ten seconds to start.
    """
    if python := installed(tally, MCP_SUITE, MCP, "mcp"):
        rust(tally, suite, MCP_SUITE, ["--include-ignored", "--test-threads=1", OFFICIAL_MCP], {**environment, "BELAY_MCP_PYTHON": str(python)})
