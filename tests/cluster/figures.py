"""The figures of a measurement, for each variant and as a ratio to the first one, which is SQLite."""

import collections
import json
import os
import statistics
import time

from ledger import share

COLUMNS = f"{'':17}{'messages/s (spread)':>24}{'accepted p50/p99':>18}{'answered p50/p99':>18}{'daemon':>9}{'database':>9}{'ratio':>7}{'log':>8}{'written':>9}"
UNITS = f"{'':17}{'':>24}{'ms':>18}{'ms':>18}{'cpu ms':>9}{'cpu ms':>9}{'':>7}{'bytes':>8}{'bytes':>9}"


class Figures:
    def __init__(self, binary, options, database, phases):
        self.binary, self.options, self.phases = binary, options, phases
        self.rounds, self.counts, self.loads = collections.defaultdict(list), {}, []
        self.version = database.query("SHOW server_version").split()[0]

    def note(self, variant, phase, times, seconds, costs, load):
        """Notes one measurement: when each message was sent, accepted and answered, and the costs of all."""
        if not times:
            raise RuntimeError(f"no message of {variant} was answered within the time of a measurement: use more --seconds")
        self.rounds[variant, phase].append({"times": times, "seconds": seconds, **costs})
        self.loads.append(load)

    def row(self, variant, phase, floor=None):
        """The figures of all rounds of a variant: times in milliseconds, costs of one message."""
        rounds = self.rounds[variant, phase]
        rates = [len(one["times"]) / one["seconds"] for one in rounds]
        times = [one for found in rounds for one in found["times"]]
        accepted = sorted((at - sent) * 1e3 for sent, at, _ in times)
        answered = sorted((at - sent) * 1e3 for sent, _, at in times)
        each = {name: sum(one[name] for one in rounds) / len(times) for name in ("daemon_s", "database_s", "log", "written")}
        cpu = [1e3 * (one["daemon_s"] + one["database_s"]) / len(one["times"]) for one in rounds]
        row = {"messages": len(times), "repeats": sum(one["repeats"] for one in rounds), "messages_per_s": statistics.median(rates), "spread": [min(rates), max(rates)]}
        row |= {"accepted_ms": [share(accepted, 50), share(accepted, 99)], "answered_ms": [share(answered, 50), share(answered, 99)]}
        row |= {"daemon_ms": each["daemon_s"] * 1e3, "database_ms": each["database_s"] * 1e3, "log_bytes": each["log"], "written_bytes": each["written"]}
        row |= {"cpu_ms": row["daemon_ms"] + row["database_ms"], "cpu_spread": [min(cpu), max(cpu)]}
        if floor:
            row |= {"cpu_ratio": row["cpu_ms"] / floor["cpu_ms"], "overhead_ms": row["cpu_ms"] - floor["cpu_ms"]}
        return row

    def table(self):
        variants = list(dict.fromkeys(variant for variant, _ in self.rounds))
        floors = {phase: self.row(variants[0], phase) for phase in self.phases}
        return {phase: {variant: self.row(variant, phase, floors[phase]) for variant in variants} for phase in self.phases}

    def machine(self):
        built = time.strftime("%Y-%m-%d", time.gmtime(self.binary.stat().st_mtime))
        build = self.binary.parent.name
        found = {"belay": f"{build} build of {built}", "postgresql": self.version, "processors": os.cpu_count()}
        return {**found, "load": [min(self.loads), max(self.loads)], "rounds": self.options.rounds, "seconds": self.options.seconds}

    def print(self):
        table = self.table()
        if self.options.json:
            print(json.dumps({"machine": self.machine(), "conversations": self.options.conversations, "messages": table, "counts": self.counts}, indent=1))
            return
        machine = self.machine()
        low, high = machine["load"]
        print(f"belay: {machine['belay']}. PostgreSQL {machine['postgresql']}. {machine['processors']} processors, load {low:.1f} to {high:.1f}.")
        for phase, rows in table.items():
            words = "one message at a time" if phase == "in turn" else f"{self.options.conversations} conversations at once"
            print(f"\n{words}, {machine['rounds']} rounds of {machine['seconds']:g} s. The figures of cost are of one message.\n{COLUMNS}\n{UNITS}")
            for variant, row in rows.items():
                print(line(variant, row))
        for variant, counts in self.counts.items():
            print_counts(variant, counts)
        for counts in list(self.counts.values())[:1]:
            print_sizes(counts["sizes"])


def line(variant, row):
    low, high = row["spread"]
    rate = f"{row['messages_per_s']:.0f} ({low:.0f} to {high:.0f})"
    accepted, answered = ("/".join(f"{time:.1f}" for time in row[name]) for name in ("accepted_ms", "answered_ms"))
    costs = f"{row['daemon_ms']:>9.2f}{row['database_ms']:>9.2f}{row['cpu_ratio']:>7.2f}{row['log_bytes']:>8.0f}{row['written_bytes']:>9.0f}"
    repeats = f"  {row['repeats']} sent again" if row["repeats"] else ""
    return f"{variant:17}{rate:>24}{accepted:>18}{answered:>18}{costs}{repeats}"


def print_counts(variant, counts):
    alone, at_once, nodes = counts["in turn"], counts["at once"], counts["nodes"]
    print(f"\n{variant}, round trips to the database of one message, without what an idle node sends:")
    figures = f"{alone['accepted']:.1f} to the acceptance, {alone['answered']:.1f} to the answer, {alone['all']:.1f} with what follows"
    print(f"  one at a time: {figures}; {alone['statements']:.1f} statements, {alone['commits']:.1f} commits")
    figures = f"{at_once['statements']:.1f} statements, {at_once['commits']:.1f} commits"
    print(f"  at once: {at_once['round trips']:.1f} with what follows; {figures}; {at_once['hints']:.1f} flights/s for hints of each node")
    for name, words in (("idle", "no client"), ("followed", "a client that follows the events of each")):
        found = counts[name]
        trips = ", ".join(f"{kind} {rate / nodes:.1f}" for kind, rate in sorted(found["trips"].items()))
        costs = f"{found['database_s'] / nodes:.1%} of a processor of PostgreSQL and {found['daemon_s'] / nodes:.1%} of its own, {found['log'] / nodes:.0f} bytes/s of the log"
        print(f"  each node with {words}: round trips/s {trips or 'none'}; {found['commits'] / nodes:.2f} commits/s; {costs}")
    connections, memory = counts["connections"]
    print(f"  connections: {connections / nodes:.0f} of each node, with {memory / 2**20:.1f} MiB of memory each at the server")


def print_sizes(tables):
    messages = tables["runs"][0]
    size, indexes = (sum(row[at] for row in tables.values()) for at in (1, 2))
    print(f"\n{messages} messages use {size / messages:.0f} bytes of tables and {indexes / messages:.0f} bytes of indexes each. Bytes of each row, with its indexes:")
    print("  " + ", ".join(f"{name} {(size + indexes) / rows:.0f} ({rows} rows)" for name, (rows, size, indexes) in tables.items() if rows > 1))
