"""Clients that measure: conversations over HTTP that send a message, wait for its answer, and send the next one."""

import asyncio
import itertools
import json
import time

from instant import REPLY

# After so many messages a conversation is left, and a new one begins: the context of the model stays short.
LENGTH = 20
TEXT = "What is the weather in Tokyo, and should I take an umbrella with me when I go there tomorrow?"
# Longest wait for an answer, in milliseconds.
WAIT_MS = 60_000
# How often a message is sent before its client gives up, and the pause before it is sent again, in seconds. A refusal that can be repeated is no
# failure, but the figures name the number of them.
ATTEMPTS = 20
PAUSE_S = 0.05


class Refused(RuntimeError):
    """An answer that these clients do not expect."""


class Connection:
    """A connection to one node that is kept open. One request at a time."""

    def __init__(self, address):
        self.address, self.streams = address, None

    async def request(self, method, path, body=b""):
        """The status and the JSON of an answer."""
        if self.streams:
            try:
                return await self.exchange(method, path, body)
            except (asyncio.IncompleteReadError, OSError):
                self.close()  # the daemon closes what is idle for long. A message has a key, so it can be sent again
        self.streams = await asyncio.open_connection(*self.address)
        return await self.exchange(method, path, body)

    async def exchange(self, method, path, body):
        reader, writer = self.streams
        host = "%s:%d" % self.address
        head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
        return int(lines[0].split()[1]), json.loads(await reader.readexactly(length))

    def close(self):
        if self.streams:
            self.streams[1].close()


class Conversation:
    """One conversation after the other, of one client."""

    def __init__(self, name, addresses, turn):
        self.name, self.turn, self.numbers, self.repeats = name, turn, itertools.count(), 0
        self.connections = [Connection(address) for address in addresses]

    async def message(self):
        """Sends a message and waits for its answer. Returns when it was sent, accepted and answered."""
        number = next(self.numbers)
        connection = self.connections[self.turn(number) % len(self.connections)]
        session = f"{self.name}-{number // LENGTH}"
        body = json.dumps({"session": session, "text": TEXT, "idempotency_key": f"k{number}"}).encode()
        sent = time.perf_counter()
        for _ in range(ATTEMPTS):
            status, answer = await connection.request("POST", "/api/v1/messages", body)
            if status != 503 or not answer["error"]["retryable"]:
                break
            self.repeats += 1
            await asyncio.sleep(PAUSE_S)
        accepted = time.perf_counter()
        if status != 202:
            raise Refused(f"a message was answered with {status}: {answer}")
        status, run = await connection.request("GET", f"/api/v1/runs/{answer['run_id']}/wait?timeout_ms={WAIT_MS}")
        answered = time.perf_counter()
        if status != 200 or run.get("status") != "completed" or run.get("reply") != REPLY:
            raise Refused(f"a run was answered with {status}: {run}")
        return sent, accepted, answered

    def close(self):
        for connection in self.connections:
            connection.close()


class Talkers:
    """All clients of one set of nodes. `sticky`: each conversation stays at its node; else each message goes to the next one."""

    def __init__(self, addresses, count, sticky=False):
        turns = [(lambda _, at=at: at) if sticky else (lambda number, at=at: at + number) for at in range(count)]
        self.conversations = [Conversation(f"talk{at}", addresses, turn) for at, turn in enumerate(turns)]

    async def each(self):
        """One message in each conversation."""
        await asyncio.gather(*(conversation.message() for conversation in self.conversations))

    async def at_once(self, seconds):
        """All conversations at once. Returns the times of their messages."""
        until, times = time.perf_counter() + seconds, []

        async def talk(conversation):
            while time.perf_counter() < until:
                times.append(await conversation.message())

        await asyncio.gather(*map(talk, self.conversations))
        return times

    async def in_turn(self, seconds):
        """One message at a time, of each conversation in turn."""
        until, times, turn = time.perf_counter() + seconds, [], itertools.cycle(self.conversations)
        while time.perf_counter() < until:
            times.append(await next(turn).message())
        return times

    def repeats(self):
        """How many messages had to be sent again so far."""
        return sum(conversation.repeats for conversation in self.conversations)

    def close(self):
        for conversation in self.conversations:
            conversation.close()
