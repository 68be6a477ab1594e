#!/usr/bin/env python3
"""Copies the only session of a database, with its thread and its run, COUNT times: `many.py DATABASE COUNT`.

The daemon has to be off. Through the API this would take minutes. Standard library only.
"""

import os
import sqlite3
import sys


def copies(database, table, count, changed):
    """Inserts copies of a row. `changed` has an expression for each column that differs; `n` is the number of the copy."""
    columns = [row[1] for row in database.execute(f"PRAGMA table_xinfo({table})") if row[6] == 0]
    values = [changed.get(column, f"first.{column}") for column in columns]
    database.execute(
        f"WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)"
        f" INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(values)} FROM numbers, (SELECT * FROM {table} LIMIT 1) AS first",
        [count],
    )


def uuid7(ms):
    """An id that begins with a time in ms, as those of runs do."""
    number = (ms << 80) | int.from_bytes(os.urandom(10), "big")
    return (number & ~(0xF << 76) & ~(0x3 << 62) | (0x7 << 76) | (0x2 << 62)).to_bytes(16, "big")


def main():
    database, count = sqlite3.connect(sys.argv[1]), int(sys.argv[2])
    database.create_function("uuid7", 1, uuid7)
    # The same bytes for the thread in both tables: its number.
    thread = "CAST(printf('%016d', n) AS BLOB)"
    name = "printf('many-%05d', n)"
    with database:
        copies(database, "sessions", count, {"session": name, "thread": thread})
        copies(database, "threads", count, {"session": name, "id": thread, "last_active_at": "first.last_active_at - n"})
        none = {"key_channel": "NULL", "key_account": "NULL", "key_message": "NULL"}
        run = {"seq": "NULL", "id": f"uuid7(first.accepted_at - {count} + n)", "session": name, "thread": thread, "accepted_at": f"first.accepted_at - {count} + n"}
        copies(database, "runs", count, {**none, **run})


if __name__ == "__main__":
    main()
