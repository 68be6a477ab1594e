#!/usr/bin/env python3
"""Compares the HTTP API of a real daemon, with the rehearsal provider, with the description that it serves, by schemathesis.

    BELAY_BIN=target/debug/belay build/schemathesis/bin/python tests/api/fuzz.py

First real objects: a message, a run, a job, a routine and so on are made, and each answer has to be as described. Then generated requests,
valid and invalid. No answer may be 500, or have a status, a content type, a header or a body that is not described. The seed is fixed.
Needs the package `schemathesis` (tests/run.py installs it under build/schemathesis). Prints a line for each part and, as its last line,
"N passed, N failed, N skipped".
"""

import json
import os
import pathlib
import subprocess
import sys
import time
import traceback
import urllib.request

import schemathesis
from schemathesis.checks import load_all_checks
from schemathesis.specs.openapi import checks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from belay_process import Belay, until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
COMMITTED = ROOT / "docs" / "reference" / "openapi.json"
TOKEN, OPERATOR = "token-of-the-fuzz", "operator-token-of-the-fuzz"
SEED = 20261126
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance"
# Streams without end, and what would end or freeze the daemon for the rest.
ENDLESS = ["followAll", "followSession"]
LAST = ["shutdown", "freeze", "thaw"]
# A daemon whose waits are short, so that no generated request takes long.
SETTINGS = {"llm.provider": "rehearsal", "gateway.max_wait_ms": "2000"}
SECRETS = {"BELAY_TOKEN": TOKEN, "BELAY_OPERATOR_TOKEN": OPERATOR, "BELAY_WEBHOOK_SECRET": "signing-secret-of-the-fuzz"}
NOBODY = "0190b3a0-0000-7000-8000-000000000000"
PATIENCE_S = 300


class Api:
    """Calls operations by their ids; each answer has to be as described."""

    def __init__(self, belay):
        load_all_checks()
        self.schema = schemathesis.openapi.from_url(f"{belay.url}/openapi.json")
        self.url = belay.url
        self.called = set()
        described = json.loads(COMMITTED.read_text())["paths"]
        self.places = {of["operationId"]: (path, method) for path, methods in described.items() for method, of in methods.items()}

    def call(self, name, status, body=None, /, token=OPERATOR, headers=None, query=None, media_type="application/json", **path):
        """The answer of an operation, which has to have this status: its JSON, or its text."""
        where, method = self.places[name]
        operation = self.schema[where][method.upper()]
        given = {} if body is None else {"body": body, "media_type": media_type}
        case = operation.Case(path_parameters=path, query=query or {}, headers=headers or {}, **given)
        sent = {"Authorization": f"Bearer {token}"} if token else {}
        answer = case.call(base_url=self.url, headers=sent, timeout=PATIENCE_S)
        assert answer.status_code == status, f"{name}: {answer.status_code}, not {status}: {answer.text[:500]}"
        wanted = [checks.status_code_conformance, checks.content_type_conformance, checks.response_headers_conformance]
        case.validate_response(answer, checks=[*wanted, checks.response_schema_conformance])
        self.called.add(name)
        is_json = answer.headers["content-type"][0] == "application/json"
        return answer.json() if is_json else answer.text

    def get(self, name, status=200, /, query=None, **path):
        return self.call(name, status, query=query, **path)


def the_daemon_serves_the_committed_document(belay):
    with urllib.request.urlopen(f"{belay.url}/openapi.json", timeout=300) as response:
        served = json.load(response)
    assert served == json.loads(COMMITTED.read_text()), "the served document is not docs/reference/openapi.json"


def answers_about_real_objects_are_as_described(belay):
    api = Api(belay)
    for name in ("isAlive", "isReady", "hasStarted", "describeApi"):
        api.call(name, 200, token=None)
    conversations(api)
    work(api)
    administration(api)
    print(f"   {len(api.called)} of {len(api.places)} operations", flush=True)


def conversations(api):
    file = api.call("uploadFile", 201, b"a,b\n1,2\n", media_type="application/octet-stream", query={"name": "a.csv"})["file"]
    message = {"session": "alice", "text": "calculate 17*23", "idempotency_key": "a1"}
    run = api.call("sendMessage", 202, message)["run_id"]
    api.call("sendMessage", 200, {"session": "alice", "text": "hello", "wait_ms": 2000, "attachments": [{"file": file}]})
    api.call("sendMessage", 200, {"session": "alice", "text": "/status"})
    api.call("sendMessage", 202, message)
    api.call("sendMessage", 409, {**message, "text": "another"})
    sent = {"message": "calculate 2+2", "sessionKey": "bob", "idempotencyKey": "b1"}
    other = api.call("sendAgentMessage", 202, sent)["runId"]
    until("the run", lambda: api.call("waitForAgentRun", 200, {"runId": other, "timeoutMs": 1000})["status"] == "ok", PATIENCE_S)
    api.call("sendAgentMessage", 200, sent)
    api.call("sendAgentMessage", 200, {"message": "/status", "sessionKey": "bob", "idempotencyKey": "b2"})
    until("the run", lambda: api.get("waitForRun", id=run)["status"] == "completed", PATIENCE_S)
    for name in ("showRun", "followRun", "followAgentRun", "exportRun"):
        api.get(name, id=run)
    api.get("showRun", 404, id=NOBODY)
    api.call("stopRun", 200, id=run)
    assert api.get("listRuns", query={"session": "alice"})["runs"]
    for name in ("showSession", "listMessages", "showContext", "listThreads"):
        api.get(name, key="alice")
    api.get("showContext", key="alice", query={"full": "true"})
    for form in ("markdown", "jsonl"):
        api.get("exportSession", key="alice", query={"format": form, "threads": "all"})
    assert len(api.get("listSessions")["sessions"]) >= 2
    assert api.get("search", query={"q": "calculate"})["found"]
    chat = {"model": "belay", "messages": [{"role": "user", "content": "hello"}]}
    api.call("createChatCompletion", 200, chat, headers={"X-Belay-Session": "carol"})
    api.call("createChatCompletion", 200, {**chat, "stream": True})
    api.call("createChatCompletion", 404, {**chat, "model": "nobody"})
    api.get("listModels")
    api.get("showModel", name="belay")
    api.get("openWebSocket", 400)


def work(api):
    job = api.call("createJob", 202, {"task": "calculate 3*3", "title": "nine", "session": "alice", "allow": [{"tool": "calculate"}]})["job_id"]
    until("the job", lambda: api.get("showJob", id=job)["state"] not in ("pending", "in_progress"), PATIENCE_S)
    assert api.get("listJobs", query={"session": "alice"})["jobs"]
    api.get("followJob", id=job)
    api.call("messageJob", 409, {"text": "hello"}, id=job)
    api.call("revokeJobGrant", 200, {"grant": 1}, id=job)
    api.call("acceptJob", 200, id=job)
    api.call("cancelJob", 409, id=job)
    spec = {"name": "tick", "trigger": {"kind": "schedule", "when": "@daily"}, "action": {"mode": "lightweight", "prompt": "look"}}
    api.call("createRoutine", 201, spec)
    api.call("putRoutine", 200, {**spec, "description": "looks"}, name="tick")
    for name in ("disableRoutine", "enableRoutine"):
        api.call(name, 200, name="tick")
    api.call("testRoutine", 200, {"at": "2026-11-30T00:00Z"}, name="tick")
    api.call("testNewRoutine", 200, {"spec": spec, "at": "2026-11-30T00:00Z"}, name="test")
    fired = api.call("fireRoutine", 202, {"payload": "x"}, headers={"Idempotency-Key": "f1"}, name="tick")["routine_run_id"]
    until("the routine run", lambda: api.get("showRoutineRun", id=fired)["status"] != "running", PATIENCE_S)
    assert api.get("listRunsOfRoutine", name="tick")["routine_runs"]
    assert api.get("listRoutineRuns")["routine_runs"]
    assert api.get("nextRoutineRuns")["next"]
    assert api.get("listRoutines")["routines"]
    api.get("showRoutine", name="tick")
    api.call("reportEvent", 200, {"source": "ci", "event": "done", "payload": {}})
    api.call("deleteRoutine", 200, name="tick")
    api.get("showHeartbeat")


def administration(api):
    api.call("sendMessage", 200, {"session": "alice", "text": "remember that I like tea", "wait_ms": 2000})
    notes = api.get("listNotes")["notes"]
    for note in notes[:1]:
        api.get("showNote", id=note["id"])
        api.call("editNote", 200, {"text": "likes tea"}, id=note["id"])
        api.call("deleteNote", 200, id=note["id"])
    api.call("deleteNotes", 200, query={"person": "http:operator-token"})
    api.get("listApprovals", query={"all": "true"})
    api.get("showApproval", 404, id=NOBODY)
    api.call("decideApproval", 404, {"decision": "deny"}, id=NOBODY)
    tool = api.get("listTools")["tools"][0]["name"]
    api.call("disableTool", 200, {"detail": "a test"}, name=tool)
    api.get("showStatus")
    api.call("enableTool", 200, name=tool)
    for name in ("listPeople", "listPrincipals", "listFreezes", "showMetrics"):
        api.get(name)
    api.call("pairPerson", 404, {"code": "ABCDEFGH"})
    api.call("freeze", 422, {"channel": "nowhere", "detail": "a test"})
    api.call("freeze", 200, {"channel": "telegram", "detail": "a test"})
    api.call("thaw", 200, {"channel": "telegram"})
    api.call("stopSession", 200, key="alice")
    api.call("stopAll", 200, query={"wait_ms": 0})
    api.call("deleteSecrets", 200, key="alice")
    api.call("deleteSecret", 404, key="alice", name="nothing")
    api.call("removePerson", 404, person="telegram:7")
    api.call("prune", 200, query={"dry_run": "true"})
    until("the deletion", lambda: api.call("deleteSession", 200, key="bob"), PATIENCE_S)
    api.call("listPeople", 403, token=TOKEN)
    api.call("listPeople", 401, token="nobody")
    api.call("sendSignedMessage", 401, {"session": "s", "text": "x", "delivery_id": "d", "sent_at": 1}, token=None)
    api.call("triggerRoutine", 403, "x", media_type="text/plain", token=None, name="nothing")


def fuzz(belay, token, max_examples, phases, *filters):
    """Runs schemathesis with generated requests."""
    program = pathlib.Path(sys.executable).with_name("schemathesis")
    command = [
        str(program), "run", f"{belay.url}/openapi.json", "--url", belay.url, "--checks", CHECKS, "--seed", str(SEED), "--phases", phases,
        "--max-examples", str(max_examples), "--workers", "1", "--request-timeout", "20", "--no-color", "--generation-database", "none",
        "--header", f"Authorization: Bearer {token}", "--warnings", "off", *filters,
    ]
    done = subprocess.run(command, cwd=belay.home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, f"schemathesis ended with {done.returncode}\n{done.stdout}"


def except_for(*ids):
    return [word for name in ids for word in ("--exclude-operation-id", name)]


def a_stranger_gets_what_is_described(belay):
    fuzz(belay, "nobody", 1, "fuzzing")


def the_client_gets_what_is_described(belay):
    fuzz(belay, TOKEN, 3, "fuzzing", *except_for(*ENDLESS))


def the_operator_gets_what_is_described(belay):
    fuzz(belay, OPERATOR, 10, "coverage,fuzzing", *except_for(*ENDLESS, *LAST))


def freezes_are_as_described(belay):
    fuzz(belay, OPERATOR, 10, "coverage,fuzzing", "--include-operation-id", "freeze", "--include-operation-id", "thaw")


def the_end_is_as_described(belay):
    Api(belay).call("shutdown", 200)


TESTS = [
    the_daemon_serves_the_committed_document,
    answers_about_real_objects_are_as_described,
    a_stranger_gets_what_is_described,
    the_client_gets_what_is_described,
    the_operator_gets_what_is_described,
    freezes_are_as_described,
    the_end_is_as_described,
]


def main():
    passed = failed = 0
    with Belay(BINARY, SETTINGS, SECRETS) as belay:
        for function in TESTS:
            name, begin = function.__name__.replace("_", " "), time.monotonic()
            try:
                function(belay)
                passed += 1
                print(f"ok {name} ({time.monotonic() - begin:.1f} s)", flush=True)
            except Exception:  # a test may fail in any way; the next one runs all the same
                failed += 1
                log = "".join(list(belay.log)[-20:])
                print(f"FAILED {name} ({time.monotonic() - begin:.1f} s)\n{traceback.format_exc()}\n{log}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
