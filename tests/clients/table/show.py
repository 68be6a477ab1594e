"""Prints the table of clients: for people, as Markdown for the guide, and as JSON. Standard library only."""

import dataclasses
import json

from table.rows import COLUMNS

HEAD = ("client", "version", "API", *COLUMNS)
FACES = {"chat": "chat completions", "responses": "Responses", "both": "both", "messages": "Messages"}
GREEN, YELLOW, RED, PLAIN = "\033[32m", "\033[33m", "\033[31m", "\033[0m"


def word(cell):
    return "partly" if cell.partly else "works" if cell.works else "–" if cell.cannot else "fails"


def cells(row, found, beside=None):
    """A line of the table. `beside`: the cells of another program, whose word stands before an arrow where it differs."""
    words = [word(cell) for cell in found.values()]
    before = [word(cell) for cell in beside.values()] if beside else words
    changes = [now if then == now else f"{then} → {now}" for then, now in zip(before, words)]
    return (row.client, row.version, FACES[row.face], *changes)


def notes(results):
    """What stands below the table: why a cell is not `works`. Rows of one client say once what it does not have."""
    lines = {}
    for row, found, *_ in results:
        for name, column in found.items():
            if column.why:
                client = row.client if column.cannot or column.partly else f"{row.client}, {FACES[row.face]}"
                lines[f"{client}, {name}: {' '.join(column.why.split())}"] = None
    return list(lines)


def text(results, coloured):
    """The table for a terminal, or plain for a pipe."""
    lines = [HEAD, *(cells(*each) for each in results)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    colours = {"works": GREEN, "partly": YELLOW, "fails": RED} if coloured else {}

    def one(line):
        padded = [(word, word.ljust(width)) for word, width in zip(line, widths)]
        return "  ".join(f"{colours[word]}{shown}{PLAIN}" if word in colours else shown for word, shown in padded).rstrip()

    return "\n".join([*map(one, lines), "", *notes(results)])


def markdown(results):
    """The table of docs/guide/clients.md."""
    lines = [HEAD, ("---",) * len(HEAD), *(cells(*each) for each in results)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *(f"- {note}" for note in notes(results))])


def as_json(results):
    rows = []
    for row, found, *beside in results:
        one = {"client": row.client, "version": row.version, "api": row.face, "columns": judged(found)}
        rows.append({**one, "beside": judged(beside[0])} if beside else one)
    return json.dumps({"clients": rows}, indent=1, ensure_ascii=False)


def judged(found):
    return {name: dataclasses.asdict(cell) for name, cell in found.items()}
