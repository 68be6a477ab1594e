#!/usr/bin/env python3
"""Runs every test of the project and counts them.

    tests/run.py [--quick] [--verbose] [--all] [--flaky=fail]

Says what is missing, installs it (bubblewrap, PostgreSQL and others only as root, on Debian and Ubuntu), builds the workspace
with its tests, and runs the test binaries, as many side by side as the machine has processors. Beside them the budget counts what the
daemon costs (`make budget`), daemons are killed at named points (`make crash`), three daemons over one PostgreSQL are killed, cut from it and
restarted (`make cluster`), the official OpenAI client, the clients of its Responses API, the official Anthropic client, LangChain's client, the example clients of the WebSocket RPC and the official MCP
SDK talk to a real daemon, which itself logs in at a real OAuth server, so do clients that generators have made of its description, schemathesis fuzzes its API by that description,
promtool checks its metrics, a collector decodes its signals, the reverse proxies of deploy/ stand before it, and Chromium opens the console.
Then the sizes of the full and of the smallest build are compared with a table, systemd rates the unit, a machine with the installed service in it is booted, another one installs, upgrades and purges the Debian
package, and the OCI image is built and run. What these need is installed while the compiler works. A suite that has passed here, and that nothing could have changed since, is "(cached)" and not run again
(tests/passed.py), unless --all or the variable CI says so. A test that has failed is run again alone at the end, up to twice: if it passes then,
it is flaky (tests/gate/tally.py), which --flaky=fail counts as failed. --quick installs nothing, runs the tests in Rust alone, and says what it
leaves out (tests/gate/quick.py).
On a terminal a line below the output says what is being done, and for how long (tests/gate/progress.py).
Prints a table of suites, the time that all of it took, the flaky tests, and, as its last line, "N passed, N failed, N skipped". Ends with 1
when anything failed. Standard library only.
"""

import concurrent.futures
import os
import resource
import sys
import threading
import time

import passed
from gate import install, missing
from gate.faults import cluster, crashes
from gate.machines import booted, image, prepare_image, prepare_service
from gate.output import ALL, ROOT, environment_of, say
from gate.progress import PROGRESS, clock
from gate.quick import left_out, quick
from gate.rust import OFFICIAL_MCP, build, examples, mail_client, mcp_servers, rust, small
from gate.scripts import (
    acp_client,
    adapter_example,
    anthropic_client,
    api_fuzz,
    bot_example,
    budget,
    clients,
    console,
    generated_clients,
    langchain_client,
    mcp_client,
    mcp_oauth,
    mcp_tasks,
    metrics,
    proxies,
    responses_client,
    sizes,
    telemetry,
    websocket_clients,
)
from gate.tally import Tally

# Suites that run side by side. Many tests wait for a socket or a process, so each suite runs as many tests at once again.
SIDE_BY_SIDE = os.cpu_count() or 1
# Scenarios wait for a daemon most of the time, so they run twice as many tests at once.
WAITING = "scenarios"


def first(suites, budget_program, environment):
    """All suites but the last ones, each with its arguments. The budget and the cluster wait most of the time, so they take no place."""
    jobs = [(budget, budget_program), (cluster, environment)]
    for suite in suites:
        official = suite["target"] == "programs"
        arguments = ["--skip", OFFICIAL_MCP] if official else []
        if suite["target"] == WAITING:
            arguments.append(f"--test-threads={2 * SIDE_BY_SIDE}")
        jobs.append((rust, suite, suite["name"], arguments, environment))
        if official:
            jobs.append((mcp_servers, suite, environment))
        if suite["target"] == WAITING:
            jobs.append((small, suite, environment))
    clients_of_models = (clients, responses_client, anthropic_client, langchain_client)
    clients_of_api = (*clients_of_models, websocket_clients, adapter_example, bot_example, mcp_client, acp_client, mcp_oauth, mcp_tasks, generated_clients, api_fuzz)
    watched = (metrics, telemetry, proxies, console)
    return jobs + [(job, environment) for job in (mail_client, examples, *clients_of_api, *watched, crashes)]


def run(tally, jobs):
    """Runs suites, as many side by side as the machine has processors."""
    with concurrent.futures.ThreadPoolExecutor(SIDE_BY_SIDE + 2) as pool:
        for job, done in [(job, pool.submit(job, tally, *arguments)) for job, *arguments in jobs]:
            if error := done.exception():
                tally.add(job.__name__, 0, 1, 0, 0.0, f" ({error!r})")


def last(environment, preparing, preparing_image):
    """The last suites, each with its arguments. They run beside one another, but beside no test of the ones before."""
    return [(booted, environment, preparing), (image, environment, preparing_image), (sizes, environment)]


def tally_of(arguments, root=ROOT):
    """The tally of a run with these arguments. A suite that passes by --quick is not "(cached)" without it."""
    remembered = passed.QUICK if "--quick" in arguments else passed.GATE
    return Tally(ALL, flaky_fails="--flaky=fail" in arguments, root=root, remembered=remembered)


def main():
    try:
        return test()
    finally:
        install.DOWNLOADS.end()
        PROGRESS.end()


def test():
    """Runs everything, and returns the exit status."""
    os.chdir(ROOT)
    tally, begin = tally_of(sys.argv[1:]), time.monotonic()
    if "--quick" in sys.argv[1:]:
        return only_rust(tally, begin)
    for line in missing.lines():
        say(line)
    install.programs()
    preparing, preparing_image = prepare_service(), prepare_image()
    installing = threading.Thread(target=install.install)
    installing.start()
    suites, belay, budget_program = built_suites(tally)
    installing.join()
    built = time.monotonic()
    if belay is not None:
        environment = environment_of(belay)
        run(tally, first(suites, budget_program, environment))
        run(tally, last(environment, preparing, preparing_image))
        tally.again()
        tally.remember()
    else:
        install.DOWNLOADS.end()
    return end(tally, begin, built)


def built_suites(tally):
    """Builds everything (tests/gate/rust.py). The line of progress is cargo's own, where it draws one."""
    with PROGRESS.hidden(), PROGRESS.doing("build"):
        return build(tally)


def only_rust(tally, begin):
    """Runs what needs neither packages nor root, says what that leaves out, and returns the exit status."""
    suites, belay, _ = built_suites(tally)
    built = time.monotonic()
    jobs, without = quick(suites, environment_of(belay)) if belay else ([], [])
    run(tally, jobs)
    tally.again()
    tally.remember()
    for line in left_out(without):
        say(line)
    return end(tally, begin, built)


def end(tally, begin, built):
    """Prints what has failed or is flaky, the times and the sums, and returns the exit status."""
    succeeded, failed, skipped = (tally.total(column) for column in ("passed", "failed", "skipped"))
    for title, found in (("flaky", [f"{what}: {why}" for what, why in tally.flaky]), ("failed", tally.failures)):
        if found:
            say(f"\n{title}:")
        for line in found:
            say(f"  {line}")
    used, now = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    say("")
    say(f"{clock(now - begin)} in all: build {clock(built - begin)}, tests {clock(now - built)}; processors {clock(used.ru_utime + used.ru_stime)}")
    say(f"{len(tally.flaky)} flaky: failed, and passed when run again alone{' (counted as failed)' if tally.flaky_fails else ''}")
    say(f"{succeeded} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not succeeded else 0


if __name__ == "__main__":
    sys.exit(main())
