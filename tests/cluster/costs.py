"""What work costs: processor time and written bytes of processes, and the counters of PostgreSQL."""

import os
import pathlib

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
# Settings of the server under measurement. They follow those of postgres.py, and the last value counts. Each commit reaches the disk. There is no
# checkpoint: after one, the first change of each page adds the whole page to the log, and short measurements would show that by chance.
SETTINGS = """
fsync = on
synchronous_commit = on
max_connections = 200
shared_buffers = '256MB'
checkpoint_timeout = '1h'
max_wal_size = '16GB'
"""


def configure(database):
    """Starts the server again with the settings of a measurement."""
    database.stop("fast")
    with open(database.folder / "data/postgresql.conf", "a") as file:
        file.write(SETTINGS)
    database.start()


class Processes:
    """A set of processes: those that are given, and optionally all children of them, also those that have ended meanwhile."""

    def __init__(self, pids, has_children=False):
        self.pids, self.has_children = pids, has_children

    def seconds(self):
        """Processor time so far."""
        own, reaped = slice(11, 13), slice(13, 15)
        total = 0
        for pid in self.living():
            fields = stat(pid)
            total += sum(map(int, fields[own])) if fields else 0
        if self.has_children:
            total += sum(sum(map(int, stat(pid)[reaped])) for pid in self.pids)
        return total * TICK_S

    def written(self):
        """Bytes that the processes have caused to be written to a disk so far; 0 for those that another user may not see."""
        total = 0
        for pid in self.living():
            try:
                fields = dict(line.split(": ") for line in pathlib.Path(f"/proc/{pid}/io").read_text().splitlines())
                total += int(fields["write_bytes"])
            except OSError:
                continue
        return total

    def living(self):
        if not self.has_children:
            return self.pids
        found = [int(place.name) for place in pathlib.Path("/proc").iterdir() if place.name.isdigit()]
        return [*self.pids, *(pid for pid in found if (fields := stat(pid)) and int(fields[1]) in self.pids)]


def stat(pid):
    """The fields of the state of a process, from the third one on; none: it has ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def own_memory(pid):
    """The memory of a process that it shares with no other one, in bytes; 0: it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Private_Clean", "Private_Dirty")))
    except OSError:
        return 0


class Server:
    """The counters of a server."""

    def __init__(self, database):
        self.database, self.processes = database, Processes([database.process], has_children=True)

    def log_bytes(self):
        """Bytes of the write-ahead log so far."""
        return int(self.database.query("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))

    def connections(self):
        """The number of connections of daemons, and the mean memory that each has for itself, in bytes."""
        pids = self.database.query("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'belay %'").split()
        return len(pids), sum(map(own_memory, pids)) / max(1, len(pids))

    def sizes(self, schema):
        """Rows, bytes and bytes of indexes of each table that has rows."""
        self.database.query("ANALYZE")
        sql = """SELECT c.relname, c.reltuples::bigint, pg_table_size(c.oid), pg_indexes_size(c.oid) FROM pg_class c
                 WHERE c.relkind = 'r' AND c.relnamespace = '%s'::regnamespace AND c.reltuples > 0 ORDER BY 3 DESC"""
        rows = [line.split("|") for line in self.database.query(sql % schema).splitlines()]
        return {name: [int(value) for value in values] for name, *values in rows}


class Meter:
    """The costs of a stretch of work."""

    def __init__(self, daemons, server):
        self.daemons, self.server = daemons, server
        self.before = self.read()

    def read(self):
        parts = {"daemon_s": self.daemons.seconds(), "written": self.daemons.written(), "database_s": 0.0, "log": 0}
        if self.server:
            parts["database_s"] = self.server.processes.seconds()
            parts["written"] += self.server.processes.written()
            parts["log"] = self.server.log_bytes()
        return parts

    def since(self):
        """The costs since the meter was made."""
        return {name: value - self.before[name] for name, value in self.read().items()}
