"""Judges one row of the table with daemons of its own: the lines of the guide, then the script of the row. Standard library only."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess
import tempfile

from belay_process import Belay
from gate.install import CHROMIUM_PACKAGE, chromium_program

from table import guide, samples
from table.model import Model
from table.places import place_of
from table.rows import COLUMNS, RECORDED, REHEARSED, ROWS

TOKEN = "token-of-the-client-table"
# What the lines of the guide print for each face.
RESULT = "391"
# Generous: the slowest client starts for ten seconds on an idle machine.
LIMIT_S = 600
# Language of a block in the guide → the suffix of its file, and its program where that is not the one of the scripts.
LANGUAGES = {"python": (".py", None), "js": (".mjs", None), "sh": (".sh", "bash")}


@dataclasses.dataclass(frozen=True)
class Cell:
    """What a client does in one column."""

    # As far as the client has what the column means, if `partly`.
    works: bool
    partly: bool = False
    # It is known that it cannot work.
    cannot: bool = False
    why: str = ""


def result(row, binary):
    """Column → cell. Installs what is missing."""
    try:
        place = place_of(row)
    except (OSError, subprocess.SubprocessError) as why:
        return {column: Cell(False, why=f"it cannot be installed: {why}") for column in COLUMNS}
    print(f"{row.client} {row.version}, {row.face}: {binary}", flush=True)
    cells = {}
    with contextlib.closing(Model()) as model:
        scripted = {"llm.provider": "openai", "llm.base_url": f"{model.url}/v1", "llm.model": "scripted", "llm.vision": "true"}
        for columns, settings in ((REHEARSED, {"llm.provider": "rehearsal"}), (RECORDED, scripted)):
            with tempfile.TemporaryDirectory(prefix="belay-client-") as home, Belay(binary, settings, {"BELAY_TOKEN": TOKEN}) as belay:
                cells |= judged(row, place, pathlib.Path(home), belay.url, columns)
    return cells


def judged(row, place, home, url, columns):
    """Column → cell, for these columns, by the daemon at `url`."""
    language, text = guide.lines_for(row.mark, url, TOKEN)
    suffix, program = LANGUAGES[language]
    # Node looks for packages beside the file.
    lines = (place.scripts if suffix == ".mjs" else home) / f"hello-{row.mark}{suffix}"
    lines.write_text(text, encoding="utf-8")
    samples.write(home)
    browser = {"BELAY_CHROMIUM": chromium_program() or CHROMIUM_PACKAGE} if row.serves else {}
    variables = {"BELAY_URL": url, "BELAY_TOKEN": TOKEN, "BELAY_LINES": str(lines), "BELAY_COLUMNS": " ".join(columns)}
    environment = place.environment(home, {**variables, **browser})
    found, greeting = {}, [program or place.interpreter, str(lines)]
    if "hello" in columns and not row.serves:
        found["hello"] = greeted(row, greeting, environment, home)
    elif language == "sh":  # the lines of a command configure it
        carried_out(greeting, environment, home)
    command = [place.interpreter, str(place.scripts / row.script), row.argument or row.face]
    printed, errors = carried_out(command, environment, home)
    for line in printed.splitlines():
        if line.startswith('{"column"'):
            told = json.loads(line)
            found[told["column"]] = Cell(told["why"] is None, why=told["why"] or "")
    cells = {column: cell_of(row, column, found, errors) for column in columns}
    if any(not cell.works and not cell.cannot for cell in cells.values()):
        print(f"{printed}{errors}", flush=True)
    return cells


def greeted(row, command, environment, home):
    """Runs the lines of the guide. They print an answer for each row of the client."""
    printed, errors = carried_out(command, environment, home)
    if printed.count(RESULT) >= sum(other.mark == row.mark for other in ROWS):
        return Cell(True)
    return Cell(False, why=f"the lines of the guide printed {printed[-300:]!r} {last_line(errors)}")


def carried_out(command, environment, home):
    """What a program printed, and its standard error. One that does not end is killed."""
    try:
        done = subprocess.run(command, env=environment, cwd=home, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return "", f"{command[1]} did not end within {LIMIT_S} s"
    return done.stdout, done.stderr


def cell_of(row, column, found, errors):
    if column in found:
        why = row.partly.get(column, "") if found[column].works else ""
        return dataclasses.replace(found[column], partly=True, why=why) if why else found[column]
    if why := row.cannot.get(column):
        return Cell(False, cannot=True, why=why)
    return Cell(False, why=f"{row.script} says nothing about it: {last_line(errors)}")


def last_line(text):
    return next((line for line in reversed(text.splitlines()) if line.strip()), "")
