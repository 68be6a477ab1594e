#!/usr/bin/env python3
"""Measures what a message costs over SQLite, over PostgreSQL, and in a cluster: in one run, on one machine, with a model that answers at once.

    tests/cluster/speed.py [--belay PROGRAM] [--seconds N] [--rounds N] [--conversations N] [--only NAME] [--json]

The variants take turns in short rounds, so that other work on the machine affects all of them alike. A second pass counts round trips through
a proxy, and has no times. Processor time and counts are more reliable than wall time. Standard library and PostgreSQL only.

Reading order: variants.py, talkers.py, costs.py, counting.py, flights.py, figures.py, instant.py.
"""

import argparse
import asyncio
import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "crash"))

from costs import Meter, Server, configure
from counting import count
from figures import Figures
from instant import Instant
from postgres import Missing, Postgres
from talkers import Talkers
from variants import VARIANTS, Daemons

TARGET = HERE.parent.parent / "target"
PHASES = ("in turn", "at once")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--belay", type=pathlib.Path, help="the program (target/release/belay if it exists, else target/debug/belay)")
    parser.add_argument("--seconds", type=float, default=4, help="length of each measurement (4)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each variant is measured (5)")
    parser.add_argument("--conversations", type=int, default=64, help="how many conversations there are at once (64)")
    names = [variant.name for variant in VARIANTS[1:]]
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"this variant beside SQLite, or these: {', '.join(names)}")
    parser.add_argument("--dir", type=pathlib.Path, help="where the directories are made: the disk that is measured")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the daemons end with this process
    binary = (options.belay or next((p for p in (TARGET / "release/belay", TARGET / "debug/belay") if p.exists()), None))
    if binary is None:
        parser.error("there is no target/release/belay and no target/debug/belay: build one, or name another one with --belay")
    variants = [v for at, v in enumerate(VARIANTS) if at == 0 or not options.only or v.name in options.only]
    model = Instant()
    try:
        database = Postgres(options.dir)
    except Missing as missing:
        print(missing, file=sys.stderr)
        model.close()
        return 2
    try:
        configure(database)
        figures = Figures(binary.resolve(), options, database, PHASES)
        for at in range(options.rounds):
            for variant in variants if at % 2 == 0 else reversed(variants):
                with Daemons(binary.resolve(), variant, model, database) as daemons:
                    asyncio.run(measure(daemons, options, database, figures))
                print(f"round {at + 1} of {options.rounds}: {variant.name}", file=sys.stderr, flush=True)
        for variant in variants:
            if variant.has_server:
                with Daemons(binary.resolve(), variant, model, database, counting=True) as daemons:
                    figures.counts[variant.name] = asyncio.run(count(daemons, options, database))
                print(f"counted: {variant.name}", file=sys.stderr, flush=True)
    finally:
        database.close()
        model.close()
    figures.print()
    return 0


async def measure(daemons, options, database, figures):
    """Both phases of one variant. The lanes are open, and the statements are prepared, when the first one begins."""
    variant = daemons.variant
    talkers = Talkers(daemons.addresses, options.conversations, variant.sticky)
    try:
        for _ in range(variant.nodes or 1):
            await talkers.each()
        for phase, talk in zip(PHASES, (talkers.in_turn, talkers.at_once)):
            meter, begun = Meter(daemons.processes(), Server(database) if variant.has_server else None), time.perf_counter()
            known, times = talkers.repeats(), await talk(options.seconds)
            costs = {**meter.since(), "repeats": talkers.repeats() - known}
            figures.note(variant.name, phase, times, time.perf_counter() - begun, costs, os.getloadavg()[0])
    finally:
        talkers.close()


if __name__ == "__main__":
    sys.exit(main())
