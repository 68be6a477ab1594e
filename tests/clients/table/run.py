#!/usr/bin/env python3
"""Runs clients of the OpenAI-compatible API, with their newest versions, against a real daemon, and prints the table of what works.

    make clients    # or: tests/clients/table/run.py --belay target/debug/belay [--beside PROGRAM] [--json | --markdown] [CLIENT…]

Installs what is missing into build/client-table (2 GB). CLIENT is a mark of rows.py. Ends with 1 if a cell that should work does not.
With --beside, an older program is judged in the same run, and a cell that differs shows both: `fails → works`.
Standard library only.
"""

import argparse
import contextlib
import os
import pathlib
import sys

sys.path[:1] = [str(pathlib.Path(__file__).resolve().parents[at]) for at in (2, 1)]
from table import show  # noqa: E402
from table.judge import result  # noqa: E402
from table.rows import ROWS  # noqa: E402


def main(asked):
    marks = list(dict.fromkeys(row.mark for row in ROWS))
    if unknown := set(asked.clients) - set(marks):
        sys.exit(f"no client is called {' or '.join(sorted(unknown))}; there are: {', '.join(marks)}")
    rows = [row for row in ROWS if not asked.clients or row.mark in asked.clients]
    with contextlib.redirect_stdout(sys.stderr):  # standard output has the table alone
        programs = [asked.belay, asked.beside] if asked.beside else [asked.belay]
        results = [(row, *(result(row, program) for program in programs)) for row in rows]
    if asked.json:
        print(show.as_json(results))
    elif asked.markdown:
        print(show.markdown(results))
    else:
        print(show.text(results, coloured=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
    return int(any(not cell.works and not cell.cannot for _, found, *_ in results for cell in found.values()))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--belay", default="target/debug/belay", help="the program")
    arguments.add_argument("--beside", metavar="PROGRAM", help="an older program, which is judged too")
    arguments.add_argument("--json", action="store_true")
    arguments.add_argument("--markdown", action="store_true", help="the table of docs/guide/clients.md")
    arguments.add_argument("clients", nargs="*", metavar="CLIENT")
    sys.exit(main(arguments.parse_args()))
