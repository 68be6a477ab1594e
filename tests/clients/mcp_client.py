#!/usr/bin/env python3
"""The official MCP SDK for Python as the client of a real daemon, by each of its two protocols, over HTTP and through
`belay mcp serve`.

    BELAY_BIN=target/debug/belay tests/clients/mcp_client.py

Needs the package `mcp` (tests/run.py installs it under build/mcp). Prints a line for each test and, as its last line,
"N passed, N failed, N skipped".
"""

import asyncio
import os
import pathlib
import sys
import traceback

import httpx2
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from belay_process import Belay  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("BELAY_BIN", ROOT / "target" / "debug" / "belay")
TOKEN = "token-of-the-client-test"
PATIENCE_S = 300
TOOLS = ["send_message", "run_status", "stop_run", "list_sessions", "read_conversation"]

TESTS = []


def test(function):
    TESTS.append(function)
    return function


def equal(found, expected):
    assert found == expected, f"expected {expected!r}, found {found!r}"


async def call(client, tool, **arguments):
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    return result.structured_content


async def refused(client, tool, part, **arguments):
    result = await client.call_tool(tool, arguments)
    assert result.is_error and part in result.content[0].text, result


async def until(what, condition):
    for _ in range(PATIENCE_S * 20):
        if found := await condition():
            return found
        await asyncio.sleep(0.05)
    raise AssertionError(f"{what}: not within {PATIENCE_S} s")


@test
async def the_tools_are_listed_with_closed_schemas(client, session):
    listed = (await client.list_tools()).tools
    equal([tool.name for tool in listed], TOOLS)
    assert all(tool.input_schema["additionalProperties"] is False for tool in listed), listed
    if client.server_info:  # who adopts a version without asking is told nothing of the server
        equal(client.server_info.name, "belay")


@test
async def a_message_is_answered_and_read_again(client, session):
    run = await call(client, "send_message", session=session, text="calculate 17*23", wait_ms=30_000)
    assert run["status"] == "completed" and run["reply"].endswith("17*23 = 391"), run
    equal((await call(client, "run_status", run_id=run["run_id"]))["reply"], run["reply"])
    assert session in [one["session"] for one in (await call(client, "list_sessions"))["sessions"]]
    talk = await call(client, "read_conversation", session=session, limit=2)
    equal([(line["role"], line["text"]) for line in talk["messages"]], [("user", "calculate 17*23"), ("assistant", run["reply"])])


@test
async def a_run_goes_on_without_its_caller_until_it_is_stopped(client, session):
    sent = await call(client, "send_message", session=session, text="rehearse stall 600", idempotency_key="one")
    again = await call(client, "send_message", session=session, text="rehearse stall 600", idempotency_key="one")
    equal((again["run_id"], again["duplicate"]), (sent["run_id"], True))
    stopped = await call(client, "stop_run", run_id=sent["run_id"])
    # On a busy machine its end is not stored when the stop is answered.
    equal({*stopped["stopped"], *(one["run_id"] for one in stopped["still_running"])}, {sent["run_id"]})
    equal((await call(client, "run_status", run_id=sent["run_id"], wait_ms=30_000))["status"], "stopped")


@test
async def bad_input_is_an_error_that_a_model_can_read(client, session):
    await refused(client, "send_message", "missing field `text`", session=session)
    await refused(client, "send_message", "text: must not be empty", session=session, text=" ")
    await refused(client, "run_status", "run_id: must be the id", run_id="7")
    await refused(client, "read_conversation", "no such session", session=session + "-nowhere")
    await refused(client, "list_sessions", "limit: must be 1 to 500", limit=0)


@test
async def progress_is_told_while_a_call_waits(client, session):
    heard = asyncio.Queue()

    async def on_progress(progress, total, message):
        heard.put_nowait((progress, total, message))

    arguments = {"session": session, "text": "rehearse stall 600", "wait_ms": 600_000, "stop_on_cancel": True}
    waiting = asyncio.create_task(client.call_tool("send_message", arguments, progress_callback=on_progress))
    progress, total, message = await asyncio.wait_for(heard.get(), PATIENCE_S)
    assert progress > 0 and total == 600 and message, (progress, total, message)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


@test
async def a_cancelled_call_stops_its_run_where_it_says_so(client, session):
    for stops in (False, True):
        own = f"{session}-{stops}"
        arguments = {"session": own, "text": "rehearse stall 600", "wait_ms": 600_000, "stop_on_cancel": stops}
        waiting = asyncio.create_task(client.call_tool("send_message", arguments))

        async def begun():
            sessions = (await call(client, "list_sessions"))["sessions"]
            return any(one["session"] == own and one["open_runs"] for one in sessions)

        async def ended():
            return not await begun()

        await until("the run begins", begun)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if stops:
            await until("the run is stopped", ended)
        else:
            assert await begun(), "the run goes on"


async def over_http(belay, mode):
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=httpx2.Timeout(60))
    return Client(streamable_http_client(f"{belay.url}/mcp", http_client=http), mode=mode)


async def over_pipes(belay, mode):
    arguments = ["mcp", "serve"]
    server = StdioServerParameters(command=belay.binary, args=arguments, env=belay.environment())
    return Client(stdio_client(server), mode=mode)


async def run(belay):
    passed = failed = 0
    for way in (over_http, over_pipes):
        for mode in ("legacy", "2026-07-28"):
            for function in TESTS:
                name = f"{function.__name__.replace('_', ' ')} ({way.__name__.replace('_', ' ')}, {mode})"
                session = f"{way.__name__}-{mode}-{function.__name__}"
                try:
                    async with asyncio.timeout(4 * PATIENCE_S):
                        async with await way(belay, mode) as client:
                            await function(client, session)
                    passed += 1
                    print(f"ok {name}", flush=True)
                except Exception:  # a test may fail in any way; the next one runs all the same
                    failed += 1
                    print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
    return passed, failed


def main():
    with Belay(BINARY, {"llm.provider": "rehearsal", "gateway.mcp": "true"}, {"BELAY_TOKEN": TOKEN}) as belay:
        passed, failed = asyncio.run(run(belay))
        status = belay.stop()
        if status != 0:
            failed += 1
            print(f"FAILED the daemon ended with {status}\n{''.join(belay.log)}", flush=True)
    print(f"{passed} passed, {failed} failed, 0 skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
