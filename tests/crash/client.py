"""Clients of the daemon: HTTP, its event stream, and the WebSocket RPC. Standard library only."""

import base64
import http.client
import json
import os
import socket
import threading
import urllib.parse


class Gone(Exception):
    """The daemon died, or the connection broke."""


class Http:
    """Requests to one daemon. Each has a connection of its own, because the daemon may die at any of them. `address`: None if it has just ended."""

    def __init__(self, address):
        self.address = address

    def request(self, method, path, body=None, timeout=60):
        """The status and the JSON of an answer. Raises Gone."""
        if self.address is None:
            raise Gone("the daemon has ended")
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"content-type": "application/json"} if data else {})
            response = connection.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise Gone(str(error)) from error
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw) if raw else None
        except ValueError:
            return response.status, raw.decode("utf-8", "replace")

    def events(self, path, seen, timeout=60):
        """Reads server-sent events to the end of the stream, and gives the id and the data of each to seen(), which stops by False."""
        if self.address is None:
            return
        connection = http.client.HTTPConnection(*self.address, timeout=timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            number = None
            while line := response.readline():
                name, _, value = line.decode().rstrip("\n").partition(":")
                if name == "id":
                    number = int(value)
                elif name == "data" and number is not None:
                    if seen(number, value.strip()) is False:
                        return
                    number = None
        except (OSError, http.client.HTTPException, AttributeError):
            return
        finally:
            connection.close()


class Follower(threading.Thread):
    """Follows all events of a daemon from the last seen one on, as a client that connects again after each crash."""

    def __init__(self, http, seen):
        super().__init__(daemon=True)
        self.http, self.seen = http, seen

    def run(self):
        last = self.seen[-1][0] if self.seen else 0
        self.http.events(f"/api/v1/events?since={last}", lambda number, data: self.seen.append((number, data)))


class Socket:
    """A connection of the WebSocket RPC."""

    def __init__(self, address, timeout=60):
        if address is None:
            raise Gone("the daemon has ended")
        try:
            self.raw = socket.create_connection(address, timeout=timeout)
            key = base64.b64encode(os.urandom(16)).decode()
            host = f"{address[0]}:{address[1]}"
            head = f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
            self.raw.sendall(head.encode())
            self.file = self.raw.makefile("rb")
            if b" 101 " not in self.file.readline():
                raise Gone("no upgrade")
            while self.file.readline().strip():
                pass
        except OSError as error:
            raise Gone(str(error)) from error
        self.read()  # the challenge
        client = {"id": "crash", "version": "1", "platform": "linux", "mode": "cli"}
        self.send("0", "connect", {"minProtocol": 1, "maxProtocol": 4, "client": client})
        self.read()

    def send(self, number, method, params):
        data = json.dumps({"type": "req", "id": number, "method": method, "params": params}).encode()
        mask = os.urandom(4)
        head = b"\x81" + (bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big"))
        try:
            self.raw.sendall(head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(data)))
        except OSError as error:
            raise Gone(str(error)) from error

    def read(self):
        """The next frame as JSON. Raises Gone."""
        try:
            while True:
                head = self.file.read(2)
                if len(head) < 2:
                    raise Gone("closed")
                length = head[1] & 0x7F
                if length == 126:
                    length = int.from_bytes(self.file.read(2), "big")
                elif length == 127:
                    length = int.from_bytes(self.file.read(8), "big")
                data = self.file.read(length)
                if head[0] & 0x0F == 1:
                    return json.loads(data)
                if head[0] & 0x0F == 8:
                    raise Gone("closed")
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from error

    def close(self):
        # Another thread may be reading: a shutdown ends its read.
        try:
            self.raw.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.raw.close()


class Subscriber(threading.Thread):
    """Follows one session over a WebSocket from the last seen cursor on, and notes the answers of its requests."""

    def __init__(self, address, session, cursors, timeout=60):
        super().__init__(daemon=True)
        self.timeout, self.socket = timeout, Socket(address, timeout)
        self.cursors, self.answers, self.arrived = cursors, {}, threading.Condition()
        params = {"sessionKey": session, "since": cursors[-1] if cursors else 0}
        self.socket.send("subscribe", "sessions.subscribe", params)

    def run(self):
        try:
            while True:
                frame = self.socket.read()
                if (cursor := cursor_of(frame)) is not None:
                    self.cursors.append(cursor)
                if frame.get("type") == "res":
                    with self.arrived:
                        self.answers.setdefault(frame["id"], frame)
                        self.arrived.notify_all()
        except Gone:
            with self.arrived:
                self.answers["closed"] = None
                self.arrived.notify_all()

    def call(self, number, method, params):
        """The first answer to a request. Raises Gone."""
        self.socket.send(number, method, params)
        if (answer := self.answered(number)) is None:
            raise Gone("no answer")
        return answer

    def answered(self, number):
        """Waits for the first answer to a request that was sent; None: none came."""
        with self.arrived:
            self.arrived.wait_for(lambda: number in self.answers or "closed" in self.answers, timeout=self.timeout)
            return self.answers.get(number)


def cursor_of(frame):
    """The number of the stored fact behind an event, if there is one."""
    return (frame.get("payload") or {}).get("cursor") if frame.get("event") == "agent" else None


def quoted(text):
    return urllib.parse.quote(text, safe="")
