"""Prints the table of clients: for people, as Markdown for the guide, and as JSON. Standard library only."""

import json

from table.rows import COLUMNS

HEAD = ("client", "version", "API", *COLUMNS)
FACES = {"chat": "chat completions", "responses": "Responses", "both": "both", "messages": "Messages"}
GREEN, RED, PLAIN = "\033[32m", "\033[31m", "\033[0m"


def cells(row, found):
    words = [("works" if column.works else "–" if column.cannot else "fails") for column in found.values()]
    return (row.client, row.version, FACES[row.face], *words)


def notes(results):
    """What stands below the table: why a cell is not `works`. Rows of one client say once what it does not have."""
    lines = {}
    for row, found in results:
        for name, column in found.items():
            if not column.works:
                client = row.client if column.cannot else f"{row.client}, {FACES[row.face]}"
                lines[f"{client}, {name}: {' '.join(column.why.split())}"] = None
    return list(lines)


def text(results, coloured):
    """The table for a terminal, or plain for a pipe."""
    lines = [HEAD, *(cells(row, found) for row, found in results)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(HEAD))]
    colours = {"works": GREEN, "fails": RED} if coloured else {}

    def one(line):
        padded = [(word, word.ljust(width)) for word, width in zip(line, widths)]
        return "  ".join(f"{colours[word]}{shown}{PLAIN}" if word in colours else shown for word, shown in padded).rstrip()

    return "\n".join([*map(one, lines), "", *notes(results)])


def markdown(results):
    """The table of docs/guide/clients.md."""
    lines = [HEAD, ("---",) * len(HEAD), *(cells(row, found) for row, found in results)]
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", *(f"- {note}" for note in notes(results))])


def as_json(results):
    rows = []
    for row, found in results:
        judged = {name: {"works": column.works, "cannot": column.cannot, "why": column.why} for name, column in found.items()}
        rows.append({"client": row.client, "version": row.version, "api": row.face, "columns": judged})
    return json.dumps({"clients": rows}, indent=1, ensure_ascii=False)
