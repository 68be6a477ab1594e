"""Counts what a message, an idle node and a waiting client send to the database, through the proxies of flights.py."""

import asyncio
import time

from costs import Meter, Server
from flights import by_kind
from talkers import Connection, Talkers

# How long an idle node is counted, in seconds: whole multiples of the period of each poll.
IDLE_S = 6
# The pause after a message that is counted alone, in seconds: what follows its answer is done by then.
PAUSE_S = 0.1
# Connections that a message uses. The others renew the lease, and exchange hints.
OF_MESSAGES = ("write", "read")


async def count(daemons, options, database):
    """The counts of one variant."""
    variant = daemons.variant
    talkers = Talkers(daemons.addresses, options.conversations, variant.sticky)
    nodes = len(daemons.addresses)
    server = Server(database)
    try:
        for _ in range(nodes):
            await talkers.each()
        await asyncio.sleep(1)
        idle = await rates(daemons, server)
        followers = [asyncio.create_task(follow(address)) for address in daemons.addresses]
        followed = await rates(daemons, server)
        for follower in followers:
            follower.cancel()
        alone = await one_by_one(daemons, talkers, idle)
        begun, known = time.perf_counter(), len(daemons.flights)
        times = await talkers.at_once(options.seconds)
        lasted = time.perf_counter() - begun
        flights = daemons.flights[known:]
        trips, statements = by_kind(flights)
        expected = idle_of(idle, "trips") * lasted
        at_once = {
            "messages": len(times),
            "round trips": (sum(trips[kind] for kind in OF_MESSAGES) - expected) / len(times),
            "statements": (sum(statements[kind] for kind in OF_MESSAGES) - idle_of(idle, "statements") * lasted) / len(times),
            "commits": (commits(flights) - idle["commits"] * lasted) / len(times),
            "hints": trips["hints"] / lasted / nodes,
        }
        connections = server.connections()
    finally:
        talkers.close()
    found = {"nodes": nodes, "connections": connections, "in turn": alone, "at once": at_once}
    return {**found, "idle": idle, "followed": followed, "sizes": server.sizes(daemons.schema)}


def idle_of(idle, what):
    """What idle nodes send each second over the connections that messages use."""
    return sum(idle[what].get(kind, 0) for kind in OF_MESSAGES)


async def rates(daemons, server):
    """Flights, statements and costs of all nodes for each second without a message."""
    meter, known, begun = Meter(daemons.processes(), server), len(daemons.flights), time.perf_counter()
    await asyncio.sleep(IDLE_S)
    flights, costs, lasted = daemons.flights[known:], meter.since(), time.perf_counter() - begun
    if any("INTO runs" in statement for flight in flights for statement in flight.statements):
        raise RuntimeError("messages were accepted while nobody sent one: the flights of another time are counted")
    trips, statements = by_kind(flights)
    found = {"trips": per(trips, lasted), "statements": per(statements, lasted), "commits": commits(flights) / lasted}
    return {**found, **per(costs, lasted)}


def commits(flights):
    """The number of commits of the connections that write."""
    return sum("COMMIT" in flight.statements for flight in flights if flight.kind == "write")


def per(counts, seconds):
    return {kind: number / seconds for kind, number in counts.items()}


async def follow(address):
    """A client that follows all events of a node."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n")
    try:
        while await reader.read(65536):
            pass
    finally:
        writer.close()


async def one_by_one(daemons, talkers, idle):
    """Flights of messages that are sent one at a time: up to the acceptance, up to the answer, and with what follows."""
    found = {"accepted": 0, "answered": 0, "all": 0, "statements": 0, "commits": 0}
    expected = dict.fromkeys(("accepted", "answered", "all"), 0.0)
    trace = []
    for conversation in talkers.conversations:
        known = len(daemons.flights)
        times = await conversation.message()
        await asyncio.sleep(PAUSE_S)
        flights = [flight for flight in daemons.flights[known:] if flight.kind in OF_MESSAGES]
        sent, accepted, answered = times
        ends = {"accepted": accepted, "answered": answered, "all": sent + PAUSE_S}
        for name, end in ends.items():
            found[name] += sum(flight.begun < end for flight in flights)
            expected[name] += (end - sent) * idle_of(idle, "trips")
        found["statements"] += sum(len(flight.statements) for flight in flights) - (time.perf_counter() - sent) * idle_of(idle, "statements")
        found["commits"] += commits(flights) - (time.perf_counter() - sent) * idle["commits"]
        trace = [[flight.kind, place(flight.begun, ends), flight.statements] for flight in flights]
    messages = len(talkers.conversations)
    counts = {name: (value - expected.get(name, 0)) / messages for name, value in found.items()}
    return {"messages": messages, **counts, "last": trace}


def place(moment, ends):
    """The first of these ends that comes after a moment."""
    return next((name for name, end in ends.items() if moment < end), "all")
