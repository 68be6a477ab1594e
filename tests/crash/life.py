"""One daemon over some dozen deaths: each start is armed with the next point, so that a crash often meets the recovery from another."""

import pathlib
import random
import shutil
import signal
import subprocess
import tempfile
import time

import falsify
from client import Follower, Gone
from daemon import SETTINGS, Daemon, Effects
from doubles import OUTPUT_TOKENS, PERSON, BotApi, Model
from judge import Verdict
from points import POINTS
from work import Work

# Micro-dollars of a day: far more than a life needs, and for one life of five less than it needs.
RICH, POOR = 100_000_000, 200_000
# Deaths after which an order that is still open gets a start without a point, so that few orders reach the limit of attempts.
KILLS_OF_AN_ORDER = 3
# How long a start may bring no end of an order before that counts as a fault. Beside other builds a daemon may get a hundredth
# of a processor.
SETTLE_S = 300
# The exit status of a start whose store is in use.
IN_USE = 75
ROUTINE = {
    "name": "crash",
    "trigger": {"kind": "manual"},
    "action": {"mode": "lightweight", "prompt": "Do what the payload says.", "use_tools": False},
    "guard": {"cooldown_s": 0, "max_concurrent": 10, "dedup_window_s": 0, "max_failures": 1000},
    "notify": {"on_attention": False, "on_failure": False, "on_success": False},
}


class Limit:
    """The highest passage of a point to ask for. It grows as long as the work reaches it."""

    def __init__(self):
        self.now, self.most = 1, 6

    def learn(self, passage, is_reached):
        if not is_reached:
            self.most = max(1, min(self.most, passage - 1))
        self.now = min(self.most, self.now + (is_reached and passage == self.now))


class Life:
    def __init__(self, binary, directory, seed, report, limits, may_be_poor=True, is_falsified=False):
        self.random, self.report = random.Random(seed), report
        # Whether the ledgers are falsified at the end, to see that the verdict reports it.
        self.is_falsified = is_falsified
        # The highest passage to ask for, by point.
        self.limits = limits
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="belay-crash-", dir=directory))
        self.effects = Effects(self.home)
        self.model, self.api = Model(self.effects), BotApi()
        self.is_poor = self.random.random() < 0.2 and may_be_poor
        self.cap_micro_usd, self.day = (POOR if self.is_poor else RICH), time.gmtime().tm_yday
        settings = SETTINGS.format(model=self.model.url, api=self.api.url, cap=self.cap_micro_usd / 1e6, person=PERSON, output=OUTPUT_TOKENS)
        self.daemon = Daemon(binary, self.home, settings)
        # The events that a reader has got, over all starts.
        self.seen = []
        self.work = Work(self.model, self.api, self.daemon, self.seen, self.random)
        self.follower = None
        self.verdict = Verdict()
        # Processes that were reported already.
        self.left = set()
        # The point of the last death; None: there was none since everything had settled.
        self.died_at = None

    def live(self, points):
        """Dies at each of these points, then settles everything and is judged. Returns the verdict."""
        try:
            self.first_start()
            for point in points:
                self.one_death(point)
                if any(order.kills >= KILLS_OF_AN_ORDER for order in self.work.open()):
                    self.rest()
            self.last_start()
        except (Gone, RuntimeError, OSError, KeyError, TypeError, AttributeError, subprocess.TimeoutExpired) as error:
            self.verdict.fault("other", f"the checker cannot go on: {error!r}")
        finally:
            self.daemon.kill()
            self.end_clients()
            self.model.close()
            self.api.close()
            self.put_away()
        return self.verdict

    def put_away(self):
        """Removes the directory, unless there is a fault to look into."""
        if self.verdict.faults:
            (self.home / "faults").write_text("\n".join(self.verdict.faults))
        else:
            shutil.rmtree(self.home, ignore_errors=True)

    def first_start(self):
        if not self.begin(None):
            raise RuntimeError("the first start failed:\n" + "\n".join(self.daemon.log[-20:]))
        status, answer = self.work.http.request("POST", "/api/v1/routines", ROUTINE)
        if status != 201:
            raise RuntimeError(f"no routine: {answer}")
        self.daemon.kill()

    def begin(self, arm):
        """Starts the daemon and connects all clients. Returns whether both came about."""
        self.end_clients()
        before = time.monotonic()
        self.model.mark()
        ready = self.daemon.start(arm)
        for _ in range(50):
            if ready is not None or self.daemon.ended() != IN_USE:
                break
            # A program that was being started when the daemon died held the lock of the store until its exec.
            self.verdict.counts["starts refused by a lock"] += 1
            time.sleep(0.02)
            ready = self.daemon.start(arm)
        if ready is None:
            return False
        self.check_processes()
        if self.died_at:
            self.report.recovered(self.died_at, ready, lambda: self.model.first_at and self.model.first_at - before)
        try:
            self.work.connect(self.daemon.address)
            self.follower = Follower(self.work.http, self.seen)
            self.follower.start()
        except Gone:
            return False
        return True

    def end_clients(self):
        """Ends the readers, which a death has cut off."""
        self.work.disconnect()
        if self.follower:
            self.follower.join()
            self.follower = None

    def check_processes(self):
        """No command of an earlier start lives once a new one is ready, and no half-made sandbox."""
        ready_at = self.ticks_of_daemon()
        for pid, at, what in self.effects.processes():
            if at >= ready_at or pid in self.left:
                continue
            self.left.add(pid)
            self.verdict.fault("left running", f"process {pid} after {self.died_at}, {what}")

    def ticks_of_daemon(self):
        place = pathlib.Path("/proc", str(self.daemon.process.pid), "stat")
        try:
            return int(place.read_text().rsplit(")", 1)[1].split()[19])
        except OSError:
            return 0  # it has died again; the next start looks

    def one_death(self, point):
        limit = self.limits.setdefault(point, Limit())
        passage = self.random.randint(1, limit.now)
        settled = None
        try:
            if self.begin(f"{point}:{passage}"):
                self.pass_by(POINTS[point])
                settled = self.until_dead_or_settled(point)
        except Gone:
            pass
        status = self.end(settled)
        reached = status == -signal.SIGKILL and settled is None
        limit.learn(passage, reached)
        if status not in (-signal.SIGKILL, 0):
            self.verdict.fault("other", f"the daemon ended by itself with {status} at {point}: {self.daemon.log[-3:]}")
        if self.work.drains and settled is False:
            settled = None
        if settled is False:
            self.verdict.fault("lost", f"nothing has ended for {SETTLE_S} s at {point}: {[order.id for order in self.work.open()]}")
        for order in self.work.open():
            order.kills += 1
        self.died_at = point if reached else "outside"
        self.report.killed(point, passage, reached)

    def pass_by(self, kind):
        """The work of the point, and other work beside it."""
        self.work.telegram()
        self.work.say()
        if self.random.random() < 0.5:
            self.work.socket()
        if kind == "drain":
            self.work.drain(self.daemon)
        else:
            getattr(self.work, kind)()

    def until_dead_or_settled(self, point):
        """Whether everything has settled; None: the daemon is dead before that."""
        if POINTS[point] == "drain":
            self.daemon.ended()
            return True if self.daemon.process.returncode == 0 else None
        settled = self.work.settle(SETTLE_S)
        if self.daemon.is_dead():
            return None
        if settled:
            time.sleep(0.06)  # the last relaxed writes are committed within 50 ms, and points of the store are among them
        return None if self.daemon.is_dead() else settled

    def end(self, settled):
        """The exit status of the daemon. One that has settled is killed from outside."""
        if settled is not None:
            self.daemon.signal(signal.SIGKILL)
        return self.daemon.ended()

    def rest(self):
        """A start without a point, in which everything settles."""
        self.settled_start()
        self.daemon.kill()
        self.died_at = None

    def last_start(self):
        self.settled_start()
        self.verdict.judge(self)
        if self.is_falsified:
            self.falsify()

    def falsify(self):
        """Counts each falsified ledger that the verdict reports."""
        for kind, is_seen in falsify.seen(self, Verdict, {**falsify.KINDS, "left running": falsified_process}).items():
            if is_seen:
                self.verdict.counts[f"{falsify.SEEN}{kind}"] += 1
            elif is_seen is False:
                self.verdict.fault("other", f"the verdict does not report a falsified ledger: {kind}")

    def settled_start(self):
        if not self.begin(None):
            raise RuntimeError("a start without a point failed:\n" + "\n".join(self.daemon.log[-20:]))
        if not self.work.settle(SETTLE_S):
            orders = [f"{order.id} ({order.kills} kills)" for order in self.work.orders if not order.is_ended]
            self.verdict.fault("lost", f"nothing has ended for {SETTLE_S} s: {orders}")


def falsified_process(life, _verdict):
    """A process with the words of a command, which looks as if an earlier start had begun it."""
    verdict, found, ticks = life.verdict, Verdict(), life.ticks_of_daemon
    life.verdict, life.ticks_of_daemon = found, lambda: float("inf")
    try:
        with falsify.running(f"read -r _ # {life.effects.name}"):
            life.check_processes()
        return found.counts
    finally:
        life.verdict, life.ticks_of_daemon = verdict, ticks
