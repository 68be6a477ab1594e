"""Suites that are programs of their own against a real daemon, and count for themselves. Standard library only."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from gate.install import (
    ANTHROPIC,
    CHROMIUM_PACKAGE,
    GENERATOR,
    LANGCHAIN,
    LIBIDENT,
    MCP,
    NGIRCD,
    OPENAI,
    OTLP,
    PROMTOOL,
    PROXIES,
    SCHEMATHESIS,
    WEBSOCKETS,
    chromium_program,
    installed,
    node_modules,
    node_places,
    taken_out,
    typescript_client,
)
from gate.output import ROOT, VERBOSE, say
from gate.tally import Outcome

# The beginning of a line of the budget about counts that were not compared (tests/budget/report.rs).
TOO_BUSY = "Too busy: "
COUNTS = re.compile(r"^(\d+) passed, (\d+) failed, (\d+) skipped$")


def script(tally, name, command, environment):
    """A suite that is a program and counts for itself in its last line."""

    def once():
        variables = {**os.environ, **environment}
        process = subprocess.run(command, env=variables, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        found, lines = None, []
        for line in process.stdout.splitlines():
            if match := COUNTS.match(line):
                found = match
            elif VERBOSE or not line.startswith("ok "):
                lines.append(line)
        passed, failed, skipped = (int(n) for n in found.groups()) if found else (0, 1, 0)
        if process.returncode != 0 and failed == 0:
            failed = 1
        is_busy = any(line.startswith(TOO_BUSY) for line in lines)
        return Outcome(passed, failed, skipped, "", tuple(lines), is_busy)

    tally.suite(name, once, files=sources(command))


def sources(command):
    """The script of a suite with what lies beside it, unless that is all of the project's tests."""
    scripts = [pathlib.Path(argument) for argument in command[1:] if argument.endswith((".py", ".mjs"))]
    return [script if script.parent == ROOT / "tests" else script.parent for script in scripts]


def budget(tally, program):
    """What the daemon costs for fixed scripts, compared with the committed table. Each row counts as a test."""
    name = "the budget"
    if not tally.cached(name, program):
        script(tally, name, [program, "--quiet"], {})


def sizes(tally, environment):
    """The machine code and the packages of the full and of the smallest build, compared with the committed table. Each row counts as a test."""
    script(tally, "the sizes", [sys.executable, str(ROOT / "tests" / "sizes" / "main.py"), "--belay", environment["BELAY_BIN"], "--check"], {})


def clients(tally, environment):
    """The official OpenAI client for Python against a real daemon."""
    name = "official OpenAI client"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, OPENAI, "clients"):
        script(tally, name, [str(python), str(ROOT / "tests" / "clients" / "openai_client.py")], environment)


def responses_client(tally, environment):
    """The clients of OpenAI's Responses API for Python against a real daemon."""
    name = "clients of the Responses API"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, OPENAI, "clients"):
        script(tally, name, [str(python), str(ROOT / "tests" / "clients" / "responses_client.py")], environment)


def anthropic_client(tally, environment):
    """The official Anthropic client for Python against a real daemon."""
    name = "official Anthropic client"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, ANTHROPIC, "anthropic"):
        script(tally, name, [str(python), str(ROOT / "tests" / "clients" / "anthropic_client.py")], environment)


def langchain_client(tally, environment):
    """LangChain's client for OpenAI against a real daemon."""
    name = "LangChain client"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, LANGCHAIN, "langchain"):
        script(tally, name, [str(python), str(ROOT / "tests" / "clients" / "langchain_client.py")], environment)


def websocket_clients(tally, environment):
    """The example clients of the WebSocket RPC against a real daemon."""
    name = "clients of the WebSocket RPC"
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
    script(tally, name, command, environment)


def adapter_example(tally, environment):
    """The frames of an adapter, and the IRC example with a real ngIRCd, against a real daemon."""
    name = "adapters, and the IRC example with ngIRCd"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    ngircd, library = taken_out(*NGIRCD), taken_out(*LIBIDENT)
    if ngircd is None:
        tally.keys.pop(name, None)  # a part was left out, so the next time runs it again
    else:
        environment = {**environment, "NGIRCD": str(ngircd)}
    if library:
        environment = {**environment, "LD_LIBRARY_PATH": str(library.parent)}
    if python := installed(tally, name, WEBSOCKETS, "websocket"):
        script(tally, name, [str(python), str(ROOT / "tests" / "clients" / "adapter_example.py")], environment)


def bot_example(tally, environment):
    """The bot of the guide for programs against a real daemon."""
    name = "the bot of the guide"
    if not tally.cached(name, environment["BELAY_BIN"]):
        script(tally, name, [sys.executable, str(ROOT / "tests" / "clients" / "bot_example.py")], environment)


def mcp_client(tally, environment):
    """The official MCP SDK as a client of a real daemon."""
    name = "official MCP client"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, MCP, "mcp"):
        script(tally, name, [str(python), str(ROOT / "tests" / "clients" / "mcp_client.py")], environment)


def acp_client(tally, environment):
    """The official SDK of the Agent Client Protocol as the editor of a real daemon, and the wire itself."""
    name = "editors by the Agent Client Protocol"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    command = [sys.executable, str(ROOT / "tests" / "clients" / "acp_client.py")]
    if folder := node_modules(tally, f"{name} (official SDK)", "clients/editor"):
        command.append(str(folder))
        environment = {**environment, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}
    else:
        tally.keys.pop(name, None)  # a part was left out, so the next time runs it again
    script(tally, name, command, environment)


def mcp_oauth(tally, environment):
    """A real daemon logs in at an MCP server behind oidc-provider of npm."""
    name = "login at MCP servers"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if folder := node_modules(tally, name, "clients/oauth"):
        environment = {**environment, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}
        script(tally, name, [sys.executable, str(ROOT / "tests" / "clients" / "mcp_oauth.py"), str(folder)], environment)


def mcp_tasks(tally, environment):
    """A real daemon calls a tool of the reference server that works only as a task."""
    name = "tasks of an MCP server"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if folder := node_modules(tally, name, "clients/mcp_tasks_server"):
        environment = {**environment, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}
        script(tally, name, [sys.executable, str(ROOT / "tests" / "clients" / "mcp_tasks.py"), str(folder)], environment)


def api_fuzz(tally, environment):
    """The whole HTTP API of a real daemon against its description."""
    name = "the API by its description"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, SCHEMATHESIS, "schemathesis"):
        script(tally, name, [str(python), str(ROOT / "tests" / "api" / "fuzz.py")], environment)


def generated_clients(tally, environment):
    """Clients that generators make of the description of the API, against a real daemon."""
    name = "generated clients of the API"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    python = installed(tally, name, GENERATOR, "generators")
    if python is None:
        return
    command = [str(python), str(ROOT / "tests" / "clients" / "generated_clients.py")]
    if folder := node_modules(tally, f"{name} (TypeScript)", "clients/generated"):
        command.append(str(folder))
        environment = {**environment, "PATH": os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))}
    else:
        tally.keys.pop(name, None)  # a part was left out, so the next time runs it again
    script(tally, name, command, environment)


def metrics(tally, environment):
    """The metrics of a real daemon, the alert rules and the dashboard, by Prometheus's own tool."""
    tool = taken_out(*PROMTOOL)
    places = os.pathsep.join([*([str(tool.parent)] if tool else []), os.environ.get("PATH", "")])
    command = [sys.executable, str(ROOT / "tests" / "metrics.py")]
    script(tally, "metrics, alerts and dashboard", command, {**environment, "PATH": places})


def telemetry(tally, environment):
    """The traces, metrics and log lines of a real daemon, decoded by OpenTelemetry's own package."""
    name = "signals for a collector"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    if python := installed(tally, name, OTLP, "telemetry"):
        script(tally, name, [str(python), str(ROOT / "tests" / "telemetry.py")], environment)


def proxies(tally, environment):
    """The reverse proxies of deploy/ before a real daemon."""
    name = "reverse proxies"
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    found = {variable: taken_out(*place) for variable, place in PROXIES.items()}
    if None in found.values():
        tally.keys.pop(name, None)  # a proxy was left out, so the next time runs it again
    if python := installed(tally, name, WEBSOCKETS, "websocket"):
        programs = {variable: str(program) for variable, program in found.items() if program}
        script(tally, name, [str(python), str(ROOT / "tests" / "packages" / "proxies.py")], {**environment, **programs})


def console(tally, environment):
    """The pages of a real daemon in Chromium."""
    name, begin = "the console in Chromium", time.monotonic()
    if tally.cached(name, environment["BELAY_BIN"]):
        return
    chromium, folder = chromium_program(), node_modules(tally, name, "console")
    if chromium is None:
        missing_is_failure = os.environ.get("CI") == "true"
        say(f"Chromium is not installed (a package of Debian: {CHROMIUM_PACKAGE})")
        tally.add(name, 0, int(missing_is_failure), int(not missing_is_failure), time.monotonic() - begin, " (not installable)")
    elif folder:
        places = os.pathsep.join(map(str, [*node_places(), os.environ.get("PATH", "")]))
        programs = {"BELAY_CHROMIUM": chromium, "BELAY_CONSOLE_MODULES": str(folder), "PATH": places}
        node = shutil.which("node", path=places) or "node"
        script(tally, name, [node, str(ROOT / "tests" / "console" / "run.mjs")], {**environment, **programs})
