"""A proxy before PostgreSQL that counts what one daemon sends: statements, and flights.

A flight begins when the daemon sends something while no answer is outstanding, and ends with the last answer. So statements that are sent
together are one flight, which is one round trip. The protocol is that of PostgreSQL, version 3.0, without TLS.
"""

import asyncio
import collections
import time

from proxy import Proxy

# The connections of a daemon, by the second word of their application_name. `read` is also what polls of other nodes use.
KINDS = ("write", "read", "lease", "hints")


class Flight:
    """What was sent before an answer was awaited."""

    def __init__(self, kind):
        self.kind, self.begun, self.statements = kind, time.perf_counter(), []


class Frames:
    """Cuts a stream into messages of the protocol: the type and the body of each."""

    def __init__(self, has_startup):
        self.buffer, self.has_startup = bytearray(), has_startup

    def feed(self, data):
        self.buffer += data
        while True:
            head = 0 if self.has_startup else 1
            if len(self.buffer) < head + 4:
                return
            end = head + int.from_bytes(self.buffer[head : head + 4], "big")
            if len(self.buffer) < end:
                return
            kind, body = (b"" if self.has_startup else bytes(self.buffer[:1])), bytes(self.buffer[head + 4 : end])
            del self.buffer[:end]
            self.has_startup = False
            yield kind, body


class Wire:
    """One connection: the statements that it has prepared, and the flight under way."""

    def __init__(self, flights):
        self.flights, self.kind, self.prepared = flights, "other", {}
        self.sent, self.received, self.outstanding, self.flight = Frames(True), Frames(False), 0, None

    def send(self, data):
        for kind, body in self.sent.feed(data):
            if not kind:
                words = body[4:].split(b"\0")
                names = dict(zip(words[0::2], words[1::2])).get(b"application_name", b"").decode().split()
                self.kind = names[1] if len(names) > 1 and names[1] in KINDS else "other"
            elif kind in b"PBEDCSQH":
                self.count(kind, body)

    def count(self, kind, body):
        if self.flight is None:
            self.flight = Flight(self.kind)
            self.flights.append(self.flight)
        name, _, rest = body.partition(b"\0")
        if kind == b"P":
            self.prepared[name] = rest.partition(b"\0")[0].decode(errors="replace")
        elif kind == b"B":
            self.flight.statements.append(self.prepared.get(rest.partition(b"\0")[0], "?"))
        elif kind == b"Q":
            self.flight.statements.append(name.decode(errors="replace"))
        self.outstanding += kind in b"SQ"

    def receive(self, data):
        for kind, _ in self.received.feed(data):
            if kind == b"Z" and self.outstanding:
                self.outstanding -= 1
                if self.outstanding == 0:
                    self.flight = None


class Tap:
    """A reader whose data is also given to a function."""

    def __init__(self, reader, note):
        self.reader, self.note = reader, note

    async def read(self, most):
        data = await self.reader.read(most)
        self.note(data)
        return data


class CountingProxy(Proxy):
    """Adds the flights of one daemon to a list, in the order of their begin. Several proxies share the list."""

    def __init__(self, target, flights):
        self.flights = flights
        super().__init__(target)

    async def serve(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.target)
        ends, wire = (writer, far_writer), Wire(self.flights)
        self.writers.update(ends)
        try:
            await asyncio.gather(self.pass_on(Tap(reader, wire.send), far_writer), self.pass_on(Tap(far_reader, wire.receive), writer))
        finally:
            self.writers.difference_update(ends)


def by_kind(flights):
    """The number of flights and of statements of each kind of connection."""
    trips = collections.Counter(flight.kind for flight in flights)
    statements = collections.Counter()
    for flight in flights:
        statements[flight.kind] += len(flight.statements)
    return trips, statements
