"""A client of Belay's WebSocket RPC: connect, send, stream, wait, abort.

    python belay_client.py ws://127.0.0.1:8787/ws "calculate 17*23"

Needs Python 3.10 and the package `websockets` (15 or newer). The protocol is described in docs/reference/websocket.md.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, TypedDict

from websockets.asyncio.client import ClientConnection, connect

Json = dict[str, Any]
REQUEST_LIMIT_S = 30.0


# Types of docs/reference/openapi.json, by their names there. A test compares them with it. Optional fields are in the second class of two.
class ReplyPayload(TypedDict):
    text: str


class RunMeta(TypedDict):
    durationMs: int
    agentMeta: Json
    stopReason: str


class FullRunMeta(RunMeta, total=False):
    aborted: bool
    joinedRunId: str | None


class RunResult(TypedDict):
    payloads: list[ReplyPayload]
    meta: FullRunMeta


class EndedRun(TypedDict):
    """How a run has ended."""

    runId: str
    status: str
    summary: str
    reason: str
    startedAt: int | None
    endedAt: int | None
    result: RunResult


class FullEndedRun(EndedRun, total=False):
    error: str


class WaitedRun(TypedDict):
    """A run, ended or not."""

    runId: str
    status: str
    reason: str
    runStatus: str
    startedAt: int | None
    endedAt: int | None


class FullWaitedRun(WaitedRun, total=False):
    error: str
    files: list[Json]


class AgentEvent(TypedDict):
    """An event of a run."""

    seq: int
    stream: str
    ts: int
    data: Json
    sessionKey: str


class FullAgentEvent(AgentEvent, total=False):
    runId: str | None
    cursor: int | None


class BelayError(Exception):
    """An answer that is an error."""

    def __init__(self, error: Json) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code: str = error["code"]
        self.retryable: bool = error["retryable"]
        self.retry_after_ms: int | None = error.get("retryAfterMs")


class Disconnected(Exception):
    """The connection has ended. A message may be sent again with the same key: it is never carried out twice."""


@dataclass
class Run:
    """A run that was accepted: its events as they come, and how it ended."""

    id: str
    events: asyncio.Queue[FullAgentEvent | None]
    ended: asyncio.Future[Json]

    async def stream(self) -> AsyncIterator[FullAgentEvent]:
        """The events of the run, to its end."""
        while (event := await self.events.get()) is not None:
            yield event

    async def result(self) -> Json:
        """How it ended; its text is the first of `result.payloads`."""
        return await asyncio.shield(self.ended)


@dataclass
class Belay:
    """A connection. Use it with `async with await Belay.connect(url)`."""

    socket: ClientConnection
    hello: Json = field(default_factory=dict)
    _numbers: int = 0
    _answers: dict[str, asyncio.Future[Json]] = field(default_factory=dict)
    _finals: dict[str, asyncio.Future[Json]] = field(default_factory=dict)
    _streams: dict[str, asyncio.Queue[FullAgentEvent | None]] = field(default_factory=dict)
    _begun: dict[str, asyncio.Queue[FullAgentEvent | None]] = field(default_factory=dict)
    _reader: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, url: str, token: str | None = None) -> Belay:
        """Connects and shakes hands."""
        client = cls(await connect(url, max_size=4 * 1024 * 1024))
        client._reader = asyncio.create_task(client._read())
        auth = {"token": token} if token else {}
        about = {"id": "client-python", "version": "1", "mode": "cli"}
        try:
            client.hello = await client.call("connect", {"minProtocol": 1, "maxProtocol": 4, "client": about, "auth": auth})
        except BaseException:
            await client.close()
            raise
        return client

    async def __aenter__(self) -> Belay:
        return self

    async def __aexit__(self, *_why: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection. Runs go on."""
        await self.socket.close()
        if self._reader:
            await self._reader

    async def call(self, method: str, params: Json | None = None) -> Json:
        """Asks, and returns the first answer."""
        self._numbers += 1
        return await self._ask(str(self._numbers), method, params)

    async def send(self, session: str, message: str, key: str | None = None, **options: Any) -> Run:
        """Sends a message. The same key again gives the same run, also after a lost connection or a restart."""
        self._numbers += 1
        number = str(self._numbers)
        ended: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._finals[number] = ended
        params = {"sessionKey": session, "message": message, "idempotencyKey": key or str(uuid.uuid4()), **options}
        try:
            answer = await self._ask(number, "agent", params)
        except BaseException:
            self._finals.pop(number, None)
            raise
        finally:
            events = self._begun.pop(number, None) or asyncio.Queue()
        run = answer.get("runId", "")
        if answer["status"] != "accepted":  # a command, or a message that was answered before
            self._finals.pop(number, None)
            self._streams.pop(run, None)
            events.put_nowait(None)
            ended.set_result(answer)
        return Run(run, events, ended)

    async def wait(self, run: str, timeout_ms: int = 20_000) -> FullWaitedRun:
        """How a run has ended, or `status` `timeout` and `reason` `wait_expired`."""
        waited: Any = await self.call("agent.wait", {"runId": run, "timeoutMs": timeout_ms})
        return waited

    async def abort(self, session: str, run: str | None = None) -> Json:
        """Stops a run, or everything of a session."""
        return await self.call("chat.abort", {"sessionKey": session} | ({"runId": run} if run else {}))

    async def _ask(self, number: str, method: str, params: Json | None) -> Json:
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            frame = {"type": "req", "id": number, "method": method, "params": params or {}}
            await self.socket.send(json.dumps(frame))
            return await asyncio.wait_for(answer, REQUEST_LIMIT_S)
        finally:
            self._answers.pop(number, None)

    async def _read(self) -> None:
        try:
            async for text in self.socket:
                self._take(json.loads(text))
        except Exception:  # however it ends, whoever waits is told
            pass
        for waiting in (*self._answers.values(), *self._finals.values()):
            if not waiting.done():
                waiting.set_exception(Disconnected("the connection has ended"))
                waiting.exception()  # nobody has to ask for it
        for events in self._streams.values():
            events.put_nowait(None)

    def _take(self, frame: Json) -> None:
        if frame["type"] == "event":
            if frame["event"] == "agent":
                self._event(frame["payload"])
            return
        number = frame["id"]
        waiting = self._answers.get(number)
        is_first = waiting is not None and not waiting.done()
        if not is_first:  # the second answer of `agent`
            waiting = self._finals.pop(number, None)
        if waiting is None or waiting.done():
            return
        if frame["ok"]:
            if is_first and number in self._finals:  # the run may end before `send` goes on
                self._begun[number] = self._streams.setdefault(frame["payload"].get("runId", ""), asyncio.Queue())
            waiting.set_result(frame["payload"])
        else:
            waiting.set_exception(BelayError(frame["error"]))

    def _event(self, event: FullAgentEvent) -> None:
        events = self._streams.setdefault(event["runId"], asyncio.Queue())
        events.put_nowait(event)
        if event["stream"] == "lifecycle" and event["data"]["phase"] in ("end", "error"):
            events.put_nowait(None)
            self._streams.pop(event["runId"], None)


async def main(url: str, message: str) -> None:
    async with await Belay.connect(url, os.environ.get("BELAY_TOKEN")) as belay:
        run = await belay.send("example", message)
        async for event in run.stream():
            if event["stream"] == "assistant":
                print(event["data"]["delta"], end="", flush=True)
        end = await run.result()
        print(f"\n[{end['status']}: {end['summary']}]")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
