#!/usr/bin/env python3
"""An IRC network as a channel of Belay.

    ADAPTER_TOKEN=... irc_adapter.py ws://127.0.0.1:8787/adapters/irc irc.example.org:6667 belay '#ops'

Needs the package `websockets`, and in [channels.adapters.irc] the setting max_text = 400: a line has 512 bytes, with the
sender's prefix, the command and the conversation. It connects again when either side goes away. See ../../develop/writing-an-adapter.md.
"""

import asyncio
import collections
import json
import os
import sys
import uuid

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

OPEN_MAX = 256  # messages without an ack that Belay takes on one connection
UNSETTLED_MAX = 10_000  # messages that wait for Belay; a further one is dropped
REMEMBERED = 1000


class Adapter:
    def __init__(self, address, host, port, nick, room):
        self.address, self.host, self.port, self.nick, self.room = address, host, port, nick, room
        self.unsettled = {}  # messages that Belay has not taken yet; it gets them again
        self.sent = collections.OrderedDict()  # keys of deliveries that the IRC server has taken
        self.pongs = {}  # a PONG says that the server has read all lines before its PING

    async def run(self):
        token = {"Authorization": f"Bearer {os.environ['ADAPTER_TOKEN']}"}
        async for socket in connect(self.address, additional_headers=token):
            try:
                self.socket = socket
                reader, self.irc = await asyncio.open_connection(self.host, self.port)
                self.say(f"NICK {self.nick}", f"USER {self.nick} 0 * :Belay", f"JOIN {self.room}")
                await self.tell("ready", look_up=True)
                self.unsent, self.room_for_more = asyncio.Queue(), asyncio.Semaphore(OPEN_MAX)  # of this connection
                for message in self.unsettled.values():
                    self.unsent.put_nowait(message)
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self.read_belay(tasks))
                    tasks.create_task(self.send_messages())
                    tasks.create_task(self.read_irc(reader))
            except* (OSError, EOFError, ConnectionClosed) as lost:
                print(f"connecting again: {lost.exceptions[0]}", file=sys.stderr)
                await asyncio.sleep(1)

    def say(self, *lines):
        self.irc.write("".join(f"{line}\r\n" for line in lines).encode())

    async def tell(self, kind, **fields):
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def read_irc(self, reader):
        while line := (await reader.readline()).decode(errors="replace").rstrip("\r\n"):
            prefix, _, rest = line[1:].partition(" ") if line.startswith(":") else ("", "", line)
            command, _, rest = rest.partition(" ")
            if command == "PING":
                self.say(f"PONG {rest}")
            elif command == "PONG" and (pong := self.pongs.pop(rest.rpartition(":")[2], None)):
                pong.set_result(True)
            elif command == "PRIVMSG":
                place, _, text = rest.partition(" :")
                self.message(prefix.partition("!")[0], place, text)  # waits for nothing: a PING is behind it
        raise EOFError("the IRC server closed the connection")

    def message(self, sender, place, text):
        message = {"id": uuid.uuid4().hex, "sender": {"id": sender}, "text": text}  # IRC has no ids of its own
        if place.startswith("#"):
            name, colon, rest = text.partition(":")
            addressed = bool(colon) and name == self.nick
            message |= {"conversation": place, "addressed": addressed, "text": rest.strip() if addressed else text}
        if len(self.unsettled) == UNSETTLED_MAX:
            return print(f"a message of {sender} is dropped", file=sys.stderr)
        self.unsettled[message["id"]] = message
        self.unsent.put_nowait(message)

    async def send_messages(self):
        while message := await self.unsent.get():
            await self.room_for_more.acquire()
            await self.tell("message", **message)

    async def read_belay(self, tasks):
        async for text in self.socket:
            frame = json.loads(text)
            if frame["type"] == "ack" and frame["result"] == "again":
                tasks.create_task(self.again(frame))
            elif frame["type"] == "ack" and self.unsettled.pop(frame["id"], None):
                self.room_for_more.release()
            elif frame["type"] == "deliver":
                tasks.create_task(self.deliver(frame))
            elif frame["type"] == "look_up":
                known = True if frame["key"] in self.sent else None  # of what an earlier process sent nothing is known
                await self.tell("looked_up", key=frame["key"], sent=known)
            elif frame["type"] == "error":
                print(frame["detail"], file=sys.stderr)
        raise EOFError("Belay closed the connection")

    async def again(self, frame):
        await asyncio.sleep(frame.get("after_ms", 1000) / 1000)
        if message := self.unsettled.get(frame["id"]):
            await self.tell("message", **message)

    async def deliver(self, frame):
        key = frame["key"]
        if key not in self.sent:
            place, lines = frame["conversation"], [line for line in frame["text"].splitlines() if line.strip()]
            self.pongs[key] = asyncio.get_running_loop().create_future()
            self.say(*(f"PRIVMSG {place} :{line}" for line in lines), f"PING :{key}")
            await self.pongs[key]
            self.sent[key] = True
            if len(self.sent) > REMEMBERED:
                self.sent.popitem(last=False)
        await self.tell("delivered", key=key, result="sent")


if __name__ == "__main__":
    address, server, nick, room = sys.argv[1:]
    host, _, port = server.partition(":")
    asyncio.run(Adapter(address, host, int(port or 6667), nick, room).run())
