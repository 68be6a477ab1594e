"""`make test QUICK=1`: what runs by the compiler alone, without packages and without root; and what that leaves out. Standard library only."""

import dataclasses

from gate.install import which
from gate.rust import OFFICIAL_MCP, examples, mail_client, rust

# Without bubblewrap a test that needs it fails, and mostly says so in its output: then it counts as skipped.
MISSING = "bubblewrap"
# Tests that fail without saying so, by test binary: the beginnings of their names, or an empty one for a binary in which nearly all tests need it.
NEED_BUBBLEWRAP = {
    "confined": [""],
    "programs": ["commands::endings::a_stop_ends_it"],
    "scenarios": [
        "approvals::a_stop_that_waits",
        "approvals::the_guide_shows",
        "command_line::commands_run_where",
        "front_ends::a_yes_below",
        "goals::a_goal_goes_on",
        "own_texts::questions_answers",
        "pains::a_turn_that_fails_throws",
        "parts_ask::",
        "postgres::engine::chosen",
        "postgres::killed::killed_in_a_tool_call",
        "readme::every_tool",
        "second_person::",
        "work_asks::",
        "workers::",
    ],
}

# What is left out, by the function that runs it: what it is, and what runs it alone.
LEFT_OUT = {
    "budget": "what the daemon costs (make budget)",
    "cluster": "faults against three daemons over one PostgreSQL (make cluster)",
    "crashes": "kills at named points (make crash)",
    "small": "scenarios of the smallest build",
    "mcp_servers": "servers by the official MCP SDK",
    "clients": "the official OpenAI client",
    "responses_client": "the clients of the Responses API",
    "anthropic_client": "the official Anthropic client",
    "langchain_client": "LangChain's client",
    "websocket_clients": "the example clients of the WebSocket RPC",
    "adapter_example": "adapters, and the IRC example with ngIRCd",
    "bot_example": "the example of a bot",
    "mcp_client": "the official MCP client",
    "acp_client": "editors by the Agent Client Protocol",
    "mcp_oauth": "the login at MCP servers",
    "mcp_tasks": "the tasks of an MCP server",
    "generated_clients": "clients made by generators",
    "api_fuzz": "schemathesis",
    "metrics": "promtool",
    "telemetry": "a collector of OpenTelemetry",
    "proxies": "nginx and Caddy",
    "console": "the console in Chromium (make console-test)",
    "sizes": "the sizes of the builds (make sizes)",
    "booted": "the unit, the booted service and the Debian package (make service)",
    "image": "the OCI image",
}


class WithoutBubblewrap:
    """A tally for one suite: tests that fail because bubblewrap is missing are skipped in it."""

    def __init__(self, tally):
        self.tally, self.cached = tally, tally.cached

    def suite(self, name, once):
        self.tally.suite(name, lambda test=None: excused(once(test)))


# Lines of a failure that say why: a log of the daemon in front of them may name bubblewrap at each start.
REASON_LINES = 8


def excused(outcome):
    """An outcome whose failures that name what is missing as their reason are skipped."""
    missing = {test for test, lines in outcome.failures.items() if any(MISSING in line.lower() for line in reason(lines))}
    failures = {test: lines for test, lines in outcome.failures.items() if test not in missing}
    failed = outcome.failed - len(missing)
    lines = outcome.lines if failed else ()
    return dataclasses.replace(outcome, failed=failed, skipped=outcome.skipped + len(missing), lines=lines, failures=failures)


def reason(lines):
    """The lines of a failure from its panic on."""
    at = next((index for index, line in enumerate(lines) if "panicked at" in line), 0)
    return lines[at : at + REASON_LINES]


def without_bubblewrap(tally, *arguments):
    """Runs one test binary where bubblewrap is missing."""
    rust(WithoutBubblewrap(tally), *arguments)


def quick(suites, environment):
    """The suites, each with its arguments, and what of them is left out because bubblewrap is missing."""
    jobs, without = [(mail_client, environment), (examples, environment)], []
    run = rust if which("bwrap") else without_bubblewrap
    for suite in suites:
        arguments = ["--skip", OFFICIAL_MCP] if suite["target"] == "programs" else []
        needing = NEED_BUBBLEWRAP.get(suite["target"], []) if run is without_bubblewrap else []
        without += [f"{suite['name']} {test}".strip() for test in needing]
        if "" not in needing:
            arguments += [part for test in needing for part in ("--skip", test)]
            jobs.append((run, suite, suite["name"], arguments, environment))
    return jobs, without


def left_out(without):
    """The lines that say what did not run."""
    lines = ["", f"left out by QUICK=1, {len(LEFT_OUT)} suites:", *(f"  {what}" for what in LEFT_OUT.values())]
    if without:
        lines += ["left out because bubblewrap is missing (package bubblewrap), and tests that name it are skipped:", *(f"  {what}" for what in without)]
    lines.append("`make test` runs all of it, also the suites that have passed here. Tests that need PostgreSQL are among the skipped ones where it is missing.")
    return lines
