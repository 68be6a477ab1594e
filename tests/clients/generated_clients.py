#!/usr/bin/env python3
"""Clients that generators make of the description of the API, in Python and TypeScript, against a real daemon.

    BELAY_BIN=target/debug/belay build/generators/bin/python tests/clients/generated_clients.py [FOLDER]

Needs the package `openapi-python-client` (tests/run.py installs it under build/generators). FOLDER has the packages of
tests/clients/generated; without it, the client in TypeScript is left out. Prints a line for each test and, as its last line,
"N passed, N failed, N skipped".
"""

import importlib
import os
import pathlib
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import Belay, until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN, OPERATOR = "token-of-the-client-test", "operator-token-of-the-client-test"
LIMIT_S = 300
DONE = ("submitted", "completed", "accepted")
NOBODY = "0190b3a0-0000-7000-8000-000000000000"
# What this generator has no code for: bytes of any type, a stream of lines, and a body of plain text.
UNKNOWN_TO_THE_GENERATOR = {"GET /api/v1/files/{token}", "GET /api/v1/runs/{id}/trajectory", "POST /hooks/{name}"}
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def run(command, **options):
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


class Api:
    """The generated client, and one function for each operation that a test calls."""

    def __init__(self, url, token):
        self.url = url
        self.client = importlib.import_module("belay_client").AuthenticatedClient(base_url=url, token=token, timeout=60)
        self.models = importlib.import_module("belay_client.models")

    def call(self, place, **arguments):
        """The status and the parsed answer of an operation, such as `runs.show_run`."""
        answer = importlib.import_module(f"belay_client.api.{place}").sync_detailed(client=self.client, **arguments)
        assert answer.parsed is not None, f"{place}: {answer.status_code} is not described: {answer.content}"
        return answer.status_code.value, answer.parsed

    def answer(self, place, kind, **arguments):
        """The answer of an operation that succeeds, which has this type."""
        status, parsed = self.call(place, **arguments)
        assert status < 300 and isinstance(parsed, getattr(self.models, kind)), f"{place}: {status} {parsed}"
        return parsed

    def failure(self, place, status, **arguments):
        """The error of an operation that fails with this status."""
        got, parsed = self.call(place, **arguments)
        assert got == status and isinstance(parsed, self.models.ErrorBody), f"{place}: {got} {parsed}"
        return parsed.error


@test
def the_generator_writes_a_client_without_complaints(api):
    told = (pathlib.Path(sys.path[0]) / "told").read_text()
    complaints = re.findall(r"WARNING parsing (\S+ \S+)", told)
    assert set(complaints) <= UNKNOWN_TO_THE_GENERATOR and "ERROR" not in told, told
    package = importlib.import_module("belay_client")
    for module in pkgutil.walk_packages(package.__path__, "belay_client."):
        importlib.import_module(module.name)


@test
def messages_and_runs(api):
    m = api.models
    body = m.NewMessage(session="python", text="calculate 17*23", wait_ms=20_000)
    ended = api.answer("messages.send_message", "RunRecord", body=body)
    assert ended.status == m.RunStatus.COMPLETED and "391" in ended.reply, ended
    command = api.answer("messages.send_message", "AnsweredCommand", body=m.NewMessage(session="python", text="/status"))
    assert command.command == "/status" and command.status == m.AnsweredCommandStatus.COMMAND, command
    assert api.answer("runs.show_run", "RunRecord", id=ended.run_id).agent_state == m.AgentState.FINISHED
    assert api.answer("runs.wait_for_run", "RunRecord", id=ended.run_id, timeout_ms=0).reason == m.StopReason.FINAL_TEXT
    listed = api.answer("runs.list_runs", "RunList", session="python", status=[m.RunStatus.COMPLETED, m.RunStatus.FAILED])
    assert [one.run_id for one in listed.runs] == [ended.run_id], listed
    history = api.answer("sessions.list_messages", "History", key="python")
    assert [line.role for line in history.messages[:2]] == [m.HistoryEntryRole.USER, m.HistoryEntryRole.ASSISTANT], history
    found = api.answer("search.search", "FoundList", q="calculate")
    assert found.found[0].role in m.FoundRole, found


@test
def the_forms_of_the_rpc_are_told_apart(api):
    m = api.models
    body = m.AgentParams(message="calculate 6*7", session_key="python-agent", idempotency_key="k")
    accepted = api.answer("agent.send_agent_message", "AcceptedAnswer", body=body)
    wait = m.AgentWaitParams(run_id=str(accepted.run_id), timeout_ms=20_000)
    assert api.answer("agent.wait_for_agent_run", "WaitedRun", body=wait).status == m.WaitedRunStatus.OK
    again = api.answer("agent.send_agent_message", "AgentAnswerRun", body=body)
    assert "42" in again.result.payloads[0].text, again
    command = m.AgentParams(message="/status", session_key="python-agent", idempotency_key="c")
    assert api.answer("agent.send_agent_message", "AgentAnswerCommand", body=command).command == "/status"


@test
def jobs_and_routines(api):
    m = api.models
    job = api.answer("jobs.create_job", "Job", body=m.NewJob(task="calculate 3*3"))
    until("the job", lambda: api.answer("jobs.show_job", "Job", id=job.job_id).state in DONE, 60)
    trigger = m.TriggerInputSchedule(kind="schedule", when="@daily")
    look = m.RoutineActionInputLightweight(mode="lightweight", prompt="look")
    spec = m.RoutineSpec(name="python", trigger=trigger, action=look)
    routine = api.answer("routines.put_routine", "RoutineRecord", name="python", body=spec)
    assert isinstance(routine.trigger, m.TriggerSchedule) and routine.trigger.zone == "UTC" and routine.guard.max_concurrent == 1, routine
    assert len(api.answer("routine_runs.next_routine_runs", "NextRuns", routine="python", count=2).next_) == 2
    assert api.answer("routines.delete_routine", "RoutineDeleted", name="python").deleted


@test
def reports_and_files(api):
    from belay_client.types import File

    m = api.models
    assert api.answer("status.show_status", "DaemonStatus").version
    assert api.answer("tools.list_tools", "ToolList").tools[0].state == m.ToolState.OK
    assert api.answer("backups.create_backup", "Backup", body=m.BackupRequest()).verified
    assert api.answer("backups.list_backups", "BackupList").backups[0].reason == m.BackupReason.REQUEST
    assert api.answer("files.upload_file", "UploadedFile", body=File(payload=b"a,b\n1,2\n"), name="a.csv").bytes_ == 8


@test
def an_error_names_what_is_wrong(api):
    m = api.models
    wrong = api.failure("messages.send_message", 422, body=m.NewMessage(session="", text="x"))
    assert (wrong.code, wrong.param, wrong.retryable) == (m.ErrorCode.INVALID, "session", False), wrong
    model = api.failure("messages.send_message", 422, body=m.NewMessage(session="python", text="x", model="nobody"))
    assert model.param == "model", model
    outputs = [m.DeclaredOutput.from_dict({"name": "1", "schema": {}})]
    declared = api.failure("messages.send_message", 422, body=m.NewMessage(session="python", text="x", outputs=outputs))
    assert declared.param == "outputs", declared
    trigger = m.TriggerInputSchedule(kind="schedule", when="sometimes")
    spec = m.RoutineSpec(name="x", trigger=trigger, action=m.RoutineActionInputLightweight(mode="lightweight", prompt="look"))
    assert api.failure("routines.put_routine", 422, name="x", body=spec).param == "trigger.when"
    assert api.failure("runs.list_runs", 422, limit=0).param == "limit"
    assert api.failure("runs.list_runs", 400, after="x").code == m.ErrorCode.INVALID_CURSOR
    assert api.failure("runs.show_run", 404, id=NOBODY).code == m.ErrorCode.NOT_FOUND


def generate(url, home):
    """Has the generator write a client into a folder, from the document that the daemon serves."""
    generator = pathlib.Path(sys.executable).with_name("openapi-python-client")
    told = run([generator, "generate", "--url", f"{url}/openapi.json", "--meta", "none", "--output-path", home / "belay_client"])
    (home / "told").write_text(told)


def typescript(url, modules, home):
    """The other generator's client is compiled with all checks of types, and calls the same."""
    for file in (ROOT / "tests" / "clients" / "generated").iterdir():
        shutil.copy(file, home)
    (home / "node_modules").symlink_to(pathlib.Path(modules).resolve() / "node_modules")
    node = shutil.which("node") or "node"
    run([node, "node_modules/@hey-api/openapi-ts/bin/run.js", "-i", f"{url}/openapi.json", "-o", "api"], cwd=home)
    run([node, "node_modules/typescript/bin/tsc"], cwd=home)
    run([node, "built/calls.js"], cwd=home, env={**os.environ, "BELAY_URL": url, "BELAY_TOKEN": OPERATOR})


def main():
    passed = failed = skipped = 0
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    secrets = {"BELAY_TOKEN": TOKEN, "BELAY_OPERATOR_TOKEN": OPERATOR}
    with Belay(BINARY, {"llm.provider": "rehearsal"}, secrets) as belay, tempfile.TemporaryDirectory() as home:
        home = pathlib.Path(home)
        generate(belay.url, home)
        sys.path.insert(0, str(home))
        api = Api(belay.url, OPERATOR)
        tests = [(function.__name__, lambda f=function: f(api)) for function in TESTS]
        if folder:
            (home / "typescript").mkdir()
            tests.append(("the_typescript_client_calls_the_same", lambda: typescript(belay.url, folder, home / "typescript")))
        else:
            skipped += 1
            print("skipped the client in TypeScript: its packages are not there", flush=True)
        for name, call in tests:
            try:
                call()
                passed += 1
                print(f"ok {name.replace('_', ' ')}", flush=True)
            except Exception:  # a test may fail in any way; the next one runs all the same
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
