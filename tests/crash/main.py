#!/usr/bin/env python3
"""Kills a daemon at named points again and again, and judges it from outside.

    tests/crash/main.py --belay PROGRAM [--kills N] [--seed N] [--only POINT] [--together N] [--minutes N]
                        [--dir DIRECTORY] [--journal FILE] [--falsify] [--json]

10,000 kills take about 20 minutes on two idle cores, and hours beside other builds.

PROGRAM is built with the feature `crash-points` (`make crash` does both). Several daemons die side by side, each with a directory of its
own. A daemon lives through some dozen deaths, then everything settles, and the checker compares its own ledgers (judge.py). The last
lines are the sums, also after an interrupt. With `--journal` the same command continues where the last one stopped: each life has a seed
of its own, and those that were judged are in the file. Ends with 1 if one of them is wrong; the directory of that daemon is then kept. Standard library only.

`--falsify` falsifies the ledgers of each daemon after its verdict; each count has to report it for one daemon at least.

Reading order: points.py, life.py, work.py, judge.py, falsify.py, daemon.py, doubles.py, client.py, report.py.
"""

import argparse
import faulthandler
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import random
import shutil
import signal
import sys
import time

from life import Life
from points import AFTER, POINTS
from report import Journal, Remote, Report

# Deaths of one daemon between its first start and the verdict.
DEATHS = 24
# Free space that a directory in memory needs: several times what the directories of all daemons and their backups take.
SPACE_BYTES = 1 << 30


def plan(kills, seed, only):
    """The points of each life: all in turn, in an order of the seed."""
    names, order = [only] if only else list(POINTS), random.Random(seed)
    points = []
    while len(points) < kills:
        order.shuffle(names)
        for name in names:
            points.extend([AFTER[name], name] if name in AFTER else [name])
    return lives_of(points[:kills])


def lives_of(points):
    """The points of each life. One that begins with a point that needs another death before gets that death, too."""
    lives = [points[at : at + DEATHS] for at in range(0, len(points), DEATHS)]
    return [[AFTER[life[0]], *life] if life[0] in AFTER else life for life in lives]


def work(arguments):
    faulthandler.register(signal.SIGUSR1)  # prints where each thread is
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the daemon of this process ends with it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that prints ends the others
    binary, directory, lives, pipe, until, may_be_poor, is_falsified = arguments
    limits = {}
    for seed, points in lives:
        if time.monotonic() > until:
            break
        report = Remote(pipe, seed)
        verdict = Life(binary, directory, seed, report, limits, may_be_poor, is_falsified).live(points)
        report.judged(verdict)
    pipe.send(None)


def memory():
    """A directory in memory, if the machine has one with space. It is faster, and SIGKILL loses nothing that was written."""
    place = pathlib.Path("/dev/shm")
    has_space = place.is_dir() and os.access(place, os.W_OK | os.X_OK) and shutil.disk_usage(place).free > SPACE_BYTES
    return place if has_space else None


def main():
    time_needed = "10,000 kills take about 20 minutes on two idle cores, and hours beside other builds."
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog=time_needed)
    parser.add_argument("--belay", required=True, type=pathlib.Path)
    parser.add_argument("--kills", type=int, default=10_000, help="how many kills to play (10000)")
    parser.add_argument("--seed", type=int, default=1, help="the order of the points and all that is random (1)")
    parser.add_argument("--only", choices=POINTS, metavar="POINT", help="kill at this point alone")
    parser.add_argument("--together", type=int, default=2 * (os.cpu_count() or 1))
    parser.add_argument("--minutes", type=float, default=1e6, help="no daemon begins after so many minutes")
    parser.add_argument("--dir", type=pathlib.Path, default=memory(), help="where the data directories are made (/dev/shm, if it has space)")
    parser.add_argument("--journal", type=pathlib.Path, help="the file that keeps the figures of each judged daemon, and from which this continues")
    parser.add_argument("--falsify", action="store_true", help="falsify the ledgers of each daemon after its verdict: each count has to report it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)  # also where a shell has it ignored in the background
    report = Report(options.kills, options.json, Journal(options.journal, options.seed), options.falsify)
    try:
        side_by_side(plan(options.kills, options.seed, options.only), options, report, str(options.seed))
        # Chance may have kept the work from a point: the money of that daemon was used up, for example.
        for attempt in range(2):
            missed = [name for point in report.unreached() for name in (AFTER.get(point), point) if name]
            side_by_side(lives_of(missed), options, report, f"{options.seed}-again-{attempt}", may_be_poor=False)
    except KeyboardInterrupt:
        report.end()
        return 130
    return report.end()


def side_by_side(points, options, report, seed, may_be_poor=True):
    """Has daemons live and die side by side, and passes what they report on."""
    lives = [(f"{seed}-{number}", points) for number, points in enumerate(points)]
    lives = [(seed, points) for seed, points in lives if seed not in report.journal.earlier]
    until = time.monotonic() + 60 * options.minutes
    pipes, workers = [], []
    for number in range(min(options.together, len(lives))):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        share = lives[number :: options.together]
        arguments = (options.belay.resolve(), options.dir, share, sender, until, may_be_poor, options.falsify)
        workers.append(multiprocessing.Process(target=work, args=(arguments,), daemon=True))
        workers[-1].start()
        sender.close()
        pipes.append(receiver)
    while pipes:
        for pipe in multiprocessing.connection.wait(pipes):
            try:
                message = pipe.recv()
            except EOFError:
                report.broken()
                message = None
            if message is None:
                pipes.remove(pipe)
            else:
                report.take(message)
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    sys.exit(main())
