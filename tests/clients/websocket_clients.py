#!/usr/bin/env python3
"""The example clients of the WebSocket RPC against a real daemon.

    BELAY_BIN=target/debug/belay tests/clients/websocket_clients.py [FOLDER]

Needs the package `websockets` (tests/run.py installs it under build/websocket). FOLDER holds the built TypeScript client;
without it, that one is left out. Prints a line for each test and, as its last line, "N passed, N failed, N skipped".
"""

import asyncio
import json
import os
import pathlib
import shutil
import subprocess
import sys
import traceback
import types
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "clients"), str(ROOT / "docs" / "examples" / "client-python")]
import belay_client  # noqa: E402
from belay_client import Belay as Client, BelayError  # noqa: E402
from belay_process import Belay  # noqa: E402

BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN = "token-of-the-client-test"
TESTS = []


def test(function):
    TESTS.append(function)
    return function


def connect(url):
    return Client.connect(url.replace("http", "ws", 1) + "/ws", TOKEN)


@test
async def a_message_is_streamed_and_ends_with_its_answer(url):
    async with await connect(url) as belay:
        run = await belay.send("stream", "calculate 17*23")
        events = [event async for event in run.stream()]
        end = await run.result()
        assert end["status"] == "ok" and "391" in end["result"]["payloads"][0]["text"], end
        said = "".join(event["data"]["delta"] for event in events if event["stream"] == "assistant")
        assert "391" in said, events
        waited = await belay.wait(run.id)
        assert waited["status"] == "ok", waited


class AtOnce:
    """A socket that has everything of a run before the client goes on: on a busy machine, one read brings it all."""

    async def send(self, text):
        def event(stream, **data):
            return {"type": "event", "event": "agent", "payload": {"runId": "one", "stream": stream, "data": data}}

        answer = {"type": "res", "id": json.loads(text)["id"], "ok": True}
        accepted, ended = ({**answer, "payload": {"runId": "one", "status": status}} for status in ("accepted", "ok"))
        for frame in (accepted, event("assistant", delta="hello"), event("lifecycle", phase="end"), ended):
            self.client._take(frame)


@test
async def a_run_that_ends_before_its_acceptance_is_read_has_its_events(_url):
    socket = AtOnce()
    socket.client = Client(socket)
    run = await socket.client.send("at-once", "hello")
    events = await asyncio.wait_for(all_of(run.stream()), 60)
    assert [event["stream"] for event in events] == ["assistant", "lifecycle"], events
    assert (await run.result())["status"] == "ok"


async def all_of(events):
    return [event async for event in events]


@test
async def the_types_of_the_python_client_are_those_of_the_description(url):
    schemas = json.loads((ROOT / "docs" / "reference" / "openapi.json").read_text())["components"]["schemas"]
    for name in ("ReplyPayload", "RunMeta", "RunResult", "EndedRun", "WaitedRun", "AgentEvent"):
        full = getattr(belay_client, f"Full{name}", getattr(belay_client, name))
        described = schemas[name]
        assert full.__required_keys__ == set(described["required"]), f"{name}: required are {described['required']}"
        assert full.__annotations__.keys() == described["properties"].keys(), f"{name} has {list(described['properties'])}"
        for key, hint in typing.get_type_hints(full).items():
            schema = described["properties"][key]
            if schema is True:
                continue  # any JSON
            schema = schemas[schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
            named = schema.get("type")
            kinds = {named} if isinstance(named, str) else set(named or [])
            assert not kinds or kinds == kinds_of(hint), f"{name}.{key}: {kinds}"


def kinds_of(hint):
    """The JSON types of a type of the client."""
    if isinstance(hint, types.UnionType):
        return set().union(*(kinds_of(one) for one in typing.get_args(hint)))
    plain = typing.get_origin(hint) or hint
    names = {str: "string", int: "integer", bool: "boolean", list: "array", dict: "object", types.NoneType: "null"}
    return {"object" if typing.is_typeddict(plain) else names[plain]}


@test
async def the_same_key_is_the_same_run_over_connections(url):
    async with await connect(url) as belay:
        first = await (await belay.send("again", "calculate 6*7", key="k")).result()
    async with await connect(url) as belay:
        assert await (await belay.send("again", "calculate 6*7", key="k")).result() == first
        try:
            await belay.send("again", "something else", key="k")
            raise AssertionError("a conflict was expected")
        except BelayError as error:
            assert error.code == "CONFLICT", error


@test
async def a_run_is_aborted(url):
    async with await connect(url) as belay:
        run = await belay.send("abort", "rehearse stall")
        async for event in run.stream():
            if event["stream"] == "lifecycle" and event["data"]["phase"] == "start":
                break
        aborted = await belay.abort("abort")
        end = await run.result()
        assert aborted["runIds"] == [run.id] and end["error"] == "aborted", (aborted, end)


@test
async def a_wrong_token_is_refused(url):
    try:
        await Client.connect(url.replace("http", "ws", 1) + "/ws", "wrong")
        raise AssertionError("a refusal was expected")
    except BelayError as error:
        assert error.code == "UNAUTHORIZED", error


def typescript(url, folder):
    """The other client streams an answer, aborts nothing, and waits."""
    script = ROOT / "tests" / "clients" / "websocket_client.mjs"
    command = [shutil.which("node") or "node", str(script), str(folder), url.replace("http", "ws", 1) + "/ws"]
    done = subprocess.run(command, env={**os.environ, "BELAY_TOKEN": TOKEN}, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def main():
    passed = failed = skipped = 0
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    with Belay(BINARY, {"llm.provider": "rehearsal"}, {"BELAY_TOKEN": TOKEN}) as belay:
        tests = [(function.__name__, lambda f=function: asyncio.run(f(belay.url))) for function in TESTS]
        if folder:
            tests.append(("the_typescript_client_sends_streams_waits_and_aborts", lambda: typescript(belay.url, folder)))
        else:
            skipped += 1
            print("skipped the TypeScript client: it was not built", flush=True)
        for name, run in tests:
            try:
                run()
                passed += 1
                print(f"ok {name.replace('_', ' ')}", flush=True)
            except Exception:  # a test may fail in any way; the next one runs all the same
                failed += 1
                print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
