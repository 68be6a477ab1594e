#!/usr/bin/env python3
"""A real daemon calls a tool of the reference server `everything` that works only as a task: over pipes, with a question for a person, stopped, and over HTTP
with a kill of the daemon.

    BELAY_BIN=target/debug/belay tests/clients/mcp_tasks.py FOLDER

FOLDER has `@modelcontextprotocol/server-everything` in its node_modules (tests/run.py installs it under build/mcp_tasks_server). Prints a line for each test
and, as its last line, "N passed, N failed, N skipped". Standard library only.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import traceback
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import Belay, until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
PATIENCE_S = 300
TOKEN = "token-of-the-task-test"
TOOL = "simulate_research_query"
ENDED = ("completed", "failed", "stopped")


class World:
    def __init__(self, belay, server):
        self.belay, self.server = belay, server

    def get(self, path, body=None):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.belay.url + path, json.dumps(body).encode() if body else None, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def begin(self, session, **arguments):
        text = f"call mcp_{self.server}_{TOOL} {json.dumps(arguments)}"
        return self.get("/api/v1/messages", {"session": session, "text": text})["run_id"]

    def ended(self, run):
        def end():
            record = self.get(f"/api/v1/runs/{run}")
            return record if record["status"] in ENDED else None

        return until("the run ends", end, PATIENCE_S)

    def call(self, run):
        """The events of the run's call: how often it began, and its ends."""
        path = f"{self.belay.url}/api/v1/runs/{run}/events"
        request = urllib.request.Request(path, headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            lines = answer.read().decode().splitlines()
        events = [json.loads(line[5:]) for line in lines if line.startswith("data:")]
        return [event for event in events if event["type"] == "tool_finished"]

    def question(self):
        waiting = until("a person is asked", lambda: self.get("/api/v1/approvals")["approvals"], PATIENCE_S)
        return self.get(f"/api/v1/approvals/{waiting[0]['id']}")


def a_task_ends_with_its_report(world):
    run = world.begin("plain", topic="python")
    world.ended(run)
    (end,) = world.call(run)
    assert end["status"] == "success" and "# Research Report: python" in end["result"], end


def a_question_of_a_task_reaches_a_person(world):
    run = world.begin("asks", topic="python", ambiguous=True)
    question = world.question()
    assert "multiple interpretations" in question["question"], question
    world.get(f"/api/v1/approvals/{question['id']}", {"decision": "approve", "values": {"interpretation": "programming"}})
    world.ended(run)
    (end,) = world.call(run)
    assert end["status"] == "success" and "programming" in end["result"], end


def a_stop_ends_the_call_at_once(world):
    run = world.begin("stopped", topic="python", ambiguous=True)
    world.question()
    world.get("/api/v1/messages", {"session": "stopped", "text": "/stop"})
    record = world.ended(run)
    (end,) = world.call(run)
    assert (record["status"], end["status"]) == ("stopped", "cancelled"), (record, end)


def a_task_of_an_ended_session_has_an_unknown_outcome(world):
    """This server keeps tasks for one session, so that the next start of the daemon cannot find it; it is asked, and nothing is called again."""
    run = world.begin("killed", topic="python", ambiguous=True)
    world.question()
    world.belay.process.kill()
    world.belay.process.wait(PATIENCE_S)
    world.belay.url = None
    with world.belay:
        world.ended(run)
        (end,) = world.call(run)
        assert end["status"] == "outcome_unknown" and "outcome is unknown" in end["result"], end
        assert "not found" in end["result"], end


def judged(tests, settings, server, sums):
    with Belay(BINARY, {"llm.provider": "rehearsal", **settings}, {"BELAY_OPERATOR_TOKEN": TOKEN}) as belay:
        for function in tests:
            name, begin = function.__name__.replace("_", " "), time.monotonic()
            try:
                function(World(belay, server))
                sums[0] += 1
                print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            except Exception:  # a test may fail in any way; the next one runs all the same
                sums[1] += 1
                print(f"FAILED {name}\n{traceback.format_exc()}\n{''.join(belay.log)}", flush=True)


def over_http(script, sums):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PORT": str(port)}
    command = ["node", str(script), "streamableHttp"]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}/mcp"

    def answers():
        try:
            urllib.request.urlopen(url, timeout=PATIENCE_S)
        except urllib.error.HTTPError:
            return True  # it wants another request
        except OSError:
            return False
        return True

    try:
        until("the server answers", answers, PATIENCE_S)
        settings = {"tools.mcp.far.url": url, "tools.mcp.far.approval": "never"}
        judged([a_task_ends_with_its_report, a_task_of_an_ended_session_has_an_unknown_outcome], settings, "far", sums)
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


def main():
    script = pathlib.Path(sys.argv[1]).resolve() / "node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    command = json.dumps(["node", str(script), "stdio"])
    near = {"tools.mcp.near.command": command, "tools.mcp.near.approval": "never", "tools.mcp.near.sandbox": "false"}
    sums = [0, 0]
    judged([a_task_ends_with_its_report, a_question_of_a_task_reaches_a_person, a_stop_ends_the_call_at_once], near, "near", sums)
    over_http(script, sums)
    passed, failed = sums
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
