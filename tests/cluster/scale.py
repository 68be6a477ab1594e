#!/usr/bin/env python3
"""Measures what many sessions and many nodes cost one PostgreSQL: the sizes of tables, takeovers of lanes, writers side by side, and leases.

    tests/cluster/scale.py [--cost PROGRAM] [--sessions N] [--lanes N] [--writers N] [--nodes N]

PROGRAM is the example takeover_cost of crates/store, which claims lanes and writes messages as a node does. The rows of the sessions are made
by SQL: each has one run, two messages and three events. Standard library and PostgreSQL only.
"""

import argparse
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "crash"))

from costs import Server, configure
from postgres import Missing, Postgres, program

TARGET = HERE.parent.parent / "target"
SCHEMA = "belay"
# Time to wait for the counters of the server, in seconds: sessions report after at most a second.
COUNTED_S = 1.2
# The renewals of each node in the measurement of its row.
RENEWALS = 20
# Rows of sessions that nobody owns, with n from 1 to {sessions}. The ids are digests, as spread as the ids of a daemon are not: the worst case
# of an index.
ROWS = """
SET search_path = belay;
INSERT INTO sessions (session, owner, epoch, thread, opened_at) SELECT 'client-' || n, NULL, 1, decode(md5('t' || n), 'hex'), 0 FROM ({numbers}) s;
INSERT INTO threads (id, session, state, turns, last_active_at) SELECT decode(md5('t' || n), 'hex'), 'client-' || n, 'idle', 1, 0 FROM ({numbers}) s;
INSERT INTO thread_index (thread, upto) SELECT decode(md5('t' || n), 'hex'), 2 FROM ({numbers}) s;
INSERT INTO runs (id, session, status, attempt, thread, turn, accepted_at, started_at, ended_at, reason, work, channel, principal, authority, indexed,
                  relayed, from_person, key_channel, key_account, key_message, digest, text, reply)
SELECT decode(md5('r' || n), 'hex'), 'client-' || n, 'completed', 1, decode(md5('t' || n), 'hex'), 1, 0, 0, 0, 'final_text', '"chat"', 'http', 'client',
       'conversation', 1, 0, 1, 'http', 'client-' || n, 'k0', md5('d' || n), '{text}', '{text}' FROM ({numbers}) s;
INSERT INTO messages (thread, position, turn, run_id, role, scope, at, index_row, body)
SELECT decode(md5('t' || n), 'hex'), at, 1, decode(md5('r' || n), 'hex'), CASE at WHEN 1 THEN 'user' ELSE 'assistant' END, 'thread', 0, 2 * n + at,
       '{{"role":"user","content":"{text}"}}' FROM ({numbers}) s, generate_series(1, 2) at;
INSERT INTO message_index (rowid, words) SELECT 2 * n + at, to_tsvector('simple', '{text} ' || n) FROM ({numbers}) s, generate_series(1, 2) at;
INSERT INTO events (at, indexed, session, run_id, kind)
SELECT 0, 1, 'client-' || n, decode(md5('r' || n), 'hex'), '{{"kind":"run_accepted"}}' FROM ({numbers}) s, generate_series(1, 3);
UPDATE indexed SET event = (SELECT max(seq) FROM events);
"""
TEXT = "What is the weather in Tokyo, and should I take an umbrella with me when I go there tomorrow?"
# Each node renews its lease so many times, in a transaction each, as the thread of the lease does.
RENEW = """
DO $$ BEGIN
  FOR at IN 1..{renewals} LOOP
    FOR n IN 1..{nodes} LOOP
      UPDATE belay.nodes SET lease_until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + 15000
      WHERE boot = decode(md5('n' || n), 'hex') AND ended_at IS NULL;
      COMMIT;
    END LOOP;
  END LOOP;
END $$;
"""
NODES = """
INSERT INTO belay.nodes (boot, name, version, schema_min, schema_max, settings, started_at, lease_until)
SELECT decode(md5('n' || n), 'hex'), 'node ' || n, 'test', 1, 1, 'same', 0, 4000000000000 FROM generate_series(1, {nodes}) n;
"""
# Hints, in a transaction each, as the connection for hints sends them.
NOTIFY = """
DO $$ BEGIN
  FOR at IN 1..{hints} LOOP
    PERFORM pg_notify('belay_scale', 'm ' || at);
    COMMIT;
  END LOOP;
END $$;
"""
HINTS = 1_000
# Holds back the horizon of vacuum, as a forgotten transaction or a backup does.
HOLD = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1; SELECT pg_sleep(3600)"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cost", type=pathlib.Path, help="the example (target/release/examples/takeover_cost if it exists, else that of target/debug)")
    parser.add_argument("--sessions", type=int, default=100_000, help="sessions that the database has (100000)")
    parser.add_argument("--lanes", type=int, action="append", help="takeover of so many lanes (1000 and 10000)")
    parser.add_argument("--writers", type=int, action="append", help="so many nodes that write at once (1, 2, 4 and 8)")
    parser.add_argument("--nodes", type=int, default=100, help="nodes that renew their leases (100)")
    parser.add_argument("--dir", type=pathlib.Path, help="where the database is made: the disk that is measured")
    options = parser.parse_args()
    places = [TARGET / build / "examples/takeover_cost" for build in ("release", "debug")]
    cost = options.cost or next((place for place in places if place.exists()), None)
    if cost is None:
        parser.error("there is no takeover_cost: cargo build --locked --workspace --example takeover_cost")
    try:
        database = Postgres(options.dir)
    except Missing as missing:
        print(missing, file=sys.stderr)
        return 2
    try:
        configure(database)
        print(f"takeover_cost: {cost.parent.parent.name} build. PostgreSQL {database.query('SHOW server_version').split()[0]}.")
        run(cost, database, "lanes", 1, quiet=True)  # creates the schema, and prepares the program
        fill(database, options.sessions)
        for lanes in options.lanes or (1_000, 10_000):
            run(cost, database, "lanes", lanes)
        for writers in options.writers or (1, 2, 4, 8):
            run(cost, database, "writers", writers)
        renew(database, options.nodes)
        for listeners in (1, options.nodes):
            notify(database, listeners)
    finally:
        database.close()
    return 0


def run(cost, database, what, number, quiet=False):
    """Runs the example, and prints the processor time of the server beside it."""
    processes = Server(database).processes
    before = processes.seconds()
    command = [str(cost), database.url(database.port), what, str(number)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} {what} {number}: {done.stderr.strip()}")
    if not quiet:
        print(f"{done.stdout}  {processes.seconds() - before:9.2f} s of processor time of PostgreSQL, with the preparation", flush=True)


def fill(database, sessions):
    """Makes the rows of the sessions, and prints their sizes."""
    if sessions == 0:
        return
    begun = time.monotonic()
    numbers = f"SELECT generate_series(1, {sessions}) AS n"
    for statement in ROWS.format(numbers=numbers, text=TEXT).split(";\n"):
        if statement.strip():
            database.query(f"SET search_path = {SCHEMA}; {statement}")
    database.query("VACUUM")
    print(f"{sessions} sessions, each with one run, two messages and three events, made in {time.monotonic() - begun:.0f} s:")
    total = [0, 0]
    for name, (rows, size, indexes) in Server(database).sizes(SCHEMA).items():
        total = [total[0] + size, total[1] + indexes]
        if rows >= sessions / 2:
            print(f"  {name:15}{rows:>10} rows {size / 1e6:>8.0f} MB {indexes / 1e6:>8.0f} MB of indexes {(size + indexes) / sessions:>7.0f} bytes for each session")
    print(f"  {'all':15}{'':>10}      {total[0] / 1e6:>8.0f} MB {total[1] / 1e6:>8.0f} MB of indexes {sum(total) / sessions:>7.0f} bytes for each session", flush=True)


def renew(database, nodes):
    """Renews the leases of many nodes, without and with a transaction that holds back vacuum. Prints what their rows leave behind."""
    database.query(NODES.format(nodes=nodes))
    for held in (False, True):
        holder = hold(database) if held else None
        server, before = Server(database).processes, rows_of_nodes(database)
        begun, cpu, log = time.monotonic(), server.seconds(), Server(database).log_bytes()
        database.query(RENEW.format(renewals=RENEWALS, nodes=nodes))
        lasted, used, log = time.monotonic() - begun, server.seconds() - cpu, Server(database).log_bytes() - log
        time.sleep(COUNTED_S)
        after = rows_of_nodes(database)
        if holder:
            holder.kill()
            holder.wait()
        count = nodes * RENEWALS
        updates, hot = after[0] - before[0], after[1] - before[1]
        print(f"{count} renewals of {nodes} nodes{', while a transaction holds back vacuum' if held else ''}:")
        print(f"  {lasted / count * 1e6:.0f} us, {used / count * 1e6:.0f} us of processor time and {log / count:.0f} bytes of the log each")
        print(f"  {hot / max(1, updates):.0%} changed no index; the table has {after[2] / 1024:.0f} KiB (before: {before[2] / 1024:.0f}), {after[3]} dead rows", flush=True)


def notify(database, listeners):
    """Sends hints while so many sessions listen, and prints what each costs the server."""
    sessions = [session(database, stdin=subprocess.PIPE) for _ in range(listeners)]
    try:
        for one in sessions:
            one.stdin.write(b"LISTEN belay_scale;\n")
            one.stdin.flush()
        while database.query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN belay_scale%' AND state = 'idle'") != str(listeners):
            time.sleep(0.05)
        server = Server(database).processes
        cpu = server.seconds()
        database.query(NOTIFY.format(hints=HINTS))
        time.sleep(COUNTED_S)  # the listeners are behind
        used = server.seconds() - cpu
        print(f"{HINTS} hints to {listeners} nodes: {used / HINTS * 1e6:.0f} us of processor time each, {used / HINTS / listeners * 1e6:.1f} us for each listener", flush=True)
    finally:
        for one in sessions:
            one.kill()
            one.wait()
            one.stdin.close()


def session(database, *arguments, stdin=subprocess.DEVNULL):
    """A session of psql."""
    command = [program("psql"), "-h", str(database.folder), "-p", str(database.port), "-U", "belay", "-d", "belay", "-q", *arguments]
    pipes = {"stdin": stdin, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, env=database.environment(), **pipes, **database.ids())


def hold(database):
    holder = session(database, "-c", HOLD)
    while database.query("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'BEGIN ISOLATION%' AND backend_xmin IS NOT NULL") != "1":
        if holder.poll() is not None:
            raise RuntimeError("the transaction that holds back vacuum has ended")
        time.sleep(0.05)
    return holder


def rows_of_nodes(database):
    """Updates of the table of nodes so far, those that changed no index, its bytes, and its dead rows."""
    sql = "SELECT n_tup_upd, n_tup_hot_upd, pg_total_relation_size(relid), n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'belay' AND relname = 'nodes'"
    return [int(value) for value in database.query(sql).split("|")]


if __name__ == "__main__":
    sys.exit(main())
